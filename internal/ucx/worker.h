// A worker moves the bytes of one connection: a thread with a UCX context, worker and
// endpoint of its own, a queue of posted transfers, and the messages by which delivery
// becomes known. UCX is called on that thread only. The thread is not one of the Go
// runtime's: one that stays in C keeps the runtime looking after it, many thousand
// times a second, on a core that the transfer may need.
#ifndef KVB_WORKER_H
#define KVB_WORKER_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvb_worker kvb_worker;

// How a transfer's bytes are moved.
enum { KVB_PUT = 1, KVB_AM = 2, KVB_GET = 3 };

// What happened.
enum {
	KVB_LOCAL = 1,    // a write's source may be reused
	KVB_DELIVERED,    // every byte is visible at its destination
	KVB_FAILED,       // the transfer came to nothing; status says why
	KVB_WRITTEN,      // the peer's write is in place here
	KVB_READ,         // the peer has read what it asked for
	KVB_GREETED,      // the peer's greeting came
	KVB_ENDED,        // the endpoint failed; status says why
	KVB_VIOLATION,    // the peer sent what the protocol does not allow
	KVB_BROKEN,       // UCX gave up; the worker does nothing any more
	KVB_IDLE,         // after kvb_stop: UCX holds nothing
};

struct kvb_event {
	int64_t at;      // ns, CLOCK_MONOTONIC
	uint64_t id;     // the transfer's name, chosen by the initiator
	uint64_t bytes;
	uint32_t slot;
	int32_t status;  // ucs_status_t
	uint32_t kind;
	uint32_t look;   // the low half of the worker's looks when it happened
};

// Events on their way to the reader, which takes them without a call. Both numbers
// count from the beginning and around; each has a cache line to itself.
enum { KVB_RING = 1024 };
struct kvb_ring {
	uint32_t put;        // by the worker
	uint32_t unused[15];
	uint32_t taken;      // by the reader
	uint32_t listening;  // the reader waits: the worker is to write to the ring's file descriptor once
	uint32_t unused2[14];
	struct kvb_event events[KVB_RING];
};

// A piece of a transfer. local is an address; remote is an address for put and
// get, and an offset in the peer's region for active messages.
struct kvb_piece {
	uint64_t local, remote, length;
};

struct kvb_setting {
	const char *name, *value;
};

struct kvb_options {
	const struct kvb_setting *settings;  // of UCX's configuration
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
	void *key;           // what the peer needs, until kvb_key_free
	size_t key_size;
};

// A status is a ucs_status_t, 0 for success. Setting what failed, if not NULL, to
// the name of the call. Functions that take a worker wait for its thread, one caller
// at a time, unless they say otherwise.
int kvb_worker_new(const struct kvb_options *options, kvb_worker **worker, const char **what);

// kvb_worker_ring returns where events are put, and the eventfd that tells a listening
// reader of them. The reader closes it once the thread has ended.
struct kvb_ring *kvb_worker_ring(kvb_worker *w, int *fd);
// kvb_worker_placed reports whether the thread keeps to the processors it was given.
int kvb_worker_placed(kvb_worker *w);
// kvb_worker_address returns what the peer's kvb_worker_connect needs, to be freed.
int kvb_worker_address(kvb_worker *w, void **address, size_t *size);
int kvb_worker_connect(kvb_worker *w, const void *address);

// kvb_greet sends the peer a greeting, which it has as KVB_GREETED. Once each side
// has the other's, UCX has finished connecting them.
void kvb_greet(kvb_worker *w);

// kvb_stop posts no more, and nothing that happens after it is an event, but KVB_IDLE.
// What UCX holds goes on, and the peer is answered. It reports whether the ring has no
// room for what happened before: then take from it and call again. kvb_settle lets UCX
// have a few turns to end what ends without the peer, and reports whether it holds
// nothing.
int kvb_stop(kvb_worker *w);
int kvb_settle(kvb_worker *w);

// kvb_worker_disconnect ends the endpoint of a stopped worker, after which no memory is
// touched. It needs an idle worker, or one with peer_errors: UCX aborts the process
// where an endpoint ends that still has something to send and cannot be told that its
// peer is gone. It returns 0 where UCX does not let the endpoint end for a second, or
// has given up: the worker may not be used after that, except by kvb_worker_abandon,
// kvb_unmap and what follows them. The thread still answers the peer, which may need
// that to end its own.
int kvb_worker_disconnect(kvb_worker *w);

// kvb_worker_abandon lets go of the peer's memory in place of kvb_worker_disconnect,
// where the peer is gone. Nothing but kvb_unmap and kvb_worker_free or
// kvb_worker_retire may be called after it.
void kvb_worker_abandon(kvb_worker *w);

// kvb_worker_free ends the thread and lets go of a worker whose memory has been unmapped,
// and of what UCX still holds of one that was abandoned: without peer_errors UCX lets
// that go without a word to the peer. It returns 0 where UCX has given up, before or in
// it, and it was kvb_worker_retire. Nothing may be called after it.
int kvb_worker_free(kvb_worker *w);

// kvb_worker_retire ends the thread in place of kvb_worker_free, and leaves the
// rest of the worker to the end of the process. Nothing may be called after it.
void kvb_worker_retire(kvb_worker *w);

// kvb_map registers memory, or allocates it where address is 0. The type is a
// ucs_memory_type_t.
int kvb_map(kvb_worker *w, uint64_t address, uint64_t length, uint32_t type, struct kvb_memory *memory);
void kvb_key_free(void *key);
int kvb_unmap(kvb_worker *w, void *handle);

// Regions that active messages may write to, by number, each in memory with a handle of
// kvb_map's.
void kvb_region_open(kvb_worker *w, uint32_t number, uint64_t address, uint64_t length, void *handle);
void kvb_region_close(kvb_worker *w, uint32_t number);

int kvb_import(kvb_worker *w, const void *key, void **remote);
// kvb_direct reports whether the peer's memory can be stored to by the CPU.
int kvb_direct(kvb_worker *w, void *remote, uint64_t address);

// These return at once. kvb_slot_pieces returns room for count pieces, or NULL. It and
// kvb_slot_fill are for a slot that is not submitted.
struct kvb_piece *kvb_slot_pieces(kvb_worker *w, uint32_t slot, uint32_t count);
void kvb_slot_fill(kvb_worker *w, uint32_t slot, uint32_t op, uint64_t id, uint64_t bytes, uint32_t count, void *handle, uint32_t type, void *remote, uint32_t region);
void kvb_slot_submit(kvb_worker *w, uint32_t slot);

// These return at once, too. kvb_wake has the thread look for something to do.
void kvb_wake(kvb_worker *w);
uint64_t kvb_moved(kvb_worker *w);  // grows while anything moves
struct kvb_counts kvb_worker_counts(kvb_worker *w);

// kvb_describe returns what UCX says of the endpoint, to be freed, or NULL.
char *kvb_describe(kvb_worker *w);

// kvb_survey returns what UCX says of this host's lanes, whatever the environment
// restricts it to, to be freed, or NULL.
char *kvb_survey(void);

// kvb_memory_types asks UCX which types of memory it takes with these settings: bit
// 1 << type of each ucs_memory_type_t. See kvb_worker_new for what.
int kvb_memory_types(const struct kvb_setting *settings, size_t count, uint64_t *types, const char **what);

int64_t kvb_now(void);

#endif
