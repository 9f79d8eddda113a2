/* Memory of cuMemCreate, which file descriptors share. */
#define _GNU_SOURCE
#include "ranges.h"

#ifndef OLD_DRIVER

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_ALLOCATIONS 256
#define MAX_RESERVED 256
#define MAGIC 0x6b76766d6d000001ull

/* allocation lives until its handle is released and nothing maps it. */
struct allocation {
	uint64_t id; /* what the handle is; 0: unused entry */
	size_t size;
	int device; /* physical */
	int fd;
	int handles, maps;
	int imported; /* it is another process's */
	int exports;  /* descriptors may be made of it */
};

typedef struct {
	int type, id;
} CUmemLocation;

typedef struct {
	int type, handle_types;
	CUmemLocation location;
	void *win32;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

_Static_assert(sizeof(CUmemAllocationProp) == 32, "a CUmemAllocationProp has 32 bytes");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "a CUmemAccessDesc has 12 bytes");

enum { PINNED = 1, POSIX_FD = 1, ON_DEVICE = 1, NO_ACCESS = 0, READ_WRITE = 3 };

static struct allocation allocations[MAX_ALLOCATIONS];
static struct {
	CUdeviceptr base; /* 0: unused entry */
	size_t size;
} reserved[MAX_RESERVED];

static int whole(size_t size) { return size && size % GRAIN == 0; }

static struct allocation *of(uint64_t id)
{
	for (int i = 0; id && i < MAX_ALLOCATIONS; i++)
		if (allocations[i].id == id && allocations[i].handles)
			return &allocations[i];
	return NULL;
}

/* add makes an entry; its handle is never used twice. */
static struct allocation *add(struct allocation a)
{
	static uint64_t last = 0x1000;
	for (int i = 0; i < MAX_ALLOCATIONS; i++)
		if (!allocations[i].id) {
			a.id = ++last;
			a.handles = 1;
			allocations[i] = a;
			return &allocations[i];
		}
	return NULL;
}

/* drop ends an allocation that nothing refers to. */
static void drop(struct allocation *a)
{
	if (a->handles || a->maps)
		return;
	close(a->fd);
	for (int i = 0; !a->imported && i < settings.visible; i++)
		if (settings.physical[i] == a->device)
			used[i] -= a->size;
	a->id = 0;
}

static CUresult check(const CUmemAllocationProp *p)
{
	if (!settings.vmm)
		return NOT_SUPPORTED;
	if (p->type != PINNED || p->location.type != ON_DEVICE || p->win32 || p->handle_types & ~POSIX_FD)
		return INVALID_VALUE;
	if (p->location.id < 0 || p->location.id >= settings.visible)
		return INVALID_DEVICE;
	return p->handle_types && !settings.fds ? NOT_SUPPORTED : SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, int option)
{
	ENTER("cuMemGetAllocationGranularity");
	if (option < 0 || option > 1)
		return INVALID_VALUE;
	*out = GRAIN;
	return check(p);
}

/* create makes a memfd with a head that import knows it by. */
static int create(size_t size, int device)
{
	struct head h = {.magic = MAGIC, .size = size, .device = device};
	int fd = memfd_create("test double of shareable device memory", MFD_CLOEXEC);
	if (fd >= 0 && (ftruncate(fd, (off_t)(HEAD + size)) != 0 || pwrite(fd, &h, sizeof h, 0) != sizeof h)) {
		close(fd);
		return -1;
	}
	return fd;
}

CUresult cuMemCreate(uint64_t *out, size_t size, const CUmemAllocationProp *p, unsigned long long flags)
{
	ENTER("cuMemCreate");
	CUresult result = check(p);
	if (result != SUCCESS)
		return result;
	if (flags || !whole(size))
		return INVALID_VALUE;
	int device = p->location.id, fd = -1;
	struct allocation *a = NULL;
	pthread_rwlock_wrlock(&ranges_lock);
	if (used[device] + size <= settings.memory)
		fd = create(size, settings.physical[device]);
	if (fd >= 0)
		a = add((struct allocation){.size = size, .device = settings.physical[device], .fd = fd, .exports = p->handle_types});
	if (a) {
		used[device] += size;
		*out = a->id;
	} else if (fd >= 0) {
		close(fd);
	}
	pthread_rwlock_unlock(&ranges_lock);
	return a ? SUCCESS : OUT_OF_MEMORY;
}

/* Legal while the memory is mapped, which then lives until it is not. */
CUresult cuMemRelease(uint64_t handle)
{
	ENTER("cuMemRelease");
	pthread_rwlock_wrlock(&ranges_lock);
	struct allocation *a = of(handle);
	if (a) {
		a->handles--;
		drop(a);
	}
	pthread_rwlock_unlock(&ranges_lock);
	return a ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
	ENTER("cuMemAddressReserve");
	if (!whole(size) || alignment & (alignment - 1) || flags || wish)
		return INVALID_VALUE;
	CUresult result = OUT_OF_MEMORY;
	pthread_rwlock_wrlock(&ranges_lock);
	for (int i = 0; i < MAX_RESERVED; i++) {
		if (reserved[i].base)
			continue;
		*out = reserved[i].base = reserve(size);
		reserved[i].size = size;
		result = *out ? SUCCESS : OUT_OF_MEMORY;
		break;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t size)
{
	ENTER("cuMemAddressFree");
	CUresult result = INVALID_VALUE;
	pthread_rwlock_wrlock(&ranges_lock);
	for (int i = 0; at && i < MAX_RESERVED; i++)
		if (reserved[i].base == at && reserved[i].size == size && !find(at, 1)) {
			reserved[i].base = 0;
			result = SUCCESS;
		}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

/* may_map says whether all of a reservation is free. The driver takes parts, too. */
static int may_map(CUdeviceptr at, size_t size)
{
	for (int i = 0; i < MAX_RESERVED; i++)
		if (at && reserved[i].base == at && reserved[i].size == size)
			return !find(at, 1);
	return 0;
}

CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, uint64_t handle, unsigned long long flags)
{
	ENTER("cuMemMap");
	CUresult result = INVALID_VALUE;
	pthread_rwlock_wrlock(&ranges_lock);
	struct allocation *a = of(handle);
	struct range *r = unused();
	if (a && r && !offset && !flags && whole(size) && size <= a->size && may_map(at, size)) {
		result = map_at(r, at, a->fd, 0, size);
		if (result == SUCCESS) {
			r->fd = -1;
			r->vmm = a;
			a->maps++;
		}
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

/* mapping returns what is mapped at exactly these addresses, or NULL. */
static struct range *mapping(CUdeviceptr at, size_t size)
{
	struct range *r = find(at, size);
	return r && r->vmm && r->base == at && r->size == size ? r : NULL;
}

static CUresult allow(struct range *r, const CUmemAccessDesc *d)
{
	if (!r || d->location.type != ON_DEVICE || (d->flags != NO_ACCESS && d->flags != READ_WRITE))
		return INVALID_VALUE;
	if (d->location.id < 0 || d->location.id >= settings.visible || !reaches(d->location.id, r->vmm->device))
		return INVALID_DEVICE;
	unsigned bit = 1u << d->location.id;
	r->access = d->flags ? r->access | bit : r->access & ~bit;
	return SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *descs, size_t count)
{
	ENTER("cuMemSetAccess");
	CUresult result = SUCCESS;
	pthread_rwlock_wrlock(&ranges_lock);
	struct range *r = mapping(at, size);
	for (size_t i = 0; i < count && result == SUCCESS; i++)
		result = allow(r, &descs[i]);
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

/* elsewhere says whether another process has imported a: it holds a lock then. */
static int elsewhere(struct allocation *a)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	return !a->imported && fcntl(a->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t size)
{
	ENTER("cuMemUnmap");
	CUresult result = INVALID_VALUE;
	pthread_rwlock_wrlock(&ranges_lock); /* waits for copies under way */
	struct range *r = mapping(at, size);
	if (r && settings.strict && elsewhere(r->vmm)) {
		fprintf(stderr, "test double: cuMemUnmap of memory that another process has\n");
		result = ILLEGAL_STATE;
	} else if (r) {
		struct allocation *a = r->vmm;
		unmap(r);
		a->maps--;
		drop(a);
		result = SUCCESS;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

CUresult cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags)
{
	ENTER("cuMemExportToShareableHandle");
	CUresult result = INVALID_VALUE;
	pthread_rwlock_rdlock(&ranges_lock);
	struct allocation *a = of(handle);
	if (a && type == POSIX_FD && !flags && a->exports) {
		int fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
		*(int *)out = fd;
		result = fd >= 0 ? SUCCESS : OUT_OF_MEMORY;
	}
	pthread_rwlock_unlock(&ranges_lock);
	return result;
}

/* reopen opens what a descriptor stands for anew, so that a lock is this process's, and
 * takes that. The caller keeps the descriptor. */
static int reopen(int fd, struct head *h)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int own = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
	if (own >= 0 && (pread(own, h, sizeof *h, 0) != sizeof *h || h->magic != MAGIC || fcntl(own, F_OFD_SETLK, &l) != 0)) {
		close(own);
		return -1;
	}
	return own;
}

CUresult cuMemImportFromShareableHandle(uint64_t *out, void *os_handle, int type)
{
	ENTER("cuMemImportFromShareableHandle");
	struct head h;
	if (!settings.vmm)
		return NOT_SUPPORTED;
	int fd = type == POSIX_FD ? reopen((int)(intptr_t)os_handle, &h) : -1;
	if (fd < 0)
		return INVALID_VALUE;
	pthread_rwlock_wrlock(&ranges_lock);
	struct allocation *a = add((struct allocation){.size = h.size, .device = h.device, .fd = fd, .imported = 1});
	if (a)
		*out = a->id;
	else
		close(fd);
	pthread_rwlock_unlock(&ranges_lock);
	return a ? SUCCESS : OUT_OF_MEMORY;
}

#endif
