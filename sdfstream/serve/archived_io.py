"""What was on the bus up to an instant of the past, read back from the archive as messages for the boards.

The rows become messages again and go into the same `Board` and `JobBoard` that a running pipeline has, so that both
answer alike. Of messages that repeat (a job's shard, a route, a NIC's state, a finding, a renewed command) only the
last before the instant counts; windows of queue pairs come back as sums per second, delays as the newest windows
themselves. An in-process bus begins anew with every run: states of another run than the newest before the instant are
left out, and of its findings those that it left open say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sdfstream import strict_json
from sdfstream.archive.sqltext import literal
from sdfstream.board.findings_text import LEFT_OPEN
from sdfstream.board.rates import JOB_SECONDS
from sdfstream.records import columns, topics
from sdfstream.records.message import Event, Message
from sdfstream.records.silences import LABEL, WORDS
from sdfstream.records.topics import (
    COMMAND,
    FINDING,
    JOB,
    LIVENESS,
    MESH,
    NIC,
    OUTCOME,
    OVERRIDE,
    QP_WINDOW,
    TOPOLOGY,
    Topic,
)  # fmt: skip
from sdfstream.records.units import NS_PER_S
from sdfstream.serve import archived_columns_io

if TYPE_CHECKING:
    from sdfstream.archive.query_io import Console

DAY_NS: Final = 24 * 3600 * NS_PER_S
STATE_NS: Final = 30 * DAY_NS
"""How far back states are searched that are stated once and then hold."""
_LOOK_NS: Final = (60 * NS_PER_S, 3600 * NS_PER_S, DAY_NS, STATE_NS)
"""How far back the newest run before an instant is searched: near first, since far costs more."""
_RUNS: Final = ("raw_liveness", "derived_owd", "state_clock", "event_finding", "state_nic", "state_topology")
_LIVENESS_NS: Final = 20 * NS_PER_S
"""Two complete lists of a host's paths, which come every ten seconds."""

_LAST: Final[tuple[tuple[Topic, str, str, int], ...]] = (
    # topic, table, "the last n of each": clause, how far back; overrides stand before the outcomes that answer them
    (TOPOLOGY, "state_topology", "LIMIT 1 BY event_type, bus_key", STATE_NS),
    (MESH, "state_mesh", "LIMIT 1 BY bus_key", STATE_NS),
    (JOB, "state_job", "LIMIT 1 BY job, host", STATE_NS),
    (NIC, "state_nic", "LIMIT 1 BY nic, direction", STATE_NS),
    (LIVENESS, "raw_liveness", "LIMIT 1 BY bus_key", 60 * NS_PER_S),
    (LIVENESS, "raw_liveness", "", _LIVENESS_NS),
    (OVERRIDE, "control_override", "LIMIT 500", STATE_NS),
    (OUTCOME, "control_outcome", "LIMIT 16 BY command", DAY_NS),
)
_WORDS: Final = ", ".join(literal(word) for word in WORDS)
_TAKEN: Final = " AND state = 'applied' AND host = 'controller'"
"""Outcomes that take up silences, lifts and labels: those stand for up to a week, labels as long as their findings."""
_MOST_NOTES: Final = 10_000
_EVENT: Final = "data, event_id, event_type, event_source, event_time_ns, bus_key, bus_at_ns, bus_seq, bus_id"


@dataclass(frozen=True, slots=True)
class ArchiveMoment:
    """An instant of an archive, and the bus that its newest rows up to then came by."""

    at_ns: int
    bus_id: str | None = None
    """None: nothing was archived up to then."""
    newest_ns: int | None = None
    """Bus time of the newest row up to then."""


def ends_at_ns(console: Console) -> int | None:
    """Bus time of the newest row of the archive; None: it is empty."""
    each = " UNION ALL ".join(f"SELECT max(bus_at) AS newest FROM {table}" for table in _RUNS)
    found = console.answer(f"SELECT toUnixTimestamp64Nano(max(newest)) AS newest_ns FROM ({each})").rows
    newest_ns = int(found[0]["newest_ns"] or 0) if found else 0
    return newest_ns if newest_ns > 0 else None


def moment(console: Console, at_ns: int) -> ArchiveMoment:
    """The instant `at_ns` of the archive."""
    for back_ns in _LOOK_NS:
        within = f"bus_at > {_at(at_ns - back_ns)} AND bus_at <= {_at(at_ns)}"
        each = " UNION ALL ".join(f"SELECT bus_id, bus_at FROM {table} WHERE {within}" for table in _RUNS)
        found = console.answer(
            "SELECT argMax(bus_id, bus_at) AS bus, "
            f"toUnixTimestamp64Nano(max(bus_at)) AS newest_ns, count() AS n FROM ({each})"
        ).rows
        if found and int(found[0]["n"]):
            return ArchiveMoment(at_ns, str(found[0]["bus"]), int(found[0]["newest_ns"]))
    return ArchiveMoment(at_ns)


def messages(console: Console, when: ArchiveMoment) -> list[Message]:
    """What `Board` and `JobBoard` need for their states at that moment, in order of bus time where order matters."""
    if when.bus_id is None:
        return [*_findings(console, when), *_notes(console, when)]
    ours = f" AND bus_id = {literal(when.bus_id)}"
    said: list[Message] = []
    for topic, table, last, back_ns in _LAST:
        said += _events(topic, _rows(console, table, _within(when, back_ns) + ours, last))
    said += _events(COMMAND, _commands(console, _within(when, DAY_NS) + ours))
    said += _findings(console, when)
    said += _notes(console, when)
    said += archived_columns_io.stale_paths(console, when.at_ns)
    said += archived_columns_io.delays(console, when.at_ns, ours)
    said += archived_columns_io.clocks(console, when.at_ns, ours)
    said += archived_columns_io.ports(console, when.at_ns, ours)
    said += _windows(console, when, ours)
    return sorted(said, key=lambda m: m.bus_at_ns)  # stable: an override stays before the outcome of the same instant


def _findings(console: Console, when: ArchiveMoment) -> Iterator[Message]:
    """Every finding as last stated, also of earlier runs; what those left open says so."""
    rows = _rows(console, "event_finding", _within(when, STATE_NS), "LIMIT 1 BY id")
    for row, message in zip(rows, _events(FINDING, rows), strict=True):
        body = message.body
        if row["bus_id"] != when.bus_id and isinstance(body, Event) and body.data.get("status") != "resolved":
            body = Event(body.type, body.source, body.id, body.time_ns, {**body.data, LEFT_OPEN: True})
            message = Message(message.topic, message.key, body, message.bus_at_ns, message.bus_seq)
        yield message


def _notes(console: Console, when: ArchiveMoment) -> Iterator[Message]:
    """Silences and their lifts of this run, and labels of every run, as its findings are: asked for, and answered."""
    for topic, table, word, more in (
        (OVERRIDE, "control_override", "what", ""),
        (OUTCOME, "control_outcome", "action", _TAKEN),
    ):
        ours = f"(bus_id = {literal(when.bus_id or '')} OR {word} = {literal(LABEL)})"
        within = f"{_within(when, STATE_NS)} AND {word} IN ({_WORDS}){more} AND {ours}"
        yield from _events(topic, _rows(console, table, within, f"LIMIT {_MOST_NOTES}"))


def _commands(console: Console, within: str) -> list[dict[str, Any]]:
    """The first and the last statement of every command of the day before: when it began, and its lease."""
    last = _rows(console, "control_command", within, "LIMIT 1 BY id")
    first = _rows(console, "control_command", within, "LIMIT 1 BY id", order="ASC")
    return sorted([*first, *last], key=lambda row: (int(row["bus_at_ns"]), int(row["bus_seq"])))


def _rows(console: Console, table: str, within: str, last: str, order: str = "DESC") -> list[dict[str, Any]]:
    sql = f"SELECT {_EVENT} FROM {table} WHERE {within} ORDER BY bus_at {order}, bus_seq {order} {last}"
    found = console.answer(sql).rows
    return sorted(found, key=lambda row: (int(row["bus_at_ns"]), int(row["bus_seq"])))


def _events(topic: Topic, rows: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    for row in rows:
        data = strict_json.loads(str(row["data"]))
        event = Event(row["event_type"], row["event_source"], row["event_id"], int(row["event_time_ns"]), data)
        yield Message(topic.name, str(row["bus_key"]), event, int(row["bus_at_ns"]), int(row["bus_seq"]))


_SUMS: Final = """
SELECT job, qp, toUnixTimestamp64Nano(toDateTime64(toStartOfSecond(at), 9, 'UTC')) AS at_ns,
    any(w.src) AS src, any(w.dst) AS dst, any(w.transport) AS transport, any(w.rank) AS rank,
    any(w.peer_rank) AS peer_rank, argMax(w.path, w.at) AS path, any(w.dst_port) AS dst_port, any(w.dscp) AS dscp,
    sum(w.window_ns) AS window_ns, sum(w.n) AS n, sum(w.bytes) AS bytes, sum(w.packets) AS packets,
    sum(w.ce) AS ce, sum(w.retransmits) AS retransmits,
    sumIf(w.owd_p50_ns * w.n, w.owd_p50_ns IS NOT NULL) / nullIf(sumIf(w.n, w.owd_p50_ns IS NOT NULL), 0) AS owd_p50_ns,
    sumIf(w.err_ns * w.n, w.err_ns IS NOT NULL) / nullIf(sumIf(w.n, w.err_ns IS NOT NULL), 0) AS err_ns,
    max(w.bus_at_ns) AS said_ns
FROM derived_qp AS w
WHERE {within}
GROUP BY job, qp, at_ns
ORDER BY at_ns, job, qp
"""


def _windows(console: Console, when: ArchiveMoment, ours: str) -> Iterator[Message]:
    """Sums per second of the last minutes, as windows."""
    rows = console.answer(_SUMS.format(within=_within(when, JOB_SECONDS * NS_PER_S) + ours)).rows
    if not rows:
        return
    given: dict[str, Any] = {name: [row[name] for row in rows] for name in ("job", "qp", "src", "dst", "transport")}
    for name in ("at_ns", "window_ns", "rank", "peer_rank", "path", "dst_port", "dscp", "n", "bytes", "packets"):
        given[name] = [int(row[name]) for row in rows]
    for name in ("ce", "retransmits"):
        given[name] = [None if row[name] is None else int(row[name]) for row in rows]
    for name in ("owd_p50_ns", "err_ns"):
        given[name] = np.array([np.nan if row[name] is None else float(row[name]) for row in rows])
    schema = topics.QP_WINDOW.columns
    assert schema is not None
    yield Message(QP_WINDOW.name, "archive", columns.build(schema, given), max(int(row["said_ns"]) for row in rows), 0)


def _within(when: ArchiveMoment, back_ns: int) -> str:
    return f"bus_at > {_at(when.at_ns - back_ns)} AND bus_at <= {_at(when.at_ns)}"


def _at(at_ns: int) -> str:
    return archived_columns_io.instant_sql(at_ns)
