//go:build ucx && cgo && linux

#define _GNU_SOURCE
#include "thread.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

// asked is a call that another thread waits for. It lies on the waiting thread's stack.
struct asked {
	kvb_call *f;
	void *arg;
	int done;
};

void kvb_thread_do(struct kvb_thread *t, kvb_call *f, void *arg)
{
	struct asked a = {f, arg};
	pthread_mutex_lock(&t->lock);
	atomic_store(&t->asked, &a);
	kvb_thread_wake(t);
	while (!a.done) {
		pthread_cond_wait(&t->done, &t->lock);
	}
	pthread_mutex_unlock(&t->lock);
}

// answer makes the waiting call, if there is one.
static void answer(struct kvb_thread *t)
{
	struct asked *a = atomic_load(&t->asked);
	if (a == NULL) {
		return;
	}
	atomic_store(&t->asked, NULL);
	a->f(t->worker, a->arg);
	pthread_mutex_lock(&t->lock);
	a->done = 1;
	pthread_cond_signal(&t->done);
	pthread_mutex_unlock(&t->lock);
}

static void *serve(void *arg)
{
	struct kvb_thread *t = arg;
	for (;;) {
		answer(t);
		if (t->leaving) {
			return NULL;
		}
		t->round(t->worker);
	}
}

int kvb_thread_init(struct kvb_thread *t, kvb_worker *w, void (*round)(kvb_worker *w))
{
	t->worker = w;
	t->round = round;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->done, NULL);
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return t->wake_fd < 0 ? -1 : 0;
}

int kvb_thread_start(struct kvb_thread *t)
{
	// Signals belong to the threads of the Go runtime, except those that a thread
	// raises in its own code.
	sigset_t all, before;
	sigfillset(&all);
	const int own[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		sigdelset(&all, own[i]);
	}
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&t->id, NULL, serve, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed ? -1 : 0;
}

static void leave(kvb_worker *w, void *arg)
{
	struct kvb_thread *t = arg;
	t->leaving = 1;
}

void kvb_thread_end(struct kvb_thread *t)
{
	kvb_thread_do(t, leave, t);
	pthread_join(t->id, NULL);
}

void kvb_thread_free(struct kvb_thread *t)
{
	if (t->wake_fd >= 0) {
		close(t->wake_fd);
	}
	pthread_cond_destroy(&t->done);
	pthread_mutex_destroy(&t->lock);
}

void kvb_thread_wake(struct kvb_thread *t)
{
	atomic_store(&t->wake, 1);
	if (atomic_load(&t->asleep)) {
		eventfd_write(t->wake_fd, 1);  // if the counter is full, wake_fd is readable anyway
	}
}

int kvb_thread_woken(struct kvb_thread *t)
{
	return atomic_exchange(&t->wake, 0);
}

void kvb_thread_doze(struct kvb_thread *t, int fd, int64_t sleep)
{
	atomic_store(&t->asleep, 1);
	if (!atomic_load(&t->wake)) {
		struct pollfd fds[2] = {{.fd = t->wake_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
		struct timespec limit = {.tv_sec = sleep / 1000000000, .tv_nsec = sleep % 1000000000};
		atomic_fetch_add(&t->dozes, 1);
		if (ppoll(fds, fd >= 0 ? 2 : 1, &limit, NULL) == 0) {
			atomic_fetch_add(&t->naps, 1);
		}
	}
	atomic_store(&t->asleep, 0);
	eventfd_t count;
	eventfd_read(t->wake_fd, &count);  // usually empty
}
