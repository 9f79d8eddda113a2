/* Streams, events and copies. Each stream has a thread that does its work late,
 * so that code which does not wait for it sees old bytes. */
#define _GNU_SOURCE
#include "double.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct event {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	unsigned flags;
	uint64_t recorded, done;
	struct timespec at;
};

/* work is one entry of a stream's queue: a copy, or an event to mark. */
struct work {
	struct work *next;
	CUevent event;
	uint64_t record;
	int dst_device, src_device;
	uintptr_t dst, src;
	size_t n;
};

struct stream {
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t changed;
	struct work *first, **last;
	int busy, stop;
	long debt_ns; /* time that copies were too fast by: the thread's */
};

/* sticky is an error of the device's, which every later wait returns. */
static CUresult sticky;

static CUresult failed(void) { return __atomic_load_n(&sticky, __ATOMIC_SEQ_CST); }

static void mark(CUevent e, uint64_t record)
{
	pthread_mutex_lock(&e->mu);
	e->done = record;
	clock_gettime(CLOCK_MONOTONIC, &e->at);
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->mu);
}

/* trace notes a copy that ends now. */
static void trace(struct timespec from)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	dprintf(settings.trace, "%d %lld %lld\n", getpid(), from.tv_sec * 1000000000LL + from.tv_nsec, now.tv_sec * 1000000000LL + now.tv_nsec);
}

static long since_ns(struct timespec from)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec;
}

/* MOST_CREDIT is how much of a nap that took too long the next copies may be faster by. */
#define MOST_CREDIT 200000L

/* settle sleeps off the debt, once that is worth it. */
static void settle(CUstream s, long least)
{
	if (s->debt_ns <= least)
		return;
	struct timespec from, nap = {s->debt_ns / 1000000000L, s->debt_ns % 1000000000L};
	clock_gettime(CLOCK_MONOTONIC, &from);
	nanosleep(&nap, NULL);
	s->debt_ns -= since_ns(from);
	if (s->debt_ns < -MOST_CREDIT)
		s->debt_ns = -MOST_CREDIT;
}

static void execute(CUstream s, struct work *w)
{
	if (w->event) {
		settle(s, 0);
		mark(w->event, w->record);
		return;
	}
	while (settings.hold && access(settings.hold, F_OK) == 0)
		usleep(1000);
	struct timespec from;
	clock_gettime(CLOCK_MONOTONIC, &from);
	CUresult result = copy(w->dst_device, w->dst, w->src_device, w->src, w->n);
	if (result != SUCCESS)
		__atomic_store_n(&sticky, result, __ATOMIC_SEQ_CST);
	if (settings.copy_rate && w->dst_device != w->src_device) {
		long early = (long)((double)w->n / (double)settings.copy_rate * 1e9) - since_ns(from);
		s->debt_ns += early > 0 ? early : 0; /* a copy that was held up earns nothing */
		settle(s, 1000000);
	}
	if (settings.trace >= 0)
		trace(from);
}

static void *serve(void *arg)
{
	CUstream s = arg;
	int idle = 1;
	pthread_mutex_lock(&s->mu);
	for (;;) {
		while (!s->first && !s->stop) {
			idle = 1;
			s->busy = 0;
			pthread_cond_broadcast(&s->changed);
			pthread_cond_wait(&s->changed, &s->mu);
		}
		if (!s->first)
			break;
		struct work *w = s->first;
		s->first = w->next;
		if (!s->first)
			s->last = &s->first;
		int last = !s->first;
		s->busy = 1;
		pthread_mutex_unlock(&s->mu);
		if (idle)
			usleep((useconds_t)settings.delay_us);
		execute(s, w);
		/* Whoever waits for an event may add work before this thread looks again. */
		idle = w->event && last;
		free(w);
		pthread_mutex_lock(&s->mu);
	}
	s->busy = 0;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mu);
	return NULL;
}

static void enqueue(CUstream s, struct work w)
{
	struct work *copy = malloc(sizeof w);
	*copy = w;
	copy->next = NULL;
	pthread_mutex_lock(&s->mu);
	*s->last = copy;
	s->last = &copy->next;
	s->busy = 1;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mu);
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	ENTER_WITH_CONTEXT("cuStreamCreate");
	if (flags > 1)
		return INVALID_VALUE;
	CUstream s = calloc(1, sizeof *s);
	pthread_mutex_init(&s->mu, NULL);
	pthread_cond_init(&s->changed, NULL);
	s->last = &s->first;
	/* The host program's signals are not for this thread. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = pthread_create(&s->thread, NULL, serve, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return OUT_OF_MEMORY;
	*out = s;
	return SUCCESS;
}

CUresult cuStreamSynchronize(CUstream s)
{
	ENTER_WITH_CONTEXT("cuStreamSynchronize");
	if (!s)
		return INVALID_HANDLE;
	pthread_mutex_lock(&s->mu);
	while (s->first || s->busy)
		pthread_cond_wait(&s->changed, &s->mu);
	pthread_mutex_unlock(&s->mu);
	return failed();
}

CUresult cuStreamDestroy_v2(CUstream s)
{
	ENTER_WITH_CONTEXT("cuStreamDestroy_v2");
	if (!s)
		return INVALID_HANDLE;
	pthread_mutex_lock(&s->mu);
	s->stop = 1;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mu);
	pthread_join(s->thread, NULL);
	free(s);
	return SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	ENTER_WITH_CONTEXT("cuEventCreate");
	if (flags & ~7u)
		return INVALID_VALUE;
	CUevent e = calloc(1, sizeof *e);
	pthread_mutex_init(&e->mu, NULL);
	pthread_cond_init(&e->changed, NULL);
	e->flags = flags;
	*out = e;
	return SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent e)
{
	ENTER_WITH_CONTEXT("cuEventDestroy_v2");
	if (!e)
		return INVALID_HANDLE;
	free(e);
	return SUCCESS;
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
	ENTER_WITH_CONTEXT("cuEventRecord");
	if (!e || !s)
		return INVALID_HANDLE;
	pthread_mutex_lock(&e->mu);
	uint64_t record = ++e->recorded;
	pthread_mutex_unlock(&e->mu);
	enqueue(s, (struct work){.event = e, .record = record});
	return SUCCESS;
}

CUresult cuEventQuery(CUevent e)
{
	ENTER_WITH_CONTEXT("cuEventQuery");
	if (!e)
		return INVALID_HANDLE;
	pthread_mutex_lock(&e->mu);
	int done = e->done == e->recorded;
	pthread_mutex_unlock(&e->mu);
	return done ? failed() : NOT_READY;
}

CUresult cuEventSynchronize(CUevent e)
{
	ENTER_WITH_CONTEXT("cuEventSynchronize");
	if (!e)
		return INVALID_HANDLE;
	pthread_mutex_lock(&e->mu);
	while (e->done != e->recorded)
		pthread_cond_wait(&e->changed, &e->mu);
	pthread_mutex_unlock(&e->mu);
	return failed();
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	ENTER("cuEventElapsedTime");
	if (!start || !end || !start->recorded || !end->recorded || (start->flags | end->flags) & 2)
		return INVALID_HANDLE;
	if (start->done != start->recorded || end->done != end->recorded)
		return NOT_READY;
	*ms = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
		      (double)(end->at.tv_nsec - start->at.tv_nsec) / 1e6);
	return SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	ENTER_WITH_CONTEXT("cuMemcpyHtoDAsync_v2");
	if (!s || !mapped(dst, n))
		return INVALID_VALUE;
	enqueue(s, (struct work){.dst_device = 1, .dst = dst, .src = (uintptr_t)src, .n = n});
	return SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER_WITH_CONTEXT("cuMemcpyDtoHAsync_v2");
	if (!s || !mapped(src, n))
		return INVALID_VALUE;
	enqueue(s, (struct work){.dst = (uintptr_t)dst, .src_device = 1, .src = src, .n = n});
	return SUCCESS;
}

static CUresult device_copy(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	if (!s || !mapped(dst, n) || !mapped(src, n) || overlap(dst, src, n))
		return INVALID_VALUE;
	enqueue(s, (struct work){.dst_device = 1, .dst = dst, .src_device = 1, .src = src, .n = n});
	return SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER_WITH_CONTEXT("cuMemcpyDtoDAsync_v2");
	return device_copy(dst, src, n, s);
}

#ifndef OLD_DRIVER

/* one_of_batch tells host memory from device memory by the address, as unified
 * addressing does. */
static CUresult one_of_batch(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	int to = mapped(dst, n), from = mapped(src, n);
	if (!s || !n || (!to && !pinned(dst, n)) || (!from && !pinned(src, n)) || (to && from && overlap(dst, src, n)))
		return INVALID_VALUE;
	enqueue(s, (struct work){.dst_device = to, .dst = dst, .src_device = from, .src = src, .n = n});
	return SUCCESS;
}

typedef struct {
	int type, id;
} CUmemLocation;

typedef struct {
	int order;
	CUmemLocation src, dst;
	unsigned flags;
} CUmemcpyAttributes;

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	CUmemcpyAttributes *attributes, size_t *indexes, size_t kinds, size_t *fail, CUstream s)
{
	ENTER_WITH_CONTEXT("cuMemcpyBatchAsync");
	if (!count || kinds != 1 || indexes[0] != 0 || attributes[0].order < 1 || attributes[0].order > 3)
		return INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = one_of_batch(dsts[i], srcs[i], sizes[i], s);
		if (result != SUCCESS) {
			*fail = i;
			return result;
		}
	}
	return SUCCESS;
}

#endif
