#!/bin/sh
# Slurm epilog: the job has ended on this node; its file in the agent's drop directory goes. See prolog.sh.
# It always ends well: Slurm drains a node whose epilog fails.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C

conf=${SDF_CONF:-/etc/sdfstream/slurm.conf}
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    (. "$conf") || exit 0 # in a shell of its own first: a mistake in it would end this one
    # shellcheck source=/dev/null
    . "$conf"
fi
host=$(printf '%s' "${SDF_HOST:-${SLURMD_NODENAME:-}}" | tr -cd 'A-Za-z0-9 ._:+=,/-' | cut -c 1-128)
case ${SLURM_JOB_ID:-}@$host in
    @* | *@ | */* | *[!0-9_]*@*) ;;
    *) rm -f "${SDF_JOBS_DIR:-/run/sdfstream/jobs}/$SLURM_JOB_ID@$host.json" ||
        logger -t sdfstream "epilog: the file of job $SLURM_JOB_ID cannot be removed" 2>/dev/null ;;
esac
exit 0
