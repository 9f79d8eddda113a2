// A worker moves the bytes of one connection: a UCX context, worker and endpoint
// used by one thread, a queue of posted transfers, and the messages by which
// delivery becomes known.
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
};

struct kvb_event {
	int64_t at;      // ns, CLOCK_MONOTONIC
	uint64_t id;     // the transfer's name, chosen by the initiator
	uint64_t bytes;
	uint32_t slot;
	int32_t status;  // ucs_status_t
	uint32_t kind;
	uint32_t reserved;
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
};

struct kvb_memory {
	void *handle;        // for kvb_unmap and kvb_slot_fill
	void *start;
	void *key;           // what the peer needs, until kvb_key_free
	size_t key_size;
};

// A status is a ucs_status_t, 0 for success. Setting what failed, if not NULL, to
// the name of the call.
int kvb_worker_new(const struct kvb_options *options, kvb_worker **worker, const char **what);
int kvb_worker_address(kvb_worker *w, void **address, size_t *size);
void kvb_worker_address_free(kvb_worker *w, void *address);
int kvb_worker_connect(kvb_worker *w, const void *address);

// kvb_greet sends the peer a greeting, which it has as KVB_GREETED. Once each side
// has the other's, UCX has finished connecting them.
void kvb_greet(kvb_worker *w);

// kvb_stop posts no more and gives no more events. What UCX holds goes on, and the
// peer is answered, as long as kvb_progress is called. kvb_idle reports whether
// UCX holds nothing.
void kvb_stop(kvb_worker *w);
int kvb_idle(kvb_worker *w);

// kvb_worker_disconnect ends the endpoint, after which no memory is touched. It
// needs an idle worker, or one with peer_errors: UCX aborts the process where an
// endpoint ends that still has something to send and cannot be told that its peer
// is gone. It returns 0 where UCX does not let the endpoint end for a second, or has
// given up: the worker may not be used after that, except by kvb_worker_abandon and kvb_unmap.
// kvb_progress still answers the peer, which may need that to end its own.
// kvb_worker_free does the rest, once all memory is unmapped.
int kvb_worker_disconnect(kvb_worker *w);
void kvb_worker_free(kvb_worker *w);

// kvb_worker_abandon lets go of the peer's memory in place of
// kvb_worker_disconnect, and leaves the rest of the worker to the end of the
// process. Nothing but kvb_unmap may be called after it.
void kvb_worker_abandon(kvb_worker *w);

// kvb_map registers memory, or allocates it where address is 0.
int kvb_map(kvb_worker *w, uint64_t address, uint64_t length, struct kvb_memory *memory);
void kvb_key_free(void *key);
int kvb_unmap(kvb_worker *w, void *handle);

// Regions that active messages may write to, by number.
void kvb_region_open(kvb_worker *w, uint32_t number, uint64_t address, uint64_t length);
void kvb_region_close(kvb_worker *w, uint32_t number);

int kvb_import(kvb_worker *w, const void *key, void **remote);
// kvb_direct reports whether the peer's memory can be stored to by the CPU.
int kvb_direct(void *remote, uint64_t address);

// kvb_slot_pieces returns room for count pieces, or NULL. Any thread may call it
// for a slot that is not submitted.
struct kvb_piece *kvb_slot_pieces(kvb_worker *w, uint32_t slot, uint32_t count);
void kvb_slot_fill(kvb_worker *w, uint32_t slot, uint32_t op, uint64_t id, uint64_t bytes, uint32_t count, void *handle, void *remote, uint32_t region);
void kvb_slot_submit(kvb_worker *w, uint32_t slot);

// kvb_progress moves things on until there are events, or kvb_wake is called. It
// spins for up to spin_ns and then sleeps for up to sleep_ns. It returns how many
// events it stored, up to max.
int kvb_progress(kvb_worker *w, struct kvb_event *events, int max, int64_t spin_ns, int64_t sleep_ns);

// Any thread may call these two.
void kvb_wake(kvb_worker *w);
uint64_t kvb_moved(kvb_worker *w);  // grows while anything moves

// kvb_describe returns what UCX says of the endpoint, to be freed, or NULL.
char *kvb_describe(kvb_worker *w);

// kvb_survey returns what UCX says of this host's lanes, whatever the environment
// restricts it to, to be freed, or NULL.
char *kvb_survey(void);

int64_t kvb_now(void);

#endif
