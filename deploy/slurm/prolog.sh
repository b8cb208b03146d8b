#!/bin/sh
# Slurm prolog: tells the sdfstream agent of this node that a job begins here, by a file in its drop directory.
#
#   slurm.conf:  Prolog=/etc/slurm/sdfstream-prolog.sh  Epilog=/etc/slurm/sdfstream-epilog.sh  PrologFlags=Alloc
#
# Runs as root on every node of the job. It always ends well: Slurm drains a node whose prolog fails, and a job must not
# wait for its observer. What went wrong is in the system log (logger -t sdfstream).
#
# Settings, from /etc/sdfstream/slurm.conf (KEY=value lines, read by sh) or the environment:
#   SDF_JOBS_DIR      the agent's drop directory                              (/run/sdfstream/jobs)
#   SDF_HOST          the agent's name for this node                          (SLURMD_NODENAME)
#   SDF_NICS          NICs of the training network, in the order of the GPUs  (every device in /sys/class/infiniband)
#   SDF_RANKS         ranks on each node                                      (number of SLURM_JOB_GPUS, else 1)
#   SDF_CONTROL_DIR   where the job's processes put a control socket JOBID.sock; unset: they have none
#   SDF_SCONTROL      Slurm's scontrol, used only to spell out the list of nodes; asks no daemon   (scontrol)
#
# Ranks are numbered as Slurm and torchrun do by default: node by node, one a GPU; the rank of GPU i uses NIC i.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin
export PATH LC_ALL=C
umask 022

say() {
    logger -t sdfstream "prolog: $1" 2>/dev/null || echo "sdfstream prolog: $1" >&2
}

give_up() {
    say "$1; job ${SLURM_JOB_ID:-?} is not told to the agent"
    exit 0
}

# Text that may stand between the quotes of JSON: everything else is left out.
plain() {
    printf '%s' "$1" | tr -cd 'A-Za-z0-9 ._:+=,/-' | cut -c 1-128
}

# Number of words.
count() {
    echo $#
}

# Word number $1 (from 0) of the rest.
word() {
    shift $(($1 + 1))
    echo "$1"
}

# Place of this node in the job's list of nodes, from 0; nothing when it cannot be told.
node_index() {
    case $SLURM_JOB_NODELIST in
        "$SLURMD_NODENAME") echo 0 ;;
        *) "${SDF_SCONTROL:-scontrol}" show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null |
            awk -v me="$SLURMD_NODENAME" '$1 == me { print NR - 1; exit }' ;;
    esac
}

nic_list() {
    if [ -n "${SDF_NICS:-}" ]; then
        echo "$SDF_NICS"
        return
    fi
    for device in /sys/class/infiniband/*; do
        [ -e "$device" ] && printf '%s ' "${device##*/}"
    done
}

# [{"rank": 8, "nics": ["node1/mlx5_0"]}, …]
ranks() {
    index=$(node_index)
    if [ -z "$index" ]; then
        say "node ${SLURMD_NODENAME:-?} is not found in ${SLURM_JOB_NODELIST:-an empty list}: ranks stay untold"
        return
    fi
    gpus=$(echo "${SLURM_JOB_GPUS:-}" | tr ',' ' ')
    # shellcheck disable=SC2086  # the words of the list are wanted
    many=${SDF_RANKS:-$(count $gpus)}
    [ "$many" -gt 0 ] 2>/dev/null || many=1
    # shellcheck disable=SC2046
    set -- $(nic_list)
    i=0
    while [ "$i" -lt "$many" ]; do
        [ "$i" -gt 0 ] && printf ', '
        if [ "$#" -eq 0 ]; then
            mine=
        elif [ "$#" -ge "$many" ] && [ "$many" -gt 1 ]; then
            mine="\"$host/$(plain "$(word "$i" "$@")")\""
        else # fewer NICs than ranks, or one rank for the node: it may use any of them
            mine=
            for nic in "$@"; do
                mine="$mine${mine:+, }\"$host/$(plain "$nic")\""
            done
        fi
        printf '{"rank": %d, "nics": [%s]}' $((index * many + i)) "$mine"
        i=$((i + 1))
    done
}

conf=${SDF_CONF:-/etc/sdfstream/slurm.conf}
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    (. "$conf") || give_up "$conf cannot be read" # in a shell of its own first: a mistake in it would end this one
    # shellcheck source=/dev/null
    . "$conf"
fi
case ${SLURM_JOB_ID:-} in
    '' | *[!0-9_]*) give_up "SLURM_JOB_ID is not a job's number" ;;
esac
host=$(plain "${SDF_HOST:-${SLURMD_NODENAME:-}}")
case $host in
    '' | */*) give_up "neither SDF_HOST nor SLURMD_NODENAME names this node" ;;
esac
folder=${SDF_JOBS_DIR:-/run/sdfstream/jobs}
file=$folder/$SLURM_JOB_ID@$host.json
part=$folder/.$SLURM_JOB_ID@$host.json.tmp
control=
[ -n "${SDF_CONTROL_DIR:-}" ] && control=$(plain "$SDF_CONTROL_DIR/$SLURM_JOB_ID.sock")

mkdir -p "$folder" || give_up "$folder cannot be made"
cat > "$part" <<JSON || give_up "$part cannot be written"
{"version": 1, "job": "$SLURM_JOB_ID", "host": "$host", "name": "$(plain "${SLURM_JOB_NAME:-}")",
 "since_at_ns": $(date +%s)000000000, "ranks": [$(ranks)], "control": "$control"}
JSON
mv -f "$part" "$file" || give_up "$file cannot be written"
exit 0
