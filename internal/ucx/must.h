#ifndef KVB_MUST_H
#define KVB_MUST_H

#include <stdlib.h>

// must aborts if an allocation failed.
static inline void *must(void *memory)
{
	if (memory == NULL) {
		abort();  // the Go runtime does the same
	}
	return memory;
}

#endif
