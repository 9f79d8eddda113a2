/* Device memory, and handles that open it in another process. */
#define _GNU_SOURCE
#include "ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA (1ull << 40)

struct handle {
	uint32_t magic;
	int32_t pid;
	uint64_t pid_namespace;
	int32_t fd;
	int32_t device; /* physical */
	uint64_t size;  /* of the memfd, without its head */
	uint64_t start; /* of the memory in it */
	uint64_t serial;
	unsigned char pattern[16]; /* shows that all 64 bytes came through */
};

_Static_assert(sizeof(struct handle) == 64, "a CUipcMemHandle has 64 bytes");

typedef struct {
	char reserved[64];
} CUipcMemHandle;

pthread_rwlock_t ranges_lock = PTHREAD_RWLOCK_INITIALIZER;
size_t used[MAX_DEVICES];
static struct range ranges[MAX_RANGES];
static uint64_t serial;

/* block is memory of GRAIN bytes that smaller allocations share, as with the driver.
 * None lies at its base, so that a handle's memory is not where its block begins. */
struct block {
	CUdeviceptr base;
	int fd;
	size_t next; /* where there is room */
	int live;    /* allocations */
};

static struct block *blocks[MAX_DEVICES]; /* the newest of each device */

static uint64_t pid_namespace(void)
{
	struct stat s;
	return stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

CUdeviceptr reserve(size_t size)
{
	static CUdeviceptr next, end;
	if (!next) {
		void *at = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED)
			return 0;
		next = ((CUdeviceptr)(uintptr_t)at + GRAIN - 1) / GRAIN * GRAIN;
		end = (CUdeviceptr)(uintptr_t)at + ARENA;
	}
	CUdeviceptr base = next;
	CUdeviceptr after = base + (size + GRAIN) / GRAIN * GRAIN;
	if (after > end)
		return 0;
	next = after;
	return base;
}

struct range *find(CUdeviceptr at, size_t n)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		struct range *r = &ranges[i];
		if (r->base && at >= r->base && at <= r->base + r->size && n <= r->base + r->size - at)
			return r;
	}
	return NULL;
}

struct range *unused(void)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (!ranges[i].base)
			return &ranges[i];
	return NULL;
}

CUresult map_at(struct range *r, CUdeviceptr base, int fd, size_t from, size_t size)
{
	struct stat s;
	char *at = mmap(NULL, HEAD + from + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return OUT_OF_MEMORY;
	if (fstat(fd, &s) != 0 || (settings.reachable && mmap((void *)(uintptr_t)base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)(HEAD + from)) == MAP_FAILED)) {
		munmap(at, HEAD + from + size);
		return OUT_OF_MEMORY;
	}
	r->base = base;
	r->head = (struct head *)at;
	r->data = at + HEAD + from;
	r->from = from;
	r->inode = s.st_ino;
	r->size = size;
	return SUCCESS;
}

/* map is map_at an address that nothing had. */
static CUresult map(struct range *r, int fd, size_t size)
{
	CUdeviceptr base = reserve(size);
	return base ? map_at(r, base, fd, 0, size) : OUT_OF_MEMORY;
}

void unmap(struct range *r)
{
	munmap(r->head, HEAD + r->from + r->size);
	if (settings.reachable)
		mmap((void *)(uintptr_t)r->base, r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	memset(r, 0, sizeof *r);
}

/* make_file returns memory of size bytes with a head, or -1. */
static int make_file(size_t size)
{
	int fd = memfd_create("test double of device memory", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)(HEAD + size)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* block_with returns a device's block with room for size bytes, or NULL. */
static struct block *block_with(int device, size_t size)
{
	struct block *b = blocks[device];
	if (b && size <= GRAIN - b->next)
		return b;
	b = calloc(1, sizeof *b);
	b->base = reserve(GRAIN);
	b->fd = b->base ? make_file(GRAIN) : -1;
	b->next = PAGE;
	if (b->fd >= 0)
		return blocks[device] = b;
	free(b);
	return NULL;
}

/* map_small maps memory in a block. */
static CUresult map_small(struct range *r, int device, size_t size)
{
	struct block *b = block_with(device, size);
	CUresult result = b ? map_at(r, b->base + b->next, b->fd, b->next, size) : OUT_OF_MEMORY;
	if (result != SUCCESS)
		return result;
	b->next += (size + PAGE) / PAGE * PAGE;
	b->live++;
	r->block = b;
	r->fd = b->fd;
	return SUCCESS;
}

/* map_new maps memory with a memfd of its own. */
static CUresult map_new(struct range *r, size_t size)
{
	int fd = make_file(size);
	CUresult result = fd >= 0 ? map(r, fd, size) : OUT_OF_MEMORY;
	if (result == SUCCESS)
		r->fd = fd;
	else if (fd >= 0)
		close(fd);
	return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	ENTER_WITH_CONTEXT("cuMemAlloc_v2");
	if (size == 0)
		return INVALID_VALUE;
	CUresult result = OUT_OF_MEMORY;
	int device = current()->device;
	pthread_rwlock_wrlock(&ranges_lock);
	struct range *r = unused();
	if (r && used[device] + size <= settings.memory)
		result = size + PAGE < GRAIN ? map_small(r, device, size) : map_new(r, size);
	if (result == SUCCESS) {
		r->device = device;
		r->serial = ++serial;
		used[device] += size;
		*out = r->base;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

/* give_back ends an owner's range. */
static void give_back(struct range *r)
{
	struct block *b = r->block;
	int device = r->device, fd = r->fd;
	used[device] -= r->size;
	unmap(r);
	if (b && --b->live)
		return;
	close(fd);
	if (!b)
		return;
	if (blocks[device] == b)
		blocks[device] = NULL;
	free(b);
}

/* open_by is what a process notes in a memfd of which it opens the memory at start. */
static uint64_t open_by(int pid, size_t start) { return (uint64_t)start << 32 | (uint32_t)pid; }

/* opener returns a living process that has the range open, or 0. */
static int opener(struct range *r)
{
	for (int i = 0; i < MAX_OPENERS; i++) {
		uint64_t by = __atomic_load_n(&r->head->opener[i], __ATOMIC_SEQ_CST);
		int pid = (int)(uint32_t)by;
		if (pid && by == open_by(pid, r->from) && kill(pid, 0) == 0)
			return pid;
	}
	return 0;
}

/* With the driver this is undefined while another process has the memory open;
 * here it is refused, so that a test sees it. */
CUresult cuMemFree_v2(CUdeviceptr at)
{
	ENTER_WITH_CONTEXT("cuMemFree_v2");
	CUresult result = INVALID_VALUE;
	pthread_rwlock_wrlock(&ranges_lock); /* waits for copies under way */
	struct range *r = find(at, 0);
	if (r && r->base == at && r->fd >= 0) {
		int pid = opener(r);
		if (pid) {
			fprintf(stderr, "test double: cuMemFree of memory that process %d has open\n", pid);
			result = ILLEGAL_STATE;
		} else {
			give_back(r);
			result = SUCCESS;
		}
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
	ENTER_WITH_CONTEXT("cuMemGetInfo_v2");
	pthread_rwlock_rdlock(&ranges_lock);
	*total = settings.memory;
	*available = settings.memory - used[current()->device];
	pthread_rwlock_unlock(&ranges_lock);
	return SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
	ENTER_WITH_CONTEXT("cuMemGetAddressRange_v2");
	pthread_rwlock_rdlock(&ranges_lock);
	struct range *r = find(at, 1);
	if (r) {
		*base = r->base;
		*size = r->size;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return r ? SUCCESS : INVALID_VALUE;
}

CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr at)
{
	ENTER_WITH_CONTEXT("cuPointerSetAttribute");
	if (attribute != 6 || *(const unsigned *)value != 1) /* SYNC_MEMOPS, which copies here keep to anyway */
		return INVALID_VALUE;
	return mapped(at, 1) ? SUCCESS : INVALID_VALUE;
}

static void pattern(struct handle *h, unsigned char out[16])
{
	for (int i = 0; i < 16; i++)
		out[i] = (unsigned char)(h->serial * 131 + (uint64_t)h->pid * 7 + (uint64_t)i * 37 + 1);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr at)
{
	ENTER_WITH_CONTEXT("cuIpcGetMemHandle");
	CUresult result = INVALID_VALUE; /* so it is for memory of cuMemCreate */
	if (settings.no_legacy >> settings.physical[current()->device] & 1)
		return NOT_SUPPORTED;
	pthread_rwlock_wrlock(&ranges_lock);
	struct range *r = find(at, 0);
	if (r && r->base == at && r->fd >= 0) {
		struct handle h = {
			.magic = 0x6b76636b, .pid = getpid(), .pid_namespace = pid_namespace(), .fd = r->fd,
			.device = settings.physical[r->device], .size = r->block ? GRAIN : r->size, .start = r->from, .serial = r->serial,
		};
		pattern(&h, h.pattern);
		memcpy(out, &h, sizeof h);
		result = SUCCESS;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

int reaches(CUdevice device, int physical) { return settings.physical[device] == physical || settings.peers; }

#ifndef OLD_DRIVER

/* open_owner opens the memfd of a handle's owner. */
static int open_owner(const struct handle *h)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static CUresult open_handle(struct range *r, const struct handle *h)
{
	int fd = open_owner(h);
	if (fd < 0)
		return INVALID_HANDLE;
	CUresult result = map(r, fd, h->size);
	close(fd);
	if (result != SUCCESS)
		return result;
	for (int i = 0; i < MAX_OPENERS; i++) {
		uint64_t none = 0;
		if (__atomic_compare_exchange_n(&r->head->opener[i], &none, open_by(getpid(), h->start), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			break;
	}
	r->fd = -1;
	r->opens = 1;
	r->start = h->start;
	r->device = current()->device;
	memcpy(r->handle, h, sizeof *h);
	return SUCCESS;
}

static struct range *opened(const struct handle *h)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (ranges[i].base && ranges[i].opens && memcmp(ranges[i].handle, h, sizeof *h) == 0)
			return &ranges[i];
	return NULL;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	ENTER_WITH_CONTEXT("cuIpcOpenMemHandle_v2");
	struct handle h;
	unsigned char want[16];
	memcpy(&h, &handle, sizeof h);
	pattern(&h, want);
	if (flags != 1) /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
		return INVALID_VALUE;
	if (h.magic != 0x6b76636b || memcmp(want, h.pattern, sizeof want) != 0 || h.pid_namespace != pid_namespace())
		return INVALID_HANDLE;
	if (h.pid == getpid())
		return INVALID_CONTEXT;
	if (!reaches(current()->device, h.device))
		return PEER_ACCESS_UNSUPPORTED;
	CUresult result = SUCCESS;
	pthread_rwlock_wrlock(&ranges_lock);
	struct range *r = opened(&h);
	if (r)
		r->opens++;
	else if (!(r = unused()))
		result = OUT_OF_MEMORY;
	else
		result = open_handle(r, &h);
	if (result == SUCCESS)
		*out = r->base + r->start;
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
	ENTER_WITH_CONTEXT("cuIpcCloseMemHandle");
	CUresult result = INVALID_VALUE;
	pthread_rwlock_wrlock(&ranges_lock);
	struct range *r = find(at, 0);
	if (r && r->opens && r->base + r->start == at) {
		result = SUCCESS;
		if (--r->opens == 0) {
			for (int i = 0; i < MAX_OPENERS; i++) {
				uint64_t self = open_by(getpid(), r->start);
				if (__atomic_compare_exchange_n(&r->head->opener[i], &self, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
					break;
			}
			unmap(r);
		}
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

#endif

int mapped(CUdeviceptr at, size_t n)
{
	pthread_rwlock_rdlock(&ranges_lock);
	struct range *r = find(at, n);
	int yes = r && (!r->vmm || r->access >> current()->device & 1);
	pthread_rwlock_unlock(&ranges_lock);
	return yes;
}

int overlap(CUdeviceptr a, CUdeviceptr b, size_t n)
{
	pthread_rwlock_rdlock(&ranges_lock);
	struct range *ra = find(a, n), *rb = find(b, n);
	int yes = 0;
	if (ra && rb && ra->inode == rb->inode) {
		uint64_t at = ra->from + (a - ra->base), other = rb->from + (b - rb->base);
		yes = at < other + n && other < at + n;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return yes;
}

static char *host_of(int device, uintptr_t at, size_t n)
{
	if (!device)
		return (char *)at;
	struct range *r = find(at, n);
	return r ? r->data + (at - r->base) : NULL;
}

CUresult copy(int dst_device, uintptr_t dst, int src_device, uintptr_t src, size_t n)
{
	pthread_rwlock_rdlock(&ranges_lock);
	char *to = host_of(dst_device, dst, n), *from = host_of(src_device, src, n);
	if (to && from)
		memcpy(to, from, n);
	if (to && from && n && settings.corrupt && dst_device && src_device)
		to[n - 1] ^= 1;
	pthread_rwlock_unlock(&ranges_lock);
	return to && from ? SUCCESS : ILLEGAL_ADDRESS;
}
