"""Network namespaces without a name: made, entered and held by file descriptor only.

What only descriptors hold, the kernel removes when they close, whatever ends their owner.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from sdfstream.errors import LabUnavailableError

T = TypeVar("T")
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
_OWN_NET = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def setns(fd: int, kind: int = CLONE_NEWNET) -> None:
    """Move the calling thread into the namespace behind `fd`."""
    _check(_libc.setns(fd, kind), "setns")


def unshare(flags: int) -> None:
    """Give the calling thread (for a user namespace: the whole, single-threaded process) fresh namespaces."""
    _check(_libc.unshare(flags), "unshare")


def apart(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread of its own that ends with it.

    `work` may change its network namespace freely. Going back is not always possible: root of a user namespace may
    leave the namespace it was born in, but not enter it again.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="lab-netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def inside(fd: int, work: Callable[[], T]) -> T:
    """The result of `work`, done in the network namespace behind `fd`; sockets opened there stay there."""

    def body() -> T:
        setns(fd)
        return work()

    return apart(body)


def new_namespace() -> int:
    """Move the calling thread into a fresh network namespace (call within `apart`); its descriptor.

    Raises
    ------
    LabUnavailableError
        The right to make one is missing, or the kernel has none to give.
    """
    try:
        unshare(CLONE_NEWNET)
    except OSError as error:
        raise LabUnavailableError(_why_not(error)) from error
    return os.open(_OWN_NET, os.O_RDONLY)


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
