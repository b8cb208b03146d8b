"""The spill's files: bounded, in order, found again by the next run of the agent.

Two **queues**, events and bulk, each a sequence of segments numbered upward: ``<queue>-<number>.spill``. Outputs are
appended to a queue's last segment and loaded from its first. A segment is deleted once all of its outputs were
acknowledged, so an agent that dies sends some of one segment again, under the same numbers. Beyond `max_bytes` the
oldest segment of bulk with outputs not loaded yet goes, and when there is none, of events; its rows are counted by
topic.

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

QUEUES: Final = ("event", "bulk")
_SUFFIX: Final = ".spill"
_FIRST: Final = 1_000_000_000
"""Number of a new queue's first segment; `SpillFolder.secure` counts down from it."""
_SEGMENT_BYTES: Final = (16 << 10, 4 << 20)


@dataclass(slots=True)
class Appended:
    """What became of an append: the first `taken` outputs are on disk or refused or shed; an error ended the rest."""

    taken: int = 0
    error: Exception | None = None
    shed: Counter[str] = field(default_factory=Counter)
    """Topic → rows dropped to stay within the bound."""
    refused: Counter[str] = field(default_factory=Counter)
    """Topic → rows of outputs that no record can hold."""
    stored: Counter[str] = field(default_factory=Counter)
    """Topic → rows that were written."""


@dataclass(slots=True)
class Recovered:
    """What an earlier run left on disk."""

    rows: Counter[str] = field(default_factory=Counter)
    torn_bytes: int = 0
    torn_segments: int = 0


@dataclass(slots=True)
class _Segment:
    number: int
    path: Path
    size: int
    positions: deque[spill.RecordPosition] = field(default_factory=deque)
    """Not loaded yet."""
    loaded: int = 0
    """Loaded and not acknowledged yet."""


class _SegmentQueue:
    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: deque[_Segment] = deque()
        self.tail: int | None = None
        """File descriptor of the last segment while it may grow."""
        self.next = _FIRST
        """Number of the next segment; never reused, since acknowledgements go by number."""

    def records(self) -> int:
        return sum(len(s.positions) for s in self.segments)


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
        self._queues = {name: _SegmentQueue(name) for name in QUEUES}
        self._lock: int | None = None

    @property
    def bytes(self) -> int:
        """Size of all segments."""
        return sum(s.size for queue in self._queues.values() for s in queue.segments)

    def records(self, name: str) -> int:
        """Records of queue `name` that were not loaded yet."""
        return self._queues[name].records()

    def open(self) -> Recovered:
        """Find what an earlier run left; torn ends are cut off.

        Raises
        ------
        OSError
            Another process holds the folder (`BlockingIOError`), or it cannot be used.
        """
        recovered = Recovered()
        if not self.folder.is_dir():
            return recovered
        self._lock_folder()
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            name, _, number = path.name.removesuffix(_SUFFIX).partition("-")
            if name in self._queues and number.isdigit():
                self._recover(self._queues[name], int(number), path, recovered)
        return recovered

    def append(self, name: str, outputs: Sequence[Output]) -> Appended:
        """Write `outputs` behind those of queue `name`."""
        appended = Appended()
        try:
            self._lock_folder()
            for output in outputs:
                self._append_one(self._queues[name], output, appended)
                appended.taken += 1
        except OSError as error:
            appended.error = error
        return appended

    def secure(self, name: str, outputs: Sequence[Output]) -> tuple[int, int]:
        """Write a copy of `outputs`, older than all of queue `name`; in memory they then count as loaded from it.

        Returns
        -------
        (int, int)
            The segment, and how many of `outputs` are in it: those that fit without shedding.

        Raises
        ------
        OSError
            The disk failed; the next run finds what was written by then.
        """
        queue = self._queues[name]
        self._lock_folder()
        self._close_tail(queue)
        segment = self._begin(queue, queue.segments[0].number - 1 if queue.segments else queue.next)
        assert queue.tail is not None
        try:
            for output in outputs:
                record = spill.encode(output)
                if self.bytes + len(record) > self.max_bytes:
                    break
                _write(queue.tail, record, segment.size)
                segment.size += len(record)
                segment.loaded += 1
        except (ValueError, TypeError):
            pass  # too large for any record; the outputs behind it are not secured either
        finally:
            self._close_tail(queue)
            self._sweep(queue)
        return segment.number, segment.loaded

    def load(self, name: str, max_bytes: int) -> tuple[list[tuple[int, Output]], Counter[str]]:
        """The next outputs of queue `name` with their segments' numbers, up to `max_bytes` on disk but at least one
        record; and topic → rows that cannot be read any more.
        """
        loaded: list[tuple[int, Output]] = []
        lost: Counter[str] = Counter()
        size = 0
        for segment in list(self._queues[name].segments):
            if segment.positions and size < max_bytes:
                size += self._load_from(segment, max_bytes - size, loaded, lost)
        self._sweep(self._queues[name])
        return loaded, lost

    def acknowledge(self, name: str, acknowledged: Mapping[int, int]) -> None:
        """Of queue `name` the bus has taken so many loaded outputs (segment → count); finished segments are deleted."""
        queue = self._queues[name]
        for segment in queue.segments:
            segment.loaded -= min(segment.loaded, acknowledged.get(segment.number, 0))
        self._sweep(queue)

    def close(self) -> None:
        """Release the folder; the files stay for the next run."""
        for queue in self._queues.values():
            self._close_tail(queue)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _lock_folder(self) -> None:
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

    def _recover(self, queue: _SegmentQueue, number: int, path: Path, recovered: Recovered) -> None:
        raw = path.read_bytes()
        positions, end = spill.scan(raw)
        if end < len(raw):
            recovered.torn_bytes += len(raw) - end
            recovered.torn_segments += 1
        if not positions:
            path.unlink()
            return
        if end < len(raw):
            os.truncate(path, end)
        queue.segments.append(_Segment(number, path, end, deque(positions)))
        queue.next = max(queue.next, number + 1)
        for position in positions:
            recovered.rows[position.topic] += position.rows

    def _append_one(self, queue: _SegmentQueue, output: Output, appended: Appended) -> None:
        rows = spill.rows_of(output.body)
        try:
            record = spill.encode(output)
        except (ValueError, TypeError):
            appended.refused[output.topic] += rows
            return
        needed = len(record) + len(spill.MAGIC)
        if not self._make_room(needed, appended.shed):
            appended.shed[output.topic] += rows
            return
        segment = self._tail_for(queue, len(record))
        assert queue.tail is not None
        _write(queue.tail, record, segment.size)
        segment.positions.append(spill.RecordPosition(segment.size, len(record), output.topic, rows))
        segment.size += len(record)
        appended.stored[output.topic] += rows

    def _tail_for(self, queue: _SegmentQueue, length: int) -> _Segment:
        """The segment to append to."""
        if queue.tail is not None and queue.segments:
            last = queue.segments[-1]
            if last.size + length <= self._segment_bytes or last.size == len(spill.MAGIC):
                return last
        self._close_tail(queue)
        return self._begin(queue, queue.next)

    def _begin(self, queue: _SegmentQueue, number: int) -> _Segment:
        path = self.folder / f"{queue.name}-{number:012}{_SUFFIX}"
        tail = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(tail, spill.MAGIC, 0)
        except OSError:
            os.close(tail)
            raise
        segment = _Segment(number, path, len(spill.MAGIC))
        if queue.segments and number < queue.segments[0].number:
            queue.segments.appendleft(segment)
        else:
            queue.segments.append(segment)
        queue.tail = tail
        queue.next = max(queue.next, number + 1)
        return segment

    def _close_tail(self, queue: _SegmentQueue) -> None:
        if queue.tail is not None:
            os.close(queue.tail)
            queue.tail = None

    def _make_room(self, needed: int, shed: Counter[str]) -> bool:
        """Shed until `needed` bytes fit; False when they never will."""
        while self.bytes + needed > self.max_bytes:
            victim = next(((queue, s) for queue in self._shedding() for s in queue.segments if s.positions), None)
            if victim is None:
                return False
            self._drop(*victim, shed)
        return True

    def _shedding(self) -> Iterable[_SegmentQueue]:
        return self._queues["bulk"], self._queues["event"]

    def _drop(self, queue: _SegmentQueue, segment: _Segment, shed: Counter[str]) -> None:
        for position in segment.positions:
            shed[position.topic] += position.rows
        if segment is queue.segments[-1]:
            self._close_tail(queue)
        queue.segments.remove(segment)
        with contextlib.suppress(OSError):
            segment.path.unlink()

    def _load_from(
        self, segment: _Segment, max_bytes: int, loaded: list[tuple[int, Output]], lost: Counter[str]
    ) -> int:
        """Load from one segment; bytes read."""
        size = 0
        try:
            with segment.path.open("rb", buffering=0) as file:
                while segment.positions and size < max_bytes:
                    position = segment.positions[0]
                    file.seek(position.offset)
                    record = file.read(position.length)
                    try:
                        output = spill.decode(record)
                    except FormatError:
                        lost[position.topic] += position.rows
                    else:
                        loaded.append((segment.number, output))
                        segment.loaded += 1
                    segment.positions.popleft()
                    size += position.length
        except OSError:
            for position in segment.positions:
                lost[position.topic] += position.rows
            segment.positions.clear()
        return size

    def _sweep(self, queue: _SegmentQueue) -> None:
        """Delete segments that were loaded and acknowledged."""
        for segment in [s for s in queue.segments if not s.positions and not s.loaded]:
            if segment is queue.segments[-1]:
                self._close_tail(queue)
            queue.segments.remove(segment)
            with contextlib.suppress(OSError):
                segment.path.unlink()


def _write(file: int, data: bytes, at: int) -> None:
    """Write all of `data` at `at`; what a failure leaves behind it is overwritten by the next record."""
    view = memoryview(data)
    while view:
        n = os.pwrite(file, view, at)
        view, at = view[n:], at + n
