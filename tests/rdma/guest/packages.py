"""Debian packages that the guest's boot files come from: downloaded and unpacked, never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_KERNEL = "linux-image-amd64"
"""Depends on the kernel of the day; the cloud kernel has neither rdma_rxe nor 9p."""
_SECONDS = 600


class GuestUnavailableError(Exception):
    """No guest can be made or started here; the message says what is missing."""


def kernel_package() -> str:
    """The kernel package that Debian has today, e.g. ``linux-image-6.1.0-56-amd64``."""
    for line in _run(["apt-cache", "depends", _KERNEL]).splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith("linux-image-"):
            return name
    raise GuestUnavailableError(f"apt knows no {_KERNEL}: a Debian 12 with package lists is needed")


def unpack(package: str, into: Path) -> None:
    """Download `package` and unpack it below `into`; package lists older than the mirror are updated once."""
    into.mkdir(parents=True, exist_ok=True)
    fetched = into / "download"
    fetched.mkdir(exist_ok=True)
    try:
        _run(["apt-get", "download", "-qq", package], fetched)
    except GuestUnavailableError:
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "update", "-qq"])
        _run(["apt-get", "download", "-qq", package], fetched)
    for archive in fetched.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(archive), str(into)])
    shutil.rmtree(fetched)


def missing_tools() -> list[str]:
    """Debian packages whose commands or modules are not on this machine."""
    needed = {
        "qemu-system-x86": shutil.which("qemu-system-x86_64"),
        "kmod": shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin"),
        "iproute2": shutil.which("rdma", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin"),
        "python3-pyverbs": next(Path("/usr/lib/python3/dist-packages").glob("pyverbs/device.*.so"), None),
        "ibverbs-providers": next(Path("/usr/lib").glob("*/libibverbs/librxe-*.so"), None),
    }
    return [package for package, found in needed.items() if found is None]


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GuestUnavailableError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise GuestUnavailableError(f"{' '.join(command[:3])}: {done.stderr.strip()[-400:]}")
    return done.stdout
