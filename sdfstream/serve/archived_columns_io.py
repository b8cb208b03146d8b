"""Delays, clocks and ports of an archive as messages of their bulk topics; read as Arrow, since they are many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sdfstream.archive.rows import cast_columns
from sdfstream.board.paths import FORGET_NS
from sdfstream.records.message import Message
from sdfstream.records.switches import BOOT_PREFIX
from sdfstream.records.topics import CLOCK, OWD, PORT, Topic
from sdfstream.records.units import NS_PER_S

if TYPE_CHECKING:
    from sdfstream.archive.query_io import Console

DELAYS_NS: Final = 20 * NS_PER_S
"""Older windows weigh less than a hundredth in the board's figures (half-life 3 s)."""
MOST_WINDOWS: Final = 2_000_000
"""Windows read, the newest: bounds the memory of one look at the past to some 300 MB."""
MOST_STALE: Final = 500_000
CLOCKS_NS: Final = 3600 * NS_PER_S
PORTS_NS: Final = 600 * NS_PER_S
_PATH: Final = "src, dst, transport, path, dscp, dir"

_SECONDS: Final = f"""
SELECT toInt64(toUnixTimestamp(at)) * 1000000000 AS at_ns, toInt64(1000000000) AS window_ns, {_PATH},
    toUInt32(sum(s.n)) AS n, toUInt32(sum(s.lost)) AS lost, toUInt32(sum(s.ce)) AS ce,
    toFloat64(min(s.owd_min_ns)) AS owd_min_ns, sum(s.owd_p50_sum_ns) / nullIf(sum(s.n), 0) AS owd_p50_ns,
    toFloat64(max(s.owd_p99_ns)) AS owd_p99_ns, toFloat64(max(s.owd_max_ns)) AS owd_max_ns,
    owd_p50_ns - min(s.floor_ns) AS excess_p50_ns, toFloat64(max(s.err_ns)) AS err_ns,
    at_ns + 1000000000 AS said_ns, toUInt64(0) AS said_seq, splitByChar('/', src)[1] AS said_key
FROM owd_1s AS s
WHERE s.at >= toDateTime({{first}}, 'UTC') AND s.at < toDateTime({{last}}, 'UTC')
GROUP BY s.at AS at, {_PATH}
ORDER BY said_ns, said_key LIMIT {{most}}
"""


def instant_sql(at_ns: int) -> str:
    """An instant in ClickHouse's SQL."""
    return f"fromUnixTimestamp64Nano(toInt64({at_ns}), 'UTC')"


def delays(console: Console, at_ns: int, ours: str) -> Iterator[Message]:
    """The windows of the last seconds, message by message; `ours` narrows them to one bus.

    Where windows have expired already, the seconds that were made of them (``owd_1s``) stand in for them.
    """
    wanted = f"at_ns, window_ns, {_PATH}, n, lost, ce, owd_min_ns, owd_p50_ns, owd_p99_ns, owd_max_ns, excess_p50_ns"
    newest = (
        f"SELECT {wanted}, err_ns, bus_at_ns AS said_ns, bus_seq AS said_seq, bus_key AS said_key FROM derived_owd "
        f"WHERE {_within(at_ns, DELAYS_NS)}{ours} ORDER BY bus_at DESC LIMIT {MOST_WINDOWS}"
    )
    found = _read(console, f"SELECT * FROM ({newest}) ORDER BY said_ns, said_seq")
    if not found.num_rows:
        seconds = _SECONDS.format(first=(at_ns - DELAYS_NS) // NS_PER_S, last=at_ns // NS_PER_S, most=MOST_WINDOWS)
        found = _read(console, seconds)
    yield from _messages(OWD, found)


def stale_paths(console: Console, at_ns: int) -> Iterator[Message]:
    """Paths that had windows in the last minutes, and none in the last seconds, as windows without a packet."""
    first, last = at_ns - FORGET_NS, at_ns - DELAYS_NS
    sql = (
        f"SELECT {_PATH}, toInt64(toUnixTimestamp(max(at))) * 1000000000 AS said_ns, said_ns AS at_ns, "
        "toInt64(0) AS window_ns, toUInt32(0) AS n, toUInt32(0) AS lost, toUInt32(0) AS ce, toUInt64(0) AS said_seq, "
        "splitByChar('/', src)[1] AS said_key FROM owd_1s "
        f"WHERE at > toDateTime({first // NS_PER_S}, 'UTC') AND at <= toDateTime({at_ns // NS_PER_S}, 'UTC') "
        f"GROUP BY {_PATH} HAVING said_ns <= {last} ORDER BY said_ns, said_key LIMIT {MOST_STALE}"
    )
    yield from _messages(OWD, _read(console, sql))


def clocks(console: Console, at_ns: int, ours: str) -> Iterator[Message]:
    """The last causal row of every clock."""
    newest = (
        "SELECT clock, at_ns, offset_ns, skew_ppb, err_ns, n, status, kind, bus_at_ns AS said_ns, bus_seq AS said_seq, "
        f"bus_key AS said_key FROM state_clock WHERE kind = 'causal' AND {_within(at_ns, CLOCKS_NS)}{ours} "
        "ORDER BY bus_at DESC LIMIT 1 BY clock"
    )
    yield from _messages(CLOCK, _read(console, f"SELECT * FROM ({newest}) ORDER BY said_ns, said_seq"))


def ports(console: Console, at_ns: int, ours: str) -> Iterator[Message]:
    """The last state of every agent's port; its counters, and ports of switches, stay in the archive."""
    of_agents = f"NOT startsWith(ifNull(boot_id, ''), '{BOOT_PREFIX}')"
    newest = (
        "SELECT at_ns, host, nic, port, state, bus_at_ns AS said_ns, bus_seq AS said_seq, bus_key AS said_key "
        f"FROM raw_port WHERE {_within(at_ns, PORTS_NS)}{ours} AND {of_agents} "
        "ORDER BY bus_at DESC LIMIT 1 BY port"
    )
    yield from _messages(PORT, _read(console, f"SELECT * FROM ({newest}) ORDER BY said_ns, said_seq, said_key"))


def _read(console: Console, sql: str) -> pa.Table:
    printed = console.text(sql, "Arrow")  # the SQL front of a running pipeline refuses ArrowStream
    if not printed:
        return pa.table({})
    with pa.ipc.open_file(printed) as file:
        return file.read_all()


def _messages(topic: Topic, table: pa.Table) -> Iterator[Message]:
    """One message for every stretch of rows that came as one."""
    if not table.num_rows:
        return
    assert topic.columns is not None
    whole = table.combine_chunks().to_batches()[0]
    said = {name: whole.column(f"said_{name}").to_pylist() for name in ("ns", "seq", "key")}
    batch = cast_columns(whole, topic.columns)
    stretch: list[tuple[Any, ...]] = list(zip(said["ns"], said["seq"], said["key"], strict=True))
    begins = [0, *(i for i in range(1, len(stretch)) if stretch[i] != stretch[i - 1])]
    for first, after in zip(begins, [*begins[1:], len(stretch)], strict=True):
        at_ns, seq, key = stretch[first]
        yield Message(topic.name, str(key), batch.slice(first, after - first), int(at_ns), int(seq))


def _within(at_ns: int, back_ns: int) -> str:
    return f"bus_at > {instant_sql(at_ns - back_ns)} AND bus_at <= {instant_sql(at_ns)}"
