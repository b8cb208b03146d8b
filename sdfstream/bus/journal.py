"""The notes in a stage's commits from which its state is made again, so that a crash changes no output. Pure.

A **snapshot** is the whole state; it is costly, and taken now and then (a commit with a mark). Between two snapshots
every commit adds one **entry**: the messages that the stage was given since the commit before, call by call, and how
far its time was moved. Stages answer the same calls with the same outputs; so the next owner restores the snapshot,
repeats the entries' calls, drops the outputs (they are on the bus), and has exactly the state of the last commit::

    mark ──► entry ──► entry ──► entry ──► what was read and never committed
    snapshot └──── repeated, outputs dropped ────────┘         read again
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records.position import Partition, Positions

SNAPSHOT: Final = "snapshot"
_ENTRY: Final = "entry/"
_ANY_MAGIC: Final = b"sdf-snapshot-"
_MAGIC: Final = _ANY_MAGIC + b"2\n"
_MOST_STATE_BYTES: Final = 4 << 30
_ZSTD: Final = pa.Codec("zstd", compression_level=1)


@dataclass(frozen=True, slots=True)
class Given:
    """The stage was given every message before these offsets, in bus order (partitions not named: none)."""

    upto: dict[Partition, int]


@dataclass(frozen=True, slots=True)
class Moved:
    """The stage was stepped with nothing up to this bus time."""

    to_ns: int


Call: TypeAlias = Given | Moved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stage's state, and its driver's time."""

    maker: str
    """Which stage can restore it: name, layout of the state, and a digest of the settings (`runtime.layouts`)."""
    tick_ns: int | None
    """The last boundary that the stage was stepped at."""
    now_ns: int
    state: bytes

    def pack(self) -> bytes:
        """As a note; states are tables with many like values, and shrink to a tenth or to two thirds."""
        head = {"maker": self.maker, "tick_ns": self.tick_ns, "now_ns": self.now_ns, "bytes": len(self.state)}
        content = json.dumps(head).encode() + b"\n" + bytes(_ZSTD.compress(self.state))
        return _MAGIC + _digest(content) + b"\n" + content

    @classmethod
    def unpack(cls, note: bytes) -> Snapshot:
        """From a note.

        Raises
        ------
        FormatError
            ``snapshot``: the note is none, or a byte of it is another than was written. A state with a wrong byte might
            be taken up and end the stage hours later, each time it begins anew. ``snapshot-version``: it is one of
            another release, which packs them in another way.
        """
        magic, _, rest = note.partition(b"\n")
        if magic.startswith(_ANY_MAGIC) and magic + b"\n" != _MAGIC:
            raise FormatError("snapshot-version", f"{magic[:40]!a} instead of {_MAGIC[:-1]!a}")
        digest, _, content = rest.partition(b"\n")
        head, newline, state = content.partition(b"\n")
        try:
            if magic + b"\n" != _MAGIC or not newline or digest != _digest(content):
                raise ValueError("no snapshot")
            given = strict_json.loads(head)
            if not 0 <= int(given["bytes"]) <= _MOST_STATE_BYTES:
                raise ValueError(f"a state of {given['bytes']} bytes")
            whole = _ZSTD.decompress(state, decompressed_size=int(given["bytes"]), asbytes=True)
            return cls(str(given["maker"]), given["tick_ns"], int(given["now_ns"]), whole)
        except (FormatError, ValueError, KeyError, TypeError, OSError, pa.ArrowException) as error:
            raise FormatError("snapshot", repr(error)) from error


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


@dataclass(slots=True)
class Journal:
    """The calls since the last commit, and the number of entries since the last mark."""

    entries: int = 0
    _calls: list[Call] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing was done since the last commit."""
        return not self._calls

    def given(self, before: Positions, after: Positions) -> None:
        """The stage was given what lies between two positions."""
        upto = {partition: end for partition, end in after.items() if end != before.get(partition)}
        if upto:
            self._calls.append(Given(upto))

    def moved(self, to_ns: int) -> None:
        """The stage's time was moved; several in a row are one."""
        if self._calls and isinstance(self._calls[-1], Moved):
            self._calls.pop()
        self._calls.append(Moved(to_ns))

    def entry(self) -> dict[str, bytes]:
        """The note of the next commit; call `committed` once it is done."""
        return {f"{_ENTRY}{self.entries:06d}": json.dumps([_plain(c) for c in self._calls]).encode()}

    def committed(self, *, mark: bool) -> None:
        """The commit is done."""
        self._calls.clear()
        self.entries = 0 if mark else self.entries + 1

    def resume(self, notes: Mapping[str, bytes]) -> list[Call]:
        """The calls to repeat after the snapshot in `notes`; goes on numbering behind their entries.

        Raises
        ------
        FormatError
            ``journal``: an entry is missing or cannot be read; the state cannot be made again.
        """
        names = sorted(name for name in notes if name.startswith(_ENTRY))
        if names != [f"{_ENTRY}{i:06d}" for i in range(len(names))]:
            raise FormatError("journal", f"entries {names[:3]}…{names[-3:]} are not all there")
        self.entries = len(names)
        try:
            return [_call(plain) for name in names for plain in strict_json.loads(notes[name])]
        except (FormatError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError("journal", repr(error)) from error


def _plain(call: Call) -> int | dict[str, int]:
    if isinstance(call, Moved):
        return call.to_ns
    return {f"{topic}/{partition}": end for (topic, partition), end in call.upto.items()}


def _call(plain: int | dict[str, int]) -> Call:
    if isinstance(plain, int):
        return Moved(plain)
    upto: dict[Partition, int] = {}
    for name, end in plain.items():
        topic, _, partition = name.rpartition("/")
        upto[topic, int(partition)] = int(end)
    return Given(upto)
