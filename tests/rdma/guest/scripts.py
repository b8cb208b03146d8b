"""What runs in the guest: the first process, and the stage that runs the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

FOLDERS = ("proc", "sys", "host", "upper", "new", "out")

INIT = """#!/bin/busybox sh
# the first process: this machine's files read-only below, what is written to them in memory above
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for m in /modules/*.ko; do $b insmod "$m" || echo "insmod $m failed"; done
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /host || echo "no host files"
$b mount -t tmpfs tmpfs /upper
$b mkdir /upper/data /upper/work
$b mount -t overlay -o lowerdir=/host,upperdir=/upper/data,workdir=/upper/work,xino=off overlay /new || echo "no root"
$b mkdir -p /new/out /new/dev /new/proc /new/sys /new/run /new/tmp
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none out /new/out || echo "no folder for results"
$b mount -t tmpfs tmpfs /new/run
$b mkdir /new/run/netns /new/run/tmp
for f in proc sys dev; do $b mount --move /$f /new/$f; done
$b mkdir -p /new/dev/shm /new/dev/pts
$b mount -t tmpfs tmpfs /new/dev/shm
$b mount -t devpts devpts /new/dev/pts
exec $b switch_root /new /bin/sh /out/stage
"""


def stage(command: Sequence[str], environment: Mapping[str, str], folder: str) -> str:
    """The script that the guest's first process becomes: run `command` in `folder`, leave log and status, power off."""
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    return f"""export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/tmp TMPDIR=/run/tmp
{exports}
ulimit -l unlimited
ip link set lo up
cd {shlex.quote(folder)}
{shlex.join(command)} >/out/log 2>&1 </dev/null
echo $? >/out/status.new && mv /out/status.new /out/status
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
"""
