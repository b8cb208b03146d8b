/* Sorting of a few hundred keys in place, without recursion and without memory of its own (the C library's qsort may
 * allocate). Shell sort with Ciura's gaps (2001); what comes is nearly sorted already. */
#ifndef PE_ORDER_H
#define PE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pe_key {
    uint64_t major;
    uint64_t minor;
    uint32_t value; /* what is sorted */
    uint32_t more;
} pe_key;

void pe_order(pe_key *keys, uint32_t n);

#endif
