"""The kernel's lists of RDMA resources, asked by iproute2's ``rdma`` command, which speaks netlink."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from sdfstream.errors import UnavailableError

_SECONDS: Final = 10.0
_MOST_BYTES: Final = 64 << 20


def resource_qps() -> str:
    """What ``rdma -j resource show qp`` prints; UnavailableError where it cannot be asked."""
    return _ask("resource", "show", "qp")


def port_statistics() -> str:
    """What ``rdma -j statistic show`` prints; UnavailableError where it cannot be asked."""
    return _ask("statistic", "show")


def _ask(*what: str) -> str:
    command = shutil.which("rdma", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if command is None:
        raise UnavailableError("the command rdma is not here (Debian: iproute2)")
    try:
        done = subprocess.run([command, "-j", *what], capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"rdma {' '.join(what)}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[:200]
        raise UnavailableError(f"rdma {' '.join(what)}: {said or f'status {done.returncode}'}")
    return done.stdout[:_MOST_BYTES].decode(errors="replace")
