/* What the other thread asks of the shell: checked and written there, done here between turns. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "shell_state.h"

typedef enum kind {
    SKIP, /* PE_SKIP */
    ADOPT,      /* slot, pe_adoption */
    CLOSE,      /* slot */
    LIMITED,    /* pe_limited, payload */
    REFLECTOR,  /* host, pe_reflector * */
    KNOW,       /* host, known */
    CLOCK,      /* host, pe_clock */
    USABLE,     /* host, nic, 0 or 1 */
    INBOUND_ALL,
    LINK,       /* link, descriptor */
    PREPARE     /* order, alternate, pe_move each */
} kind;

_Static_assert((int)SKIP == (int)PE_SKIP, "the command ring fills its end with these");

typedef struct known {
    const pe_known_sender *senders;
    const pe_network *networks;
    uint32_t count, network_count;
} known;

/* --- the other thread --- */

static int64_t put(pe_shell *shell, kind is, const pe_piece *pieces, uint32_t n)
{
    int error = pe_commands_put(&shell->commands, (pe_command_kind)is, pieces, n);
    if (error)
        return error;
    pe_wait_wake(&shell->waiter);
    return ++shell->put;
}

static int64_t put_numbers(pe_shell *shell, kind is, const uint32_t *numbers, uint32_t n)
{
    pe_piece piece = {numbers, n * (uint32_t)sizeof *numbers};
    return put(shell, is, &piece, 1);
}

static int64_t put_of_host(pe_shell *shell, kind is, uint32_t host, const void *what, uint32_t octets)
{
    pe_piece pieces[] = {{&host, sizeof host}, {what, octets}};
    return host < shell->config.most_hosts ? put(shell, is, pieces, 2) : -EINVAL;
}

int64_t pe_shell_adopt(pe_shell *shell, uint32_t slot, const pe_adoption *is)
{
    pe_piece pieces[] = {{&slot, sizeof slot}, {is, sizeof *is}};
    bool lawful = slot < shell->config.most_sockets && is->fd >= 0 && is->host < shell->config.most_hosts &&
                  (is->role == PE_SENDER || is->role == PE_REFLECTOR) &&
                  is->control_octets <= PE_CONTROL_SENT_OCTETS && is->control_octets > PE_CONTROL_TOS_AT;
    return lawful ? put(shell, ADOPT, pieces, 2) : -EINVAL;
}

int64_t pe_shell_close(pe_shell *shell, uint32_t slot)
{
    return slot < shell->config.most_sockets ? put_numbers(shell, CLOSE, &slot, 1) : -EINVAL;
}

int64_t pe_shell_limited(pe_shell *shell, const pe_limited *datagram, const uint8_t *payload)
{
    static const uint8_t PADDING[4];
    uint32_t whole = datagram->octets & ~3u, rest = datagram->octets & 3u;
    uint8_t last[4] = {0};
    if (datagram->slot >= shell->config.most_sockets || datagram->octets > shell->config.width_octets)
        return -EINVAL;
    if (rest)
        memcpy(last, payload + whole, rest);
    pe_piece pieces[] = {{datagram, sizeof *datagram}, {payload, whole}, {rest ? last : PADDING, sizeof last}};
    return put(shell, LIMITED, pieces, 3);
}

int64_t pe_shell_reflector(pe_shell *shell, uint32_t host, pe_reflector *reflector)
{
    return put_of_host(shell, REFLECTOR, host, &reflector, sizeof reflector);
}

int64_t pe_shell_know(pe_shell *shell, uint32_t host, const pe_known_sender *senders, uint32_t count,
                      const pe_network *networks, uint32_t network_count)
{
    known is = {senders, networks, count, network_count};
    return put_of_host(shell, KNOW, host, &is, sizeof is);
}

int64_t pe_shell_clock(pe_shell *shell, uint32_t host, const pe_clock *clock)
{
    return put_of_host(shell, CLOCK, host, clock, sizeof *clock);
}

int64_t pe_shell_usable(pe_shell *shell, uint32_t host, uint32_t nic, int usable)
{
    uint32_t numbers[] = {nic, usable != 0};
    return put_of_host(shell, USABLE, host, numbers, sizeof numbers);
}

int64_t pe_shell_inbound_all(pe_shell *shell)
{
    return put_numbers(shell, INBOUND_ALL, NULL, 0);
}

int64_t pe_shell_link(pe_shell *shell, uint32_t link, int fd)
{
    uint32_t numbers[] = {link, (uint32_t)fd};
    return link < shell->config.most_links ? put_numbers(shell, LINK, numbers, 2) : -EINVAL;
}

int64_t pe_shell_prepare(pe_shell *shell, uint32_t order, uint32_t alternate, const pe_move *moves, uint32_t n)
{
    uint32_t numbers[] = {order, alternate};
    if (!pe_action_of(&shell->actions, order, alternate) || n > PE_MOST_MOVES)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (moves[i].link >= shell->config.most_links || moves[i].octets == 0)
            return -EINVAL;
    pe_piece pieces[] = {{numbers, sizeof numbers}, {moves, n * (uint32_t)sizeof *moves}};
    return put(shell, PREPARE, pieces, 2);
}

int64_t pe_shell_done(const pe_shell *shell)
{
    return atomic_load_explicit(&shell->done, memory_order_acquire);
}

/* --- the engine's thread --- */

static void close_slot(pe_shell *shell, uint32_t slot)
{
    pe_socket *socket = &shell->sockets[slot];
    if (!socket->open)
        return;
    pe_wait_remove(&shell->waiter, socket->is.fd);
    socket->open = socket->errors = false;
    socket->outstanding = 0;
}

static void adopt(pe_shell *shell, uint32_t slot, const uint32_t *words)
{
    pe_socket *socket = &shell->sockets[slot];
    close_slot(shell, slot);
    memcpy(&socket->is, words, sizeof socket->is);
    socket->next_id = socket->outstanding = 0;
    socket->open = true;
    int error = pe_wait_add(&shell->waiter, socket->is.fd, slot);
    if (error) {
        socket->open = false;
        pe_shell_failed(shell, slot, PE_BY_RECEIVING, -error, 1);
        atomic_store_explicit(&socket->suspect, 1, memory_order_relaxed);
        return;
    }
    pe_reflector *reflector = shell->reflectors[socket->is.host];
    if (socket->is.role == PE_REFLECTOR && reflector)
        pe_reflector_socket(reflector, socket->is.number, socket->is.nic);
}

/* Which of a host's sockets are open is told to its reflector, whichever of them came first. */
static void set_reflector(pe_shell *shell, uint32_t host, const uint32_t *words)
{
    memcpy(&shell->reflectors[host], words, sizeof shell->reflectors[host]);
    pe_reflector *reflector = shell->reflectors[host];
    for (uint32_t slot = 0; slot < shell->config.most_sockets && reflector; slot++) {
        const pe_adoption *is = &shell->sockets[slot].is;
        if (is->role == PE_REFLECTOR && is->host == host)
            pe_reflector_socket(reflector, is->number, is->nic);
    }
}

static void change_reflector(pe_shell *shell, kind is, const uint32_t *words)
{
    pe_reflector *reflector = shell->reflectors[words[0]];
    known who;
    pe_clock clock;
    if (!reflector)
        return;
    if (is == KNOW) {
        memcpy(&who, words + 1, sizeof who);
        pe_reflector_know(reflector, who.senders, who.count, who.networks, who.network_count);
    } else if (is == CLOCK) {
        memcpy(&clock, words + 1, sizeof clock);
        pe_reflector_clock(reflector, &clock);
    } else {
        pe_reflector_usable(reflector, words[1], words[2] != 0, shell->now_ns);
    }
}

static void send_limited(pe_shell *shell, const uint32_t *words)
{
    pe_limited datagram;
    memcpy(&datagram, words, sizeof datagram);
    pe_shell_send_limited(shell, &datagram, (const uint8_t *)(words + sizeof datagram / 4));
}

static void prepare(pe_shell *shell, const uint32_t *words, uint32_t n)
{
    pe_action *action = pe_action_of(&shell->actions, words[0], words[1]);
    action->n = (n - 2) / (uint32_t)(sizeof(pe_move) / 4);
    memcpy(action->moves, words + 2, action->n * sizeof(pe_move));
}

static void apply(pe_shell *shell, kind is, const uint32_t *words, uint32_t n)
{
    switch (is) {
    case SKIP:
        break;
    case ADOPT:
        adopt(shell, words[0], words + 1);
        break;
    case CLOSE:
        close_slot(shell, words[0]);
        break;
    case LIMITED:
        send_limited(shell, words);
        break;
    case REFLECTOR:
        set_reflector(shell, words[0], words + 1);
        break;
    case KNOW:
    case CLOCK:
    case USABLE:
        change_reflector(shell, is, words);
        break;
    case INBOUND_ALL:
        shell->inbound_all = true;
        break;
    case LINK:
        pe_link_set(&shell->actions, words[0], (int)words[1]);
        break;
    case PREPARE:
        prepare(shell, words, n);
        break;
    }
}

void pe_shell_apply(pe_shell *shell)
{
    pe_command_kind is = PE_SKIP;
    uint32_t words = 0;
    int64_t done = atomic_load_explicit(&shell->done, memory_order_relaxed);
    for (const uint32_t *command; (command = pe_commands_next(&shell->commands, &is, &words));) {
        apply(shell, (kind)is, command, words);
        pe_commands_taken(&shell->commands, words);
        if ((kind)is != SKIP)
            atomic_store_explicit(&shell->done, ++done, memory_order_release);
    }
}
