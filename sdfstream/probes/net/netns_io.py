"""Work in another network namespace, to make a socket that stays there.

A socket belongs for life to the namespace it was made in, so one process can hold sockets of many. setns(2) moves
the calling thread only, and going back is not always possible: root of a user namespace may leave the network
namespace it was born in, but not enter it again. So the work is done in a thread of its own that ends with it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
OWN_NET: Final = "/proc/thread-self/ns/net"
_libc: Final = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


def setns(fd: int, kind: int = CLONE_NEWNET, name: str | None = None) -> None:
    """Move the calling thread into the namespace behind `fd`; `name` goes into the error."""
    _check(_libc.setns(fd, kind), "cannot enter the namespace", name)


def unshare(flags: int) -> None:
    """Give the calling thread (for a user namespace: the whole, single-threaded process) fresh namespaces."""
    _check(_libc.unshare(flags), "cannot make a namespace", None)


def apart(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread of its own, which may change its network namespace freely."""
    result: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            result.append(work())
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=body, name="netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def inside(where: int | str | None, work: Callable[[], T]) -> T:
    """The result of `work`, done in the network namespace behind a descriptor or at a path (None: in ours).

    Raises
    ------
    OSError
        FileNotFoundError when the namespace is gone, PermissionError without the right to enter it; EINVAL where
        the path leads to something that is no namespace.
    """
    if where is None:
        return work()

    def body() -> T:
        if isinstance(where, int):
            setns(where)
        else:
            fd = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
            try:
                setns(fd, name=where)
            finally:
                os.close(fd)
        return work()

    return apart(body)


def identity(path: str | None) -> tuple[int, int] | None:
    """(device, inode) of the namespace at `path`; another one under the same name differs; None when it is gone.

    A named namespace whose file is there but no longer mounted (the name is being made or removed) is gone, too.
    """
    try:
        found = os.stat(path or OWN_NET)  # noqa: PTH116 (one call a second for every NIC)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check(result: int, what: str, name: str | None) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}", name)
