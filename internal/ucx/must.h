#ifndef KVB_MUST_H
#define KVB_MUST_H

#include <stdlib.h>

// must is for memory that there is no going on without.
static inline void *must(void *memory)
{
	if (memory == NULL) {
		abort();  // as the Go runtime does when memory is out
	}
	return memory;
}

#endif
