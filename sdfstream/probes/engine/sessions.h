/* The sessions that probe us: a bounded table by (socket, source address, source port, SSID); stamp/inbound.py, where
 * its rules and their reasons are.
 *
 * A session holds the number of its next answer and the true sending times of its last few answers, each sent once in a
 * later answer (Follow-Up Telemetry). Rows are given out in order; a full table gives away rows of strangers first,
 * then of known senders that sent too few probes or none lately. A session that finds no row is answered
 * statelessly. */
#ifndef PE_SESSIONS_H
#define PE_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "datagram.h"

#define PE_NO_SESSION UINT32_MAX
#define PE_UNADMITTED UINT32_MAX
#define PE_FOLLOW_UPS 4

/* How many rows, and who may have how many (stamp/inbound.py). */
typedef struct pe_session_limits {
    uint32_t capacity;
    uint32_t stranger_rows; /* of strangers, all together */
    uint32_t source_rows;   /* of one known address */
    uint32_t new_per_call;  /* new sessions taken up per call, and as many of strangers */
} pe_session_limits;

typedef struct pe_session_key {
    uint8_t address[PE_ADDRESS_OCTETS];
    uint32_t socket;
    uint16_t port, ssid;
} pe_session_key;

typedef struct pe_follow_up {
    int64_t shown_ns; /* by the clock that the host shows */
    uint32_t seq;
    uint8_t kind;
} pe_follow_up;

typedef struct pe_session {
    pe_session_key key;
    uint32_t next;       /* in the hash table */
    uint32_t owner;      /* its address among `owners`; PE_NO_SESSION: a stranger's, or no session */
    uint32_t bucket;     /* of the sender's rate; PE_UNADMITTED: whether it may be answered is not known yet */
    uint32_t path;       /* among the inbound paths; PE_NO_PATH: not watched */
    uint32_t begun;      /* call in which it began: not to be given away in that */
    uint32_t probes;     /* calls with a probe of it */
    uint32_t seq;        /* the latest probe's */
    uint32_t answers;    /* numbered so far, modulo 2^32 */
    uint16_t generation; /* counts the sessions that this row has held, modulo 2^15: a late stamp is not taken for
                            another session's */
    uint8_t dscp;        /* its path's; PE_NO_DSCP: not known yet */
    bool stranger;
    bool present;        /* the row holds a session */
    int64_t last_received_ns;
    uint64_t stored, sent; /* follow-ups ever */
    pe_follow_up follow_ups[PE_FOLLOW_UPS];
} pe_session;

#define PE_NO_DSCP 255

/* Rows that one known address has. */
typedef struct pe_owner {
    uint8_t address[PE_ADDRESS_OCTETS];
    uint32_t next;
    uint32_t rows;
} pe_owner;

typedef struct pe_sessions {
    pe_session_limits limits;
    pe_session *rows;
    uint32_t *heads; /* hash table of sessions, by key */
    pe_owner *owners;
    uint32_t *owner_heads; /* hash table of owners, by address */
    uint32_t *candidates;  /* rows to be given away, in order; chosen once a call */
    uint32_t free_owner, owners_used, mask;
    uint32_t used, strangers;
    uint32_t call;           /* of pe_sessions_call */
    uint32_t candidate, candidate_count;
    uint32_t idle_stranger;  /* first row not yet looked at for an idle stranger */
    bool chosen;
    uint64_t salt;
} pe_sessions;

void pe_sessions_carve(pe_sessions *sessions, pe_arena *arena, const pe_session_limits *limits);
/* Of zeroed memory: an empty table, most of which nobody touches before it is needed. */
void pe_sessions_clear(pe_sessions *sessions, uint64_t salt);

/* Row of a session; PE_NO_SESSION: it has none. */
uint32_t pe_session_find(const pe_sessions *sessions, const pe_session_key *key);

/* A call begins that has new sessions: all known senders' come first, then the strangers'. */
void pe_sessions_call(pe_sessions *sessions);

/* The row that a new session of a known sender is to have; PE_NO_SESSION: none. What lies there is to be ended by the
 * caller as far as that is its own, and then `pe_session_begin` to be called. At most `more` rows, this one included,
 * will be asked for in this call. */
uint32_t pe_session_room(pe_sessions *sessions, const uint8_t address[PE_ADDRESS_OCTETS], uint32_t more,
                         int64_t now_ns);
/* The same for a stranger's. */
uint32_t pe_session_room_stranger(pe_sessions *sessions, int64_t now_ns);

void pe_session_begin(pe_sessions *sessions, uint32_t row, const pe_session_key *key, bool stranger, int64_t now_ns);

/* Store when an answer truly left; the oldest is overwritten. */
void pe_session_store(pe_session *session, uint32_t seq, int64_t shown_ns, uint8_t kind);

/* The next follow-up: each is sent once, oldest first; when none is left the last one is repeated. NULL: none ever. */
const pe_follow_up *pe_session_follow_up(pe_session *session);

#endif
