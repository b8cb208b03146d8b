"""A task's notes as records of the compacted topic ``sdf.state.checkpoint.v1``, and back. Pure.

Every commit writes, in one transaction with its outputs, the notes that changed and the positions. A commit with a
mark begins with the record ``@begin``: records before it are void, so that a reader may start at the last one that it
knows of. A note is cut into pieces that fit into a message; compaction retains the last record of each piece's key,
``<task>|<note>|<piece>``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.position import Partition, Positions

BEGIN: Final = "@begin"
_AT: Final = "@at"
_MOST_BYTES: Final = 256 << 20
"""Of one note of positions and numbers: a million streams of producers."""
_MARK: Final = "@mark"
PIECE_BYTES: Final = 512 << 10


class NoteRecord(NamedTuple):
    """One record of the checkpoint topic; without a value it deletes."""

    key: str
    headers: list[tuple[str, bytes]]
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Mark:
    """Positions at which a task begins to read again, with its memory at them."""

    positions: dict[Partition, int]
    numbers: list[list[str | int]] = field(default_factory=list)
    """The memory of repeats (`SequenceWatch.dump`)."""
    floors_ns: dict[Partition, int] = field(default_factory=dict)
    """Time of the message before, per partition: bus time never goes back."""
    own: bool = True
    """Set by the task's user; False: by the task itself, which then begins to read at the committed positions."""


def records(
    task: str,
    positions: Positions,
    notes: Mapping[str, bytes | None],
    mark: Mark | None,
    number: int,
) -> list[NoteRecord]:
    """The records of commit `number` of `task`; with `mark` the notes must be all there are."""
    made: list[NoteRecord] = []
    if mark is not None:
        made.append(NoteRecord(f"{task}|{BEGIN}|0", _headers(number, 1), b"{}"))
        made += _pieces(task, _MARK, _pack_mark(mark), number)
    for name, note in notes.items():
        made += _pieces(task, name, note, number) if note is not None else [NoteRecord(f"{task}|{name}|0", [], None)]
    made.append(NoteRecord(f"{task}|{_AT}|0", _headers(number, 1), json.dumps(_plain(positions)).encode()))
    return made


@dataclass(slots=True)
class NoteReader:
    """Reads the records of one task in their order; `checkpoint` and `mark` are the result."""

    task: str
    begin_offset: int | None = None
    """Offset of the last ``@begin`` record."""
    number: int = -1
    """Number of the last commit."""
    _notes: dict[str, tuple[int, dict[int, bytes], int]] = field(default_factory=dict)

    def feed(self, offset: int, key: bytes | None, headers: Sequence[tuple[str, bytes]], value: bytes | None) -> None:
        """Take one record of the topic; those of other tasks are skipped."""
        name = self._name(key)
        if name is None:
            return
        note, piece = name
        if note == BEGIN:
            self._notes.clear()
            self.begin_offset = offset
            return
        if value is None:
            self._notes.pop(note, None)
            return
        given = dict(headers)
        try:
            number, of = int(given["commit"]), int(given["of"])
        except (KeyError, ValueError) as error:
            raise FormatError("checkpoint", f"record {key!r} at {offset} has no commit and of") from error
        self.number = max(self.number, number)
        had = self._notes.get(note)
        pieces = had[1] if had is not None and had[0] == number else {}
        pieces[piece] = value
        self._notes[note] = (number, pieces, of)

    def checkpoint(self) -> Checkpoint:
        """Positions and notes after the last commit read.

        Raises
        ------
        FormatError
            Pieces are missing, or the positions cannot be read.
        """
        notes = {name: self._whole(name) for name in self._notes}
        mark = self.mark()
        at = notes.pop(_AT, None)
        notes.pop(_MARK, None)
        positions = {} if at is None else _positions(_json(at))
        return Checkpoint(positions, notes, mark.positions if mark is not None and mark.own else {})

    def mark(self) -> Mark | None:
        """The last mark; errors as `checkpoint`."""
        if _MARK not in self._notes:
            return None
        try:
            plain = _json(zlib.decompressobj().decompress(self._whole(_MARK), _MOST_BYTES))
            return Mark(_positions(plain["at"]), plain["numbers"], _positions(plain["floors_ns"]), bool(plain["own"]))
        except (zlib.error, KeyError, TypeError) as error:
            raise FormatError("checkpoint", f"mark of {self.task}: {error!r}") from error

    def _name(self, key: bytes | None) -> tuple[str, int] | None:
        try:
            task, note, piece = (key or b"").decode().rsplit("|", 2)
            return (note, int(piece)) if task == self.task else None
        except ValueError:
            return None

    def _whole(self, name: str) -> bytes:
        _, pieces, of = self._notes[name]
        if len(pieces) != of:
            raise FormatError("checkpoint", f"note {name} of {self.task} has {len(pieces)} of {of} pieces")
        return b"".join(pieces[i] for i in sorted(pieces))


def _pieces(task: str, name: str, note: bytes, number: int) -> Iterable[NoteRecord]:
    pieces = [note[i : i + PIECE_BYTES] for i in range(0, max(1, len(note)), PIECE_BYTES)]
    return [NoteRecord(f"{task}|{name}|{i}", _headers(number, len(pieces)), piece) for i, piece in enumerate(pieces)]


def _headers(number: int, of: int) -> list[tuple[str, bytes]]:
    return [("commit", b"%d" % number), ("of", b"%d" % of)]


def _pack_mark(mark: Mark) -> bytes:
    plain = {
        "at": _plain(mark.positions),
        "numbers": mark.numbers,
        "floors_ns": _plain(mark.floors_ns),
        "own": mark.own,
    }
    return zlib.compress(json.dumps(plain).encode(), 1)


def _plain(positions: Positions) -> dict[str, int]:
    return {f"{topic}/{partition}": offset for (topic, partition), offset in positions.items()}


def _positions(plain: Any) -> dict[Partition, int]:
    try:
        split = [(name.rpartition("/"), int(offset)) for name, offset in plain.items()]
        return {(topic, int(partition)): offset for (topic, _, partition), offset in split}
    except (AttributeError, ValueError, TypeError) as error:
        raise FormatError("checkpoint", f"positions {str(plain)[:200]}") from error


def _json(raw: bytes) -> Any:
    try:
        return strict_json.loads(raw, most_bytes=_MOST_BYTES)
    except FormatError as error:
        raise FormatError("checkpoint", error.detail) from error
