#define _POSIX_C_SOURCE 200809L
/* Two threads at one engine, for ThreadSanitizer: one takes its turns, the other sends commands and reads both rings.
 * Made-up time, no packets, so that probes time out. Prints how many rows were read whole and in order. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine.h"

#define PATHS 16
#define TURNS 10000
#define MOST_TURNS 10000000
#define ROWS 256

static _Atomic int over;
/* The reader has seen rows and events: on a busy machine it may not run at all for 10,000 turns. Relaxed, so that it
 * orders nothing that ThreadSanitizer looks at. */
static _Atomic int seen;

static void *turns(void *given)
{
    static uint8_t data[PATHS][128];
    pe_t *pe = given;
    pe_out out[PATHS];
    int64_t now_ns = INT64_C(1000000000000);
    for (int i = 0; i < PATHS; i++)
        out[i] = (pe_out){.data = data[i], .room_octets = sizeof data[i]};
    for (int i = 0; i < MOST_TURNS; i++, now_ns += 500000) {
        if (i >= TURNS && atomic_load_explicit(&seen, memory_order_relaxed))
            break;
        (void)pe_apply(pe, now_ns);
        (void)pe_assess(pe, now_ns, now_ns);
        (void)pe_finish(pe, now_ns);
        (void)pe_due(pe, now_ns, now_ns, now_ns, out, PATHS);
    }
    atomic_store(&over, 1);
    return NULL;
}

static void command(pe_t *pe, uint32_t i)
{
    uint32_t path = i % PATHS;
    pe_path is = {.interval_ns = 2000000 + i % 7, .liveness_ns = 5000000, .socket = path, .ssid = 1, .port = 862,
                  .length_octets = 80};
    int error = i % 11 == 0 ? pe_path_end(pe, path) : pe_path_begin(pe, path, &is);
    if (error != 0 && error != -EAGAIN)
        abort();
    if (i % 5 == 0 && pe_watch_begin(pe) == 0 && pe_segment(pe, &path, 1) == 0 &&
        pe_route(pe, 0, (const uint32_t[]){0}, 1) == 0 && pe_watch_commit(pe) == 0)
        (void)pe_order_arm(pe, 0, 0, NULL, 0);
}

/* Rows of a path come in the order of their sequence numbers. */
static uint64_t read_rows(pe_t *pe, const pe_row *rows, uint32_t next_seq[PATHS])
{
    uint64_t first, n = pe_take(pe, &first);
    for (uint64_t i = first; i < first + n; i++) {
        pe_row row = rows[i % ROWS];
        if (row.path >= PATHS || row.seq < next_seq[row.path] || row.t1_kind != PE_KIND_USER || row.flags != 0)
            abort();
        next_seq[row.path] = row.seq + 1;
    }
    pe_done(pe, first + n);
    return n;
}

int main(void)
{
    pe_config config = {.octets = sizeof config, .most_paths = PATHS, .most_exchanges = PATHS * 2048,
                        .row_capacity = ROWS, .event_capacity = 64, .most_hosts = 1, .most_nics = 1,
                        .most_segments = 1, .most_routes = 1, .most_links = 2, .most_orders = 1,
                        .command_words = 4096, .width_octets = 128, .error = 1};
    size_t octets = pe_shared_octets(&config);
    uint8_t *shared = aligned_alloc(64, octets);
    pe_t *pe = shared ? pe_new(&config, shared, octets) : NULL;
    pthread_t engine;
    uint32_t next_seq[PATHS] = {0};
    uint64_t first, rows = 0, events = 0;
    if (!pe || pthread_create(&engine, NULL, turns, pe) != 0)
        return 2;
    for (uint32_t i = 0; !atomic_load(&over); i++) {
        command(pe, i);
        rows += read_rows(pe, (const pe_row *)(shared + 256), next_seq);
        uint64_t n = pe_take_events(pe, &first);
        events += n;
        pe_done_events(pe, first + n);
        if (rows > 0 && events > 0 && !atomic_load_explicit(&seen, memory_order_relaxed))
            atomic_store_explicit(&seen, 1, memory_order_relaxed);
        /* without a rest the two threads fight for the sanitizer's own locks, for 3 to 100 s */
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    (void)pthread_join(engine, NULL);
    printf("rows %" PRIu64 " events %" PRIu64 "\n", rows, events);
    pe_free(pe);
    free(shared);
    return rows > 0 && events > 0 ? 0 : 1;
}
