"""Stepping into another network namespace for a moment, to make a socket that stays there.

A socket belongs for life to the namespace it was made in, so one process can hold sockets of many. setns(2) moves
the calling thread only; everything here happens between two lines of one thread, without an await in between.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(path: str | None) -> Iterator[None]:
    """Run the body in the network namespace at `path`; None: stay where we are.

    Raises
    ------
    OSError
        FileNotFoundError when the namespace is gone, PermissionError without the right to enter it.
    """
    if path is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(there, path)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(home, "home")
    finally:
        os.close(home)


def identity(path: str | None) -> tuple[int, int] | None:
    """(device, inode) of the namespace at `path`; another one under the same name differs; None when it is gone.

    A named namespace whose file is there but no longer mounted (the name is being made or removed) is gone, too.
    """
    try:
        found = os.stat(path or "/proc/thread-self/ns/net")  # noqa: PTH116 (one call a second for every NIC)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _setns(fd: int, name: str) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, f"cannot enter the network namespace: {os.strerror(error)}", name)
