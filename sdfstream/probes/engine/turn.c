/* The engine's turn: wait, receive and answer, assess, write rows, send what is due; then rest. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "shell_state.h"

#define STAMP_PAUSE_NS 2000000 /* a reflecting socket's TX stamps are read at most this often */
#define STAMP_PAUSE_EASES 2    /* nor more often than once in so many rests */
#define WINDOW_NS 100000000    /* in which packets are counted */
#define MANY_PACKETS 60        /* a window: rests are taken */
#define FEW_PACKETS 30         /* a window: rests end */
#define FULL_TURN 64           /* packets pay for a wake, and in a long rest more would fill the sockets' buffers */
#define MOST_UNASSESSED 8      /* turns that a flood of answers may put off an assessment */
#define MOST_BUSY_NS 20000000  /* without giving the core away, */
#define FORCED_REST_NS 1000000 /* then so long a rest: a real-time thread may lock up a machine */
#define LINK_PAUSE_NS 1000000  /* until the rest of an order is tried again */
#define PROBE_ROUNDS 4         /* of PE_ROWS probes a turn */

static void read_clock(pe_shell *shell)
{
    shell->now_ns = pe_steady_ns();
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* --- packets --- */

/* Send the answers among the datagrams received by a slot. */
static void send_answers(pe_shell *shell, uint32_t slot, const pe_reflector *reflector, uint32_t n)
{
    uint32_t rows = 0;
    int64_t system_ns = pe_system_ns();
    for (uint32_t i = 0; i < n; i++) {
        const pe_datagram *datagram = &shell->datagrams[i];
        const pe_reply *reply = &shell->replies[i];
        if (reply->reason != PE_GOOD)
            continue;
        pe_out out = {.data = datagram->data,
                      .length_octets = datagram->length_octets,
                      .token = reply->token < 0 ? PE_NO_TOKEN : (uint64_t)reply->token,
                      .port = datagram->port,
                      .tos = reply->tos};
        memcpy(out.address, datagram->address, sizeof out.address);
        pe_seal(reflector, datagram->data, system_ns);
        pe_shell_lay_out(shell, rows++, slot, &out);
        if (datagram->kind == PE_KIND_KERNEL)
            pe_histogram_add(&shell->histograms[PE_H_ANSWER], system_ns - datagram->at_ns);
    }
    if (rows)
        pe_shell_send(shell, slot, 0, rows);
}

static int64_t stamp_pause_ns(const pe_shell *shell)
{
    bool eased = shell->ease_ns > shell->config.rest_ns;
    int64_t pause_ns = eased ? STAMP_PAUSE_EASES * shell->ease_ns : 0;
    return pause_ns > STAMP_PAUSE_NS ? pause_ns : STAMP_PAUSE_NS;
}

static void reflect(pe_shell *shell, uint32_t slot, uint32_t n)
{
    const pe_socket *socket = &shell->sockets[slot];
    pe_reflector *reflector = shell->reflectors[socket->is.host];
    if (!reflector)
        return;
    if (socket->outstanding && shell->now_ns - socket->stamps_read_ns >= stamp_pause_ns(shell))
        pe_shell_read_stamps(shell, slot);
    if (pe_reflect(reflector, shell->datagrams, n, shell->now_ns, shell->replies))
        send_answers(shell, slot, reflector, n);
}

static void take_answers(pe_shell *shell, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        pe_take_answer(shell->pe, &shell->datagrams[i], shell->now_ns, shell->due_at_ns);
}

static void receive(pe_shell *shell, uint32_t slot)
{
    pe_socket *socket = &shell->sockets[slot];
    if (!socket->open)
        return;
    uint32_t n = pe_shell_receive(shell, slot);
    read_clock(shell);
    if (n && socket->is.role == PE_SENDER)
        take_answers(shell, n);
    else if (n)
        reflect(shell, slot, n);
    if (socket->backlog)
        shell->backlog[shell->backlogs++] = slot;
}

/* Receive by the sockets of a role that have something. Of those that were left with more in the turn before, first. */
static void receive_role(pe_shell *shell, pe_role role, const uint32_t *left, uint32_t lefts, uint32_t ready)
{
    for (uint32_t i = 0; i < lefts; i++)
        if (shell->sockets[left[i]].is.role == role)
            receive(shell, left[i]);
    for (uint32_t i = 0; i < ready; i++) {
        uint32_t slot = shell->waiter.ready[i].data.u32;
        pe_socket *socket = &shell->sockets[slot];
        if (socket->is.role != role)
            continue;
        if (shell->waiter.ready[i].events & EPOLLERR)
            socket->errors = true;
        if (shell->waiter.ready[i].events & ~(uint32_t)EPOLLERR && !socket->backlog)
            receive(shell, slot);
        if (socket->open && socket->errors && !socket->outstanding)
            pe_shell_read_stamps(shell, slot); /* no stamp is awaited: it is something else */
    }
}

/* Probes first: they wait for their answers. */
static void receive_all(pe_shell *shell, uint32_t ready)
{
    uint32_t lefts = shell->backlogs;
    uint32_t *left = shell->backlog + shell->config.most_sockets; /* the second half of the list */
    memcpy(left, shell->backlog, lefts * sizeof *left);
    shell->backlogs = 0;
    shell->more = ready == PE_WAIT_MOST;
    receive_role(shell, PE_REFLECTOR, left, lefts, ready);
    receive_role(shell, PE_SENDER, left, lefts, ready);
}

/* --- judging --- */

/* Liveness, as soon as all is read that the sockets held when it was due. */
static void assess(pe_shell *shell)
{
    bool unread = shell->more;
    for (uint32_t i = 0; i < shell->backlogs; i++)
        unread |= shell->sockets[shell->backlog[i]].is.role == PE_SENDER;
    if (shell->now_ns < pe_next_assess_ns(shell->pe) || (unread && shell->unassessed++ < MOST_UNASSESSED))
        return;
    shell->unassessed = 0;
    pe_assess(shell->pe, shell->now_ns, pe_system_ns());
}

static void finish(pe_shell *shell)
{
    if (pe_shell_until_ns(shell) < shell->finish_at_ns)
        return;
    for (uint32_t slot = 0; slot < shell->config.most_sockets; slot++) {
        const pe_socket *socket = &shell->sockets[slot];
        if (socket->open && socket->is.role == PE_SENDER && (socket->outstanding || socket->errors))
            pe_shell_read_stamps(shell, slot);
    }
    pe_finish(shell->pe, shell->now_ns);
    shell->finish_at_ns = shell->now_ns + shell->config.finish_ns;
}

static void report_inbound(pe_shell *shell, uint32_t host, const pe_inbound_change *change, bool complete,
                           int64_t system_ns)
{
    const pe_inbound_path *path = pe_reflector_path(shell->reflectors[host], change->path);
    pe_inbound_event *room = path ? pe_ring_room(&shell->inbound) : NULL;
    if (!room) {
        pe_shell_count(shell, PE_S_INBOUND_DROPPED, 1);
        shell->inbound_lost = true;
        return;
    }
    *room = (pe_inbound_event){.host = host,
                               .path = change->path,
                               .nic = path->name.nic,
                               .sender = path->name.sender,
                               .port = path->name.port,
                               .dscp = path->name.dscp,
                               .state = (uint8_t)change->state,
                               .complete = complete,
                               .at_ns = system_ns,
                               .since_ns = change->since_ns + (system_ns - shell->now_ns),
                               .interval_ns = change->interval_ns};
    memcpy(room->address, path->address, sizeof room->address);
    pe_ring_written(&shell->inbound);
}

static void assess_inbound(pe_shell *shell)
{
    if (pe_shell_until_ns(shell) < shell->inbound_at_ns && !shell->inbound_all)
        return;
    pe_shell_judge_ease(shell);
    bool complete = shell->inbound_all || shell->inbound_lost; /* a change that found no room is told with all others */
    int64_t system_ns = pe_system_ns();
    shell->inbound_all = shell->inbound_lost = false;
    for (uint32_t host = 0; host < shell->config.most_hosts; host++) {
        const pe_inbound_change *changes = NULL;
        if (!shell->reflectors[host])
            continue;
        uint32_t n = pe_reflector_assess(shell->reflectors[host], shell->now_ns, complete, &changes);
        for (uint32_t i = 0; i < n; i++)
            report_inbound(shell, host, &changes[i], complete, system_ns);
    }
    shell->inbound_at_ns = shell->now_ns + shell->config.inbound_ns;
}

/* --- probes --- */

/* Send the probes of one slot; they lie behind one another. */
static void send_probes(pe_shell *shell, uint32_t first, uint32_t end)
{
    uint32_t slot = shell->outs[first].socket;
    uint64_t unsent = slot < shell->config.most_sockets ? pe_shell_send(shell, slot, first, end) : ~UINT64_C(0);
    for (uint32_t i = first; i < end && unsent; i++)
        if (unsent >> i & 1)
            pe_unsent(shell->pe, shell->outs[i].token);
}

static void probe(pe_shell *shell)
{
    int64_t until_ns = pe_shell_until_ns(shell);
    for (uint32_t round = 0; round < PROBE_ROUNDS && pe_next_due_ns(shell->pe) <= until_ns; round++) {
        uint32_t n = pe_due(shell->pe, shell->now_ns, until_ns, pe_system_ns(), shell->outs, PE_ROWS);
        uint32_t first = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (shell->outs[i].socket < shell->config.most_sockets)
                pe_shell_lay_out(shell, i, shell->outs[i].socket, &shell->outs[i]);
            if (i + 1 < n && shell->outs[i + 1].socket == shell->outs[first].socket)
                continue;
            send_probes(shell, first, i + 1);
            first = i + 1;
        }
    }
}

/* --- waiting and resting --- */

/* The instant at which there is something to do, whatever comes. */
static int64_t next_instant_ns(const pe_shell *shell)
{
    int64_t next_ns = earlier(pe_next_due_ns(shell->pe), pe_next_assess_ns(shell->pe));
    next_ns = earlier(next_ns, earlier(shell->finish_at_ns, shell->inbound_at_ns));
    if (shell->actions.waiting_links)
        next_ns = earlier(next_ns, shell->now_ns + LINK_PAUSE_NS);
    return shell->backlogs || shell->more ? shell->now_ns : next_ns;
}

static uint64_t packets(const pe_shell *shell)
{
    return atomic_load_explicit(&shell->counters[PE_S_RECEIVED], memory_order_relaxed) +
           atomic_load_explicit(&shell->counters[PE_S_SENT], memory_order_relaxed);
}

/* Whether there are so many packets a second that resting pays; with fewer, each is taken at once. */
static void judge_resting(pe_shell *shell)
{
    if (shell->now_ns - shell->window_ns < WINDOW_NS)
        return;
    uint64_t ever = packets(shell);
    bool resting = atomic_load_explicit(&shell->resting, memory_order_relaxed);
    bool many = ever - shell->window_packets > (resting ? FEW_PACKETS : MANY_PACKETS);
    many = many && shell->now_ns - shell->window_ns < 2 * WINDOW_NS && shell->config.rest_ns > 0;
    atomic_store_explicit(&shell->resting, many, memory_order_relaxed);
    shell->window_ns = shell->now_ns;
    shell->window_packets = ever;
}

/* Rest until a while after the turn's wake, but not beyond what is due. `n`: packets of the turn. */
static void rest(pe_shell *shell, int64_t woke_ns, uint64_t n)
{
    if (!atomic_load_explicit(&shell->resting, memory_order_relaxed) || shell->backlogs || shell->more)
        return;
    int64_t rest_ns = n < FULL_TURN ? shell->ease_ns : shell->config.rest_ns;
    int64_t until_ns = earlier(woke_ns + rest_ns, pe_next_assess_ns(shell->pe));
    int64_t due_ns = pe_next_due_ns(shell->pe);
    if (due_ns < INT64_MAX - shell->config.rest_late_ns)
        until_ns = earlier(until_ns, due_ns + shell->config.rest_late_ns);
    read_clock(shell);
    if (until_ns <= shell->now_ns)
        return;
    shell->due_at_ns = pe_system_ns() + (until_ns - shell->now_ns);
    pe_rest(until_ns);
    shell->blocked_ns = until_ns;
    pe_shell_count(shell, PE_S_RESTS, 1);
}

/* A thread of real-time priority that never waits would stop everything else on its core. What counts is its own CPU
 * time: where it did not wait because it was not let on, it has had its rest. */
static void rest_from_work(pe_shell *shell)
{
    if (shell->now_ns - shell->blocked_ns < MOST_BUSY_NS) {
        shell->busy_cpu_ns = -1;
        return;
    }
    int64_t cpu_ns = pe_cpu_ns();
    if (shell->busy_cpu_ns < 0)
        shell->busy_cpu_ns = cpu_ns;
    if (cpu_ns - shell->busy_cpu_ns < MOST_BUSY_NS)
        return;
    pe_rest(shell->now_ns + FORCED_REST_NS);
    read_clock(shell);
    shell->blocked_ns = shell->now_ns;
    pe_shell_count(shell, PE_S_FORCED_RESTS, 1);
}

/* Wait for what is next; how many sockets are ready. */
static uint32_t wait(pe_shell *shell)
{
    read_clock(shell);
    rest_from_work(shell);
    shell->planned_ns = next_instant_ns(shell);
    int64_t began_ns = shell->now_ns;
    uint32_t ready = pe_wait(&shell->waiter, began_ns, shell->planned_ns);
    read_clock(shell);
    if (shell->planned_ns > began_ns) {
        shell->blocked_ns = shell->now_ns;
        pe_shell_count(shell, PE_S_WAKES, 1);
    }
    if (shell->now_ns >= shell->planned_ns && !shell->backlogs && !shell->more)
        pe_histogram_add(&shell->histograms[PE_H_LATE], shell->now_ns - shell->planned_ns);
    return ready;
}

static void work(pe_shell *shell, uint32_t ready)
{
    pe_shell_apply(shell);
    pe_apply(shell->pe, shell->now_ns);
    receive_all(shell, ready);
    read_clock(shell);
    assess(shell);
    if (shell->actions.waiting_links)
        pe_actions_go_on(&shell->actions);
    finish(shell);
    assess_inbound(shell);
    read_clock(shell);
    probe(shell);
    read_clock(shell);
}

/* Wake the reader of events, where there are any since it was last woken. */
static void tell(pe_shell *shell)
{
    uint64_t written = pe_events_written(shell->pe) + pe_ring_ever_written(&shell->inbound), one = 1;
    if (written == shell->told)
        return;
    shell->told = written;
    if (write(shell->found_fd, &one, sizeof one) < 0)
        return; /* its count is full, so it is readable */
}

void pe_shell_one_turn(pe_shell *shell, bool may_wait)
{
    uint32_t ready = may_wait ? wait(shell) : pe_wait(&shell->waiter, 0, 0);
    uint64_t before = packets(shell);
    read_clock(shell);
    int64_t woke_ns = shell->now_ns;
    work(shell, ready);
    tell(shell);
    pe_histogram_add(&shell->histograms[PE_H_TURN], shell->now_ns - woke_ns);
    pe_shell_count(shell, PE_S_TURNS, 1);
    atomic_store_explicit(&shell->turned_ns, woke_ns, memory_order_relaxed);
    shell->due_at_ns = 0;
    /* a turn without a packet, woken by the stamps of the one before, must not make the next packet wait */
    uint64_t n = packets(shell) - before;
    if (may_wait && n) {
        judge_resting(shell);
        rest(shell, woke_ns, n);
    }
}
