#include "row_table.h"

#include <stdlib.h>
#include <string.h>

#include "engine.h"

static void *copied(const void *from, size_t octets)
{
    void *copy = malloc(octets ? octets : 1);
    if (copy && octets)
        memcpy(copy, from, octets);
    return copy;
}

/* Replace what a host's columns point to by copies; false: no memory, and what was not copied is NULL. */
static bool own(pe_row_host *host)
{
    const pe_row_host given = *host;
    size_t n = given.paths;
    host->source_port = copied(given.source_port, n * sizeof *given.source_port);
    host->size_bytes = copied(given.size_bytes, n * sizeof *given.size_bytes);
    host->tos = copied(given.tos, n * sizeof *given.tos);
    bool whole = host->source_port && host->size_bytes && host->tos;
    for (int c = 0; c < PE_NAME_COLUMNS; c++) {
        const pe_row_names *from = &given.names[c];
        pe_row_names *to = &host->names[c];
        to->indices = copied(from->indices, 2 * n * sizeof *from->indices);
        to->offsets = copied(from->offsets, (from->entries + (size_t)1) * sizeof *from->offsets);
        to->text = copied(from->text, (size_t)from->offsets[from->entries]);
        whole = whole && to->indices && to->offsets && to->text;
    }
    return whole;
}

static void let_go(const pe_row_host *host)
{
    free((void *)host->source_port);
    free((void *)host->size_bytes);
    free((void *)host->tos);
    for (int c = 0; c < PE_NAME_COLUMNS; c++) {
        free((void *)host->names[c].indices);
        free((void *)host->names[c].offsets);
        free((void *)host->names[c].text);
    }
}

static bool ordered(const pe_row_host *hosts, uint32_t n)
{
    for (uint32_t h = 0; h < n; h++) {
        if (h > 0 && hosts[h].first_path < hosts[h - 1].first_path)
            return false;
        if ((uint64_t)hosts[h].first_path + hosts[h].paths >= PE_NONE)
            return false;
    }
    return true;
}

static bool fill(pe_row_table *table, const pe_row_host *hosts)
{
    for (uint32_t path = 0; path < table->n_paths; path++)
        table->host_of[path] = PE_NONE;
    bool whole = true;
    for (uint32_t h = 0; h < table->n_hosts; h++) {
        pe_row_host *host = &table->hosts[h];
        *host = hosts[h];
        whole = own(host) && whole; /* each of them, so that what is freed is ours */
        /* a host may list more paths than the engine has room for: those behind its range are never probed */
        uint32_t end = h + 1 < table->n_hosts ? hosts[h + 1].first_path : table->n_paths;
        for (uint32_t i = 0; i < host->paths && host->first_path + i < end; i++)
            table->host_of[host->first_path + i] = h;
        for (int c = 0; c < PE_NAME_COLUMNS; c++) {
            table->text[h][c][0] = NULL;
            table->text[h][c][1] = host->names[c].offsets;
            table->text[h][c][2] = host->names[c].text;
        }
    }
    return whole;
}

pe_row_table *pe_row_table_new(const pe_row_host *hosts, uint32_t n)
{
    pe_row_table *table = ordered(hosts, n) ? calloc(1, sizeof *table) : NULL;
    if (!table)
        return NULL;
    atomic_init(&table->held, 1);
    table->n_paths = n ? hosts[n - 1].first_path + hosts[n - 1].paths : 0;
    table->host_of = calloc(table->n_paths + (size_t)1, sizeof *table->host_of);
    table->hosts = calloc(n + (size_t)1, sizeof *table->hosts);
    table->text = calloc(n + (size_t)1, sizeof *table->text);
    table->counts = calloc(n + (size_t)1, sizeof *table->counts);
    table->open = calloc(n + (size_t)1, sizeof *table->open);
    bool whole = table->host_of && table->hosts && table->text && table->counts && table->open;
    table->n_hosts = whole ? n : 0;
    if (!whole || !fill(table, hosts)) {
        pe_row_table_free(table);
        return NULL;
    }
    return table;
}

void pe_row_table_free(pe_row_table *table)
{
    if (atomic_fetch_sub_explicit(&table->held, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t h = 0; h < table->n_hosts; h++)
        let_go(&table->hosts[h]);
    free(table->host_of);
    free(table->hosts);
    free(table->text);
    free(table->counts);
    free(table->open);
    free(table);
}
