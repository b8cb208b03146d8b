/* Rows of the engine to Arrow record batches, one a host: one call from Python, no array of numpy's. */
#ifndef PE_ROW_BATCHES_H
#define PE_ROW_BATCHES_H

#include <stdint.h>

#include "arrow.h"
#include "engine.h"
#include "row_table.h"

/* The rows of each host that has some, hosts in order, a host's rows in theirs. Returns how many batches there are,
 * or -ENOMEM, and then none.
 *
 * rows:       (n) of which nothing is kept; neither these nor `generation` may change meanwhile
 * generation: of each path of the engine; rows of another one are left out, and so are those of paths that no host
 *             has. NULL: all are right
 * hosts:      (hosts of the table) whose batch it is
 * batches:    (hosts of the table) what no consumer has taken since the last call is released first; zeroed at first */
int32_t pe_row_batches(pe_row_table *table, const pe_row *rows, uint32_t n, const uint16_t *generation,
                       uint32_t *hosts, struct ArrowArray *batches);

#endif
