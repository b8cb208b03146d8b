/* The least that a thread can do to probe and to reflect with kernel stamps: the packet engine's system calls, and
 * nothing of what it does with them. No HMAC, no matching, no rows, no liveness; payloads are echoed as they came. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#define ROWS 64
#define WIDTH 1600
#define CONTROL 256
#define NS_PER_S INT64_C(1000000000)
#define STAMPS_NS 2000000
#define FINISH_NS 20000000

typedef struct bare_socket {
    int32_t fd;
    uint32_t reflects;
    uint32_t control_octets;
    uint32_t outstanding;
    int64_t stamps_read_ns;
    uint8_t control[64];
} bare_socket;

typedef struct bare_path {
    uint32_t socket;
    uint32_t octets;
    uint32_t address; /* network byte order, as the port */
    uint32_t port;
    int64_t interval_ns;
    int64_t due_ns;
} bare_path;

typedef struct bare_counts {
    int64_t cpu_ns;
    uint64_t probes, reflected, answers, stamps, turns;
} bare_counts;

static struct mmsghdr headers[ROWS];
static struct iovec vectors[ROWS];
static struct sockaddr_in names[ROWS];
static uint8_t control[ROWS][CONTROL], data[ROWS][WIDTH];

static int64_t reading_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static int receive(int fd, int flags)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        vectors[i] = (struct iovec){data[i], WIDTH};
        headers[i].msg_hdr = (struct msghdr){.msg_name = &names[i], .msg_namelen = sizeof names[i],
                                             .msg_iov = &vectors[i], .msg_iovlen = 1,
                                             .msg_control = control[i], .msg_controllen = CONTROL};
    }
    int n = recvmmsg(fd, headers, ROWS, flags | MSG_DONTWAIT, NULL);
    return n > 0 ? n : 0;
}

static int send_rows(bare_socket *socket, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        memcpy(control[i], socket->control, socket->control_octets);
        headers[i].msg_hdr.msg_controllen = socket->control_octets;
    }
    int sent = sendmmsg(socket->fd, headers, n, MSG_DONTWAIT);
    socket->outstanding += sent > 0 ? (uint32_t)sent : 0;
    return sent > 0 ? sent : 0;
}

static void read_stamps(bare_socket *socket, int64_t now_ns, bare_counts *counts)
{
    int n = receive(socket->fd, MSG_ERRQUEUE);
    counts->stamps += (uint64_t)n;
    socket->outstanding = 0;
    socket->stamps_read_ns = now_ns;
}

static void serve(bare_socket *socket, int64_t now_ns, bare_counts *counts)
{
    if (socket->reflects && socket->outstanding && now_ns - socket->stamps_read_ns >= STAMPS_NS)
        read_stamps(socket, now_ns, counts);
    int n = receive(socket->fd, MSG_TRUNC);
    if (!socket->reflects) {
        counts->answers += (uint64_t)n;
        return;
    }
    for (int i = 0; i < n; i++)
        vectors[i].iov_len = headers[i].msg_len;
    if (n)
        counts->reflected += (uint64_t)send_rows(socket, (uint32_t)n);
}

static void probe(bare_socket *sockets, const bare_path *path, bare_counts *counts)
{
    names[0] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = (in_port_t)path->port,
                                    .sin_addr.s_addr = path->address};
    vectors[0] = (struct iovec){data[0], path->octets};
    headers[0].msg_hdr = (struct msghdr){.msg_name = &names[0], .msg_namelen = sizeof names[0],
                                         .msg_iov = &vectors[0], .msg_iovlen = 1, .msg_control = control[0]};
    counts->probes += (uint64_t)send_rows(&sockets[path->socket], 1);
}

/* Sift the first path of the heap down, once its due instant has grown. */
static void settle(bare_path *heap, uint32_t n)
{
    for (uint32_t at = 0, child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1].due_ns < heap[child].due_ns)
            child++;
        if (heap[at].due_ns <= heap[child].due_ns)
            return;
        bare_path moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static int by_due(const void *a, const void *b)
{
    int64_t one = ((const bare_path *)a)->due_ns, other = ((const bare_path *)b)->due_ns;
    return (one > other) - (one < other);
}

static void schedule(bare_path *paths, uint32_t n, int64_t now_ns, unsigned *seed)
{
    for (uint32_t i = 0; i < n; i++)
        paths[i].due_ns = now_ns + (int64_t)((double)paths[i].interval_ns * rand_r(seed) / RAND_MAX);
    qsort(paths, n, sizeof *paths, by_due); /* sorted, it is a heap */
}

static void ask_for_priority(int priority)
{
    struct sched_param wanted = {.sched_priority = priority};
    if (priority > 0)
        sched_setscheduler(0, SCHED_FIFO, &wanted);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

/* Work for `seconds_ns`, resting until `rest_ns` after a wake but not beyond `late_ns` after what is due; all paths and
 * sockets are IPv4. Returns 0 or -errno. */
int bare_run(bare_socket *sockets, uint32_t n_sockets, bare_path *paths, uint32_t n_paths, int64_t seconds_ns,
             int64_t rest_ns, int64_t late_ns, double jitter, int priority, bare_counts *counts)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        return -errno;
    for (uint32_t i = 0; i < n_sockets; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u32 = i}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[i].fd, &event);
    }
    ask_for_priority(priority);
    unsigned seed = 1;
    struct epoll_event ready[ROWS];
    int64_t now_ns = reading_ns(CLOCK_MONOTONIC), end_ns = now_ns + seconds_ns, finish_at_ns = now_ns;
    int64_t cpu_ns = reading_ns(CLOCK_THREAD_CPUTIME_ID);
    schedule(paths, n_paths, now_ns, &seed);
    while (now_ns < end_ns) {
        int64_t next_ns = paths[0].due_ns < finish_at_ns ? paths[0].due_ns : finish_at_ns;
        struct timespec left = timespec_of(next_ns > now_ns ? next_ns - now_ns : 0);
        int n = (int)syscall(SYS_epoll_pwait2, epoll, ready, ROWS, &left, NULL, 0);
        int64_t woke_ns = now_ns = reading_ns(CLOCK_MONOTONIC);
        uint64_t before = counts->probes + counts->reflected + counts->answers;
        counts->turns++;
        for (int i = 0; i < n; i++)
            if (ready[i].events & EPOLLIN)
                serve(&sockets[ready[i].data.u32], now_ns, counts);
        if (now_ns >= finish_at_ns) {
            for (uint32_t i = 0; i < n_sockets; i++)
                if (!sockets[i].reflects && sockets[i].outstanding)
                    read_stamps(&sockets[i], now_ns, counts);
            finish_at_ns = now_ns + FINISH_NS;
        }
        while (paths[0].due_ns <= now_ns) {
            probe(sockets, &paths[0], counts);
            double stretch = 1 + jitter * (2.0 * rand_r(&seed) / RAND_MAX - 1);
            paths[0].due_ns = now_ns + (int64_t)((double)paths[0].interval_ns * stretch);
            settle(paths, n_paths);
        }
        if (counts->probes + counts->reflected + counts->answers == before)
            continue;
        int64_t due_ns = paths[0].due_ns + late_ns;
        int64_t until_ns = woke_ns + rest_ns < due_ns ? woke_ns + rest_ns : due_ns;
        struct timespec until = timespec_of(until_ns);
        if (rest_ns > 0 && until_ns > reading_ns(CLOCK_MONOTONIC))
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        now_ns = reading_ns(CLOCK_MONOTONIC);
    }
    counts->cpu_ns = reading_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    close(epoll);
    return 0;
}
