"""Inserts that wait on disk while the engine is away: a bounded folder of files, in order.

A file (`insert_file`) holds one pending insert: its rows, the refused rows, and in the first stream's metadata the
intent (``sdf_intent``), the bus (``sdf_bus``) and ``sdf_only``: 1 when the file is the only copy of its rows, as with
the in-process bus, and 0 when the bus has them too until their position moves. A file is whole and safe from a power
cut before the archive acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sdfstream.archive import insert_file
from sdfstream.archive.disk_io import UNFINISHED_SUFFIX, Disk, put
from sdfstream.archive.insert_file import TableInsert
from sdfstream.archive.intent import Intent
from sdfstream.archive.packing import current
from sdfstream.errors import FormatError
from sdfstream.stats import Counters

SUFFIX: Final = ".arrows"
_BAD_SUFFIX: Final = ".damaged"


@dataclass(frozen=True, slots=True)
class SpillFile:
    """One pending insert found in the folder."""

    name: str
    intent: Intent
    bus_id: str
    only: bool
    """Whether the file is the only copy of its rows."""


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
        """Number of files in the folder."""
        return len(self._sizes)

    def scan(self) -> list[SpillFile]:
        """The folder's files in the order written; unfinished ones are removed, unreadable ones set aside."""
        found = []
        self._sizes = {}
        for name, size in sorted(self._disk.sizes(self.folder).items()):
            if name.endswith(UNFINISHED_SUFFIX):
                self._disk.remove(self.folder / name)
            elif name.endswith(SUFFIX):
                self._sizes[name] = size
                self._last = max(self._last, int(name.split("-")[0]) if name.split("-")[0].isdigit() else 0)
                try:
                    found.append(self._describe(name))
                except (FormatError, KeyError, OSError):
                    self.set_aside(name)
        self.bytes = sum(self._sizes.values())
        return found

    def put(
        self, rows: Sequence[TableInsert], intent: Intent, bus_id: str, *, only: bool, beyond: bool = False
    ) -> str | None:
        """Write one pending insert behind all others; its file's name, or None when there is no room.

        `beyond` lifts the limit, for rows that would be lost otherwise.
        """
        metadata = {"intent": intent.to_bytes().decode(), "bus": bus_id, "only": str(int(only))}
        data = insert_file.encode(rows, metadata)
        if not beyond and self.bytes + data.size > self._limit_bytes:
            self._full(f"it may hold {self._limit_bytes >> 20} MiB")
            return None
        self._last += 1
        name = f"{self._last:010d}-{rows[0].table}{SUFFIX}"
        try:
            put(self._disk, self.folder / name, data)
        except OSError as error:
            self._full(error.strerror or str(error))
            return None
        self._counters.troubles.end("spill")
        self._sizes[name] = data.size
        self.bytes += data.size
        return name

    def _full(self, why: str) -> None:
        self._counters.add("spill-full")
        self._counters.troubles.begin("spill", f"{self.folder} takes nothing more, rows wait in memory: {why}")

    def read(self, name: str) -> list[TableInsert]:
        """The inserts of the file `name`, as today's tables store them.

        Raises FormatError when the file is damaged, OSError when it is not there.
        """
        with self._disk.open(self.folder / name) as source:
            found = insert_file.decode(source)
        return [replace(insert, rows=current(insert.table, insert.rows)) for insert in found]

    def remove(self, name: str) -> None:
        """Delete the file `name`, whose rows are in their tables."""
        self._disk.remove(self.folder / name)
        self.bytes -= self._sizes.pop(name, 0)
        self._counters.troubles.end("spill")

    def set_aside(self, name: str) -> None:
        """Rename the unreadable file `name` to ``*.damaged``, for the operator."""
        self._counters.add("spill-damaged")
        self.bytes -= self._sizes.pop(name, 0)
        self._disk.rename(self.folder / name, self.folder / (name + _BAD_SUFFIX))

    def _describe(self, name: str) -> SpillFile:
        with self._disk.open(self.folder / name) as source:
            metadata = insert_file.read_metadata(source)
        return SpillFile(name, Intent.from_bytes(metadata["intent"].encode()), metadata["bus"], metadata["only"] == "1")
