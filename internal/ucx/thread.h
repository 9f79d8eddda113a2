// The thread of a worker. It runs calls for other threads, one at a time, and between
// them the worker's rounds, which sleep if there is nothing to do. It does not use UCX,
// and only passes the worker on.
#ifndef KVB_THREAD_H
#define KVB_THREAD_H

#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

// kvb_call is a call to run on the thread.
typedef void kvb_call(kvb_worker *w, void *arg);

struct kvb_thread {
	// Set before the thread starts, and then only read.
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

	// For the thread only.
	int leaving;  // the thread must end
};

// kvb_thread_init returns 0, or -1 if it gets no eventfd. The caller must free the
// thread in both cases.
int kvb_thread_init(struct kvb_thread *t, kvb_worker *w, void (*round)(kvb_worker *w));
// kvb_thread_start starts the thread, which calls round repeatedly. It returns 0, or -1
// if the thread cannot be created.
int kvb_thread_start(struct kvb_thread *t);
// kvb_thread_end ends the thread and waits for its end.
void kvb_thread_end(struct kvb_thread *t);
// kvb_thread_free must be called before kvb_thread_start or after kvb_thread_end.
void kvb_thread_free(struct kvb_thread *t);

// kvb_thread_do runs f on the thread and waits for its end. Only one caller at a time
// is allowed.
void kvb_thread_do(struct kvb_thread *t, kvb_call *f, void *arg);

// kvb_thread_wake ends the current doze, or the next one. Any thread may call it, and
// it returns at once.
void kvb_thread_wake(struct kvb_thread *t);

// Only the thread may call the functions below.

// kvb_thread_woken reports whether kvb_thread_wake was called since the last time.
int kvb_thread_woken(struct kvb_thread *t);

// kvb_thread_doze sleeps until kvb_thread_wake is called, fd can be read if it is not
// -1, or that many ns are over.
void kvb_thread_doze(struct kvb_thread *t, int fd, int64_t sleep);

#endif
