"""Files that are whole or absent, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from sdfstream.archive.private_io import private_folder

UNFINISHED_SUFFIX = ".part"


class Disk(Protocol):
    """The file system, as `put` and the folders of inserts use it. Every method may raise OSError."""

    def make(self, folder: Path) -> None:
        """Make `folder` and those above it, where they are missing."""

    def write(self, path: Path, data: pa.Buffer) -> None:
        """Write a new file; it may be lost or torn until `sync`."""

    def sync(self, path: Path) -> None:
        """Let the file or folder outlive a power cut as it is."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file its name; the folder's `sync` makes it last."""

    def remove(self, path: Path) -> None:
        """Remove a file; one that is not there is no error."""

    def sizes(self, folder: Path) -> dict[str, int]:
        """Bytes of every file in `folder` by name; nothing when there is no such folder."""

    def open(self, path: Path) -> BinaryIO:
        """A file to read."""


class RealDisk:
    """The machine's own file system."""

    def make(self, folder: Path) -> None:
        """See `Disk`."""
        private_folder(folder)

    def write(self, path: Path, data: pa.Buffer) -> None:
        """See `Disk`."""
        with path.open("wb") as file:
            file.write(data)

    def sync(self, path: Path) -> None:
        """See `Disk`."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """See `Disk`."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        path.unlink(missing_ok=True)

    def sizes(self, folder: Path) -> dict[str, int]:
        """See `Disk`."""
        if not folder.is_dir():
            return {}
        return {entry.name: entry.stat().st_size for entry in folder.iterdir() if entry.is_file()}

    def open(self, path: Path) -> BinaryIO:
        """See `Disk`."""
        return path.open("rb")


def put(disk: Disk, path: Path, data: pa.Buffer) -> None:
    """Make the file `path` with `data`: when this returns it is whole and outlives a power cut.

    Raises
    ------
    OSError
        The disk refused (full, read-only); the unfinished file is removed where the disk allows it.
    """
    unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
    disk.make(path.parent)
    try:
        disk.write(unfinished, data)
        disk.sync(unfinished)
        disk.rename(unfinished, path)
    except OSError:
        disk.remove(unfinished)
        raise
    disk.sync(path.parent)
