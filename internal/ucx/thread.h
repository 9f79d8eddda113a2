// The thread of a worker: it does what other threads ask of it, one at a time, and
// between that the worker's own rounds, which sleep where there is nothing to do. It
// knows nothing of UCX, and passes the worker on without a look inside.
#ifndef KVB_THREAD_H
#define KVB_THREAD_H

#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

// kvb_call is something to do on the thread.
typedef void kvb_call(kvb_worker *w, void *arg);

struct kvb_thread {
	// Set before the thread starts, and only read after.
	kvb_worker *worker;
	void (*round)(kvb_worker *w);
	int wake_fd;  // eventfd
	pthread_t id;

	// Any thread's.
	pthread_mutex_t lock;  // of asked's done
	pthread_cond_t done;   // signalled with it
	struct asked *_Atomic asked;  // what the thread has not begun; NULL: nothing
	atomic_int wake;       // there is something to look for
	atomic_int asleep;     // a wake-up needs wake_fd
	atomic_ullong dozes;   // sleeps that have begun
	atomic_ullong naps;    // sleeps that lasted until their time was over

	// The thread's own.
	int leaving;  // it is to end
};

// kvb_thread_init returns 0, or -1 where there is no eventfd to be had. The thread is to
// be freed either way.
int kvb_thread_init(struct kvb_thread *t, kvb_worker *w, void (*round)(kvb_worker *w));
// kvb_thread_start begins to call round, over and over. It returns 0, or -1 where there
// is no thread to be had.
int kvb_thread_start(struct kvb_thread *t);
// kvb_thread_end has the thread end, and waits for that.
void kvb_thread_end(struct kvb_thread *t);
// kvb_thread_free is for one that was not started or has ended.
void kvb_thread_free(struct kvb_thread *t);

// kvb_thread_do has the thread do something, and waits for it. One caller at a time.
void kvb_thread_do(struct kvb_thread *t, kvb_call *f, void *arg);

// kvb_thread_wake ends a doze, or the next one. It returns at once, whoever calls.
void kvb_thread_wake(struct kvb_thread *t);

// The rest is for the thread itself.

// kvb_thread_woken reports whether kvb_thread_wake was called since the last time.
int kvb_thread_woken(struct kvb_thread *t);

// kvb_thread_doze sleeps until kvb_thread_wake is called, fd can be read if it is not
// -1, or that many ns are over.
void kvb_thread_doze(struct kvb_thread *t, int fd, int64_t sleep);

#endif
