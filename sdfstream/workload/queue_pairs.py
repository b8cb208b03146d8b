"""Queue pairs that carried chunks, numbered; attributes and the newest published window of each."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.records.units import Int64s
from sdfstream.workload.chunks import Chunks

NO_WINDOW: Final = -(1 << 62)


class QpAttributes(NamedTuple):
    """A queue pair's columns in ``sdf.derived.qp.v1``."""

    job: str
    qp: str
    src: str
    dst: str
    transport: str
    rank: int
    peer_rank: int
    dst_port: int
    dscp: int


class QueuePairs:
    """Queue pairs by (job, QP id), numbered 0, 1, …; numbers of forgotten ones are used again.

    Parameters
    ----------
    most : int
        At most this many at a time; further ones get −1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[tuple[str, str], int] = {}
        self._free: list[int] = []
        self.attributes: list[QpAttributes] = []
        """By number, from the newest chunk."""
        self.last_window: list[int] = []
        """By number: newest published window, `NO_WINDOW` before the first."""
        self.path: list[int] = []
        """By number: source port in that window."""
        self._last_chunk_ns: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers_of(self, chunks: Chunks, now_ns: int) -> Int64s:
        """The number of every row's queue pair, −1 beyond the limit."""
        job = chunks.names["job"][0]
        qp, qps = chunks.names["qp"]
        both = job.astype(np.int64) * len(qps) + qp
        # the attributes of a queue pair are those of its last row
        _, last, member = np.unique(both[::-1], return_index=True, return_inverse=True)
        last = both.size - 1 - last
        columns = {name: ([names[c] for c in codes[last].tolist()]) for name, (codes, names) in chunks.names.items()}
        figures = {name: values[last].tolist() for name, values in chunks.numbers.items()}
        attributes = [
            QpAttributes(*row)
            for row in zip(
                *(columns[name] for name in ("job", "qp", "src", "dst", "transport")),
                *(figures[name] for name in ("rank", "peer_rank", "dst_port", "dscp")),
                strict=True,
            )
        ]
        # numbered in order of first rows, so that the cut of rows into messages does not matter
        numbers = np.full(len(attributes), -1, np.int64)
        first = np.unique(both, return_index=True)[1]
        for which in np.argsort(first).tolist():
            numbers[which] = self._number(attributes[which], now_ns)
        result: Int64s = numbers[member.reshape(-1)[::-1]]
        return result

    def _number(self, pair: QpAttributes, now_ns: int) -> int:
        key = pair.job, pair.qp
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= self._most:
                return -1
            number = self._numbers[key] = self._free.pop() if self._free else self._append(pair)
            self.last_window[number], self.path[number] = NO_WINDOW, 0
        self.attributes[number] = pair
        self._last_chunk_ns[number] = now_ns
        return number

    def _append(self, pair: QpAttributes) -> int:
        self.attributes.append(pair)
        for column in (self.last_window, self.path, self._last_chunk_ns):
            column.append(0)
        return len(self.attributes) - 1

    def forget_windows(self) -> None:
        """Windows are numbered afresh: none is published yet."""
        self.last_window = [NO_WINDOW] * len(self.last_window)

    def forget(self, before_ns: int, busy: set[int]) -> int:
        """Forget those without a chunk since `before_ns` (bus time) and not in `busy`; their count."""
        gone = [
            key
            for key, number in self._numbers.items()
            if self._last_chunk_ns[number] < before_ns and number not in busy
        ]
        for key in gone:
            self._free.append(self._numbers.pop(key))
        return len(gone)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "numbers": [[*key, number] for key, number in self._numbers.items()],
            "free": list(self._free),
            "about": [list(pair) for pair in self.attributes],
            "told": list(self.last_window),
            "path": list(self.path),
            "heard": list(self._last_chunk_ns),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._numbers = {(job, qp): number for job, qp, number in state["numbers"]}
        self._free = list(state["free"])
        self.attributes = [QpAttributes(*pair) for pair in state["about"]]
        self.last_window, self.path, self._last_chunk_ns = (
            list(state["told"]),
            list(state["path"]),
            list(state["heard"]),
        )
