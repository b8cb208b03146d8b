/* The state of a reflector; for reflector.c (made, changed, asked) and reflect.c (answers) only. */
#ifndef PE_REFLECTOR_STATE_H
#define PE_REFLECTOR_STATE_H

#include "reflector.h"

/* What a call knows of one of its datagrams. */
typedef struct pe_arrival {
    pe_session_key key;
    uint32_t row;    /* of the session; PE_NO_SESSION: it has none */
    uint32_t bucket; /* of the sender's rate */
    uint32_t seq;
    uint8_t dscp;    /* class that the probe left in */
    bool fresh;      /* whether the sender is answered was decided just now */
    bool stranger;   /* and it is a stranger */
    bool moved;      /* the session's class is another than before */
} pe_arrival;

struct pe_reflector {
    pe_codec codec;
    pe_answering answering;
    pe_clock clock;
    pe_known_senders known;
    pe_sessions sessions;
    pe_inbound_paths inbound;
    pe_bucket all; /* answers per second to all senders together */
    pe_reflector_counts counts;
    void *memory;
    uint32_t *nics; /* by socket */
    uint32_t most_sockets;
    bool stateful;
    pe_arrival *arrivals; /* of the present call */
    uint32_t *lost;       /* of them, those whose new sessions found no row */
    uint32_t *row_marks;  /* latest datagram of the call, by row */
    uint32_t *path_marks; /* the same by inbound path */
    pe_inbound_change *changes;
};

#endif
