"""The spill's files: bounded, in order, found again by the next run of the agent.

Two **lanes**, events and bulk, each a row of segments numbered upward: ``<lane>-<number>.spill``. Outputs are appended
to a lane's last segment and loaded from its first. A segment is deleted once everything in it was acknowledged, so an
agent that dies sends a part of one segment again, under the same numbers. Beyond `max_bytes` the oldest segment of bulk
that holds anything not loaded yet goes, and when there is none, of events; its rows are counted by topic.

Every method blocks; one thread at a time may be in here. One process at a time holds a folder (a lock on ``lock``).
Nothing is synced to the medium: what was written outlives the process, not the machine's power.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sdfstream.agent.spill import segment as spill
from sdfstream.errors import FormatError
from sdfstream.records.message import Output

LANES: Final = ("event", "bulk")
_SUFFIX: Final = ".spill"
_FIRST: Final = 1_000_000_000
"""Number of a fresh lane's first segment; there must be room below for what goes before all others."""
_SEGMENT_BYTES: Final = (16 << 10, 4 << 20)


@dataclass(slots=True)
class Wrote:
    """What became of an append: the first `taken` outputs are on disk or refused or shed; an error ended the rest."""

    taken: int = 0
    error: Exception | None = None
    shed: Counter[str] = field(default_factory=Counter)
    """Topic → rows that had to go to keep the bound."""
    refused: Counter[str] = field(default_factory=Counter)
    """Topic → rows of outputs that no record can hold."""
    kept: Counter[str] = field(default_factory=Counter)
    """Topic → rows that were written."""


@dataclass(slots=True)
class Found:
    """What an earlier run left."""

    rows: Counter[str] = field(default_factory=Counter)
    torn_bytes: int = 0
    torn_segments: int = 0


@dataclass(slots=True)
class _Segment:
    number: int
    path: Path
    size: int
    places: deque[spill.Place] = field(default_factory=deque)
    """Not loaded yet."""
    loaded: int = 0
    """Loaded and not acknowledged yet."""


class _Lane:
    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: deque[_Segment] = deque()
        self.tail: int | None = None
        """File descriptor of the last segment while it may grow."""
        self.next = _FIRST
        """Number of the next segment; none is given twice, since what is acknowledged is told by number."""

    def records(self) -> int:
        return sum(len(s.places) for s in self.segments)


class SpillFolder:
    """A folder of segments.

    Parameters
    ----------
    folder : Path
        Made when it is first needed.
    max_bytes : int
        All segments together.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        low, high = _SEGMENT_BYTES
        self._segment_bytes = max(low, min(high, max_bytes // 32))
        self._lanes = {name: _Lane(name) for name in LANES}
        self._lock: int | None = None

    @property
    def bytes(self) -> int:
        """Size of all segments."""
        return sum(s.size for lane in self._lanes.values() for s in lane.segments)

    def records(self, lane: str) -> int:
        """Records of `lane` that were not loaded yet."""
        return self._lanes[lane].records()

    def open(self) -> Found:
        """Find what an earlier run left; torn ends are cut off.

        Raises
        ------
        OSError
            Another process holds the folder (`BlockingIOError`), or it cannot be used.
        """
        found = Found()
        if not self.folder.is_dir():
            return found
        self._take_hold()
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            lane, _, number = path.name.removesuffix(_SUFFIX).partition("-")
            if lane in self._lanes and number.isdigit():
                self._recover(self._lanes[lane], int(number), path, found)
        return found

    def append(self, lane: str, outputs: Sequence[Output]) -> Wrote:
        """Write `outputs` behind what `lane` holds."""
        wrote = Wrote()
        try:
            self._take_hold()
            for output in outputs:
                self._append_one(self._lanes[lane], output, wrote)
                wrote.taken += 1
        except OSError as error:
            wrote.error = error
        return wrote

    def secure(self, lane: str, outputs: Sequence[Output]) -> tuple[int, int]:
        """Write a copy of `outputs`, which are older than all that `lane` holds and are in memory as if loaded from it.

        Returns
        -------
        (int, int)
            The segment, and how many of them are in it: those that fit without shedding anything.

        Raises
        ------
        OSError
            The disk failed; what is in the segment by then is found by the next run.
        """
        row = self._lanes[lane]
        self._take_hold()
        self._close_tail(row)
        segment = self._begin(row, row.segments[0].number - 1 if row.segments else row.next)
        assert row.tail is not None
        try:
            for output in outputs:
                record = spill.encode(output)
                if self.bytes + len(record) > self.max_bytes:
                    break
                _write(row.tail, record, segment.size)
                segment.size += len(record)
                segment.loaded += 1
        except (ValueError, TypeError):
            pass  # this one no record can hold; those behind it are not secured either
        finally:
            self._close_tail(row)
            self._sweep(row)
        return segment.number, segment.loaded

    def load(self, lane: str, max_bytes: int) -> tuple[list[tuple[int, Output]], Counter[str]]:
        """The next outputs of `lane` with their segments' numbers, up to `max_bytes` on disk but at least one record;
        and topic → rows that cannot be read any more.
        """
        found: list[tuple[int, Output]] = []
        lost: Counter[str] = Counter()
        size = 0
        for segment in list(self._lanes[lane].segments):
            if segment.places and size < max_bytes:
                size += self._load_from(segment, max_bytes - size, found, lost)
        self._sweep(self._lanes[lane])
        return found, lost

    def done(self, lane: str, acknowledged: Mapping[int, int]) -> None:
        """`acknowledged` says how many loaded outputs of each segment the bus has taken; used up ones are deleted."""
        row = self._lanes[lane]
        for segment in row.segments:
            segment.loaded -= min(segment.loaded, acknowledged.get(segment.number, 0))
        self._sweep(row)

    def close(self) -> None:
        """Let go of the folder; the files stay for the next run."""
        for lane in self._lanes.values():
            self._close_tail(lane)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_hold(self) -> None:
        if self._lock is not None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def _recover(self, lane: _Lane, number: int, path: Path, found: Found) -> None:
        raw = path.read_bytes()
        places, end = spill.scan(raw)
        if end < len(raw):
            found.torn_bytes += len(raw) - end
            found.torn_segments += 1
        if not places:
            path.unlink()
            return
        if end < len(raw):
            os.truncate(path, end)
        lane.segments.append(_Segment(number, path, end, deque(places)))
        lane.next = max(lane.next, number + 1)
        for place in places:
            found.rows[place.topic] += place.rows

    def _append_one(self, lane: _Lane, output: Output, wrote: Wrote) -> None:
        rows = spill.rows_of(output.body)
        try:
            record = spill.encode(output)
        except (ValueError, TypeError):
            wrote.refused[output.topic] += rows
            return
        needed = len(record) + len(spill.MAGIC)
        if not self._make_room(needed, wrote.shed):
            wrote.shed[output.topic] += rows
            return
        segment = self._tail_for(lane, len(record))
        assert lane.tail is not None
        _write(lane.tail, record, segment.size)
        segment.places.append(spill.Place(segment.size, len(record), output.topic, rows))
        segment.size += len(record)
        wrote.kept[output.topic] += rows

    def _tail_for(self, lane: _Lane, length: int) -> _Segment:
        """The segment to append to."""
        if lane.tail is not None and lane.segments:
            last = lane.segments[-1]
            if last.size + length <= self._segment_bytes or last.size == len(spill.MAGIC):
                return last
        self._close_tail(lane)
        return self._begin(lane, lane.next)

    def _begin(self, lane: _Lane, number: int) -> _Segment:
        path = self.folder / f"{lane.name}-{number:012}{_SUFFIX}"
        tail = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(tail, spill.MAGIC, 0)
        except OSError:
            os.close(tail)
            raise
        segment = _Segment(number, path, len(spill.MAGIC))
        if lane.segments and number < lane.segments[0].number:
            lane.segments.appendleft(segment)
        else:
            lane.segments.append(segment)
        lane.tail = tail
        lane.next = max(lane.next, number + 1)
        return segment

    def _close_tail(self, lane: _Lane) -> None:
        if lane.tail is not None:
            os.close(lane.tail)
            lane.tail = None

    def _make_room(self, needed: int, shed: Counter[str]) -> bool:
        """Shed until `needed` bytes fit; False when they never will."""
        while self.bytes + needed > self.max_bytes:
            victim = next(((lane, s) for lane in self._shedding() for s in lane.segments if s.places), None)
            if victim is None:
                return False
            self._drop(*victim, shed)
        return True

    def _shedding(self) -> Iterable[_Lane]:
        return self._lanes["bulk"], self._lanes["event"]

    def _drop(self, lane: _Lane, segment: _Segment, shed: Counter[str]) -> None:
        for place in segment.places:
            shed[place.topic] += place.rows
        if segment is lane.segments[-1]:
            self._close_tail(lane)
        lane.segments.remove(segment)
        with contextlib.suppress(OSError):
            segment.path.unlink()

    def _load_from(self, segment: _Segment, max_bytes: int, found: list[tuple[int, Output]], lost: Counter[str]) -> int:
        """Load from one segment; bytes read."""
        size = 0
        try:
            with segment.path.open("rb", buffering=0) as file:
                while segment.places and size < max_bytes:
                    place = segment.places[0]
                    file.seek(place.offset)
                    record = file.read(place.length)
                    try:
                        output = spill.decode(record)
                    except FormatError:
                        lost[place.topic] += place.rows
                    else:
                        found.append((segment.number, output))
                        segment.loaded += 1
                    segment.places.popleft()
                    size += place.length
        except OSError:
            for place in segment.places:
                lost[place.topic] += place.rows
            segment.places.clear()
        return size

    def _sweep(self, lane: _Lane) -> None:
        """Delete segments that nobody needs any more."""
        for segment in [s for s in lane.segments if not s.places and not s.loaded]:
            if segment is lane.segments[-1]:
                self._close_tail(lane)
            lane.segments.remove(segment)
            with contextlib.suppress(OSError):
                segment.path.unlink()


def _write(file: int, data: bytes, at: int) -> None:
    """Write all of `data` at `at`; what a failure leaves behind it is overwritten by the next record."""
    view = memoryview(data)
    while view:
        n = os.pwrite(file, view, at)
        view, at = view[n:], at + n
