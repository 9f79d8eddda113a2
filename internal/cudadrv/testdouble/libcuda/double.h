/* What the parts of the test double share. It stands in for libcuda.so.1 in
 * tests: it has the calls that kvbench makes, with the driver's names, signatures
 * and error codes, over plain memory. It is no CUDA.
 *
 * Device memory is a memfd, so that another process can open it. A device pointer
 * lies in a range of addresses that nothing is mapped at: code that takes it for
 * a host pointer crashes, unless CUDA_DOUBLE_REACHABLE is set. Memory of cuMemAlloc of
 * less than 2 MiB shares a block of that size with others, which a handle of it opens
 * whole. A copy within device memory whose two sides overlap is refused: with the driver
 * it is undefined.
 *
 * The environment, read at the first call:
 *   CUDA_DOUBLE_DEVICES=N      devices, 2
 *   CUDA_DOUBLE_MEMORY=BYTES   memory of each, 2 GiB
 *   CUDA_DOUBLE_MIG=N          the devices that this process sees are instance N of theirs
 *   CUDA_DOUBLE_PEERS=0        no device reaches another
 *   CUDA_DOUBLE_DRIVER=N       driver version, 12080
 *   CUDA_DOUBLE_DELAY_US=N     how late a stream begins its work, 200
 *   CUDA_DOUBLE_COPY_RATE=N    most bytes a second of a stream's copies from and to the host; 0, the default, is no limit
 *   CUDA_DOUBLE_TRACE=FILE     a line at its end for each copy of a stream: process, begin and end in ns of the
 *                              monotonic clock
 *   CUDA_DOUBLE_HOLD=FILE      a stream's copies do not begin while FILE exists
 *   CUDA_DOUBLE_CORRUPT=1      copies within device memory get their last byte wrong
 *   CUDA_DOUBLE_FAIL=CALL:NTH:CODE,...  CALL's NTH use in this process returns CODE; 0 is every use
 *   CUDA_DOUBLE_NO_LEGACY=N,...  devices, as hardware counts, whose memory has no legacy IPC handle
 *   CUDA_DOUBLE_VMM=0          no device has virtual memory management
 *   CUDA_DOUBLE_FDS=0          no device exports memory as file descriptors
 *   CUDA_DOUBLE_STRICT=1       memory of cuMemCreate is not unmapped by its maker while another process has it,
 *                              which the driver allows: for tests that nobody does
 *   CUDA_DOUBLE_REACHABLE=1    device memory is where its pointer says, for a library that moves host memory only
 *   CUDA_VISIBLE_DEVICES       as with the driver: ordinals, in this order
 * Built with -DOLD_DRIVER it lacks what came after CUDA 10.1.
 */
#ifndef DOUBLE_H
#define DOUBLE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	MAPPING_FAILED = 205,
	PEER_ACCESS_UNSUPPORTED = 217,
	INVALID_HANDLE = 400,
	ILLEGAL_STATE = 401,
	NOT_READY = 600,
	ILLEGAL_ADDRESS = 700,
	ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713,
	NOT_SUPPORTED = 801,
};

#define MAX_DEVICES 16

struct context {
	CUdevice device;
};

struct settings {
	int visible;            /* devices that this process sees */
	int physical[MAX_DEVICES]; /* what each of them is */
	int mig;                /* 0: whole devices */
	int peers;
	int driver;
	int delay_us;
	int corrupt;
	long copy_rate;
	int trace;              /* descriptor of the file, or -1 */
	const char *hold;
	size_t memory;
	unsigned no_legacy;     /* physical devices, as bits */
	int vmm, fds, strict, reachable;
};

extern struct settings settings;

/* enter begins a call: it returns a failure that was asked for, or SUCCESS. */
CUresult enter(const char *call);

/* current is the calling thread's context, or NULL. */
CUcontext current(void);

#define ENTER(call)                                                            \
	do {                                                                   \
		CUresult asked = enter(call);                                  \
		if (asked != SUCCESS)                                          \
			return asked;                                          \
	} while (0)

#define ENTER_WITH_CONTEXT(call)                                               \
	do {                                                                   \
		ENTER(call);                                                   \
		if (current() == NULL)                                         \
			return INVALID_CONTEXT;                                \
	} while (0)

/* copy moves bytes; each side is a device range or, where its flag is 0, host
 * memory. It returns ILLEGAL_ADDRESS for a device range that is not mapped. */
CUresult copy(int dst_device, uintptr_t dst, int src_device, uintptr_t src, size_t n);

/* mapped says whether a device range is. */
int mapped(CUdeviceptr at, size_t n);

/* overlap says whether two device ranges of n bytes share memory, at whatever
 * addresses they are mapped. */
int overlap(CUdeviceptr a, CUdeviceptr b, size_t n);

/* pinned says whether host memory is registered. */
int pinned(uintptr_t at, size_t n);

#endif
