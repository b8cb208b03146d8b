"""Updates of ports gathered into rows of ``sdf.raw.port.v1``, and up to where the topic of gnmic is done with.

A sample of a port comes as one event with all leaves, or as an event a leaf. They make one **reading**: from its first
update until a counter of it comes again with a later time, or `settle_ns` have passed by our clock. The row is dated by
the newest update of it (the switch's clock), since rates are taken over that. What a row holds:

- counters of that reading alone. One that is sampled less often than the others is null in between: carried over it
  would stand still and then leap, which looks like a burst;
- state and speed as last told: they come when they change, and hold until then.

A reading without counters goes out if the state is another than in the last row, or if the port gives no counters at
all. A counter that is older than what its port's last row was made of is late and left out (a repeat after a restart, a
partition that lags), a state that is older than the one known likewise; unless they lie so far back (`CLOCK_BACK_NS`)
that the switch's clock was set.

`positions` are what may be committed once everything that `outputs` gave is on the bus: in each partition the first
message of a reading that is not out yet, else behind the last one taken. So a stop at any instant loses nothing; what
was out already and lies behind that position comes again (at least once).

Bounds: `MOST_PORTS` ports; an update of a further one is counted as ``shed.port``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from sdfstream.probes.ports.reading import State
from sdfstream.probes.switches import leaves
from sdfstream.probes.switches.gnmic import Update
from sdfstream.records import arrow, switches
from sdfstream.records.columns import build
from sdfstream.records.message import Output
from sdfstream.records.topics import PORT
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

MOST_PORTS: Final = 65_536
SETTLE_NS: Final = NS_PER_S
CLOCK_BACK_NS: Final = 30 * NS_PER_S
MOST_ROWS: Final = 4096
"""Rows of one message: some 600 kB."""
_SCHEMA: Final[pa.Schema] = PORT.columns
_NUMBERS: Final = tuple(f for f in _SCHEMA if f.name not in ("at_ns", "host", "nic", "port", "state"))


@dataclass(slots=True)
class _Reading:
    """One sample of a port that is not out yet."""

    begun_ns: int
    """When its first update was taken, our clock."""
    at_ns: int
    counters: dict[str, int] = field(default_factory=dict)
    counted_ns: dict[str, int] = field(default_factory=dict)
    """When the switch told each counter."""
    firsts: dict[int, int] = field(default_factory=dict)
    """By partition: the first message that it was made of."""


@dataclass(slots=True)
class _SwitchPort:
    words: dict[str, str] = field(default_factory=dict)
    """By leaf: the last value of each enumeration."""
    reported_ns: dict[str, int] = field(default_factory=dict)
    """By leaf: when the switch told it."""
    sources: dict[str, int] = field(default_factory=dict)
    """By column: the source that it comes from (`leaves.columns_of`); empty: it gave no counter yet."""
    out_ns: int = 0
    """The newest update in its last row, the switch's clock."""
    out_state: State | None = None
    """State in its last row; None: there was none."""
    reading: _Reading | None = None

    @property
    def state(self) -> State:
        return leaves.state_of(self.words.get(leaves.OPER, ""), self.words.get(leaves.ADMIN, ""))

    @property
    def speed_mbps(self) -> int | None:
        speeds = (leaves.speed_mbps(self.words.get(leaf, "")) for leaf in leaves.SPEEDS)
        return next((mbps for mbps in speeds if mbps is not None), None)

    def take_words(self, words: Mapping[str, str], at_ns: int) -> bool:
        """Take enumerations told at `at_ns`; whether any is as new as the one known."""
        fresh = {leaf: word for leaf, word in words.items() if at_ns >= self.reported_ns.get(leaf, 0)}
        self.words |= fresh
        self.reported_ns |= dict.fromkeys(fresh, at_ns)
        return bool(fresh)

    def is_late(self, at_ns: int) -> bool:
        """Whether an update is older than the last row."""
        return 0 <= self.out_ns - at_ns <= CLOCK_BACK_NS

    def clock_was_set(self, at_ns: int) -> bool:
        """Whether an update lies so far back that the switch's clock must have been set; its past counts no more."""
        if self.out_ns - at_ns <= CLOCK_BACK_NS:
            return False
        self.out_ns = 0
        self.reported_ns.clear()
        return True


@dataclass(frozen=True, slots=True)
class _DueRow:
    interface: str
    at_ns: int
    state: State
    values: dict[str, int]


class SwitchReadings:
    """Readings of all ports of all switches.

    Parameters
    ----------
    counters : Counters
        Takes ``rows``, ``late``, ``clock-set`` and ``shed.port``.
    settle_ns : int
        A reading to which nothing was added for so long since it began is whole.
    """

    def __init__(self, counters: Counters, settle_ns: int = SETTLE_NS) -> None:
        self.counters = counters
        self._settle_ns = settle_ns
        self._ports: dict[tuple[str, str], _SwitchPort] = {}
        self._open: dict[tuple[str, str], _Reading] = {}
        """Readings that go on, in the order in which they began."""
        self._whole: dict[str, list[_DueRow]] = {}
        """By switch: rows that are due."""
        self._next: dict[int, int] = {}
        """By partition: behind the last message taken."""

    @property
    def waiting(self) -> int:
        """Rows that are due: more than a few thousand are to be published before more is read."""
        return sum(len(rows) for rows in self._whole.values())

    def take(self, said: Iterable[Update], partition: int, offset: int, now_ns: int) -> None:
        """Take what the message at `offset` of `partition` says, `now_ns` by our clock."""
        for update in said:
            self._take(update, partition, offset, now_ns)
        self._next[partition] = offset + 1

    def outputs(self, now_ns: int, *, everything: bool = False) -> list[Output]:
        """Rows that are due by our clock, one message a switch; `everything`: readings that go on are cut off too."""
        for key in list(self._open):
            if not everything and now_ns - self._open[key].begun_ns < self._settle_ns:
                break
            self._close(key)
        whole, self._whole = self._whole, {}
        return [
            Output(PORT.name, switch, _batch(switch, rows[first : first + MOST_ROWS]))
            for switch, rows in sorted(whole.items())
            for first in range(0, len(rows), MOST_ROWS)
        ]

    def positions(self) -> dict[int, int]:
        """By partition: the first message that is still needed; see the module."""
        found = dict(self._next)
        for reading in self._open.values():
            for partition, offset in reading.firsts.items():
                found[partition] = min(found.get(partition, offset), offset)
        return found

    def forget(self, partitions: Iterable[int]) -> None:
        """Reading of these partitions goes on at the last commit, here or in another process.

        What readings that go on were made of stays held: a partition that comes back is not committed beyond it.
        """
        for partition in partitions:
            self._next.pop(partition, None)

    def _take(self, update: Update, partition: int, offset: int, now_ns: int) -> None:
        key = update.switch, update.interface
        port = self._ports.get(key)
        if port is None:
            if len(self._ports) >= MOST_PORTS:
                self.counters.add("shed", "port")
                return
            port = self._ports[key] = _SwitchPort()
        if port.clock_was_set(update.at_ns):
            self.counters.add("clock-set")
        is_news = port.take_words(update.words, update.at_ns)
        late = port.is_late(update.at_ns)
        if late:
            self.counters.add("late", n=bool(update.counters))
        counted = {} if late else update.counters
        if not counted and not is_news:
            return
        reading = port.reading
        if reading is not None and any(update.at_ns > reading.counted_ns.get(leaf, update.at_ns) for leaf in counted):
            self._close(key)
            reading = None
        if reading is None:
            reading = port.reading = self._open[key] = _Reading(now_ns, max(update.at_ns, port.out_ns))
        reading.firsts.setdefault(partition, offset)
        reading.at_ns = max(reading.at_ns, update.at_ns)
        reading.counters |= counted
        reading.counted_ns |= dict.fromkeys(counted, update.at_ns)

    def _close(self, key: tuple[str, str]) -> None:
        """The reading of a port is whole."""
        port, reading = self._ports[key], self._open.pop(key)
        port.reading = None
        values = leaves.columns_of(reading.counters, port.sources)
        state = port.state
        if not values and port.sources and state == port.out_state:
            return
        port.out_ns, port.out_state = reading.at_ns, state
        if (mbps := port.speed_mbps) is not None:
            values["speed_mbps"] = mbps
        self.counters.add("rows")
        self._whole.setdefault(key[0], []).append(_DueRow(key[1], reading.at_ns, state, values))


def _batch(switch: str, rows: Sequence[_DueRow]) -> pa.RecordBatch:
    columns = {f.name: arrow.numbers([r.values.get(f.name) for r in rows], f.type) for f in _NUMBERS}
    return build(
        _SCHEMA,
        {
            "at_ns": [r.at_ns for r in rows],
            "host": [switch] * len(rows),
            "nic": [switches.nic_id(switch, r.interface) for r in rows],
            "port": [switches.port_id(switch, r.interface) for r in rows],
            "state": [r.state for r in rows],
            **columns,
        },
    )
