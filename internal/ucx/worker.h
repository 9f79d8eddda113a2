// A worker moves the bytes of one connection. It has a thread with a UCX context,
// worker and endpoint, a queue of posted transfers, and the messages that confirm
// delivery. UCX is called on that thread only. The thread does not belong to the Go
// runtime: a Go thread that stays in C makes the runtime check it many thousand times a
// second, on a core that the transfer may need.
#ifndef KVB_WORKER_H
#define KVB_WORKER_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvb_worker kvb_worker;

// The UCX operations that move a transfer's bytes.
enum { KVB_PUT = 1, KVB_AM = 2, KVB_GET = 3 };

// The kinds of events.
enum {
	KVB_LOCAL = 1,    // a write's source may be reused
	KVB_DELIVERED,    // every byte is visible at its destination
	KVB_FAILED,       // the transfer failed; see status
	KVB_WRITTEN,      // the peer's write is in place at this side
	KVB_READ,         // the peer's read is complete
	KVB_GREETED,      // the peer's greeting has arrived
	KVB_ENDED,        // the endpoint failed; see status
	KVB_VIOLATION,    // the peer broke the protocol
	KVB_BROKEN,       // a UCX call aborted; the worker does nothing any more
	KVB_IDLE,         // after kvb_stop: UCX holds nothing
};

struct kvb_event {
	int64_t at;      // ns, CLOCK_MONOTONIC
	uint64_t id;     // the transfer's ID, chosen by the initiator
	uint64_t bytes;
	uint32_t slot;
	int32_t status;  // ucs_status_t
	uint32_t kind;
	uint32_t look;   // the low half of the worker's looks when it happened
};

// Events on their way to the reader, which takes them without a call. put and taken
// count all events and wrap around. Each has its own cache line.
enum { KVB_RING = 1024 };
struct kvb_ring {
	uint32_t put;        // by the worker
	uint32_t unused[15];
	uint32_t taken;      // by the reader
	uint32_t listening;  // the reader waits: the worker must write the ring's eventfd once
	uint32_t unused2[14];
	struct kvb_event events[KVB_RING];
};

// A piece of a transfer. local is an address. remote is an address for put and get, and
// an offset in the peer's region for active messages.
struct kvb_piece {
	uint64_t local, remote, length;
};

struct kvb_setting {
	const char *name, *value;
};

struct kvb_options {
	const struct kvb_setting *settings;  // UCX configuration
	size_t setting_count;
	uint32_t slots;       // transfers outstanding at a time, of either side
	uint32_t window;      // operations handed to UCX and not complete at a time
	int peer_errors;      // ask UCX to notice that the peer is gone
	int64_t spin;         // ns to look for something to do before sleeping
	int64_t nap;          // ns that a sleep lasts at most; 0: 100 ms
	const int *processors;  // that the thread is to keep to, if they are this process's
	size_t processor_count; // 0: any
	uintptr_t bind, bind_to; // int (*)(uintptr_t), which binds the thread to a CUDA context; 0: none
};

// What a worker's thread has done since it started.
struct kvb_counts {
	uint64_t looks;  // times that it gave UCX a few turns
	uint64_t dozes;  // sleeps that have begun
	uint64_t naps;   // sleeps that lasted until their time was over
};

struct kvb_memory {
	void *handle;        // for kvb_unmap and kvb_slot_fill
	void *start;
	void *key;           // for the peer's kvb_import; freed by kvb_key_free
	size_t key_size;
};

// A returned status is a ucs_status_t, 0 for success. On failure *what is the name of
// the failed call. Functions that take a worker wait for its thread and must be called
// one at a time, unless documented otherwise.
int kvb_worker_new(const struct kvb_options *options, kvb_worker **worker, const char **what);

// kvb_worker_ring returns the ring of events, and in fd the eventfd that wakes a
// listening reader. The reader must close fd after the thread has ended.
struct kvb_ring *kvb_worker_ring(kvb_worker *w, int *fd);
// kvb_worker_placed reports whether the thread keeps to the given CPUs.
int kvb_worker_placed(kvb_worker *w);
// kvb_worker_address returns the address for the peer's kvb_worker_connect. The caller
// must free it.
int kvb_worker_address(kvb_worker *w, void **address, size_t *size);
int kvb_worker_connect(kvb_worker *w, const void *address);

// kvb_greet sends the peer a greeting, which arrives as KVB_GREETED. Once each side has
// the other's greeting, UCX has finished connecting them.
void kvb_greet(kvb_worker *w);

// kvb_stop stops posting. Nothing after it becomes an event, except KVB_IDLE. UCX's
// operations in flight continue, and the peer is still answered. kvb_stop returns 1 if
// the ring has no room for all earlier events. Then the caller must take events and
// call it again. kvb_settle gives UCX a few turns to finish the operations that do not
// need the peer, and reports whether UCX then holds nothing.
int kvb_stop(kvb_worker *w);
int kvb_settle(kvb_worker *w);

// kvb_worker_disconnect ends the endpoint of a stopped worker. After it no memory is
// accessed. The worker must be idle or have peer_errors, because UCX aborts the process
// if an endpoint ends with data to send and no error handling. It returns 0 if UCX does
// not end the endpoint within a second, or is broken. Then only kvb_worker_abandon,
// kvb_unmap and the calls allowed after them may follow. After success the thread still
// answers the peer, which may need that to end its endpoint.
int kvb_worker_disconnect(kvb_worker *w);

// kvb_worker_abandon frees the keys of the peer's memory instead of
// kvb_worker_disconnect, if the peer is gone. Only kvb_unmap and kvb_worker_free or
// kvb_worker_retire may follow.
void kvb_worker_abandon(kvb_worker *w);

// kvb_worker_free ends the thread and frees a worker with no mapped memory. In an
// abandoned worker it also frees UCX's open operations: without peer_errors UCX does
// that without a message to the peer. It returns 0 if UCX has aborted, before the call
// or in it; then it acted as kvb_worker_retire. No call may follow.
int kvb_worker_free(kvb_worker *w);

// kvb_worker_retire ends the thread instead of kvb_worker_free, and leaves the rest of
// the worker until the process ends. No call may follow.
void kvb_worker_retire(kvb_worker *w);

// kvb_map registers memory, or allocates it if address is 0. type is a
// ucs_memory_type_t.
int kvb_map(kvb_worker *w, uint64_t address, uint64_t length, uint32_t type, struct kvb_memory *memory);
void kvb_key_free(void *key);
int kvb_unmap(kvb_worker *w, void *handle);

// Regions that active messages may write to, by number. handle is the memory's handle
// from kvb_map.
void kvb_region_open(kvb_worker *w, uint32_t number, uint64_t address, uint64_t length, void *handle);
void kvb_region_close(kvb_worker *w, uint32_t number);

int kvb_import(kvb_worker *w, const void *key, void **remote);
// kvb_direct reports whether the CPU can store to the peer's memory.
int kvb_direct(kvb_worker *w, void *remote, uint64_t address);

// These functions return at once. kvb_slot_pieces returns an array for count pieces, or
// NULL. kvb_slot_pieces and kvb_slot_fill need a slot that is not submitted.
struct kvb_piece *kvb_slot_pieces(kvb_worker *w, uint32_t slot, uint32_t count);
void kvb_slot_fill(kvb_worker *w, uint32_t slot, uint32_t op, uint64_t id, uint64_t bytes, uint32_t count, void *handle, uint32_t type, void *remote, uint32_t region);
void kvb_slot_submit(kvb_worker *w, uint32_t slot);

// These functions also return at once. kvb_wake makes the thread check for work.
void kvb_wake(kvb_worker *w);
uint64_t kvb_moved(kvb_worker *w);  // grows while anything moves
struct kvb_counts kvb_worker_counts(kvb_worker *w);

// kvb_describe returns UCX's description of the endpoint, or NULL. The caller must free
// it.
char *kvb_describe(kvb_worker *w);

// kvb_survey returns UCX's description of this host's lanes, without the restrictions
// of the environment, or NULL. The caller must free it.
char *kvb_survey(void);

// kvb_memory_types sets *types to the memory types that UCX supports with these
// settings: bit 1 << type of each ucs_memory_type_t. See kvb_worker_new for what.
int kvb_memory_types(const struct kvb_setting *settings, size_t count, uint64_t *types, const char **what);

int64_t kvb_now(void);

#endif
