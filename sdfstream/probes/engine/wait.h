/* Waiting for packets, for an instant, or to be woken. */
#ifndef PE_WAIT_H
#define PE_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#define PE_WAIT_MOST 256 /* ready sockets that one wait returns; the next returns the others */

typedef struct pe_waiter {
    int epoll;
    int woken; /* eventfd */
    int timer; /* timerfd, where there is no epoll_pwait2 (Linux < 5.11); -1: not needed */
    int64_t timer_ns; /* what it is set to */
    struct epoll_event ready[PE_WAIT_MOST];
} pe_waiter;

/* 0, or -errno. `old`: behave as on a kernel without epoll_pwait2. */
int pe_wait_begin(pe_waiter *waiter, bool old);
void pe_wait_end(pe_waiter *waiter);

/* Watch a socket; edge-triggered, since an error queue that is not read yet would wake us for ever (EPOLLERR cannot be
 * masked). 0, or -errno. */
int pe_wait_add(pe_waiter *waiter, int fd, uint32_t slot);
void pe_wait_remove(pe_waiter *waiter, int fd);

/* Wait until `until_ns` (steady clock; passed: do not wait). How many sockets in `ready` are; data.u32 is the slot. */
uint32_t pe_wait(pe_waiter *waiter, int64_t now_ns, int64_t until_ns);

/* Wake the thread that waits, or the next one that will; any thread. */
void pe_wait_wake(const pe_waiter *waiter);

/* Sleep, whatever comes. */
void pe_rest(int64_t until_ns);

int64_t pe_steady_ns(void);
int64_t pe_system_ns(void);
/* CPU time of the calling thread; a system call. */
int64_t pe_cpu_ns(void);

#endif
