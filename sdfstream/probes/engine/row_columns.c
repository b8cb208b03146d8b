/* Rows of the engine to columns, as probes/engine/rows.py does it in numpy: the same values, also where one is null. */
#include "row_columns.h"

#include <stdlib.h>
#include <string.h>

#define LINE_OCTETS ((size_t)64) /* where a buffer begins, as Arrow recommends */

typedef struct column {
    const char *name;
    uint8_t octets;
    bool nullable;
} column;

static const column COLUMNS[PE_COLUMNS] = {
    [PE_C_SRC] = {"src", 4, true},
    [PE_C_DST] = {"dst", 4, true},
    [PE_C_CLOCK_SRC] = {"clock_src", 4, true},
    [PE_C_CLOCK_DST] = {"clock_dst", 4, true},
    [PE_C_TRANSPORT] = {"transport", 4, true},
    [PE_C_PATH] = {"path", 4, false},
    [PE_C_SEQ] = {"seq", 4, false},
    [PE_C_T1_NS] = {"t1_ns", 8, false},
    [PE_C_T2_NS] = {"t2_ns", 8, true},
    [PE_C_T3_NS] = {"t3_ns", 8, true},
    [PE_C_T4_NS] = {"t4_ns", 8, true},
    [PE_C_T1_KIND] = {"t1_kind", 1, false},
    [PE_C_T2_KIND] = {"t2_kind", 1, false},
    [PE_C_T3_KIND] = {"t3_kind", 1, false},
    [PE_C_T4_KIND] = {"t4_kind", 1, false},
    [PE_C_DSCP_SENT] = {"dscp_sent", 1, false},
    [PE_C_ECN_SENT] = {"ecn_sent", 1, false},
    [PE_C_DSCP_FWD] = {"dscp_fwd", 1, true},
    [PE_C_ECN_FWD] = {"ecn_fwd", 1, true},
    [PE_C_DSCP_REV] = {"dscp_rev", 1, true},
    [PE_C_ECN_REV] = {"ecn_rev", 1, true},
    [PE_C_SIZE_BYTES] = {"size_bytes", 2, false},
    [PE_C_TTL_FWD] = {"ttl_fwd", 1, true},
    [PE_C_TTL_REV] = {"ttl_rev", 1, true},
    [PE_C_TX_HOST_NS] = {"tx_host_ns", 4, true},
    [PE_C_RX_HOST_NS] = {"rx_host_ns", 4, true},
    [PE_C_PLANE] = {"plane", 4, true},
    [PE_C_SEQ_REV] = {"seq_rev", 4, true},
};
/* Columns of the names of a `pe_row_host`. */
static const enum pe_column NAMES[PE_NAME_COLUMNS] = {PE_C_SRC,       PE_C_DST,       PE_C_CLOCK_SRC,
                                                      PE_C_CLOCK_DST, PE_C_TRANSPORT, PE_C_PLANE};

const char *pe_row_column(uint32_t number, uint32_t *octets)
{
    if (number >= PE_COLUMNS)
        return NULL;
    *octets = COLUMNS[number].octets;
    return COLUMNS[number].name;
}

/* --- memory --- */

static size_t lines(size_t octets)
{
    return (octets + LINE_OCTETS - 1) / LINE_OCTETS * LINE_OCTETS;
}

pe_row_columns *pe_row_columns_new(pe_row_table *table, uint32_t host, uint32_t n)
{
    size_t bitmap = lines((n + (size_t)7) / 8), total = lines(sizeof(pe_row_columns)), bitmaps_at = total;
    for (int c = 0; c < PE_COLUMNS; c++)
        total += COLUMNS[c].nullable ? bitmap : 0;
    size_t values_at = total;
    for (int c = 0; c < PE_COLUMNS; c++)
        total += lines((size_t)n * COLUMNS[c].octets);
    pe_row_columns *columns = aligned_alloc(LINE_OCTETS, total);
    if (!columns)
        return NULL;
    uint8_t *memory = (uint8_t *)columns;
    memset(memory, 0, values_at);
    for (int c = 0; c < PE_COLUMNS; c++) {
        columns->validity[c] = COLUMNS[c].nullable ? memory + bitmaps_at : NULL;
        bitmaps_at += COLUMNS[c].nullable ? bitmap : 0;
        columns->values[c] = memory + values_at;
        values_at += lines((size_t)n * COLUMNS[c].octets);
    }
    atomic_fetch_add_explicit(&table->held, 1, memory_order_relaxed);
    columns->table = table;
    columns->host = host;
    return columns;
}

void pe_row_columns_free(pe_row_columns *columns)
{
    pe_row_table_free(columns->table);
    free(columns);
}

/* --- one row --- */

static void put8(pe_row_columns *columns, enum pe_column column, uint8_t value)
{
    ((uint8_t *)columns->values[column])[columns->length] = value;
}

static void put32(pe_row_columns *columns, enum pe_column column, uint32_t value)
{
    ((uint32_t *)columns->values[column])[columns->length] = value;
}

static void put64(pe_row_columns *columns, enum pe_column column, int64_t value)
{
    ((int64_t *)columns->values[column])[columns->length] = value;
}

static void mark(pe_row_columns *columns, enum pe_column column, bool present)
{
    uint32_t i = columns->length;
    columns->validity[column][i / 8] |= (uint8_t)(present << (i % 8));
    columns->nulls[column] += !present;
}

/* What the table says of the row's path. */
static void add_path(pe_row_columns *columns, const pe_row *row)
{
    const pe_row_host *host = &columns->table->hosts[columns->host];
    uint32_t path = row->path - host->first_path;
    size_t near = row->t1_kind == PE_KIND_HARDWARE ? host->paths : 0;
    size_t far = row->t2_kind == PE_KIND_HARDWARE ? host->paths : 0;
    for (int c = 0; c < PE_NAME_COLUMNS; c++) {
        int32_t index = host->names[c].indices[path + (NAMES[c] == PE_C_CLOCK_DST ? far : near)];
        put32(columns, NAMES[c], index < 0 ? 0 : (uint32_t)index);
        mark(columns, NAMES[c], index >= 0);
    }
    put32(columns, PE_C_PATH, host->source_port[path]);
    ((uint16_t *)columns->values[PE_C_SIZE_BYTES])[columns->length] = host->size_bytes[path];
    put8(columns, PE_C_DSCP_SENT, host->tos[path] >> 2);
    put8(columns, PE_C_ECN_SENT, host->tos[path] & 3);
}

/* Stamps and the delays inside this host, which are known where both readings are the system clock's. */
static void add_times(pe_row_columns *columns, const pe_row *row, bool answered)
{
    put64(columns, PE_C_T1_NS, row->t1_ns);
    put64(columns, PE_C_T2_NS, row->t2_ns);
    put64(columns, PE_C_T3_NS, row->t3_ns);
    put64(columns, PE_C_T4_NS, row->t4_ns);
    mark(columns, PE_C_T2_NS, answered);
    mark(columns, PE_C_T3_NS, answered);
    mark(columns, PE_C_T4_NS, answered);
    put8(columns, PE_C_T1_KIND, row->t1_kind);
    put8(columns, PE_C_T2_KIND, row->t2_kind);
    put8(columns, PE_C_T3_KIND, row->t3_kind);
    put8(columns, PE_C_T4_KIND, row->t4_kind);
    put32(columns, PE_C_TX_HOST_NS, (uint32_t)row->tx_host_ns);
    put32(columns, PE_C_RX_HOST_NS, (uint32_t)row->rx_host_ns);
    mark(columns, PE_C_TX_HOST_NS, row->t1_kind == PE_KIND_KERNEL);
    mark(columns, PE_C_RX_HOST_NS, answered && row->t4_kind == PE_KIND_KERNEL);
}

/* Classes and hop limits on arrival. */
static void add_marks(pe_row_columns *columns, const pe_row *row, bool answered)
{
    bool classed = answered && (row->flags & PE_ROW_CLASSED);
    put8(columns, PE_C_DSCP_FWD, row->tos_fwd >> 2);
    put8(columns, PE_C_ECN_FWD, row->tos_fwd & 3);
    put8(columns, PE_C_DSCP_REV, row->tos_rev >> 2);
    put8(columns, PE_C_ECN_REV, row->tos_rev & 3);
    put8(columns, PE_C_TTL_FWD, row->ttl_fwd);
    put8(columns, PE_C_TTL_REV, row->ttl_rev);
    mark(columns, PE_C_DSCP_FWD, classed);
    mark(columns, PE_C_ECN_FWD, classed);
    mark(columns, PE_C_DSCP_REV, answered);
    mark(columns, PE_C_ECN_REV, answered);
    mark(columns, PE_C_TTL_FWD, answered && row->ttl_fwd != 0);
    mark(columns, PE_C_TTL_REV, answered && row->ttl_rev != 0);
}

void pe_row_columns_add(pe_row_columns *columns, const pe_row *row)
{
    bool answered = row->flags & PE_ROW_ANSWERED;
    put32(columns, PE_C_SEQ, row->seq);
    put32(columns, PE_C_SEQ_REV, row->seq_rev);
    mark(columns, PE_C_SEQ_REV, answered);
    add_path(columns, row);
    add_times(columns, row, answered);
    add_marks(columns, row, answered);
    columns->length++;
}

/* --- Arrow's structures; a consumer may take any of them out and release it later than the batch --- */

static void let_go(struct ArrowArray *array)
{
    pe_row_columns *columns = array->private_data;
    array->release = NULL;
    if (atomic_fetch_sub_explicit(&columns->held, 1, memory_order_acq_rel) == 1)
        pe_row_columns_free(columns);
}

static void release_column(struct ArrowArray *array)
{
    if (array->dictionary && array->dictionary->release)
        array->dictionary->release(array->dictionary);
    let_go(array);
}

static void release_batch(struct ArrowArray *array)
{
    for (int64_t c = 0; c < array->n_children; c++)
        if (array->children[c]->release)
            array->children[c]->release(array->children[c]);
    let_go(array);
}

void pe_row_columns_export(pe_row_columns *columns, struct ArrowArray *batch)
{
    const pe_row_host *host = &columns->table->hosts[columns->host];
    for (int c = 0; c < PE_COLUMNS; c++) {
        columns->buffers[c][0] = columns->nulls[c] ? columns->validity[c] : NULL; /* none where nothing is null */
        columns->buffers[c][1] = columns->values[c];
        columns->arrays[c] = (struct ArrowArray){.length = columns->length, .null_count = columns->nulls[c],
                                                 .n_buffers = 2, .buffers = columns->buffers[c],
                                                 .release = release_column, .private_data = columns};
        columns->children[c] = &columns->arrays[c];
    }
    for (int c = 0; c < PE_NAME_COLUMNS; c++) {
        columns->dictionaries[c] = (struct ArrowArray){.length = host->names[c].entries, .n_buffers = 3,
                                                       .buffers = columns->table->text[columns->host][c],
                                                       .release = let_go, .private_data = columns};
        columns->arrays[NAMES[c]].dictionary = &columns->dictionaries[c];
    }
    *batch = (struct ArrowArray){.length = columns->length, .n_buffers = 1, .n_children = PE_COLUMNS,
                                 .buffers = columns->no_validity, .children = columns->children,
                                 .release = release_batch, .private_data = columns};
    atomic_init(&columns->held, 1 + PE_COLUMNS + PE_NAME_COLUMNS);
}
