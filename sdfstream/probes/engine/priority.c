#define _GNU_SOURCE
#include "priority.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>

#define FIFO_PRIORITY 10
#define LEAST_NICE (-20) /* helps within one autogroup or cgroup only */

int pe_priority_ask(int *why)
{
    struct sched_param param = {.sched_priority = FIFO_PRIORITY};
    *why = 0;
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0)
        return PE_PRIORITY_FIFO;
    *why = errno;
    /* Linux: of the calling thread alone */
    return setpriority(PRIO_PROCESS, 0, LEAST_NICE) == 0 ? PE_PRIORITY_NICE : PE_PRIORITY_NORMAL;
}
