#include "heap.h"

static void set(pe_heap *heap, uint32_t at, uint32_t path)
{
    heap->path[at] = path;
    heap->place[path] = at;
}

static void rise(pe_heap *heap, uint32_t at, uint32_t path)
{
    while (at > 0) {
        uint32_t above = (at - 1) / 2;
        if (heap->due_ns[heap->path[above]] <= heap->due_ns[path])
            break;
        set(heap, at, heap->path[above]);
        at = above;
    }
    set(heap, at, path);
}

static void sink(pe_heap *heap, uint32_t at, uint32_t path)
{
    for (;;) {
        uint32_t below = 2 * at + 1;
        if (below >= heap->n)
            break;
        if (below + 1 < heap->n && heap->due_ns[heap->path[below + 1]] < heap->due_ns[heap->path[below]])
            below++;
        if (heap->due_ns[path] <= heap->due_ns[heap->path[below]])
            break;
        set(heap, at, heap->path[below]);
        at = below;
    }
    set(heap, at, path);
}

void pe_heap_clear(pe_heap *heap, uint32_t paths)
{
    heap->n = 0;
    for (uint32_t i = 0; i < paths; i++) {
        heap->place[i] = PE_HEAP_OUT;
        heap->due_ns[i] = PE_NEVER_NS;
    }
}

void pe_heap_put(pe_heap *heap, uint32_t path, int64_t due_ns)
{
    uint32_t at = heap->place[path];
    bool earlier = due_ns < heap->due_ns[path];
    heap->due_ns[path] = due_ns;
    if (at == PE_HEAP_OUT)
        rise(heap, heap->n++, path);
    else if (earlier)
        rise(heap, at, path);
    else
        sink(heap, at, path);
}

void pe_heap_remove(pe_heap *heap, uint32_t path)
{
    uint32_t at = heap->place[path];
    if (at == PE_HEAP_OUT)
        return;
    heap->place[path] = PE_HEAP_OUT;
    heap->due_ns[path] = PE_NEVER_NS;
    uint32_t last = heap->path[--heap->n];
    if (last == path)
        return;
    /* the last may belong above or below the gap */
    rise(heap, at, last);
    sink(heap, heap->place[last], last);
}
