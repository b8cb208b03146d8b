/* How long rests are. A wake costs as much as the packets that it is for, so a turn takes what has come since the turn
 * before and does what is due until the next one. What that costs is time: an answer waits in its socket, stamped by the
 * kernel, and a probe leaves before its instant, which the next one is counted from all the same. Against an eighth of
 * the shortest interval, at most `rest_most_ns`, no silence is found later and no row is older by much. */
#define _GNU_SOURCE
#include "shell_state.h"

#define EASE_SHARE 8 /* of the shortest interval of any path, sent or answered */

void pe_shell_judge_ease(pe_shell *shell)
{
    int64_t shortest_ns = pe_shortest_interval_ns(shell->pe);
    for (uint32_t host = 0; host < shell->config.most_hosts; host++) {
        if (!shell->reflectors[host])
            continue;
        int64_t inbound_ns = pe_reflector_shortest_ns(shell->reflectors[host], shell->now_ns);
        shortest_ns = inbound_ns < shortest_ns ? inbound_ns : shortest_ns;
    }
    int64_t ease_ns = shortest_ns / EASE_SHARE;
    ease_ns = ease_ns < shell->config.rest_most_ns ? ease_ns : shell->config.rest_most_ns;
    shell->ease_ns = ease_ns > shell->config.rest_ns ? ease_ns : shell->config.rest_ns;
}

int64_t pe_shell_until_ns(const pe_shell *shell)
{
    bool eased = shell->ease_ns > shell->config.rest_ns;
    bool resting = atomic_load_explicit(&shell->resting, memory_order_relaxed);
    return shell->now_ns + (eased && resting ? shell->ease_ns : 0);
}
