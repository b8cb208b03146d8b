#include "order.h"

static const uint32_t GAPS[] = {198768, 88340, 39262, 17450, 7755, 3446, 1531, 701, 301, 132, 57, 23, 10, 4, 1};

static bool before(const pe_key *a, const pe_key *b)
{
    return a->major != b->major ? a->major < b->major : a->minor < b->minor;
}

static void insert_by(pe_key *keys, uint32_t n, uint32_t gap)
{
    for (uint32_t i = gap; i < n; i++) {
        pe_key moved = keys[i];
        uint32_t at = i;
        for (; at >= gap && before(&moved, &keys[at - gap]); at -= gap)
            keys[at] = keys[at - gap];
        keys[at] = moved;
    }
}

void pe_order(pe_key *keys, uint32_t n)
{
    for (uint32_t i = 0; i < sizeof GAPS / sizeof GAPS[0]; i++)
        if (GAPS[i] < n)
            insert_by(keys, n, GAPS[i]);
}
