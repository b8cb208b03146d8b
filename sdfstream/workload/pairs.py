"""Every queue pair that was heard of gets a number; what is told of it stays with the number."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.records.units import Int64s
from sdfstream.workload.chunks import Chunks

NO_WINDOW: Final = -(1 << 62)


class Pair(NamedTuple):
    """What a row of ``sdf.derived.qp.v1`` says of its queue pair, in the topic's names."""

    job: str
    qp: str
    src: str
    dst: str
    transport: str
    rank: int
    peer_rank: int
    dst_port: int
    dscp: int


class Pairs:
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
        self.about: list[Pair] = []
        """By number, as last told."""
        self.told: list[int] = []
        """By number: the newest window published, `NO_WINDOW` before the first."""
        self.path: list[int] = []
        """By number: source port in that window."""
        self._heard_ns: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, chunks: Chunks, now_ns: int) -> Int64s:
        """The number of every row's queue pair, −1 where there is no room for it."""
        job = chunks.names["job"][0]
        qp, qps = chunks.names["qp"]
        both = job.astype(np.int64) * len(qps) + qp
        # the last row of each: what it says of the queue pair is what counts
        _, last, member = np.unique(both[::-1], return_index=True, return_inverse=True)
        last = both.size - 1 - last
        columns = {name: ([names[c] for c in codes[last].tolist()]) for name, (codes, names) in chunks.names.items()}
        figures = {name: values[last].tolist() for name, values in chunks.numbers.items()}
        about = [
            Pair(*row)
            for row in zip(
                *(columns[name] for name in ("job", "qp", "src", "dst", "transport")),
                *(figures[name] for name in ("rank", "peer_rank", "dst_port", "dscp")),
                strict=True,
            )
        ]
        # new ones are numbered in order of their first row, so that it does not matter how rows lie in messages
        numbers = np.full(len(about), -1, np.int64)
        first = np.unique(both, return_index=True)[1]
        for which in np.argsort(first).tolist():
            numbers[which] = self._number(about[which], now_ns)
        result: Int64s = numbers[member.reshape(-1)[::-1]]
        return result

    def _number(self, pair: Pair, now_ns: int) -> int:
        key = pair.job, pair.qp
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= self._most:
                return -1
            number = self._numbers[key] = self._free.pop() if self._free else self._more(pair)
            self.told[number], self.path[number] = NO_WINDOW, 0
        self.about[number] = pair
        self._heard_ns[number] = now_ns
        return number

    def _more(self, pair: Pair) -> int:
        self.about.append(pair)
        for column in (self.told, self.path, self._heard_ns):
            column.append(0)
        return len(self.about) - 1

    def restart(self) -> None:
        """Windows are numbered afresh: nothing was told of any."""
        self.told = [NO_WINDOW] * len(self.told)

    def forget(self, before_ns: int, busy: set[int]) -> int:
        """Forget those not heard of since `before_ns` and not in `busy`; how many."""
        gone = [
            key for key, number in self._numbers.items() if self._heard_ns[number] < before_ns and number not in busy
        ]
        for key in gone:
            self._free.append(self._numbers.pop(key))
        return len(gone)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "numbers": [[*key, number] for key, number in self._numbers.items()],
            "free": list(self._free),
            "about": [list(pair) for pair in self.about],
            "told": list(self.told),
            "path": list(self.path),
            "heard": list(self._heard_ns),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._numbers = {(job, qp): number for job, qp, number in state["numbers"]}
        self._free = list(state["free"])
        self.about = [Pair(*pair) for pair in state["about"]]
        self.told, self.path, self._heard_ns = list(state["told"]), list(state["path"]), list(state["heard"])
