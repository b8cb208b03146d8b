"""Folders of running labs: a private one per lab, with the owner's lock and control socket.

The owner holds the lock as long as it lives, however it ends; a folder whose lock is free is a dead owner's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from pathlib import Path

from sdfstream.errors import LabUnavailableError

_SOCKET_NAME_BYTES = 107


def runtime_folder() -> Path:
    """Our folder under ``$XDG_RUNTIME_DIR``, or under the folder for temporary files; it need not be there."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.access(base, os.W_OK):
        return Path(base) / "sdfstream"
    return Path("/tmp") / f"sdfstream-{_outer_uid()}"


def _outer_uid() -> int:
    """Our user id as seen outside a user namespace whose root we are; outside one, simply ours."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inner, outer, count = (int(word) for word in line.split())
        if inner <= os.getuid() < inner + count:
            return outer + os.getuid() - inner
    return os.getuid()


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LabUnavailableError(f"{folder} is not a folder of ours alone (owner, mode 0700)")


class LabFolder:
    """The folder of one lab.

    Raises
    ------
    LabUnavailableError
        Its path is longer than a socket's name may be.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = runtime_folder() / f"lab-{name}"
        self.socket = self.path / "control"
        if len(os.fsencode(self.socket)) > _SOCKET_NAME_BYTES:
            raise LabUnavailableError(f"{self.socket} is too long for a socket: set a shorter XDG_RUNTIME_DIR")
        self.log = self.path / "log"
        self._lock = self.path / "lock"

    def take(self) -> int | None:
        """Become the owner: the descriptor that holds the lock, or None when another owner lives.

        Raises
        ------
        LabUnavailableError
            The folder is there and is not ours alone.
        """
        _make_private(self.path.parent)
        _make_private(self.path)
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        self.socket.unlink(missing_ok=True)
        return fd

    def owner(self) -> int | None:
        """Process id of the living owner; None when there is none (a dead one's folder is removed)."""
        try:
            fd = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(fd, 32) or b"0")
        else:
            self.remove()
            return None
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Take the folder away, and the one above it when no other lab is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        try:
            self.path.parent.rmdir()
        except OSError:
            return


def names() -> list[str]:
    """Names of labs that have a folder, living or dead."""
    return sorted(path.name[4:] for path in runtime_folder().glob("lab-*"))
