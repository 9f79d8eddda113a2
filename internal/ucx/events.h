// Events on their way from the worker to the reader: first a queue that always has
// room, then a ring, from which the reader takes events without a call. A worker never
// waits for its reader inside a callback of UCX, only between two rounds.
#ifndef KVB_EVENTS_H
#define KVB_EVENTS_H

#include "worker.h"

struct kvb_events {
	// Shared with the reader, which takes events from the ring, and closes fd after the
	// thread has ended.
	struct kvb_ring *ring;
	int fd;  // eventfd that wakes a listening reader

	// For the worker's thread only: the events that are not in the ring yet, oldest
	// first.
	struct kvb_event *queue;  // also a ring
	uint32_t count, first, capacity;
};

// kvb_events_init returns 0, or -1 if it gets no eventfd. The caller must free the
// events in both cases.
int kvb_events_init(struct kvb_events *e);
// kvb_events_free leaves fd open for the reader, which does not use the ring any more.
void kvb_events_free(struct kvb_events *e);

// Only the worker's thread calls the functions below.

void kvb_events_put(struct kvb_events *e, struct kvb_event event);

// kvb_events_oldest returns the time of the first event in the queue, which must not be
// empty.
int64_t kvb_events_oldest(const struct kvb_events *e);

// kvb_events_hand_over moves events to the ring, and writes fd if the reader listens.
// It returns 1 if the ring had room for all, and 0 if not.
int kvb_events_hand_over(struct kvb_events *e);

#endif
