//go:build ucx && cgo && linux

#include "guard.h"
#include "lib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct kvb_lib kvb_lib;

// prepare sets the environment variables that UCX reads when it is loaded. Variables
// that the user has set stay unchanged.
static void prepare(void)
{
	// UCX logs to stdout, which is reserved for results.
	setenv("UCX_LOG_FILE", "stderr", 0);
	setenv("UCX_LOG_LEVEL", "fatal", 0);
	setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
	// The Go runtime handles signals.
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	setenv("UCX_ERROR_SIGNALS", "", 0);
	setenv("UCX_DEBUG_SIGNO", "0", 0);
	// Go maps and unmaps memory without the C library, so UCX's registration cache
	// would miss it. Memory is registered explicitly instead.
	setenv("UCX_MEM_EVENTS", "n", 0);
	setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
	setenv("UCX_MEM_MALLOC_HOOKS", "n", 0);
	setenv("UCX_VFS_ENABLE", "n", 0);
}

static int missing(char *why, size_t size)
{
	snprintf(why, size, "%s", dlerror());
	return -1;
}

int kvb_load(char *why, size_t size)
{
	prepare();
	void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
	if (ucp == NULL) {
		return missing(why, size);
	}
	void *ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
	if (ucs == NULL) {
		return missing(why, size);
	}
#define FIND(library, name)                                            \
	if ((*(void **)&kvb_lib.name = dlsym(library, #name)) == NULL) {   \
		return missing(why, size);                                     \
	}
#define X(name) FIND(ucp, name)
	KVB_CALLS(X)
#undef X
	FIND(ucs, ucs_status_string)
	kvb_guard_start();
	return 0;
}
