"""Inserts that the engine refused for good, stored as Arrow files until one succeeds after all.

Each file is one uncompressed stream (`insert_file`) with the engine's reason in its metadata as ``sdf_reason``, so
that any Arrow reader can look at it.
"""

from __future__ import annotations

import errno
import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sdfstream.archive import insert_file
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.disk_io import Disk, RealDisk, put
from sdfstream.archive.insert_file import TableInsert
from sdfstream.archive.packing import current
from sdfstream.archive.target import Folder, parse


@dataclass(frozen=True, slots=True)
class FailedInsert:
    """A failed insert read back from its file."""

    path: Path
    table: str
    token: str
    reason: str
    rows: pa.Table


def folder_beside(config: ArchiveConfig, what: str) -> Path:
    """The default folder for `what` of this archive: beside a folder target, else in the working directory."""
    target = parse(config.target)
    return Path(f"{target.path.rstrip('/')}-{what}" if isinstance(target, Folder) else f"sdfstream-{what}")


class FailedInserts:
    """The folder of failed inserts; made when the first one comes."""

    def __init__(self, folder: Path, limit_bytes: int, disk: Disk | None = None) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._disk = disk or RealDisk()

    @classmethod
    def of(cls, config: ArchiveConfig, disk: Disk | None = None) -> FailedInserts:
        """The folder that `config` names or implies."""
        folder = Path(config.kept_dir) if config.kept_dir is not None else folder_beside(config, "kept")
        return cls(folder, config.kept_bytes, disk)

    def store(self, insert: TableInsert, reason: str) -> Path:
        """Write a failed insert with the engine's `reason`; the same table and token overwrite their file.

        Raises
        ------
        OSError
            The disk refuses, or the folder would hold more than ``kept_bytes``.
        """
        digest = hashlib.blake2s(insert.token.encode(), digest_size=8).hexdigest()
        path = self.folder / f"{insert.table}-{digest}.arrows"
        data = insert_file.encode([insert], {"reason": reason}, compressed=False)
        others = sum(size for name, size in self._disk.sizes(self.folder).items() if name != path.name)
        if others + data.size > self._limit_bytes:
            raise OSError(errno.ENOSPC, "more is kept than kept_bytes allows", str(self.folder))
        put(self._disk, path, data)
        return path

    def files(self) -> list[Path]:
        """Paths of the failed inserts; their order does not matter, since each carries its own token."""
        return [self.folder / name for name in sorted(self._disk.sizes(self.folder)) if name.endswith(".arrows")]

    def read(self, path: Path) -> FailedInsert:
        """The insert in the file `path`. Raises FormatError, KeyError or OSError when the file is not one."""
        with self._disk.open(path) as source:
            (insert,) = insert_file.decode(source)
        return FailedInsert(
            path, insert.table, insert.token, insert.metadata["reason"], current(insert.table, insert.rows)
        )

    def remove(self, path: Path) -> None:
        """Delete the file `path`, whose rows are in their table."""
        self._disk.remove(path)
