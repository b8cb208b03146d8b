"""The folders of clock pages on a machine, and the names of their files."""

from __future__ import annotations

import os
import urllib.parse
from functools import cache
from pathlib import Path
from typing import Final

SUFFIX: Final = ".page"
SYSTEM: Final = Path("/run/sdfstream/clock")
"""Of agents that may write there; only root can make it."""
_SHARED: Final = "/dev/shm/sdfstream-clock-{uid}"
"""Used only when it belongs to that user."""


def writable_folders() -> list[Path]:
    """Folders an agent tries in turn: the system's, then one of its user in shared memory."""
    return [SYSTEM, Path(_SHARED.format(uid=os.geteuid()))]


def readable_folders() -> list[Path]:
    """Folders a reader looks into: the system's, root's and its own user's; no other user's are read."""
    return list(dict.fromkeys([SYSTEM, Path(_SHARED.format(uid=0)), Path(_SHARED.format(uid=os.geteuid()))]))


def is_trusted(folder: Path) -> bool:
    """Whether a folder of `readable_folders` belongs to root or to us, and nobody else may write to it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022 and folder.is_dir()


def file_name(clock: str) -> str:
    """The file of a clock's page.

    >>> file_name("gpu-17/mlx5_2")
    'gpu-17%2Fmlx5_2.page'
    """
    return urllib.parse.quote(clock, safe="") + SUFFIX


def clock_name(file: str) -> str:
    """The clock whose page is called `file`."""
    return urllib.parse.unquote(file.removesuffix(SUFFIX))


@cache
def boot_id() -> bytes:
    """The machine's boot, 16 bytes; zeros where it cannot be read (then only the times are checked)."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
        return bytes.fromhex(text.strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return bytes(16)
