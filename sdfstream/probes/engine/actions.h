/* Orders to processes that own queue pairs, prepared ahead: what Python would send (agent/commands/qp_socket_io.py),
 * octet for octet, on a connection that is the engine's alone. The control socket reads one JSON object a line and
 * answers each; Python reads the answers.
 *
 * A request holds no time and no number that would have to be made in the last moment: the command is signed and says
 * until when it holds, the choice names its path. A new statement of a command is a new preparation. */
#ifndef PE_ACTIONS_H
#define PE_ACTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "shell.h"

/* A connection. Of an order that it took a part of, the rest is kept here: after half a line nothing else may follow. */
typedef struct pe_link {
    int fd; /* -1: none */
    uint32_t waiting_octets, sent_octets;
    uint8_t *waiting; /* (link_octets) */
    _Atomic int error;
} pe_link;

typedef struct pe_action {
    uint32_t n;
    pe_move moves[PE_MOST_MOVES];
} pe_action;

typedef struct pe_actions {
    pe_action *prepared; /* (orders, PE_CHOICES) */
    pe_link *links;
    uint8_t *waiting;
    uint32_t most_orders, most_links, link_octets;
    uint32_t waiting_links; /* with a rest to send */
} pe_actions;

#define PE_CHOICES (PE_MOST_ALTERNATES + 1) /* an order's alternates, and none */

void pe_actions_carve(pe_actions *actions, pe_arena *arena, const pe_shell_config *config);
/* Of zeroed memory. */
void pe_actions_begin(pe_actions *actions);

/* NULL: there is no such order or alternate. */
pe_action *pe_action_of(const pe_actions *actions, uint32_t order, uint32_t alternate);

void pe_link_set(pe_actions *actions, uint32_t link, int fd);

/* Send all that the order says; 0, or the errno of the first move that failed: ENOENT, if it is not prepared. What a
 * connection takes only a part of is sent, and the rest follows by pe_actions_go_on. */
int pe_actions_give(pe_actions *actions, uint32_t order, uint32_t alternate);
void pe_actions_go_on(pe_actions *actions);

#endif
