#include "row_batches.h"

#include <errno.h>
#include <string.h>

#include "row_columns.h"

/* Whose row it is; PE_NONE: nobody's any more. */
static uint32_t host_of(const pe_row_table *table, const pe_row *row, const uint16_t *generation)
{
    if (row->path >= table->n_paths || (generation && generation[row->path] != row->generation))
        return PE_NONE;
    return table->host_of[row->path];
}

/* Room for the rows of each host; false: no memory, and then there is none. */
static bool make_room(pe_row_table *table)
{
    memset(table->open, 0, table->n_hosts * sizeof *table->open);
    for (uint32_t h = 0; h < table->n_hosts; h++) {
        if (table->counts[h] == 0 || (table->open[h] = pe_row_columns_new(table, h, table->counts[h])) != NULL)
            continue;
        for (uint32_t made = 0; made < h; made++)
            if (table->open[made])
                pe_row_columns_free(table->open[made]);
        return false;
    }
    return true;
}

int32_t pe_row_batches(pe_row_table *table, const pe_row *rows, uint32_t n, const uint16_t *generation,
                       uint32_t *hosts, struct ArrowArray *batches)
{
    memset(table->counts, 0, table->n_hosts * sizeof *table->counts);
    for (uint32_t h = 0; h < table->n_hosts; h++)
        if (batches[h].release)
            batches[h].release(&batches[h]);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t host = host_of(table, &rows[i], generation);
        if (host != PE_NONE)
            table->counts[host]++;
    }
    if (!make_room(table))
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t host = host_of(table, &rows[i], generation);
        if (host != PE_NONE)
            pe_row_columns_add(table->open[host], &rows[i]);
    }
    int32_t found = 0;
    for (uint32_t h = 0; h < table->n_hosts; h++)
        if (table->open[h]) {
            hosts[found] = h;
            pe_row_columns_export(table->open[h], &batches[found++]);
        }
    return found;
}
