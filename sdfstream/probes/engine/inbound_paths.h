/* The paths on which known senders probe us, and their liveness as the reflector sees it (stamp/liveness.py, role
 * reflector; the names of the paths: stamp/inbound.py).
 *
 * A far sender's interval is not known; the mean gap between its probes stands for it. Only time in which this process
 * was awake counts as quiet: of the time between two assessments a path is charged with at most a quarter of its
 * limit. A path is named by NICs, source port and class, so several sessions may speak for one. */
#ifndef PE_INBOUND_PATHS_H
#define PE_INBOUND_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "datagram.h"

#define PE_NO_PATH UINT32_MAX

/* A path's name; NICs by the numbers that Python gave them. */
typedef struct pe_inbound_name {
    uint32_t nic;    /* ours, which received */
    uint32_t sender; /* the sender's */
    uint16_t port;   /* its source port */
    uint8_t dscp;    /* as sent */
} pe_inbound_name;

enum { PE_INBOUND_UNKNOWN, PE_INBOUND_ALIVE, PE_INBOUND_SILENT };

typedef struct pe_inbound_path {
    pe_inbound_name name;
    uint32_t next; /* in the hash table */
    uint32_t sessions;
    uint8_t address[PE_ADDRESS_OCTETS]; /* the sender's */
    int64_t interval_ns; /* 0: not known yet */
    int64_t quiet_ns;
    int64_t last_received_ns;
    int64_t since_ns;
    int64_t reported_since_ns;
    uint8_t state, reported;
    bool usable, listed;
} pe_inbound_path;

typedef struct pe_inbound_paths {
    pe_inbound_path *paths;
    uint32_t *heads; /* hash table of first paths */
    uint32_t *free;  /* numbers of paths that ended, the latest last */
    uint32_t most, used, free_count, mask;
    uint64_t salt;
    int64_t liveness_ns;
    int64_t assessed_at_ns;
    bool assessed;
} pe_inbound_paths;

/* A path whose state is to be reported. */
typedef struct pe_inbound_change {
    uint32_t path;
    uint32_t state;
    int64_t since_ns; /* steady clock; silent: last reception */
    int64_t interval_ns;
} pe_inbound_change;

void pe_inbound_carve(pe_inbound_paths *inbound, pe_arena *arena, uint32_t most);
void pe_inbound_clear(pe_inbound_paths *inbound, int64_t liveness_ns, uint64_t salt);

/* A session begins to speak for the path of this name, which begins with its first session; PE_NO_PATH: no room. */
uint32_t pe_inbound_join(pe_inbound_paths *inbound, const pe_inbound_name *name,
                         const uint8_t address[PE_ADDRESS_OCTETS], int64_t now_ns);

/* A session speaks for this path no longer; with its last session the path ends. */
void pe_inbound_leave(pe_inbound_paths *inbound, uint32_t path, int64_t now_ns);

/* Probes arrived, the last of them `ahead` sequence numbers after the one before. Learns the interval, so that losses
 * and outages do not look like a slow sender; a repeated, late or far number is not used. */
void pe_inbound_arrived(pe_inbound_paths *inbound, uint32_t path, uint32_t ahead, int64_t now_ns);

/* One of our NICs can or cannot receive; what it observes is unknown while it cannot. */
void pe_inbound_usable(pe_inbound_paths *inbound, uint32_t nic, bool usable, int64_t now_ns);

/* Assess all paths: those that changed state since the last call, or all (`complete`), into `changes` (room for `most`
 * of the carving); how many. */
uint32_t pe_inbound_assess(pe_inbound_paths *inbound, int64_t now_ns, bool complete, pe_inbound_change *changes);

#endif
