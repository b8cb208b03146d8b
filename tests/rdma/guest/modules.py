"""Kernel modules of the guest: which, and in what order they load."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.rdma.guest.packages import GuestUnavailableError

_BOOT = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_rng", "virtio_console")
_RDMA = ("crc32_generic", "ib_uverbs", "rdma_rxe", "rdma_ucm")
"""rdma_rxe asks for its checksum by name, which modprobe cannot know: without crc32_generic no device is made."""
_NETWORK = ("veth", "dummy", "bridge", "sch_netem", "sch_red", "sch_tbf", "sch_htb", "sch_prio", "sch_ingress")
_FILTERS = ("cls_flower", "cls_u32", "cls_matchall", "act_mirred", "act_gact")


def in_order(root: Path, version: str) -> list[Path]:
    """Module files below `root`, each after those that it needs."""
    _run(["depmod", "-b", str(root), version])
    files: dict[Path, None] = {}
    for name in (*_BOOT, *_RDMA, *_NETWORK, *_FILTERS):
        listed = _run(["modprobe", "-d", str(root), "-S", version, "--show-depends", name])
        for line in listed.splitlines():
            verb, _, path = line.strip().partition(" ")
            if verb == "insmod":
                files[Path(path.split()[0])] = None
    return list(files)


def _run(command: list[str]) -> str:
    environment = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    if done.returncode:
        raise GuestUnavailableError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout
