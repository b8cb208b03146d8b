/* The engine as a whole: what the files behind engine.h share. No system call is made in it. */
#ifndef PE_CORE_H
#define PE_CORE_H

#include "arena.h"
#include "clock.h"
#include "commands.h"
#include "engine.h"
#include "exchanges.h"
#include "heap.h"
#include "jitter.h"
#include "liveness.h"
#include "measures.h"
#include "order.h"
#include "packet.h"
#include "paths.h"
#include "ring.h"
#include "watches.h"

#define PE_COUNTERS (PE_N_REFUSED + PE_REASONS)

#define PE_STEPS 65536

/* What the paths in one step share in one call of pe_due. */
typedef struct pe_step {
    int64_t pause_ns;
    uint32_t call; /* in which it was drawn */
} pe_step;

typedef struct pe_host {
    pe_clock clock;
    int64_t knots_ns[PE_MOST_KNOTS];
} pe_host;

struct pe {
    void *memory; /* in which all of this lies */
    pe_config config;
    pe_codec codec;
    pe_host *hosts;
    uint8_t *nic_away; /* (nics) */
    pe_paths paths;
    pe_exchanges exchanges;
    pe_liveness liveness;
    pe_watches watches;
    pe_commands commands;
    pe_ring rows, events;
    pe_jitter jitter;
    pe_key *keys;       /* scratch: (paths) of pe_due, (exchanges) of pe_finish */
    pe_step *steps;     /* (PE_STEPS) */
    uint32_t calls;     /* of pe_due */
    int64_t finished_at_ns; /* the call of pe_finish before */
    bool finished;
    pe_act act;
    void *act_context;
    _Atomic uint64_t counters[PE_COUNTERS]; /* read by another thread at any time */
};

/* A duration as rows hold it. */
static inline int32_t pe_clipped(int64_t ns)
{
    return ns > INT32_MAX ? INT32_MAX : ns < INT32_MIN ? INT32_MIN : (int32_t)ns;
}

/* Write an event; false: the ring was full, which is counted. */
bool pe_event_put(pe_t *pe, pe_event event);

#endif
