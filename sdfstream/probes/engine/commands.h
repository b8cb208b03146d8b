/* Changes on their way from another thread to the engine: a ring of 32-bit words, one producer, one consumer.
 *
 * A command is a head word (kind, and words that follow) and its words, never cut at the end of the ring: where it would
 * be, a command PE_SKIP fills the rest. The other thread writes without waiting and without a lock that the engine's
 * thread could ever wait for: a thread of low priority may be stopped at any point. */
#ifndef PE_COMMANDS_H
#define PE_COMMANDS_H

#include <stdatomic.h>
#include <stdint.h>

#include "arena.h"

typedef enum pe_command_kind {
    PE_SKIP,
    PE_PATH_BEGIN,   /* path, pe_path */
    PE_PATH_END,     /* path */
    PE_NIC_USABLE,   /* nic, 0 or 1 */
    PE_CLOCK_SET,    /* host, pe_clock, knots */
    PE_REPORT_ALL,
    PE_WATCH_BEGIN,
    PE_SEGMENT,      /* probe paths */
    PE_ROUTE,        /* route, segments */
    PE_WATCH_COMMIT,
    PE_ORDER_ARM,    /* order, route, alternates */
    PE_ORDER_DISARM  /* order */
} pe_command_kind;

typedef struct pe_commands {
    uint32_t *words;
    uint32_t mask;
    _Atomic uint32_t head, tail; /* words ever written and read, modulo 2^32 */
    /* the producer's own: how much the crossings that it writes hold */
    uint32_t segments, links;
} pe_commands;

/* A piece of a command. */
typedef struct pe_piece {
    const void *from;
    uint32_t octets; /* a multiple of 4 */
} pe_piece;

void pe_commands_carve(pe_commands *commands, pe_arena *arena, uint32_t words);

/* Producer: write a command; 0, or -EAGAIN: there is no room now. */
int pe_commands_put(pe_commands *commands, pe_command_kind kind, const pe_piece *pieces, uint32_t n);

/* Consumer: the next command and its words; NULL: none. It stays until `pe_commands_taken`. */
const uint32_t *pe_commands_next(pe_commands *commands, pe_command_kind *kind, uint32_t *words);
void pe_commands_taken(pe_commands *commands, uint32_t words);

#endif
