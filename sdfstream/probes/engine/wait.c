#define _GNU_SOURCE
#include "wait.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "datagram.h"

#define WOKEN UINT32_MAX
#define TIMER (UINT32_MAX - 1)
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* the same on every architecture */
#endif

static int64_t reading_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * PE_NS_PER_S + now.tv_nsec;
}

int64_t pe_steady_ns(void)
{
    return reading_ns(CLOCK_MONOTONIC);
}

int64_t pe_system_ns(void)
{
    return reading_ns(CLOCK_REALTIME);
}

int64_t pe_cpu_ns(void)
{
    return reading_ns(CLOCK_THREAD_CPUTIME_ID);
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / PE_NS_PER_S, .tv_nsec = ns % PE_NS_PER_S};
}

static int watch(pe_waiter *waiter, int fd, uint32_t name, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.u64 = name}};
    return epoll_ctl(waiter->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static bool has_pwait2(const pe_waiter *waiter)
{
    struct epoll_event ready;
    struct timespec none = {0};
    return syscall(SYS_epoll_pwait2, waiter->epoll, &ready, 1, &none, NULL, 0) >= 0 || errno != ENOSYS;
}

int pe_wait_begin(pe_waiter *waiter, bool old)
{
    int error = 0;
    waiter->timer = -1;
    waiter->timer_ns = 0;
    waiter->epoll = epoll_create1(EPOLL_CLOEXEC);
    waiter->woken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (waiter->epoll < 0 || waiter->woken < 0)
        error = -errno;
    if (!error)
        error = watch(waiter, waiter->woken, WOKEN, EPOLLIN | EPOLLET);
    if (!error && (old || !has_pwait2(waiter))) {
        waiter->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        error = waiter->timer < 0 ? -errno : watch(waiter, waiter->timer, TIMER, EPOLLIN | EPOLLET);
    }
    if (error)
        pe_wait_end(waiter);
    return error;
}

void pe_wait_end(pe_waiter *waiter)
{
    const int fds[] = {waiter->epoll, waiter->woken, waiter->timer};
    for (unsigned i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    waiter->epoll = waiter->woken = waiter->timer = -1;
}

int pe_wait_add(pe_waiter *waiter, int fd, uint32_t slot)
{
    return watch(waiter, fd, slot, EPOLLIN | EPOLLET);
}

void pe_wait_remove(pe_waiter *waiter, int fd)
{
    struct epoll_event none = {0};
    epoll_ctl(waiter->epoll, EPOLL_CTL_DEL, fd, &none);
}

static int wait_by_timer(pe_waiter *waiter, int64_t now_ns, int64_t until_ns)
{
    if (until_ns <= now_ns)
        return epoll_wait(waiter->epoll, waiter->ready, PE_WAIT_MOST, 0);
    if (until_ns != waiter->timer_ns) {
        struct itimerspec at = {.it_value = timespec_of(until_ns)};
        timerfd_settime(waiter->timer, TFD_TIMER_ABSTIME, &at, NULL);
        waiter->timer_ns = until_ns;
    }
    return epoll_wait(waiter->epoll, waiter->ready, PE_WAIT_MOST, -1);
}

uint32_t pe_wait(pe_waiter *waiter, int64_t now_ns, int64_t until_ns)
{
    struct timespec left = timespec_of(until_ns > now_ns ? until_ns - now_ns : 0);
    int n = waiter->timer >= 0
                ? wait_by_timer(waiter, now_ns, until_ns)
                : (int)syscall(SYS_epoll_pwait2, waiter->epoll, waiter->ready, PE_WAIT_MOST, &left, NULL, 0);
    uint32_t sockets = 0;
    for (int i = 0; i < n; i++) {
        uint32_t name = waiter->ready[i].data.u32;
        if (name != WOKEN && name != TIMER)
            waiter->ready[sockets++] = waiter->ready[i];
    }
    return sockets;
}

void pe_wait_wake(const pe_waiter *waiter)
{
    /* edge-triggered: each write wakes, so the count is never read; were it full, it would have woken already */
    uint64_t one = 1;
    ssize_t written = write(waiter->woken, &one, sizeof one);
    (void)written;
}

void pe_rest(int64_t until_ns)
{
    struct timespec until = timespec_of(until_ns);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
