"""Network namespaces without a name: made and held by file descriptor only; `probes.net.netns_io` enters them.

What only descriptors hold, the kernel removes when they close, whatever ends their owner.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from sdfstream.errors import LabUnavailableError
from sdfstream.probes.net.netns_io import CLONE_NEWNET, CLONE_NEWUSER, OWN_NET, unshare


def new_namespace() -> int:
    """Move the calling thread into a fresh network namespace (call within `netns_io.apart`); its descriptor.

    Raises
    ------
    LabUnavailableError
        The right to make one is missing, or the kernel has none to give.
    """
    try:
        unshare(CLONE_NEWNET)
    except OSError as error:
        raise LabUnavailableError(_why_not(error)) from error
    return os.open(OWN_NET, os.O_RDONLY)


def _why_not(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return "making network namespaces needs root (CAP_SYS_ADMIN) or a user namespace: try `unshare -Ur`"
    if error.errno == errno.ENOSPC:
        return "the limit user.max_net_namespaces is reached"
    if error.errno == errno.EINVAL:
        return "this kernel has no network namespaces (CONFIG_NET_NS)"
    return f"no network namespace: {error.strerror}"


def write_sysctls(settings: Mapping[str, str]) -> list[str]:
    """Write ``/proc/sys`` entries of the calling thread's namespace; the names this kernel lacks come back."""
    absent = []
    for name, value in settings.items():
        try:
            fd = os.open(f"/proc/sys/{name}", os.O_WRONLY)
        except (FileNotFoundError, PermissionError):
            absent.append(name)
            continue
        try:
            os.write(fd, value.encode())
        except OSError:
            absent.append(name)
        finally:
            os.close(fd)
    return absent


def enter_user_namespace() -> None:
    """Become root of a user namespace of our own; the process must be single-threaded.

    Raises
    ------
    LabUnavailableError
        The kernel or its administrator does not allow it.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    except OSError as error:
        raise LabUnavailableError(
            f"not root, and no user namespace to be had ({error.strerror}): see user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
        ) from error
