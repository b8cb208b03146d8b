#include "shell_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define STALL_NS INT64_C(10000000) /* a pass later than this is a stall; the job's clock stands still meanwhile */
#define LONGEST_NS (NS_PER_S / 10)

int64_t je_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void lay_out_receiving(je_shell *shell)
{
    shell->in_data = je_memory((size_t)JE_ROWS_IN * JE_ROW_OCTETS);
    shell->in_control = je_memory((size_t)JE_ROWS_IN * JE_CONTROL_OCTETS);
    for (uint32_t i = 0; i < JE_ROWS_IN; i++) {
        shell->in_iov[i] = (struct iovec){shell->in_data + (size_t)i * JE_ROW_OCTETS, JE_ROW_OCTETS};
        shell->in[i].msg_hdr.msg_iov = &shell->in_iov[i];
        shell->in[i].msg_hdr.msg_iovlen = 1;
        shell->in[i].msg_hdr.msg_control = shell->in_control + (size_t)i * JE_CONTROL_OCTETS;
    }
}

je_shell *je_shell_new(je_t *je, uint32_t ranks, const uint8_t *addresses, int64_t rest_ns, int notified)
{
    int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake < 0)
        return NULL;
    je_shell *shell = je_memory(sizeof *shell);
    shell->je = je;
    shell->ranks = ranks;
    shell->rest_ns = rest_ns;
    shell->notified = notified;
    shell->wake = wake;
    pthread_mutex_init(&shell->held, NULL);
    shell->nics = je_memory(ranks * sizeof(je_nic));
    shell->polled = je_memory((ranks + 1) * sizeof(struct pollfd));
    for (uint32_t i = 0; i < ranks; i++) {
        shell->nics[i].fd = -1;
        memcpy(&shell->nics[i].address, addresses + (size_t)4 * i, 4);
        shell->polled[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    }
    shell->polled[ranks] = (struct pollfd){.fd = wake, .events = POLLIN};
    lay_out_receiving(shell);
    shell->real_ns = shell->planned_ns = shell->now_ns = je_clock_ns(CLOCK_MONOTONIC);
    return shell;
}

void je_shell_free(je_shell *shell)
{
    close(shell->wake);
    pthread_mutex_destroy(&shell->held);
    free(shell->nics);
    free(shell->polled);
    free(shell->in_data);
    free(shell->in_control);
    free(shell);
}

static void add_to(int fd)
{
    uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof one) < 0)
        return; /* it is full: whoever reads it will */
}

static void take_datagram(void *context, const je_datagram *datagram)
{
    je_nic_send(context, datagram);
}

/* Read what has arrived at the ranks whose socket is ready, at all of them where `all`; let the job work; send. */
static void pass(je_shell *shell, bool all)
{
    int64_t real_ns = je_clock_ns(CLOCK_MONOTONIC);
    int64_t longest_ns = shell->planned_ns - shell->real_ns;
    longest_ns = longest_ns > STALL_NS ? longest_ns : STALL_NS;
    int64_t late_ns = real_ns - shell->planned_ns;
    if (late_ns > shell->report.latest_ns)
        shell->report.latest_ns = late_ns;
    shell->now_ns += real_ns - shell->real_ns < longest_ns ? real_ns - shell->real_ns : longest_ns;
    shell->real_ns = real_ns;
    shell->report.passes++;
    uint64_t away = shell->report.away;
    for (uint32_t i = 0; i < shell->ranks; i++) {
        if (all || shell->polled[i].revents)
            je_nic_receive(shell, i);
        je_nic_read_stamps(shell, &shell->nics[i], all || shell->polled[i].revents & POLLERR);
    }
    je_step(shell->je, shell->now_ns, take_datagram, shell);
    for (uint32_t i = 0; i < shell->ranks; i++)
        je_nic_flush(shell, &shell->nics[i]);
    int64_t next_ns = je_next_ns(shell->je, shell->now_ns);
    int64_t ahead_ns = next_ns - shell->now_ns; /* no overflow: neither is negative */
    ahead_ns = ahead_ns < shell->rest_ns ? shell->rest_ns : ahead_ns > LONGEST_NS ? LONGEST_NS : ahead_ns;
    shell->planned_ns = real_ns + ahead_ns;
    bool done = je_is_done(shell->je);
    if (shell->report.away > away || (done && !shell->done))
        add_to(shell->notified);
    shell->done = done;
}

static struct timespec instant(int64_t ns)
{
    return (struct timespec){ns / NS_PER_S, ns % NS_PER_S};
}

/* Rest, then wait until something arrives or is due. */
static void await(je_shell *shell, int64_t rested_ns, int64_t planned_ns)
{
    struct timespec rested = instant(rested_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &rested, NULL) == EINTR)
        continue;
    int64_t left_ns = planned_ns - je_clock_ns(CLOCK_MONOTONIC);
    struct timespec left = instant(left_ns > 0 ? left_ns : 0);
    if (ppoll(shell->polled, shell->ranks + 1, &left, NULL) <= 0)
        for (uint32_t i = 0; i <= shell->ranks; i++)
            shell->polled[i].revents = 0;
    if (shell->polled[shell->ranks].revents) {
        uint64_t n;
        if (read(shell->wake, &n, sizeof n) < 0)
            return; /* another has read it */
    }
}

void je_shell_run(je_shell *shell)
{
    bool all = true;
    for (bool over = false; !over && !atomic_load(&shell->stop); all = false) {
        pthread_mutex_lock(&shell->held);
        pass(shell, all);
        int64_t rested_ns = shell->real_ns + shell->rest_ns, planned_ns = shell->planned_ns;
        for (uint32_t i = 0; i < shell->ranks; i++)
            shell->polled[i].fd = shell->nics[i].fd;
        over = shell->done;
        pthread_mutex_unlock(&shell->held);
        if (!over)
            await(shell, rested_ns, planned_ns);
    }
}

void je_shell_stop(je_shell *shell)
{
    atomic_store(&shell->stop, true);
    add_to(shell->wake);
}

void je_shell_adopt(je_shell *shell, uint32_t rank, int fd)
{
    pthread_mutex_lock(&shell->held);
    je_nic *nic = &shell->nics[rank];
    nic->fd = fd;
    nic->n = nic->next_id = nic->waiting = 0;
    memset(nic->awaited, 0, sizeof nic->awaited);
    pthread_mutex_unlock(&shell->held);
    add_to(shell->wake);
}

bool je_shell_is_away(je_shell *shell, uint32_t rank)
{
    pthread_mutex_lock(&shell->held);
    bool away = shell->nics[rank].fd < 0;
    pthread_mutex_unlock(&shell->held);
    return away;
}

void je_shell_steer(je_shell *shell, uint32_t qp, uint16_t path)
{
    pthread_mutex_lock(&shell->held);
    je_steer(shell->je, qp, path, shell->now_ns);
    pass(shell, true);
    pthread_mutex_unlock(&shell->held);
    add_to(shell->wake);
}

void je_shell_limit(je_shell *shell, uint32_t qp, int64_t rate_bps)
{
    pthread_mutex_lock(&shell->held);
    je_limit(shell->je, qp, rate_bps);
    pthread_mutex_unlock(&shell->held);
    add_to(shell->wake);
}

void je_shell_reported(je_shell *shell, je_shell_report *own, je_report *report, je_qp_report *qps)
{
    pthread_mutex_lock(&shell->held);
    *own = shell->report;
    je_reported(shell->je, report, qps);
    pthread_mutex_unlock(&shell->held);
}

uint32_t je_shell_take_rows(je_shell *shell, je_row *rows, uint32_t n)
{
    pthread_mutex_lock(&shell->held);
    uint32_t taken = je_take_rows(shell->je, rows, n);
    pthread_mutex_unlock(&shell->held);
    return taken;
}
