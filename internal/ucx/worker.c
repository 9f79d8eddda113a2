//go:build ucx && cgo && linux

#define _GNU_SOURCE
#include "worker.h"
#include "events.h"
#include "guard.h"
#include "lib.h"
#include "must.h"
#include "thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// The messages between two workers: active messages with the header below.
enum { MSG_NOTICE = 1, MSG_DATA, MSG_ACK, MSG_DONE, MSG_GREETING };

struct header {
	uint64_t id;
	uint64_t bytes;   // of the whole transfer
	uint64_t offset;  // MSG_DATA: place of this piece in the region
	uint32_t slot;
	uint32_t region;
	uint32_t parts;   // MSG_DATA: pieces of the transfer
	uint32_t reserved;
};

// message holds a header until UCX has finished reading it.
struct message {
	struct header header;
	struct slot *slot;  // MSG_DATA: the slot of the piece
	struct message *next;
	kvb_worker *worker;
	unsigned kind;
};

struct slot {
	kvb_worker *worker;
	struct slot *next_queued;
	struct slot *next_submitted;
	struct kvb_piece *pieces;
	uint32_t capacity, count;
	uint32_t next;        // first piece that has not been posted
	uint32_t number;
	uint32_t op;
	uint32_t region;
	uint64_t id, bytes;
	ucp_mem_h memh;
	ucs_memory_type_t type;  // type of the local memory
	ucp_rkey_h rkey;
	uint32_t inflight;    // pieces posted and not complete
	int active;
	int posted;           // all pieces are posted
	int local;            // the source is reusable, and KVB_LOCAL was put
	int flushing;         // a flush is in flight
	int flushed;          // a flush was started
	int64_t local_at;
	int64_t acked_at;     // 0: not acknowledged
	ucs_status_t status;
};

// arrival counts the pieces of the peer's write in one of its slots.
struct arrival {
	uint64_t id, bytes;
	uint32_t parts;
};

struct region {
	uint64_t address, length;
	ucp_mem_h memh;
	int open;
};

// rendezvous is a message with payload that is not fetched yet.
struct rendezvous {
	struct header header;
	void *data;
	size_t length;
	struct rendezvous *next;
	kvb_worker *worker;
};

struct kvb_worker {
	// For any thread.
	struct kvb_thread thread;
	struct kvb_events events;
	struct slot *_Atomic submitted;  // newest first
	atomic_ullong moved;
	atomic_ullong looks;  // of progress

	// The rest is the thread's.
	int placed;    // the thread keeps to the processors it was given
	int64_t spin, nap;  // ns
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	int peer_errors;
	int event_fd;

	struct slot *slots;
	struct arrival *arrivals;
	uint32_t slot_count;
	struct slot *head, *tail;  // posted, with pieces that UCX does not have yet
	uint32_t inflight, window;
	uint64_t posted;  // bytes handed to UCX so far

	struct region *regions;
	uint32_t region_count;

	struct message *free_messages;
	struct message *replies, *last_reply;  // sent after the UCX call has returned
	struct rendezvous *pending, *last_pending;

	void **remotes;
	uint32_t remote_count;
	uint32_t requests;  // open UCX requests
	int stopped;
	int64_t stopped_at;
	int told_idle;
	int resting;  // UCX is no longer called, except to free memory
	int broken;   // a UCX call aborted; UCX is never called again
};

int64_t kvb_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void emit(kvb_worker *w, struct kvb_event e)
{
	if (!w->stopped) {
		e.look = (uint32_t)atomic_load_explicit(&w->looks, memory_order_relaxed);
		kvb_events_put(&w->events, e);
	}
}

// attempt is a UCX call for a worker, with its status.
struct attempt {
	kvb_worker *worker;
	ucs_status_t (*call)(kvb_worker *w, void *arg);
	void *arg;
	ucs_status_t status;
};

static void try_it(void *arg)
{
	struct attempt *a = arg;
	a->status = a->call(a->worker, a->arg);
}

// guarded calls UCX, unless the worker is broken. If the call aborts, the worker is
// broken.
static void guarded(kvb_worker *w, void *arg)
{
	if (!w->broken && !kvb_guarded(try_it, arg)) {
		w->broken = 1;
		emit(w, (struct kvb_event){.at = kvb_now(), .kind = KVB_BROKEN});
	}
}

// attempt makes a UCX call on the worker's thread.
static ucs_status_t attempt(kvb_worker *w, ucs_status_t (*call)(kvb_worker *w, void *arg), void *arg)
{
	struct attempt a = {w, call, arg, UCS_ERR_ENDPOINT_TIMEOUT};
	kvb_thread_do(&w->thread, guarded, &a);
	return a.status;
}

static void violation(kvb_worker *w)
{
	emit(w, (struct kvb_event){.at = kvb_now(), .kind = KVB_VIOLATION});
}

static void moved(kvb_worker *w)
{
	atomic_fetch_add_explicit(&w->moved, 1, memory_order_relaxed);
}

// Sending.

static struct message *new_message(kvb_worker *w, unsigned kind)
{
	struct message *m = w->free_messages;
	if (m != NULL) {
		w->free_messages = m->next;
	} else {
		m = must(malloc(sizeof *m));
	}
	*m = (struct message){.worker = w, .kind = kind};
	return m;
}

static void advance(struct slot *s);

static void message_sent(struct message *m, ucs_status_t status)
{
	kvb_worker *w = m->worker;
	struct slot *s = m->slot;
	m->next = w->free_messages;
	w->free_messages = m;
	moved(w);
	if (s != NULL) {
		s->inflight--;
		w->inflight--;
		if (status != UCS_OK) {
			s->status = status;
		}
		advance(s);
	} else if (status != UCS_OK) {
		emit(w, (struct kvb_event){.at = kvb_now(), .kind = KVB_ENDED, .status = status});
	}
}

static void on_message_sent(void *request, ucs_status_t status, void *user_data)
{
	struct message *m = user_data;
	m->worker->requests--;
	kvb_lib.ucp_request_free(request);
	message_sent(m, status);
}

static void send_message(struct message *m, const void *data, size_t length, ucp_mem_h memh)
{
	kvb_worker *w = m->worker;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.send = on_message_sent,
		.user_data = m,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	if (memh != NULL) {
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
		param.memh = memh;
	}
	ucs_status_ptr_t r = kvb_lib.ucp_am_send_nbx(w->ep, m->kind, &m->header, sizeof m->header, data, length, &param);
	if (r == NULL || UCS_PTR_IS_ERR(r)) {
		message_sent(m, UCS_PTR_STATUS(r));
	} else {
		w->requests++;
	}
}

// reply queues a message for a callback, because UCX must not be called before the
// callback has returned.
static void reply(kvb_worker *w, unsigned kind, const struct header *h)
{
	struct message *m = new_message(w, kind);
	m->header = *h;
	if (w->last_reply != NULL) {
		w->last_reply->next = m;
	} else {
		w->replies = m;
	}
	w->last_reply = m;
}

static void send_replies(kvb_worker *w)
{
	while (w->replies != NULL) {
		struct message *m = w->replies;
		w->replies = m->next;
		if (w->replies == NULL) {
			w->last_reply = NULL;
		}
		send_message(m, NULL, 0, NULL);
	}
}

// The initiator.

static void finish(struct slot *s, uint32_t kind, int64_t at)
{
	s->active = 0;
	emit(s->worker, (struct kvb_event){.at = at, .id = s->id, .bytes = s->bytes, .slot = s->number, .status = s->status, .kind = kind});
}

static void on_flushed(void *request, ucs_status_t status, void *user_data);

// announce sends the peer a notice of a completed transfer.
static void announce(struct slot *s, unsigned kind)
{
	reply(s->worker, kind, &(struct header){.id = s->id, .bytes = s->bytes, .slot = s->number});
}

static void flushed(struct slot *s, ucs_status_t status)
{
	s->flushing = 0;
	moved(s->worker);
	if (status != UCS_OK) {
		s->status = status;
	} else if (s->status == UCS_OK) {
		announce(s, MSG_NOTICE);
	}
	advance(s);
}

static void on_flushed(void *request, ucs_status_t status, void *user_data)
{
	struct slot *s = user_data;
	s->worker->requests--;
	kvb_lib.ucp_request_free(request);
	flushed(s, status);
}

static void flush(struct slot *s)
{
	s->flushing = s->flushed = 1;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = on_flushed,
		.user_data = s,
	};
	ucs_status_ptr_t r = kvb_lib.ucp_ep_flush_nbx(s->worker->ep, &param);
	if (r == NULL || UCS_PTR_IS_ERR(r)) {
		flushed(s, UCS_PTR_STATUS(r));
	} else {
		s->worker->requests++;
	}
}

// advance performs the next steps of a transfer that its completed operations allow.
static void advance(struct slot *s)
{
	if (!s->active || (!s->posted && s->status == UCS_OK)) {
		return;
	}
	if (s->status != UCS_OK) {
		if (s->inflight == 0 && !s->flushing) {
			finish(s, KVB_FAILED, kvb_now());
		}
		return;
	}
	if (s->inflight == 0 && !s->local) {
		s->local = 1;
		s->local_at = kvb_now();
		if (s->op == KVB_GET) {
			announce(s, MSG_DONE);
			finish(s, KVB_DELIVERED, s->local_at);
			return;
		}
		emit(s->worker, (struct kvb_event){.at = s->local_at, .id = s->id, .bytes = s->bytes, .slot = s->number, .kind = KVB_LOCAL});
	}
	if (s->op == KVB_PUT && !s->flushed) {
		flush(s);
		return;
	}
	if (s->acked_at != 0 && s->local && !s->flushing) {
		finish(s, KVB_DELIVERED, s->acked_at > s->local_at ? s->acked_at : s->local_at);
	}
}

static void piece_done(struct slot *s, ucs_status_t status)
{
	s->inflight--;
	s->worker->inflight--;
	moved(s->worker);
	if (status != UCS_OK) {
		s->status = status;
	}
	advance(s);
}

static void on_piece_done(void *request, ucs_status_t status, void *user_data)
{
	struct slot *s = user_data;
	s->worker->requests--;
	kvb_lib.ucp_request_free(request);
	piece_done(s, status);
}

static void post_piece(struct slot *s)
{
	kvb_worker *w = s->worker;
	const struct kvb_piece *p = &s->pieces[s->next++];
	s->inflight++;
	w->inflight++;
	if (s->op == KVB_AM) {
		struct message *m = new_message(w, MSG_DATA);
		m->slot = s;
		m->header = (struct header){.id = s->id, .bytes = s->bytes, .offset = p->remote, .slot = s->number, .region = s->region, .parts = s->count};
		send_message(m, (void *)p->local, p->length, p->length > 0 ? s->memh : NULL);
		return;
	}
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH,
		.cb.send = on_piece_done,
		.user_data = s,
		.memory_type = s->type,
		.memh = s->memh,
	};
	ucs_status_ptr_t r = s->op == KVB_PUT
		? kvb_lib.ucp_put_nbx(w->ep, (void *)p->local, p->length, p->remote, s->rkey, &param)
		: kvb_lib.ucp_get_nbx(w->ep, (void *)p->local, p->length, p->remote, s->rkey, &param);
	if (r == NULL || UCS_PTR_IS_ERR(r)) {
		piece_done(s, UCS_PTR_STATUS(r));
	} else {
		w->requests++;
	}
}

// room_for returns how many operations of a length UCX may hold: the window, or fewer
// long ones, so that at most about 16 MiB are in flight. That is more than a link of
// 400 Gbit/s moves in 300 us. It is also small enough that closing never waits long,
// and that layers arrive one after the other, although UCX sends in turns from all
// operations that it holds.
static uint32_t room_for(kvb_worker *w, uint64_t length)
{
	uint32_t n = w->window / (1 + length / (32 << 10));
	return n > 1 ? n : 2;
}

// A put over shared memory is copied in the call that posts it, so posting the whole
// queue can take long. stint is the longest that it may take, in ns, before UCX
// progresses and sends the notices of completed layers. Otherwise the first notice
// would leave after the last copy. See docs/performance.md for the cost of such turns.
// look is the most bytes handed over before events and other threads get their turn.
static const int64_t stint = 2000000;
static const uint64_t look = 64 << 20;

// pump hands posted pieces to UCX, oldest transfer first, as far as the window and the
// stint allow. It returns 0 if it handed over nothing.
static unsigned pump(kvb_worker *w)
{
	const uint64_t between = 64 << 10;  // bytes between readings of the clock
	uint64_t next_look = w->posted + between;
	int64_t began = 0;
	unsigned n = 0;
	while (w->head != NULL && !w->stopped) {
		struct slot *s = w->head;
		if (began == 0) {
			began = kvb_now();
		}
		for (; s->next < s->count && s->status == UCS_OK; n++) {
			uint64_t length = s->pieces[s->next].length;
			if (w->inflight >= room_for(w, length)) {
				return n;
			}
			if (w->posted >= next_look) {
				next_look = w->posted + between;
				if (kvb_now() - began >= stint) {
					return n;
				}
			}
			w->posted += length;
			post_piece(s);
		}
		w->head = s->next_queued;
		if (w->head == NULL) {
			w->tail = NULL;
		}
		s->posted = 1;
		advance(s);
		n++;
	}
	return n;
}

// The target.

static ucs_status_t header_of(kvb_worker *w, const void *from, size_t size, struct header *h)
{
	if (size != sizeof *h) {
		violation(w);
		return UCS_ERR_INVALID_PARAM;
	}
	memcpy(h, from, sizeof *h);
	if (h->slot >= w->slot_count) {
		violation(w);
		return UCS_ERR_INVALID_PARAM;
	}
	moved(w);
	return UCS_OK;
}

static void written(kvb_worker *w, const struct header *h, uint64_t bytes)
{
	emit(w, (struct kvb_event){.at = kvb_now(), .id = h->id, .bytes = bytes, .slot = h->slot, .kind = KVB_WRITTEN});
	reply(w, MSG_ACK, h);
}

static ucs_status_t on_notice(void *arg, const void *from, size_t size, void *data, size_t length, const ucp_am_recv_param_t *param)
{
	kvb_worker *w = arg;
	struct header h;
	if (header_of(w, from, size, &h) == UCS_OK) {
		written(w, &h, h.bytes);
	}
	return UCS_OK;
}

static ucs_status_t on_greeting(void *arg, const void *from, size_t size, void *data, size_t length, const ucp_am_recv_param_t *param)
{
	kvb_worker *w = arg;
	struct header h;
	if (header_of(w, from, size, &h) == UCS_OK) {
		emit(w, (struct kvb_event){.at = kvb_now(), .kind = KVB_GREETED});
	}
	return UCS_OK;
}

static ucs_status_t on_done(void *arg, const void *from, size_t size, void *data, size_t length, const ucp_am_recv_param_t *param)
{
	kvb_worker *w = arg;
	struct header h;
	if (header_of(w, from, size, &h) == UCS_OK) {
		emit(w, (struct kvb_event){.at = kvb_now(), .id = h.id, .bytes = h.bytes, .slot = h.slot, .kind = KVB_READ});
	}
	return UCS_OK;
}

static ucs_status_t on_ack(void *arg, const void *from, size_t size, void *data, size_t length, const ucp_am_recv_param_t *param)
{
	kvb_worker *w = arg;
	struct header h;
	if (header_of(w, from, size, &h) != UCS_OK) {
		return UCS_OK;
	}
	struct slot *s = &w->slots[h.slot];
	if (!s->active || s->id != h.id || s->acked_at != 0) {
		violation(w);
		return UCS_OK;
	}
	s->acked_at = kvb_now();
	advance(s);
	return UCS_OK;
}

// arrived counts one piece that is in place.
static void arrived(kvb_worker *w, const struct header *h, size_t length)
{
	struct arrival *a = &w->arrivals[h->slot];
	if (a->parts == 0) {
		a->id = h->id;
		a->bytes = 0;
	}
	a->parts++;
	a->bytes += length;
	if (a->id != h->id || a->parts > h->parts) {
		violation(w);
		return;
	}
	if (a->parts == h->parts) {
		a->parts = 0;
		written(w, h, a->bytes);
	}
}

// room reports whether a piece lies inside an open region.
static int room(kvb_worker *w, const struct header *h, size_t length)
{
	if (h->region >= w->region_count || !w->regions[h->region].open) {
		return 0;
	}
	uint64_t size = w->regions[h->region].length;
	return h->offset <= size && length <= size - h->offset;
}

static ucs_status_t on_data(void *arg, const void *from, size_t size, void *data, size_t length, const ucp_am_recv_param_t *param)
{
	kvb_worker *w = arg;
	struct header h;
	ucs_status_t status = header_of(w, from, size, &h);
	int later = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
	if (status == UCS_OK && !room(w, &h, length)) {
		violation(w);
		status = UCS_ERR_INVALID_ADDR;
	}
	if (status != UCS_OK) {
		return later ? status : UCS_OK;
	}
	if (!later) {
		if (length > 0) {
			memcpy((void *)(w->regions[h.region].address + h.offset), data, length);
		}
		arrived(w, &h, length);
		return UCS_OK;
	}
	struct rendezvous *r = must(malloc(sizeof *r));
	*r = (struct rendezvous){.header = h, .data = data, .length = length, .worker = w};
	if (w->last_pending != NULL) {
		w->last_pending->next = r;
	} else {
		w->pending = r;
	}
	w->last_pending = r;
	return UCS_INPROGRESS;
}

static void fetched(struct rendezvous *r, ucs_status_t status, size_t length)
{
	kvb_worker *w = r->worker;
	moved(w);
	if (status == UCS_OK && length == r->length) {
		arrived(w, &r->header, r->length);
	} else {
		emit(w, (struct kvb_event){.at = kvb_now(), .kind = KVB_ENDED, .status = status != UCS_OK ? status : UCS_ERR_MESSAGE_TRUNCATED});
	}
	free(r);
}

static void on_fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
	struct rendezvous *r = user_data;
	r->worker->requests--;
	kvb_lib.ucp_request_free(request);
	fetched(r, status, length);
}

static void fetch_pending(kvb_worker *w)
{
	while (w->pending != NULL) {
		struct rendezvous *r = w->pending;
		w->pending = r->next;
		if (w->pending == NULL) {
			w->last_pending = NULL;
		}
		// The region may have been closed since the message arrived.
		if (!room(w, &r->header, r->length)) {
			violation(w);
			free(r);
			continue;
		}
		const struct region *region = &w->regions[r->header.region];
		void *to = (void *)(region->address + r->header.offset);
		size_t length = 0;
		ucp_request_param_t param = {
			.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_RECV_INFO | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
			.cb.recv_am = on_fetched,
			.user_data = r,
			.recv_info.length = &length,
			.memory_type = UCS_MEMORY_TYPE_HOST,
		};
		if (r->length > 0) {  // without it UCX registers the memory for every message; 1.13.1 does if it reads with RDMA
			param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
			param.memh = region->memh;
		}
		ucs_status_ptr_t p = kvb_lib.ucp_am_recv_data_nbx(w->worker, r->data, to, r->length, &param);
		if (p == NULL || UCS_PTR_IS_ERR(p)) {
			fetched(r, UCS_PTR_STATUS(p), length);
		} else {
			w->requests++;
		}
	}
}

// A worker's life.

static void on_endpoint_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	kvb_worker *w = arg;
	emit(w, (struct kvb_event){.at = kvb_now(), .kind = KVB_ENDED, .status = status});
}

static ucs_status_t handle(kvb_worker *w, unsigned id, ucp_am_recv_callback_t cb)
{
	ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = id,
		.cb = cb,
		.arg = w,
	};
	return kvb_lib.ucp_worker_set_am_recv_handler(w->worker, &param);
}

static ucs_status_t new_context(kvb_worker *w, const struct kvb_options *o, const char **what)
{
	ucp_config_t *config;
	*what = "ucp_config_read";
	ucs_status_t status = kvb_lib.ucp_config_read(NULL, NULL, &config);
	if (status != UCS_OK) {
		return status;
	}
	for (size_t i = 0; i < o->setting_count && status == UCS_OK; i++) {
		*what = o->settings[i].name;
		status = kvb_lib.ucp_config_modify(config, o->settings[i].name, o->settings[i].value);
	}
	if (status == UCS_OK) {
		ucp_params_t params = {
			.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
			.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
			.estimated_num_eps = 1,
		};
		*what = "ucp_init";
		status = kvb_lib.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &w->context);
	}
	kvb_lib.ucp_config_release(config);
	return status;
}

static ucs_status_t new_worker(kvb_worker *w, const char **what)
{
	ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
	*what = "ucp_worker_create";
	ucs_status_t status = kvb_lib.ucp_worker_create(w->context, &params, &w->worker);
	if (status != UCS_OK) {
		return status;
	}
	*what = "ucp_worker_get_efd";
	status = kvb_lib.ucp_worker_get_efd(w->worker, &w->event_fd);
	*what = "ucp_worker_set_am_recv_handler";
	if (status == UCS_OK) status = handle(w, MSG_NOTICE, on_notice);
	if (status == UCS_OK) status = handle(w, MSG_DATA, on_data);
	if (status == UCS_OK) status = handle(w, MSG_ACK, on_ack);
	if (status == UCS_OK) status = handle(w, MSG_DONE, on_done);
	if (status == UCS_OK) status = handle(w, MSG_GREETING, on_greeting);
	return status;
}

// release frees the worker's memory, but not its thread. The reader closes the events'
// fd.
static void release(kvb_worker *w)
{
	kvb_events_free(&w->events);
	for (uint32_t i = 0; i < w->slot_count; i++) {
		free(w->slots[i].pieces);
	}
	for (struct message *m = w->free_messages, *next; m != NULL; m = next) {
		next = m->next;
		free(m);
	}
	for (struct message *m = w->replies, *next; m != NULL; m = next) {
		next = m->next;
		free(m);
	}
	for (struct rendezvous *r = w->pending, *next; r != NULL; r = next) {
		next = r->next;
		free(r);
	}
	free(w->remotes);
	free(w->regions);
	free(w->arrivals);
	free(w->slots);
	free(w);
}

// refuse frees a worker with a thread that has not started.
static void refuse(kvb_worker *w)
{
	kvb_thread_free(&w->thread);
	release(w);
}

struct create {
	const struct kvb_options *options;
	const char **what;
	ucs_status_t status;
};

static void create(kvb_worker *w, void *arg)
{
	struct create *c = arg;
	const struct kvb_options *o = c->options;
	pthread_setname_np(pthread_self(), "kvbench-ucx");
	if (o->processor_count > 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		for (size_t i = 0; i < o->processor_count; i++) {
			CPU_SET(o->processors[i], &set);
		}
		// If this process may not use them, the thread runs on any CPU.
		w->placed = sched_setaffinity(0, sizeof set, &set) == 0;
	}
	if (o->bind != 0 && ((int (*)(uintptr_t))o->bind)(o->bind_to) != 0) {
		*c->what = "cuCtxSetCurrent";
		c->status = UCS_ERR_INVALID_PARAM;
		return;
	}
	c->status = new_context(w, o, c->what);
	if (c->status == UCS_OK) {
		c->status = new_worker(w, c->what);
	}
}

// nap bounds a sleep, should a wake-up be lost. closing_nap is that of a worker that
// has been stopped, for as long as either side may wait for the other to end: UCX
// does not wake a sleeper for all that this takes.
static const int64_t nap = 100000000, closing_nap = 1000000, closing = 2000000000;

static void serve(kvb_worker *w);

int kvb_worker_new(const struct kvb_options *o, kvb_worker **out, const char **what)
{
	kvb_worker *w = must(calloc(1, sizeof *w));
	w->slot_count = o->slots;
	w->window = o->window;
	w->spin = o->spin;
	w->nap = o->nap > 0 ? o->nap : nap;
	w->peer_errors = o->peer_errors;
	w->slots = must(calloc(o->slots, sizeof *w->slots));
	w->arrivals = must(calloc(o->slots, sizeof *w->arrivals));
	for (uint32_t i = 0; i < o->slots; i++) {
		w->slots[i].worker = w;
		w->slots[i].number = i;
	}
	struct create c = {o, what, UCS_ERR_NO_RESOURCE};
	*what = "eventfd";
	int failed = kvb_thread_init(&w->thread, w, serve);
	failed |= kvb_events_init(&w->events);  // also after a failure, because refuse frees both
	int fd = w->events.fd;
	if (failed) {
		refuse(w);
	} else if (*what = "pthread_create", kvb_thread_start(&w->thread) != 0) {
		refuse(w);
	} else {
		kvb_thread_do(&w->thread, create, &c);
		if (c.status == UCS_OK) {
			*out = w;
			return UCS_OK;
		}
		kvb_worker_free(w);
	}
	if (fd >= 0) {
		close(fd);
	}
	return c.status;
}

struct kvb_ring *kvb_worker_ring(kvb_worker *w, int *fd)
{
	*fd = w->events.fd;
	return w->events.ring;
}

int kvb_worker_placed(kvb_worker *w)
{
	return w->placed;
}

struct address {
	void *bytes;
	size_t size;
};

static ucs_status_t get_address(kvb_worker *w, void *arg)
{
	struct address *a = arg;
	ucp_address_t *address;
	ucs_status_t status = kvb_lib.ucp_worker_get_address(w->worker, &address, &a->size);
	if (status == UCS_OK) {
		a->bytes = must(malloc(a->size));
		memcpy(a->bytes, address, a->size);
		kvb_lib.ucp_worker_release_address(w->worker, address);
	}
	return status;
}

int kvb_worker_address(kvb_worker *w, void **address, size_t *size)
{
	struct address a = {0};
	ucs_status_t status = attempt(w, get_address, &a);
	*address = a.bytes;
	*size = a.size;
	return status;
}

static ucs_status_t connect_to(kvb_worker *w, void *address)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.address = address,
		.err_mode = w->peer_errors ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
		.err_handler = {.cb = on_endpoint_error, .arg = w},
	};
	return kvb_lib.ucp_ep_create(w->worker, &params, &w->ep);
}

int kvb_worker_connect(kvb_worker *w, const void *address)
{
	return attempt(w, connect_to, (void *)address);
}

// turn performs one round of the waiting work. It returns 0 if there was none.
static unsigned turn(kvb_worker *w)
{
	unsigned n = pump(w);
	n += kvb_lib.ucp_worker_progress(w->worker);
	if (w->ep != NULL) {
		fetch_pending(w);
		send_replies(w);
	}
	return n;
}

static void greet(kvb_worker *w, void *unused)
{
	reply(w, MSG_GREETING, &(struct header){0});
}

void kvb_greet(kvb_worker *w)
{
	kvb_thread_do(&w->thread, greet, NULL);
}

static void stop(kvb_worker *w, void *left)
{
	if (!w->stopped) {
		w->stopped = 1;
		w->stopped_at = kvb_now();
	}
	*(int *)left = !kvb_events_hand_over(&w->events);
}

int kvb_stop(kvb_worker *w)
{
	int left = 0;
	kvb_thread_do(&w->thread, stop, &left);
	return left;
}

static int idle(kvb_worker *w)
{
	return !w->broken && w->requests == 0 && w->replies == NULL && w->pending == NULL;
}

static ucs_status_t settle(kvb_worker *w, void *unused)
{
	for (int i = 0; i < 8192 && !idle(w); i++) {
		turn(w);
	}
	return idle(w) ? UCS_OK : UCS_ERR_BUSY;
}

int kvb_settle(kvb_worker *w)
{
	return attempt(w, settle, NULL) == UCS_OK;
}

static ucs_status_t destroy_remotes(kvb_worker *w, void *unused)
{
	while (w->remote_count > 0) {
		kvb_lib.ucp_rkey_destroy(w->remotes[--w->remote_count]);
	}
	return UCS_OK;
}

static ucs_status_t disconnect(kvb_worker *w, void *unused)
{
	if (w->ep == NULL) {
		return UCS_OK;
	}
	const int64_t patience = 1000000000;
	int64_t end = kvb_now() + patience;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = w->peer_errors ? UCP_EP_CLOSE_FLAG_FORCE : 0,
	};
	ucs_status_ptr_t r = kvb_lib.ucp_ep_close_nbx(w->ep, &param);
	if (UCS_PTR_IS_PTR(r)) {
		while (kvb_lib.ucp_request_check_status(r) == UCS_INPROGRESS) {
			if (kvb_now() >= end) {
				return UCS_ERR_TIMED_OUT;
			}
			kvb_lib.ucp_worker_progress(w->worker);
		}
		kvb_lib.ucp_request_free(r);
	}
	w->ep = NULL;
	w->region_count = 0;  // later messages have no region to write to
	return destroy_remotes(w, NULL);
}

int kvb_worker_disconnect(kvb_worker *w)
{
	return attempt(w, disconnect, NULL) == UCS_OK;
}

static void rest(kvb_worker *w, void *unused)
{
	w->resting = 1;
}

void kvb_worker_abandon(kvb_worker *w)
{
	attempt(w, destroy_remotes, NULL);
	kvb_thread_do(&w->thread, rest, NULL);
}

static ucs_status_t destroy(kvb_worker *w, void *unused)
{
	w->resting = 1;
	if (w->worker != NULL) {
		kvb_lib.ucp_worker_destroy(w->worker);
	}
	if (w->context != NULL) {
		kvb_lib.ucp_cleanup(w->context);
	}
	return UCS_OK;
}

void kvb_worker_retire(kvb_worker *w)
{
	kvb_thread_end(&w->thread);
	kvb_thread_free(&w->thread);
}

int kvb_worker_free(kvb_worker *w)
{
	int done = attempt(w, destroy, NULL) == UCS_OK;
	kvb_worker_retire(w);
	if (done) {  // else UCX may still refer to it
		release(w);
	}
	return done;
}

// Memory.

struct map {
	uint64_t address, length;
	uint32_t type;
	struct kvb_memory *memory;
};

static ucs_status_t map(kvb_worker *w, void *arg)
{
	const struct map *m = arg;
	struct kvb_memory *memory = m->memory;
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.address = (void *)m->address,
		.length = m->length,
		.flags = m->address == 0 ? UCP_MEM_MAP_ALLOCATE : 0,
		.memory_type = m->type,
	};
	ucp_mem_h memh;
	ucs_status_t status = kvb_lib.ucp_mem_map(w->context, &params, &memh);
	if (status != UCS_OK) {
		return status;
	}
	ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
	status = kvb_lib.ucp_mem_query(memh, &attr);
	if (status == UCS_OK) {
		status = kvb_lib.ucp_rkey_pack(w->context, memh, &memory->key, &memory->key_size);
	}
	if (status != UCS_OK) {
		kvb_lib.ucp_mem_unmap(w->context, memh);
		return status;
	}
	memory->handle = memh;
	memory->start = attr.address;
	return UCS_OK;
}

int kvb_map(kvb_worker *w, uint64_t address, uint64_t length, uint32_t type, struct kvb_memory *memory)
{
	return attempt(w, map, &(struct map){address, length, type, memory});
}

void kvb_key_free(void *key)
{
	kvb_lib.ucp_rkey_buffer_release(key);
}

static ucs_status_t unmap(kvb_worker *w, void *handle)
{
	return kvb_lib.ucp_mem_unmap(w->context, handle);
}

int kvb_unmap(kvb_worker *w, void *handle)
{
	return attempt(w, unmap, handle);
}

struct opening {
	uint32_t number;
	struct region region;
};

static void set_region(kvb_worker *w, void *arg)
{
	const struct opening *o = arg;
	if (o->number >= w->region_count) {
		w->regions = must(realloc(w->regions, (o->number + 1) * sizeof *w->regions));
		memset(&w->regions[w->region_count], 0, (o->number + 1 - w->region_count) * sizeof *w->regions);
		w->region_count = o->number + 1;
	}
	w->regions[o->number] = o->region;
}

void kvb_region_open(kvb_worker *w, uint32_t number, uint64_t address, uint64_t length, void *handle)
{
	kvb_thread_do(&w->thread, set_region, &(struct opening){number, {address, length, handle, 1}});
}

void kvb_region_close(kvb_worker *w, uint32_t number)
{
	kvb_thread_do(&w->thread, set_region, &(struct opening){.number = number});
}

struct import {
	const void *key;
	ucp_rkey_h rkey;
};

static ucs_status_t import(kvb_worker *w, void *arg)
{
	struct import *i = arg;
	ucs_status_t status = kvb_lib.ucp_ep_rkey_unpack(w->ep, i->key, &i->rkey);
	if (status == UCS_OK) {
		w->remotes = must(realloc(w->remotes, (w->remote_count + 1) * sizeof *w->remotes));
		w->remotes[w->remote_count++] = i->rkey;
	}
	return status;
}

int kvb_import(kvb_worker *w, const void *key, void **remote)
{
	struct import i = {.key = key};
	ucs_status_t status = attempt(w, import, &i);
	*remote = i.rkey;
	return status;
}

struct place {
	ucp_rkey_h rkey;
	uint64_t address;
};

static ucs_status_t direct(kvb_worker *w, void *arg)
{
	const struct place *p = arg;
	void *pointer;
	return kvb_lib.ucp_rkey_ptr(p->rkey, p->address, &pointer);
}

int kvb_direct(kvb_worker *w, void *remote, uint64_t address)
{
	return attempt(w, direct, &(struct place){remote, address}) == UCS_OK;
}

// Posting.

struct kvb_piece *kvb_slot_pieces(kvb_worker *w, uint32_t slot, uint32_t count)
{
	struct slot *s = &w->slots[slot];
	if (count > s->capacity) {
		struct kvb_piece *bigger = realloc(s->pieces, (size_t)count * sizeof *bigger);
		if (bigger == NULL) {
			return NULL;
		}
		s->pieces = bigger;
		s->capacity = count;
	}
	return s->pieces;
}

void kvb_slot_fill(kvb_worker *w, uint32_t slot, uint32_t op, uint64_t id, uint64_t bytes, uint32_t count, void *handle, uint32_t type, void *remote, uint32_t region)
{
	struct slot *s = &w->slots[slot];
	s->op = op;
	s->id = id;
	s->bytes = bytes;
	s->count = count;
	s->memh = handle;
	s->type = type;
	s->rkey = remote;
	s->region = region;
	s->next = s->inflight = 0;
	s->posted = s->local = s->flushing = s->flushed = 0;
	s->local_at = s->acked_at = 0;
	s->status = UCS_OK;
	s->next_queued = NULL;
}

void kvb_slot_submit(kvb_worker *w, uint32_t slot)
{
	struct slot *s = &w->slots[slot];
	s->next_submitted = atomic_load(&w->submitted);
	while (!atomic_compare_exchange_weak(&w->submitted, &s->next_submitted, s)) {
	}
	kvb_wake(w);
}

// take_submitted queues the submitted slots in their order of submission.
static void take_submitted(kvb_worker *w)
{
	struct slot *oldest = NULL;
	for (struct slot *s = atomic_exchange(&w->submitted, NULL), *next; s != NULL; s = next) {
		next = s->next_submitted;
		s->next_submitted = oldest;
		oldest = s;
	}
	for (struct slot *s = oldest; s != NULL; s = s->next_submitted) {
		s->active = 1;
		if (w->tail != NULL) {
			w->tail->next_queued = s;
		} else {
			w->head = s;
		}
		w->tail = s;
	}
}

// The thread.

// progress returns once there are events, or was woken, or the time is over. While
// UCX is busy it gathers events for a while: each hand-over is a switch of threads
// for somebody, and events carry the time that they happened at.
static ucs_status_t progress(kvb_worker *w, void *unused)
{
	const int turns = 32;  // between readings of the clock
	const int64_t gathering = 200000;
	int64_t idle_since = 0;
	for (;;) {
		atomic_fetch_add_explicit(&w->looks, 1, memory_order_relaxed);
		unsigned busy = 0, last = 1;
		const uint64_t before = w->posted;
		for (int i = 0; i < turns && w->posted - before < look && (last || w->events.count == 0); i++) {
			last = turn(w);
			busy |= last;
		}
		int64_t now = kvb_now();
		if (w->events.count >= KVB_RING / 4 || (w->events.count > 0 && (!last || now - kvb_events_oldest(&w->events) >= gathering))) {
			return UCS_OK;
		}
		if (kvb_thread_woken(&w->thread)) {
			return UCS_OK;
		}
		if (busy) {
			idle_since = 0;
			continue;
		}
		if (idle_since == 0) {
			idle_since = now;
		}
		if (now - idle_since < w->spin) {
			continue;
		}
		if (kvb_lib.ucp_worker_arm(w->worker) == UCS_OK) {  // else there is something already
			kvb_thread_doze(&w->thread, w->event_fd, w->stopped && now - w->stopped_at < closing ? closing_nap : w->nap);
		}
		return UCS_OK;
	}
}

// serve is a round of the thread. UCX is called for the worker only here and in the
// calls of other threads that kvb_thread_do runs.
static void serve(kvb_worker *w)
{
	take_submitted(w);
	int room = kvb_events_hand_over(&w->events);
	if (w->worker == NULL || w->resting || w->broken || !room) {
		// A reader that is behind holds up the peer, as it should.
		kvb_thread_doze(&w->thread, -1, room ? w->nap : closing_nap);
		kvb_thread_woken(&w->thread);
		return;
	}
	guarded(w, &(struct attempt){w, progress});
	if (w->stopped && !w->told_idle && idle(w)) {
		w->told_idle = 1;
		kvb_events_put(&w->events, (struct kvb_event){.at = kvb_now(), .kind = KVB_IDLE});
	}
}

void kvb_wake(kvb_worker *w)
{
	kvb_thread_wake(&w->thread);
}

uint64_t kvb_moved(kvb_worker *w)
{
	return atomic_load_explicit(&w->moved, memory_order_relaxed);
}

struct kvb_counts kvb_worker_counts(kvb_worker *w)
{
	return (struct kvb_counts){atomic_load(&w->looks), atomic_load(&w->thread.dozes), atomic_load(&w->thread.naps)};
}

static ucs_status_t describe(kvb_worker *w, void *arg)
{
	char **text = arg;
	size_t size;
	FILE *f = open_memstream(text, &size);
	if (f == NULL) {
		return UCS_ERR_NO_MEMORY;
	}
	kvb_lib.ucp_ep_print_info(w->ep, f);
	fclose(f);
	return UCS_OK;
}

char *kvb_describe(kvb_worker *w)
{
	char *text = NULL;
	return attempt(w, describe, &text) == UCS_OK ? text : NULL;
}

char *kvb_survey(void)
{
	struct kvb_setting all[] = {{"TLS", "all"}, {"NET_DEVICES", "all"}};
	struct kvb_options options = {.settings = all, .setting_count = 2};
	struct kvb_worker w = {0};
	const char *what;
	if (new_context(&w, &options, &what) != UCS_OK) {
		return NULL;
	}
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	if (f != NULL) {
		kvb_lib.ucp_context_print_info(w.context, f);
		fclose(f);
	}
	kvb_lib.ucp_cleanup(w.context);
	return text;
}

int kvb_memory_types(const struct kvb_setting *settings, size_t count, uint64_t *types, const char **what)
{
	struct kvb_options options = {.settings = settings, .setting_count = count};
	struct kvb_worker w = {0};
	ucs_status_t status = new_context(&w, &options, what);
	if (status != UCS_OK) {
		return status;
	}
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
	*what = "ucp_context_query";
	status = kvb_lib.ucp_context_query(w.context, &attr);
	*types = attr.memory_types;
	kvb_lib.ucp_cleanup(w.context);
	return status;
}
