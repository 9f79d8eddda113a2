/* Mapped device memory, whatever made it: what memory.c and vmm.c share. */
#ifndef RANGES_H
#define RANGES_H

#include "double.h"

#define MAX_RANGES 4096
#define MAX_OPENERS 64
#define HEAD 4096 /* bytes of a memfd before its data */
#define GRAIN (2u << 20)
#define PAGE 4096u

/* head is at the start of a memfd. */
struct head {
	uint64_t opener[MAX_OPENERS]; /* who has memory of it open by a legacy handle, as open_by says; 0 is free */
	uint64_t magic, size;    /* of memory that vmm.c made, ... */
	int device;              /* ... on this physical device */
};

struct range {
	CUdeviceptr base; /* 0: unused entry */
	size_t size;
	size_t from;    /* where the memfd has it, after its head */
	uint64_t inode; /* of the memfd: tells whether two ranges are one memory */
	int device;
	struct block *block; /* that the owner's small memory lies in, or NULL */
	int fd; /* of the owner; -1 where it was opened from a handle or mapped by vmm.c */
	int opens;
	size_t start; /* of what a handle that was opened stands for, from base on */
	uint64_t serial; /* the owner's; every handle of one range is the same */
	struct head *head;
	char *data;
	unsigned char handle[64];
	struct allocation *vmm; /* what is mapped here, or NULL */
	unsigned access;        /* devices that may use that, as bits */
};

/* What follows is called with it held, for writing where something changes. Copies hold it for reading. */
extern pthread_rwlock_t ranges_lock;
extern size_t used[MAX_DEVICES]; /* bytes of each device */

/* reserve returns addresses for a range, or 0. They are never used twice. */
CUdeviceptr reserve(size_t size);

/* find returns the range that n bytes lie in, or NULL. */
struct range *find(CUdeviceptr at, size_t n);

/* unused returns an entry for a range, or NULL. */
struct range *unused(void);

/* map_at fills an entry with the memory of fd from a place on, at an address. */
CUresult map_at(struct range *r, CUdeviceptr base, int fd, size_t from, size_t size);

void unmap(struct range *r);

/* reaches says whether a device reaches a physical one. */
int reaches(CUdevice device, int physical);

#endif
