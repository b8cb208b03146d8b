"""Inserts that failed for good, kept as Arrow files until they can be inserted after all.

Each file is one sheet (see `sheets`) of the rows as they were to be inserted, not compressed, with the engine's
reason in its metadata as ``sdf_reason``, so that any Arrow reader can look at it.
"""

from __future__ import annotations

import errno
import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sdfstream.archive import sheets
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.disk_io import Disk, RealDisk, put
from sdfstream.archive.packing import current
from sdfstream.archive.sheets import Sheet
from sdfstream.archive.target import Folder, parse


@dataclass(frozen=True, slots=True)
class KeptInsert:
    """One insert read back from its file."""

    path: Path
    table: str
    token: str
    reason: str
    rows: pa.Table


def folder_beside(config: ArchiveConfig, what: str) -> Path:
    """The default folder for `what` of this archive: beside a folder target, else in the working directory."""
    target = parse(config.target)
    return Path(f"{target.path.rstrip('/')}-{what}" if isinstance(target, Folder) else f"sdfstream-{what}")


class Kept:
    """The folder of kept inserts; made when the first one comes."""

    def __init__(self, folder: Path, limit_bytes: int, disk: Disk | None = None) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._disk = disk or RealDisk()

    @classmethod
    def of(cls, config: ArchiveConfig, disk: Disk | None = None) -> Kept:
        """The folder that `config` names or implies."""
        folder = Path(config.kept_dir) if config.kept_dir is not None else folder_beside(config, "kept")
        return cls(folder, config.kept_bytes, disk)

    def keep(self, sheet: Sheet, reason: str) -> Path:
        """Write one insert; the same table and token overwrite their file.

        Raises
        ------
        OSError
            The disk refuses, or so much is kept already that somebody should look after it first.
        """
        digest = hashlib.blake2s(sheet.token.encode(), digest_size=8).hexdigest()
        path = self.folder / f"{sheet.table}-{digest}.arrows"
        data = sheets.encode([sheet], {"reason": reason}, compressed=False)
        others = sum(size for name, size in self._disk.sizes(self.folder).items() if name != path.name)
        if others + data.size > self._limit_bytes:
            raise OSError(errno.ENOSPC, "more is kept than kept_bytes allows", str(self.folder))
        put(self._disk, path, data)
        return path

    def files(self) -> list[Path]:
        """The kept inserts, in no order that matters: each carries its own token."""
        return [self.folder / name for name in sorted(self._disk.sizes(self.folder)) if name.endswith(".arrows")]

    def read(self, path: Path) -> KeptInsert:
        """One kept insert. Raises FormatError, KeyError or OSError when the file is not one."""
        with self._disk.open(path) as source:
            (sheet,) = sheets.decode(source)
        return KeptInsert(path, sheet.table, sheet.token, sheet.said["reason"], current(sheet.table, sheet.rows))

    def remove(self, path: Path) -> None:
        """Its rows are in their table."""
        self._disk.remove(path)
