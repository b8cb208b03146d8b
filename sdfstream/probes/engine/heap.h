/* A binary heap of paths by the instant at which their next probe is due (Williams 1964), with room for every path.
 *
 * `place` says where a path stands, so that a path can be moved or taken out in logarithmic time. Of equal instants any
 * path may come first: `pe_due` sorts what it takes. */
#ifndef PE_HEAP_H
#define PE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define PE_NEVER_NS INT64_MAX
#define PE_HEAP_OUT UINT32_MAX /* a path that is not in the heap */

typedef struct pe_heap {
    uint32_t *path;  /* (n) in heap order */
    uint32_t *place; /* (paths) index into `path` */
    int64_t *due_ns; /* (paths) steady clock; PE_NEVER_NS of those outside */
    uint32_t n;
} pe_heap;

/* Nothing is due: `paths` arrays belong to the caller. */
void pe_heap_clear(pe_heap *heap, uint32_t paths);

/* Put a path in, or move it to another instant. */
void pe_heap_put(pe_heap *heap, uint32_t path, int64_t due_ns);

void pe_heap_remove(pe_heap *heap, uint32_t path);

/* When the first is due; PE_NEVER_NS: nothing is. */
static inline int64_t pe_heap_next_ns(const pe_heap *heap)
{
    return heap->n ? heap->due_ns[heap->path[0]] : PE_NEVER_NS;
}

#endif
