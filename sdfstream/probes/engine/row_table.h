/* What rows of `sdf.raw.probe.v1` say of their paths and the engine's rows do not: names, ports, sizes, classes. */
#ifndef PE_ROW_TABLE_H
#define PE_ROW_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

enum { PE_NAME_COLUMNS = 6 }; /* src, dst, clock_src, clock_dst, transport, plane, in this order */

/* A column of names of one host. */
typedef struct pe_row_names {
    const int32_t *indices; /* (2, paths) into the dictionary, -1: null; for stamps of the system's clock, of a NIC's */
    const int32_t *offsets; /* (entries + 1) of the dictionary's entries in `text` */
    const uint8_t *text;    /* UTF-8 */
    uint32_t entries;
    uint32_t pad;
} pe_row_names;

/* The paths of one host. Path i of its columns is path `first_path` + i of the engine. */
typedef struct pe_row_host {
    uint32_t first_path;
    uint32_t paths;
    const uint32_t *source_port;
    const uint16_t *size_bytes; /* of probes, IP packet */
    const uint8_t *tos;         /* of probes as sent */
    pe_row_names names[PE_NAME_COLUMNS];
} pe_row_host;

struct pe_row_columns;

/* A copy of all hosts' paths; batches hold it, since their dictionaries lie in it. */
typedef struct pe_row_table {
    atomic_uint held; /* by the maker and by every batch; any thread may let go */
    uint32_t n_hosts;
    uint32_t n_paths;  /* the highest path number + 1 */
    uint32_t *host_of; /* (n_paths) PE_NONE: no host has it */
    pe_row_host *hosts; /* (n_hosts) */
    const void *(*text)[PE_NAME_COLUMNS][3]; /* (n_hosts) Arrow buffers of the dictionaries */
    uint32_t *counts; /* (n_hosts) room for `pe_row_batches` */
    struct pe_row_columns **open; /* (n_hosts) the same */
} pe_row_table;

/* Hosts in the order of their first paths; where two have a path, it is the later one's. NULL: another order, or no
 * memory. All is copied. */
pe_row_table *pe_row_table_new(const pe_row_host *hosts, uint32_t n);
/* Let go of it; the last one frees it. */
void pe_row_table_free(pe_row_table *table);

#endif
