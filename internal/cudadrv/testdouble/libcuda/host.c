/* Host memory that is registered, which batches of copies ask for. */
#include "double.h"

#define MAX_PINNED 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uintptr_t at;
	size_t size; /* 0: unused entry */
} entries[MAX_PINNED];

CUresult cuMemHostRegister_v2(void *at, size_t size, unsigned flags)
{
	ENTER_WITH_CONTEXT("cuMemHostRegister_v2");
	uintptr_t from = (uintptr_t)at;
	if (!at || !size || flags & ~0xfu)
		return INVALID_VALUE;
	CUresult result = OUT_OF_MEMORY;
	int place = -1;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_PINNED; i++) {
		if (!entries[i].size)
			place = place < 0 ? i : place;
		else if (from < entries[i].at + entries[i].size && entries[i].at < from + size)
			result = ALREADY_REGISTERED;
	}
	if (result != ALREADY_REGISTERED && place >= 0) {
		entries[place].at = from;
		entries[place].size = size;
		result = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult cuMemHostUnregister(void *at)
{
	ENTER_WITH_CONTEXT("cuMemHostUnregister");
	CUresult result = NOT_REGISTERED;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_PINNED; i++)
		if (entries[i].size && entries[i].at == (uintptr_t)at) {
			entries[i].size = 0;
			result = SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return result;
}

int pinned(uintptr_t at, size_t n)
{
	int yes = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_PINNED; i++)
		yes |= entries[i].size && at >= entries[i].at && n <= entries[i].size && at - entries[i].at <= entries[i].size - n;
	pthread_mutex_unlock(&lock);
	return yes;
}
