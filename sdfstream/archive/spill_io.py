"""Rows that wait on disk for an engine that is away: a bounded folder of files, in order.

A file holds one entry: its rows, the refused rows, and in the first sheet's metadata the intent (``sdf_intent``),
the bus (``sdf_bus``) and whether the rows are anywhere else (``sdf_only`` is 1 when this is the only copy, as with
the in-process bus, and 0 when the bus has them too until their position moves). It is whole and safe from a power cut
before anything is said of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sdfstream.archive import sheets
from sdfstream.archive.disk_io import SHARD_SUFFIX, Disk, put
from sdfstream.archive.intent import Intent
from sdfstream.archive.packing import current
from sdfstream.archive.sheets import Sheet
from sdfstream.errors import FormatError
from sdfstream.stats import Counters

SUFFIX: Final = ".arrows"
_BAD_SUFFIX: Final = ".damaged"


@dataclass(frozen=True, slots=True)
class SpillFile:
    """One entry found in the folder."""

    name: str
    intent: Intent
    bus_id: str
    only: bool
    """Whether its rows are nowhere else."""


class Spill:
    """The folder; made when the first file comes. Used by one thread.

    Counters: ``spill-full`` (times), ``spill-damaged`` (files that cannot be read, set aside as ``*.damaged``).
    """

    def __init__(self, folder: Path, limit_bytes: int, disk: Disk, counters: Counters) -> None:
        self.folder = folder
        self.bytes = 0
        """Of all files in the folder."""
        self._limit_bytes = limit_bytes
        self._disk = disk
        self._counters = counters
        self._sizes: dict[str, int] = {}
        self._last = 0

    @property
    def files(self) -> int:
        """How many there are."""
        return len(self._sizes)

    def scan(self) -> list[SpillFile]:
        """What lies in the folder, in order; what was not finished is removed."""
        found = []
        self._sizes = {}
        for name, size in sorted(self._disk.sizes(self.folder).items()):
            if name.endswith(SHARD_SUFFIX):
                self._disk.remove(self.folder / name)
            elif name.endswith(SUFFIX):
                self._sizes[name] = size
                self._last = max(self._last, int(name.split("-")[0]) if name.split("-")[0].isdigit() else 0)
                try:
                    found.append(self._known(name))
                except (FormatError, KeyError, OSError):
                    self.set_aside(name)
        self.bytes = sum(self._sizes.values())
        return found

    def put(
        self, rows: Sequence[Sheet], intent: Intent, bus_id: str, *, only: bool, beyond: bool = False
    ) -> str | None:
        """Write one entry behind all others; its file's name, or None when there is no room for it.

        With `beyond` the limit does not count: for rows that would be lost otherwise.
        """
        said = {"intent": intent.to_bytes().decode(), "bus": bus_id, "only": str(int(only))}
        data = sheets.encode(rows, said)
        if not beyond and self.bytes + data.size > self._limit_bytes:
            self._counters.add("spill-full")
            return None
        self._last += 1
        name = f"{self._last:010d}-{rows[0].table}{SUFFIX}"
        try:
            put(self._disk, self.folder / name, data)
        except OSError:
            self._counters.add("spill-full")
            return None
        self._sizes[name] = data.size
        self.bytes += data.size
        return name

    def read(self, name: str) -> list[Sheet]:
        """The sheets of one entry, as today's tables store them.

        Raises FormatError when the file is damaged, OSError when it is not there.
        """
        with self._disk.open(self.folder / name) as source:
            found = sheets.decode(source)
        return [replace(sheet, rows=current(sheet.table, sheet.rows)) for sheet in found]

    def remove(self, name: str) -> None:
        """Its rows are in their tables."""
        self._disk.remove(self.folder / name)
        self.bytes -= self._sizes.pop(name, 0)

    def set_aside(self, name: str) -> None:
        """It cannot be read: leave it there under another name for whoever looks after it."""
        self._counters.add("spill-damaged")
        self.bytes -= self._sizes.pop(name, 0)
        self._disk.rename(self.folder / name, self.folder / (name + _BAD_SUFFIX))

    def _known(self, name: str) -> SpillFile:
        with self._disk.open(self.folder / name) as source:
            said = sheets.head(source)
        return SpillFile(name, Intent.from_bytes(said["intent"].encode()), said["bus"], said["only"] == "1")
