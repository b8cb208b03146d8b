"""From a probe message to accepted exchanges: plain arrays and small integers.

Every refused row is counted with its reason, and quoted in a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import arrow, columns
from sdfstream.records.hostclock import HOST_EDGE, UTC
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Ecn, Int64s, StampKind
from sdfstream.stats import Counters
from sdfstream.sync.pairs import NamedEnds

_NAMES: Final = ("src", "dst", "transport", "clock_src", "clock_dst")
_FILL: Final = {
    **{f"t{i}_kind": 255 for i in (1, 2, 3, 4)},
    "path": 0,
    "seq": 0,
    "dscp_sent": 0,
    "ecn_fwd": 0,
    "ecn_rev": 0,
}
LATEST_NS: Final = 1 << 62
"""No stamp lies beyond the year 2116, nor before 1970; inside that range no difference overflows."""
LONGEST_NS: Final = 60 * NS_PER_S
"""An exchange that took longer is no exchange."""
RTT_SLACK_NS: Final = 1000
"""A round trip may come out negative by this much plus 200 ppm of the turn-round (two clocks made it)."""

_CE, _KERNEL, _HARDWARE = int(Ecn.CE), int(StampKind.KERNEL), int(StampKind.HARDWARE)
REASONS: Final = (
    "null",
    "no-stamp",
    "absurd-stamp",
    "mixed-clocks",
    "no-t2",
    "negative-round-trip",
    "long-round-trip",
    "negative-turn-round",
    "negative-path-time",
    "reserved-clock",
    "host-edge",
)
"""Why a row is refused; the position in this tuple, plus one, is its code."""


@dataclass(slots=True)
class AcceptedExchanges:
    """Accepted rows of some messages. Stamps are as sent; absent ones are `ABSENT_NS`."""

    row: Int64s
    """Row number in the batch."""
    t1_ns: Int64s
    t2_ns: Int64s
    t3_ns: Int64s
    t4_ns: Int64s
    path: Int64s
    dscp: Int64s
    seq: Int64s
    lost: Bools
    forward: Bools
    """t1 and t2 can be used: both the kernel's or NIC's, or both user space's."""
    reverse: Bools
    """t3 and t4 can be used (t3 is the follow-up's, not a user-space guess)."""
    ce_fwd: Bools
    ce_rev: Bools
    host: Bools
    """Compares two clocks of one host (`records/hostclock`): an edge like any other, but no path."""
    bus_at_ns: Int64s
    """When each row's message entered the bus."""
    message: Int64s
    """Number of each row's message among those read together, ascending."""
    ends: NamedEnds

    def pick(self, mask: Bools) -> AcceptedExchanges:
        """The rows where `mask` is True."""
        rows = {f.name: getattr(self, f.name)[mask] for f in fields(self) if f.name != "ends"}
        ends = NamedEnds(tuple(codes[mask] for codes in self.ends.codes), self.ends.dictionaries)
        return AcceptedExchanges(ends=ends, **rows)


def read(
    batch: pa.RecordBatch, bus_at_ns: Sequence[int] = (0,), rows: Sequence[int] | None = None
) -> tuple[AcceptedExchanges, npt.NDArray[np.uint8]]:
    """Accepted rows, and for every row of the batch its refusal code (0: accepted; else 1 + index in `REASONS`).

    `batch` holds the rows of one or of several messages; `bus_at_ns` says when each of those entered the bus, `rows`
    how many of the rows each has (None: it is one message).

    Raises
    ------
    FormatError
        The message as a whole cannot be read: a column is missing (``column-missing``) or not of the contract's type
        (``column-type``).
    """
    codes, dictionaries = zip(*(columns.names(batch, name) for name in _NAMES), strict=True)
    t1, t2, t3, t4 = (_stamps(batch, name) for name in ("t1_ns", "t2_ns", "t3_ns", "t4_ns"))
    given = {name: _integers(batch, name) for name in _FILL}
    plain = {name: arrow.filled(given[name], fill) for name, fill in _FILL.items()}
    kinds = [plain[f"t{i}_kind"] for i in (1, 2, 3, 4)]
    refused, lost, forward, reverse = _assess(_missing(given, codes), (t1, t2, t3, t4), kinds)
    host = _host_edges(codes, dictionaries, t4, refused)
    good = refused == 0
    # the common case, nothing refused, costs no copies
    pick: Any = slice(None) if good.all() else good
    sizes = (batch.num_rows,) if rows is None else rows
    message = np.arange(len(sizes)).repeat(sizes)
    return (
        AcceptedExchanges(
            row=np.flatnonzero(good),
            t1_ns=t1[pick],
            t2_ns=t2[pick],
            t3_ns=t3[pick],
            t4_ns=t4[pick],
            path=plain["path"][pick].astype(np.int64),
            dscp=plain["dscp_sent"][pick].astype(np.int64),
            seq=plain["seq"][pick].astype(np.int64),
            lost=lost[pick],
            forward=forward[pick],
            reverse=reverse[pick],
            ce_fwd=(plain["ecn_fwd"] == _CE)[pick],
            ce_rev=(plain["ecn_rev"] == _CE)[pick],
            host=host[pick],
            bus_at_ns=np.array(bus_at_ns, dtype=np.int64)[message][pick],
            message=message[pick],
            ends=NamedEnds(tuple(c[pick] for c in codes), dictionaries),
        ),
        refused,
    )


def _stamps(batch: pa.RecordBatch, name: str) -> Int64s:
    stamps: Int64s = arrow.filled(_integers(batch, name), ABSENT_NS).astype(np.int64, copy=False)
    return stamps


def _integers(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of integers; one that may be null and is absent is all null."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        if PROBE.columns is not None and PROBE.columns.field(name).nullable and name in _FILL:
            return pa.nulls(batch.num_rows, PROBE.columns.field(name).type)
        raise FormatError("column-missing", name)
    column = batch.column(index)
    if not pa.types.is_integer(column.type):
        raise FormatError("column-type", f"{name} is {column.type}")
    return column


def _missing(given: dict[str, pa.Array], codes: tuple[Any, ...]) -> Bools | None:
    """Rows without a name or number that every row must have; None: all have them."""
    found = [column < 0 for column in codes if column.size and column.min() < 0]
    found += [arrow.nulls(given[name]) for name in ("path", "seq", "dscp_sent") if given[name].null_count]
    return np.logical_or.reduce(found) if found else None


def _spotless(stamps: tuple[Int64s, ...], kinds: list[npt.NDArray[Any]]) -> bool:
    """Whether every row is answered, of one kind of stamp other than user space, and sane: a quick look at the whole.

    True only where `_assess_rows` would accept every row in both directions; False decides nothing.
    """
    t1, t2, t3, t4 = stamps
    if not t1.size or min(map(np.min, stamps)) <= 0 or max(map(np.max, stamps)) >= LATEST_NS:
        return False
    kind = kinds[0][0]
    if kind not in (_KERNEL, _HARDWARE) or any((k != kind).any() for k in kinds):
        return False
    round_trip, turn_round = t4 - t1, t3 - t2
    if round_trip.min() < 0 or round_trip.max() > LONGEST_NS or turn_round.min() < 0:
        return False
    return bool((round_trip - turn_round).min() >= -RTT_SLACK_NS)


def _assess(
    missing: Bools | None, stamps: tuple[Int64s, ...], kinds: list[npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.uint8], Bools, Bools, Bools]:
    """Refusal code of each row; which are unanswered; whose forward and reverse directions can be used."""
    rows = stamps[0].size
    if missing is None and _spotless(stamps, kinds):
        lost = np.zeros(rows, dtype=np.bool_)
        return np.zeros(rows, dtype=np.uint8), lost, ~lost, ~lost
    return _assess_rows(np.zeros(rows, dtype=np.bool_) if missing is None else missing, stamps, kinds)


def _assess_rows(
    missing: Bools, stamps: tuple[Int64s, ...], kinds: list[npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.uint8], Bools, Bools, Bools]:
    """The same, where some row may be refused or lack a direction."""
    t1, t2, t3, t4 = stamps
    lost = t4 == ABSENT_NS
    answered = ~lost
    user = [k == StampKind.USER for k in kinds]
    # a kernel stamp against a user-space one holds a host's delay, milliseconds of it under load: not a path's
    forward = answered & (user[0] == user[1])
    reverse = answered & ~user[2] & ~user[3] & (kinds[2] != StampKind.NONE) & (t3 != ABSENT_NS)
    hardware = [k == StampKind.HARDWARE for k in kinds]
    sane = (t1 > 0) & (t1 < LATEST_NS)
    sane &= lost | (t4 > 0) & (t4 < LATEST_NS)
    sane &= lost | (t2 == ABSENT_NS) | (t2 > 0) & (t2 < LATEST_NS)
    sane &= ~reverse | (t3 > 0) & (t3 < LATEST_NS)
    zero = np.int64(0)
    round_trip = np.where(answered & sane, t4 - t1, zero)
    turn_round = np.where(reverse & sane & (t2 != ABSENT_NS), t3 - t2, zero)
    path_time = round_trip - turn_round
    tests = (
        missing,
        kinds[0] == StampKind.NONE,
        ~sane,
        answered & (hardware[0] != hardware[3]) | reverse & (hardware[1] != hardware[2]),
        answered & ((t2 == ABSENT_NS) | (kinds[1] == StampKind.NONE) | (kinds[3] == StampKind.NONE)),
        round_trip < 0,
        round_trip > LONGEST_NS,
        turn_round < 0,
        path_time < -RTT_SLACK_NS - turn_round // 5000,
    )
    refused = np.zeros(t1.size, dtype=np.uint8)
    for code, test in reversed(list(enumerate(tests, start=1))):
        if test.any():
            refused[test] = code
    return refused, lost, forward, reverse


def _host_edges(
    codes: tuple[Any, ...], dictionaries: tuple[list[str], ...], t4: Int64s, refused: npt.NDArray[np.uint8]
) -> Bools:
    """Which rows are host edges; one that cannot be, and any row of a clock named like UTC, becomes refused."""
    src, dst, transport, near, far = zip(codes, dictionaries, strict=True)
    for clock in (near, far):
        if UTC in clock[1]:
            _refuse(refused, _is(UTC, *clock), "reserved-clock")
    host = _is(HOST_EDGE, *transport)
    if host.any():
        _refuse(refused, host & (~_same(src, dst) | _same(near, far) | (t4 == ABSENT_NS)), "host-edge")
    return host


def _refuse(refused: npt.NDArray[np.uint8], which: Bools, reason: str) -> None:
    refused[which & (refused == 0)] = 1 + REASONS.index(reason)


def _is(name: str, codes: Any, dictionary: list[str]) -> Bools:
    """Rows of this name; a null (code −1) is none."""
    if name not in dictionary:
        return np.zeros(len(codes), dtype=np.bool_)
    result: Bools = np.array([entry == name for entry in dictionary] + [False])[codes]
    return result


def _same(a: tuple[Any, list[str]], b: tuple[Any, list[str]]) -> Bools:
    """Rows whose two names, each with a dictionary of its own, are equal."""
    number = {name: i for i, name in enumerate(dict.fromkeys([*a[1], *b[1]]))}
    left, right = (np.array([number[name] for name in d] + [-1 - side])[c] for side, (c, d) in enumerate((a, b)))
    result: Bools = left == right
    return result


def dead_letters(message: Message, refused: npt.NDArray[np.uint8], most: int) -> list[Output]:
    """One event per message with refused rows: up to `most` of them with their values, the others by number."""
    assert isinstance(message.body, pa.RecordBatch)
    rows = np.flatnonzero(refused)
    counts = np.bincount(refused[rows], minlength=len(REASONS) + 1)[1:].tolist()
    quoted = message.body.take(pa.array(rows[:most])).to_pylist()
    data: dict[str, Any] = {
        "topic": message.topic,
        "bus_seq": message.bus_seq,
        "key": message.key,
        "boot_id": message.boot_id,
        "batch_seq": message.batch_seq,
        "reasons": {reason: n for reason, n in zip(REASONS, counts, strict=True) if n},
        "rows": [
            {"row": int(row), "reason": REASONS[refused[row] - 1], "value": value}
            for row, value in zip(rows[:most].tolist(), quoted, strict=True)
        ],
        "not_quoted": max(int(rows.size) - most, 0),
    }
    event = Event(PROBE.dead_letters, "sync", f"{message.topic}/{message.bus_seq}", message.bus_at_ns, data)
    return [Output(PROBE.dead_letters, message.key, event)]


class Intake:
    """Reads probe messages for a stage of sync."""

    def __init__(self, most_dead_rows: int, counters: Counters) -> None:
        self._most = most_dead_rows
        self._counters = counters

    def take(self, messages: Sequence[Message], out: list[Output]) -> list[AcceptedExchanges]:
        """Accepted rows of messages of one slice; dead letters of the others go to `out`.

        Messages with nothing to refuse are read as one; where there is something, each is read by itself.
        """
        found = self._take_joined(messages) if len(messages) > 1 else None
        if found is not None:
            return [found] if found.row.size else []
        each = [self._take_one(message, out) for message in messages]
        return [exchanges for exchanges in each if exchanges is not None]

    def _take_joined(self, messages: Sequence[Message]) -> AcceptedExchanges | None:
        batch = JOINS.joined(messages)
        if batch is None:
            return None
        try:
            exchanges, refused = read(batch, [m.bus_at_ns for m in messages], [m.rows for m in messages])
        except FormatError:
            return None
        if refused.any():
            return None
        self._counters.add("received", n=batch.num_rows)
        return exchanges

    def _take_one(self, message: Message, out: list[Output]) -> AcceptedExchanges | None:
        if not isinstance(message.body, pa.RecordBatch):
            self._refuse(message, "not-a-batch", "", out)
            return None
        try:
            exchanges, refused = read(message.body, [message.bus_at_ns])
        except FormatError as problem:
            self._refuse(message, problem.reason, problem.detail, out)
            return None
        self._counters.add("received", n=message.body.num_rows)
        if exchanges.row.size < message.body.num_rows:
            for code, count in enumerate(np.bincount(refused)[1:].tolist()):
                self._counters.add("refused", REASONS[code], count)
            out += dead_letters(message, refused, self._most)
        return exchanges if exchanges.row.size else None

    def _refuse(self, message: Message, reason: str, detail: str, out: list[Output]) -> None:
        self._counters.add("refused-message", reason)
        self._counters.add("refused", reason, message.rows)
        data = {
            "topic": message.topic,
            "bus_seq": message.bus_seq,
            "key": message.key,
            "reason": reason,
            "detail": detail,
        }
        event = Event(PROBE.dead_letters, "sync", f"{message.topic}/{message.bus_seq}", message.bus_at_ns, data)
        out.append(Output(PROBE.dead_letters, message.key, event))
