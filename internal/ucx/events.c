//go:build ucx && cgo && linux

#include "events.h"
#include "must.h"

#include <stdlib.h>
#include <sys/eventfd.h>

int kvb_events_init(struct kvb_events *e)
{
	e->capacity = 64;
	e->queue = must(malloc(e->capacity * sizeof *e->queue));
	e->ring = must(calloc(1, sizeof *e->ring));
	e->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return e->fd < 0 ? -1 : 0;
}

void kvb_events_free(struct kvb_events *e)
{
	free(e->queue);
	free(e->ring);
}

static void grow(struct kvb_events *e)
{
	uint32_t capacity = e->capacity * 2;
	struct kvb_event *bigger = must(malloc(capacity * sizeof *bigger));
	for (uint32_t i = 0; i < e->count; i++) {
		bigger[i] = e->queue[(e->first + i) % e->capacity];
	}
	free(e->queue);
	e->queue = bigger;
	e->first = 0;
	e->capacity = capacity;
}

void kvb_events_put(struct kvb_events *e, struct kvb_event event)
{
	if (e->count == e->capacity) {
		grow(e);
	}
	e->queue[(e->first + e->count++) % e->capacity] = event;
}

int64_t kvb_events_oldest(const struct kvb_events *e)
{
	return e->queue[e->first].at;
}

int kvb_events_hand_over(struct kvb_events *e)
{
	struct kvb_ring *r = e->ring;
	uint32_t put = r->put, taken = __atomic_load_n(&r->taken, __ATOMIC_ACQUIRE);
	while (e->count > 0 && put - taken < KVB_RING) {
		r->events[put++ % KVB_RING] = e->queue[e->first];
		e->first = (e->first + 1) % e->capacity;
		e->count--;
	}
	if (put != r->put) {
		__atomic_store_n(&r->put, put, __ATOMIC_SEQ_CST);
		if (__atomic_exchange_n(&r->listening, 0, __ATOMIC_SEQ_CST)) {
			eventfd_write(e->fd, 1);  // if the counter is full, fd is readable anyway
		}
	}
	return e->count == 0;
}
