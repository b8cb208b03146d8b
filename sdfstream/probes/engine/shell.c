/* The shell's beginning and end, its thread, and what may be read of it. */
#define _GNU_SOURCE
#include "shell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "priority.h"
#include "shell_state.h"

#define MOST_OF_EACH (UINT32_C(1) << 16)
#define MOST_ICMP 256
#define MOST_WIDTH 65535
#define CPU_PAUSE_NS 10000000 /* its own CPU time is read by a system call */

_Static_assert(sizeof(pe_icmp) == 112, "as shell_layouts.py has it");

int pe_shell_abi(void)
{
    return PE_SHELL_ABI;
}

size_t pe_shell_octets_of(const char *name)
{
    static const struct {
        const char *name;
        size_t octets;
    } KNOWN[] = {{"pe_shell_config", sizeof(pe_shell_config)}, {"pe_adoption", sizeof(pe_adoption)},
                 {"pe_limited", sizeof(pe_limited)},           {"pe_move", sizeof(pe_move)},
                 {"pe_icmp", sizeof(pe_icmp)},                 {"pe_inbound_event", sizeof(pe_inbound_event)},
                 {"pe_shell_report", sizeof(pe_shell_report)}, {"pe_control", sizeof(pe_control)}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (strcmp(KNOWN[i].name, name) == 0)
            return KNOWN[i].octets;
    return 0;
}

static bool consistent(const pe_shell_config *config)
{
    uint32_t words = config->command_words;
    return config->octets == sizeof *config && config->most_sockets - 1 < MOST_OF_EACH &&
           config->most_hosts - 1 < MOST_OF_EACH && config->most_orders <= MOST_OF_EACH &&
           config->most_links <= MOST_OF_EACH && config->width_octets > 0 && config->width_octets <= MOST_WIDTH &&
           words >= 4096 && words <= 1u << 24 && (words & (words - 1)) == 0 && config->rest_ns >= 0 &&
           config->rest_most_ns >= config->rest_ns && config->rest_late_ns >= 0 && config->finish_ns > 0 && config->inbound_ns > 0 &&
           pe_ring_octets(config->inbound_capacity, sizeof(pe_inbound_event)) > 0;
}

static void carve(pe_shell *shell, pe_arena *arena, const pe_shell_config *config)
{
    uint32_t sockets = config->most_sockets;
    shell->sockets = pe_carve(arena, sockets, sizeof *shell->sockets);
    shell->sent = pe_carve(arena, (size_t)sockets * PE_STAMPS, sizeof *shell->sent);
    shell->backlog = pe_carve(arena, (size_t)sockets * 2, sizeof *shell->backlog);
    shell->reflectors = pe_carve(arena, config->most_hosts, sizeof(pe_reflector *));
    shell->datagrams = pe_carve(arena, PE_ROWS, sizeof *shell->datagrams);
    shell->replies = pe_carve(arena, PE_ROWS, sizeof *shell->replies);
    shell->outs = pe_carve(arena, PE_ROWS, sizeof *shell->outs);
    pe_rows_carve(&shell->received, arena, config->width_octets);
    pe_rows_carve(&shell->built, arena, config->width_octets);
    pe_rows_carve(&shell->errors, arena, sizeof((pe_icmp *)NULL)->quote);
    pe_actions_carve(&shell->actions, arena, config);
    pe_commands_carve(&shell->commands, arena, config->command_words);
    shell->icmp_memory = pe_carve(arena, 1, pe_ring_octets(MOST_ICMP, sizeof(pe_icmp)));
    shell->inbound_memory = pe_carve(arena, 1, pe_ring_octets(config->inbound_capacity, sizeof(pe_inbound_event)));
}

/* Carry an order out, within pe_assess. */
static int act(void *context, uint32_t order, uint32_t alternate, int64_t now_ns)
{
    pe_shell *shell = context;
    int error = pe_actions_give(&shell->actions, order, alternate);
    (void)now_ns;
    pe_shell_count(shell, error == 0 ? PE_S_ORDERS : error == ENOENT ? PE_S_ORDERS_UNPREPARED : PE_S_ORDERS_FAILED, 1);
    return error;
}

static void begin(pe_shell *shell)
{
    pe_rows_begin(&shell->received);
    pe_rows_begin(&shell->built);
    pe_rows_begin(&shell->errors);
    pe_actions_begin(&shell->actions);
    pe_ring_make(&shell->icmp, shell->icmp_memory, MOST_ICMP, sizeof(pe_icmp));
    pe_ring_make(&shell->inbound, shell->inbound_memory, shell->config.inbound_capacity, sizeof(pe_inbound_event));
    for (uint32_t i = 0; i < shell->config.most_sockets; i++)
        shell->sockets[i].sent = shell->sent + (size_t)i * PE_STAMPS;
    for (uint32_t i = 0; i < PE_ROWS; i++) {
        shell->outs[i].data = shell->built.data + (size_t)i * shell->built.stride;
        shell->outs[i].room_octets = shell->built.stride;
    }
    pe_on_order(shell->pe, act, shell);
}

pe_shell *pe_shell_new(const pe_shell_config *config, pe_t *pe)
{
    if (!pe || !consistent(config))
        return NULL;
    pe_shell *counted = calloc(1, sizeof *counted);
    pe_arena arena = {0};
    if (!counted)
        return NULL;
    pe_shell *shell = pe_carve(&arena, 1, sizeof *shell);
    carve(counted, &arena, config);
    free(counted);
    /* calloc: pages that nobody touches are not there; and the arena begins at a cache line */
    uint8_t *memory = calloc(1, arena.used + 2 * PE_ARENA_LINE);
    if (!memory)
        return NULL;
    uint8_t *first = memory + (PE_ARENA_LINE - (uintptr_t)memory % PE_ARENA_LINE);
    arena = (pe_arena){.memory = first};
    shell = pe_carve(&arena, 1, sizeof *shell);
    carve(shell, &arena, config);
    shell->memory = memory;
    shell->config = *config;
    shell->pe = pe;
    if (pe_wait_begin(&shell->waiter, config->flags & PE_SHELL_OLD_WAIT)) {
        free(memory);
        return NULL;
    }
    shell->found_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (shell->found_fd < 0) {
        pe_wait_end(&shell->waiter);
        free(memory);
        return NULL;
    }
    begin(shell);
    return shell;
}

void pe_shell_free(pe_shell *shell)
{
    if (!shell)
        return;
    pe_on_order(shell->pe, NULL, NULL);
    pe_wait_end(&shell->waiter);
    close(shell->found_fd);
    free(shell->memory);
}

/* --- its thread --- */

static void note_cpu(pe_shell *shell)
{
    atomic_store_explicit(&shell->cpu_ns, pe_cpu_ns(), memory_order_relaxed);
}

static void prepare_thread(pe_shell *shell)
{
    int why = 0, priority = PE_PRIORITY_NORMAL;
    if (shell->config.flags & PE_SHELL_REALTIME)
        priority = pe_priority_ask(&why);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* else timers come 50 us late at normal priority */
    atomic_store(&shell->priority, priority);
    atomic_store(&shell->priority_error, why);
    shell->now_ns = shell->blocked_ns = shell->window_ns = pe_steady_ns();
    atomic_store(&shell->began_ns, shell->now_ns);
}

int pe_shell_run(pe_shell *shell)
{
    bool running = false;
    if (!atomic_compare_exchange_strong(&shell->running, &running, true))
        return -EBUSY;
    prepare_thread(shell);
    for (int64_t cpu_at_ns = 0; !atomic_load(&shell->stop);) {
        pe_shell_one_turn(shell, true);
        if (shell->now_ns >= cpu_at_ns) {
            note_cpu(shell);
            cpu_at_ns = shell->now_ns + CPU_PAUSE_NS;
        }
    }
    note_cpu(shell);
    atomic_store(&shell->stop, false);
    atomic_store(&shell->running, false);
    return 0;
}

void pe_shell_stop(pe_shell *shell)
{
    atomic_store(&shell->stop, true);
    pe_wait_wake(&shell->waiter);
}

void pe_shell_turn(pe_shell *shell)
{
    pe_shell_one_turn(shell, false);
}

void pe_shell_wake(pe_shell *shell)
{
    pe_wait_wake(&shell->waiter);
}

/* --- what it has found --- */

int pe_shell_found_fd(const pe_shell *shell)
{
    return shell->found_fd;
}

void pe_shell_reported(const pe_shell *shell, pe_shell_report *report)
{
    *report = (pe_shell_report){.cpu_ns = atomic_load(&shell->cpu_ns),
                                .began_ns = atomic_load(&shell->began_ns),
                                .turned_ns = atomic_load(&shell->turned_ns),
                                .priority = atomic_load(&shell->priority),
                                .priority_error = atomic_load(&shell->priority_error),
                                .running = atomic_load(&shell->running),
                                .resting = atomic_load(&shell->resting)};
}

static int copy_counters(const _Atomic uint64_t *from, uint32_t there, uint64_t *to, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < there; i++)
        to[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
    return (int)there;
}

int pe_shell_stats(const pe_shell *shell, uint64_t *counters, uint32_t n)
{
    return copy_counters(shell->counters, PE_SHELL_COUNTERS, counters, n);
}

int pe_shell_bins(const pe_shell *shell, uint32_t histogram, uint64_t *bins, uint32_t n)
{
    if (histogram >= PE_HISTOGRAMS)
        return -EINVAL;
    return copy_counters(shell->histograms[histogram].bins, PE_BINS, bins, n);
}

int64_t pe_shell_bin_least_ns(uint32_t bin)
{
    return pe_bin_least_ns(bin);
}

uint32_t pe_shell_suspects(pe_shell *shell, uint32_t *slots, uint32_t n)
{
    uint32_t found = 0;
    for (uint32_t slot = 0; slot < shell->config.most_sockets && found < n; slot++)
        if (atomic_load_explicit(&shell->sockets[slot].suspect, memory_order_relaxed) &&
            atomic_exchange(&shell->sockets[slot].suspect, 0))
            slots[found++] = slot;
    return found;
}

int pe_shell_link_error(const pe_shell *shell, uint32_t link)
{
    return link < shell->config.most_links ? atomic_load(&shell->actions.links[link].error) : EINVAL;
}

static uint32_t take(pe_ring *ring, void *out, uint32_t n)
{
    uint64_t first = 0, waiting = pe_ring_take(ring, &first);
    uint32_t taken = waiting < n ? (uint32_t)waiting : n;
    for (uint32_t i = 0; i < taken; i++)
        memcpy((uint8_t *)out + i * ring->entry_octets, ring->entries + ((first + i) & ring->mask) * ring->entry_octets,
               ring->entry_octets);
    pe_ring_done(ring, first + taken);
    return taken;
}

uint32_t pe_shell_take_icmp(pe_shell *shell, pe_icmp *out, uint32_t n)
{
    return take(&shell->icmp, out, n);
}

uint32_t pe_shell_take_inbound(pe_shell *shell, pe_inbound_event *out, uint32_t n)
{
    return take(&shell->inbound, out, n);
}
