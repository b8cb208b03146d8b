#define _GNU_SOURCE
#include "actions.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void pe_actions_carve(pe_actions *actions, pe_arena *arena, const pe_shell_config *config)
{
    actions->most_orders = config->most_orders;
    actions->most_links = config->most_links;
    actions->link_octets = config->link_octets;
    actions->prepared = pe_carve(arena, (size_t)config->most_orders * PE_CHOICES, sizeof *actions->prepared);
    actions->links = pe_carve(arena, config->most_links, sizeof *actions->links);
    actions->waiting = pe_carve(arena, config->most_links, config->link_octets);
}

void pe_actions_begin(pe_actions *actions)
{
    for (uint32_t i = 0; i < actions->most_links; i++) {
        actions->links[i].fd = -1;
        actions->links[i].waiting = actions->waiting + (size_t)i * actions->link_octets;
    }
}

pe_action *pe_action_of(const pe_actions *actions, uint32_t order, uint32_t alternate)
{
    uint32_t choice = alternate == PE_NONE ? PE_MOST_ALTERNATES : alternate;
    if (order >= actions->most_orders || (alternate != PE_NONE && alternate >= PE_MOST_ALTERNATES))
        return NULL;
    return &actions->prepared[(size_t)order * PE_CHOICES + choice];
}

static void forget_waiting(pe_actions *actions, pe_link *link)
{
    actions->waiting_links -= link->waiting_octets > 0;
    link->waiting_octets = link->sent_octets = 0;
}

/* Break a connection that has half a line, or cannot be used: the far end must not take what follows for the rest. */
static int break_off(pe_actions *actions, pe_link *link, int error)
{
    if (link->fd >= 0)
        shutdown(link->fd, SHUT_RDWR);
    link->fd = -1;
    atomic_store_explicit(&link->error, error, memory_order_relaxed);
    forget_waiting(actions, link);
    return error;
}

void pe_link_set(pe_actions *actions, uint32_t number, int fd)
{
    pe_link *link = &actions->links[number];
    forget_waiting(actions, link);
    link->fd = fd;
    atomic_store_explicit(&link->error, 0, memory_order_relaxed);
}

static int keep(pe_actions *actions, pe_link *link, const uint8_t *data, uint32_t octets)
{
    if (octets > actions->link_octets - link->waiting_octets)
        return break_off(actions, link, ENOBUFS);
    actions->waiting_links += link->waiting_octets == 0;
    memcpy(link->waiting + link->waiting_octets, data, octets);
    link->waiting_octets += octets;
    return 0;
}

static ssize_t send_some(const pe_link *link, const uint8_t *data, uint32_t octets)
{
    ssize_t sent = send(link->fd, data, octets, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
        return sent;
    return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

static int give(pe_actions *actions, const pe_move *move)
{
    pe_link *link = &actions->links[move->link];
    if (link->fd < 0) {
        int error = atomic_load_explicit(&link->error, memory_order_relaxed);
        return error ? error : ENOTCONN;
    }
    if (link->waiting_octets)
        return keep(actions, link, move->data, move->octets);
    ssize_t sent = send_some(link, move->data, move->octets);
    if (sent < 0)
        return break_off(actions, link, (int)-sent);
    uint32_t gone = (uint32_t)sent;
    return gone == move->octets ? 0 : keep(actions, link, move->data + gone, move->octets - gone);
}

int pe_actions_give(pe_actions *actions, uint32_t order, uint32_t alternate)
{
    const pe_action *action = pe_action_of(actions, order, alternate);
    int first_error = 0;
    if (!action || action->n == 0)
        return ENOENT;
    for (uint32_t i = 0; i < action->n; i++) {
        int error = give(actions, &action->moves[i]);
        first_error = first_error ? first_error : error;
    }
    return first_error;
}

static void go_on(pe_actions *actions, pe_link *link)
{
    ssize_t sent = send_some(link, link->waiting + link->sent_octets, link->waiting_octets - link->sent_octets);
    if (sent < 0) {
        break_off(actions, link, (int)-sent);
        return;
    }
    link->sent_octets += (uint32_t)sent;
    if (link->sent_octets == link->waiting_octets)
        forget_waiting(actions, link);
}

void pe_actions_go_on(pe_actions *actions)
{
    for (uint32_t i = 0; i < actions->most_links && actions->waiting_links; i++)
        if (actions->links[i].waiting_octets)
            go_on(actions, &actions->links[i]);
}
