// The used part of UCX, loaded from libucp.so.0 at run time, so that a binary with the
// binding runs on hosts without UCX.
#ifndef KVB_LIB_H
#define KVB_LIB_H

#include <stddef.h>
#include <ucp/api/ucp.h>

// The used functions. Each pointer has the function's name and type. ucp_init is an
// inline function over ucp_init_version.
#define KVB_CALLS(X)                                                                              \
	X(ucp_get_version_string) X(ucp_config_read) X(ucp_config_modify) X(ucp_config_release)      \
	X(ucp_init_version) X(ucp_cleanup) X(ucp_context_print_info) X(ucp_context_query)            \
	X(ucp_worker_create) X(ucp_worker_destroy)                                                   \
	X(ucp_worker_get_address) X(ucp_worker_release_address) X(ucp_worker_get_efd)                \
	X(ucp_worker_arm) X(ucp_worker_progress) X(ucp_worker_set_am_recv_handler)                   \
	X(ucp_ep_create) X(ucp_ep_close_nbx) X(ucp_ep_flush_nbx) X(ucp_ep_print_info)                \
	X(ucp_mem_map) X(ucp_mem_unmap) X(ucp_mem_query) X(ucp_rkey_pack)                            \
	X(ucp_rkey_buffer_release) X(ucp_ep_rkey_unpack) X(ucp_rkey_destroy) X(ucp_rkey_ptr)         \
	X(ucp_put_nbx) X(ucp_get_nbx) X(ucp_am_send_nbx) X(ucp_am_recv_data_nbx)                     \
	X(ucp_request_check_status) X(ucp_request_free)

struct kvb_lib {
#define X(name) __typeof__(&name) name;
	KVB_CALLS(X)
#undef X
	__typeof__(&ucs_status_string) ucs_status_string;
};

extern struct kvb_lib kvb_lib;

// kvb_load loads the libraries. It returns 0, or -1 with the reason in why.
int kvb_load(char *why, size_t size);

#endif
