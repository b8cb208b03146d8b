"""Folders that only their owner may enter: an archive holds everything that was ever measured."""

from __future__ import annotations

import contextlib
from pathlib import Path


def private_folder(path: Path) -> None:
    """Make the folder with its parents, for its owner alone (0700); one that is open to others is closed to them.

    A folder of somebody else's, whose mode cannot be changed, is left as it is.

    Raises
    ------
    OSError
        It cannot be made.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(PermissionError):
        if path.stat().st_mode & 0o077:
            path.chmod(0o700)
