/* The columns of `sdf.raw.probe.v1` in Arrow's layout, in one piece of memory that is freed with their batch. */
#ifndef PE_ROW_COLUMNS_H
#define PE_ROW_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "arrow.h"
#include "engine.h"
#include "row_table.h"

enum pe_column {
    PE_C_SRC,
    PE_C_DST,
    PE_C_CLOCK_SRC,
    PE_C_CLOCK_DST,
    PE_C_TRANSPORT,
    PE_C_PATH,
    PE_C_SEQ,
    PE_C_T1_NS,
    PE_C_T2_NS,
    PE_C_T3_NS,
    PE_C_T4_NS,
    PE_C_T1_KIND,
    PE_C_T2_KIND,
    PE_C_T3_KIND,
    PE_C_T4_KIND,
    PE_C_DSCP_SENT,
    PE_C_ECN_SENT,
    PE_C_DSCP_FWD,
    PE_C_ECN_FWD,
    PE_C_DSCP_REV,
    PE_C_ECN_REV,
    PE_C_SIZE_BYTES,
    PE_C_TTL_FWD,
    PE_C_TTL_REV,
    PE_C_TX_HOST_NS,
    PE_C_RX_HOST_NS,
    PE_C_PLANE,
    PE_C_SEQ_REV,
    PE_COLUMNS
};

/* Name of a column and octets of a value (of a name: of its index); NULL: there is no such column. */
const char *pe_row_column(uint32_t column, uint32_t *octets);

/* The rows of one host. */
typedef struct pe_row_columns {
    atomic_uint held; /* structures of this batch that are not released */
    uint32_t length;  /* rows written; the room is that of `pe_row_columns_new` */
    pe_row_table *table;
    uint32_t host;
    void *values[PE_COLUMNS];
    uint8_t *validity[PE_COLUMNS]; /* NULL: the column never has a null */
    uint32_t nulls[PE_COLUMNS];
    struct ArrowArray arrays[PE_COLUMNS];
    struct ArrowArray *children[PE_COLUMNS];
    struct ArrowArray dictionaries[PE_NAME_COLUMNS];
    const void *buffers[PE_COLUMNS][2];
    const void *no_validity[1]; /* the buffers of the batch itself */
} pe_row_columns;

/* Room for `n` rows of a host, none written; NULL: no memory. */
pe_row_columns *pe_row_columns_new(pe_row_table *table, uint32_t host, uint32_t n);
/* Write the next row, of a path of this host. */
void pe_row_columns_add(pe_row_columns *columns, const pe_row *row);
/* Hand the rows over; they are freed with the last of the structures. */
void pe_row_columns_export(pe_row_columns *columns, struct ArrowArray *batch);
/* Free rows that were not handed over. */
void pe_row_columns_free(pe_row_columns *columns);

#endif
