"""Messages up to an instant of the past, read back from the archive for the verbs that answer about the past.

The rows become messages again and go into the same `JobBoard` that a running pipeline has, so that both answer alike.
Of messages that repeat (a job's shard, a route, a finding, a renewed command) only the last before the instant counts;
windows of queue pairs come back as sums per second.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sdfstream import strict_json
from sdfstream.board.humanize import seconds
from sdfstream.board.jobs import JobBoard
from sdfstream.board.rates import JOB_SECONDS
from sdfstream.errors import ConfigError
from sdfstream.records import columns
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, QP_WINDOW, TOPOLOGY, Topic
from sdfstream.records.units import NS_PER_S

if TYPE_CHECKING:
    from sdfstream.archive.query_io import Console

DAY_NS: Final = 24 * 3600 * NS_PER_S
HOUR_NS: Final = 3600 * NS_PER_S

_LAST: Final[tuple[tuple[Topic, str, str, int], ...]] = (
    # topic, table, "the last n of each": clause, how far back
    (TOPOLOGY, "state_topology", "LIMIT 1 BY event_type, bus_key", 30 * DAY_NS),
    (JOB, "state_job", "LIMIT 1 BY job, host", 30 * DAY_NS),
    (LIVENESS, "raw_liveness", "LIMIT 1 BY bus_key", 60 * NS_PER_S),
    (FINDING, "event_finding", "LIMIT 1 BY id", DAY_NS),
    (OVERRIDE, "control_override", "LIMIT 500", 30 * DAY_NS),
    (OUTCOME, "control_outcome", "LIMIT 16 BY command", DAY_NS),
)
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
WHERE w.bus_at > {first} AND w.bus_at <= {last}
GROUP BY job, qp, at_ns
ORDER BY at_ns, job, qp
"""


def jobs_at(data: str, url: str | None, at_ns: int) -> tuple[JobBoard, int]:
    """The board as it was at `at_ns`, and that instant.

    Raises
    ------
    UnavailableError
        There is no archive to be read.
    """
    from sdfstream.archive.query_io import Console

    console = Console.open(data, url)
    try:
        board = JobBoard()
        board.take(messages(console, at_ns))
        return board, at_ns
    finally:
        console.close()


def messages(console: Console, at_ns: int) -> Iterator[Message]:
    """The messages that a `JobBoard` needs for its state at `at_ns`, as far as the archive has them."""
    for topic, table, last, back_ns in _LAST:
        rows = _rows(console, table, f"bus_at > {_at(at_ns - back_ns)} AND bus_at <= {_at(at_ns)}", last)
        yield from _events(topic, rows)
    yield from _events(COMMAND, _commands(console, at_ns))
    yield from _windows(console, at_ns)


def instant(text: str) -> int:
    """An instant as people type it, ns since the Unix epoch: ``10m`` or ``10m ago``, or ISO 8601 (UTC by default).

    Raises
    ------
    ConfigError
        With a sentence.
    """
    try:
        return time.time_ns() - round(seconds(text.removesuffix("ago").strip()) * NS_PER_S)
    except ValueError:
        pass
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no instant; write 10m (ago) or 2027-01-15T08:00:00Z") from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
    since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000


def _commands(console: Console, at_ns: int) -> list[dict[str, Any]]:
    """The first and the last statement of every command of the day before: when it began, and its lease."""
    within = f"bus_at > {_at(at_ns - DAY_NS)} AND bus_at <= {_at(at_ns)}"
    last = _rows(console, "control_command", within, "LIMIT 1 BY id")
    first = _rows(console, "control_command", within, "LIMIT 1 BY id", order="ASC")
    return sorted([*first, *last], key=lambda row: (int(row["bus_at_ns"]), int(row["bus_seq"])))


def _rows(console: Console, table: str, within: str, last: str, order: str = "DESC") -> list[dict[str, Any]]:
    columns_wanted = "data, event_id, event_type, event_source, event_time_ns, bus_key, bus_at_ns, bus_seq"
    sql = f"SELECT {columns_wanted} FROM {table} WHERE {within} ORDER BY bus_at {order}, bus_seq {order} {last}"
    found = console.answer(sql).rows
    return sorted(found, key=lambda row: (int(row["bus_at_ns"]), int(row["bus_seq"])))


def _events(topic: Topic, rows: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    for row in rows:
        data = strict_json.loads(str(row["data"]))
        event = Event(row["event_type"], row["event_source"], row["event_id"], int(row["event_time_ns"]), data)
        yield Message(topic.name, str(row["bus_key"]), event, int(row["bus_at_ns"]), int(row["bus_seq"]))


def _windows(console: Console, at_ns: int) -> Iterator[Message]:
    """Sums per second of the last minutes, as windows."""
    first, last = _at(at_ns - JOB_SECONDS * NS_PER_S), _at(at_ns)
    rows = console.answer(_SUMS.format(first=first, last=last)).rows
    if not rows:
        return
    given: dict[str, Any] = {name: [row[name] for row in rows] for name in ("job", "qp", "src", "dst", "transport")}
    for name in ("at_ns", "window_ns", "rank", "peer_rank", "path", "dst_port", "dscp", "n", "bytes", "packets"):
        given[name] = [int(row[name]) for row in rows]
    for name in ("ce", "retransmits"):
        given[name] = [None if row[name] is None else int(row[name]) for row in rows]
    for name in ("owd_p50_ns", "err_ns"):
        given[name] = np.array([np.nan if row[name] is None else float(row[name]) for row in rows])
    batch = columns.build(_schema(), given)
    yield Message(QP_WINDOW.name, "archive", batch, max(int(row["said_ns"]) for row in rows), 0)


def _schema() -> Any:
    assert QP_WINDOW.columns is not None
    return QP_WINDOW.columns


def _at(at_ns: int) -> str:
    return f"fromUnixTimestamp64Nano(toInt64({at_ns}), 'UTC')"
