// What happened to a worker, on its way to the reader: a queue that always has room,
// then the ring, which the reader takes from without a call. A worker never waits for
// its reader in the middle of a callback of UCX's; it does between two rounds.
#ifndef KVB_EVENTS_H
#define KVB_EVENTS_H

#include "worker.h"

struct kvb_events {
	// The reader's too. It takes from the ring, and closes fd once the thread has ended.
	struct kvb_ring *ring;
	int fd;  // eventfd that tells a listening reader of events

	// The worker's thread's alone: those that are not in the ring yet, oldest first.
	struct kvb_event *queue;  // a ring, too
	uint32_t count, first, capacity;
};

// kvb_events_init returns 0, or -1 where there is no eventfd to be had. The events are
// to be freed either way.
int kvb_events_init(struct kvb_events *e);
// kvb_events_free leaves fd to the reader, who has no use for the ring any more.
void kvb_events_free(struct kvb_events *e);

// The rest is for the worker's thread.

void kvb_events_put(struct kvb_events *e, struct kvb_event event);

// kvb_events_oldest is when the first event in the queue, which must have one, happened.
int64_t kvb_events_oldest(const struct kvb_events *e);

// kvb_events_hand_over moves events to the ring, and rings where the reader listens. It
// reports whether there was room for all.
int kvb_events_hand_over(struct kvb_events *e);

#endif
