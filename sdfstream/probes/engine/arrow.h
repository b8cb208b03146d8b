/* One structure of the Arrow C data interface, as its specification declares it: a column or a batch whose memory
 * belongs to whoever made it, until its release callback is called. Its twin, the schema, Python has already. */
#ifndef PE_ARROW_H
#define PE_ARROW_H

#include <stdint.h>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers; /* of a fixed width: validity bitmap or NULL, values; of utf8: NULL, offsets, text */
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *); /* NULL: released */
    void *private_data;
};

#endif
#endif
