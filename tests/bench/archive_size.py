"""What the archive needs on disk: bytes a row of each table, by column, and a fleet's day by arithmetic.

``python -m tests.bench.archive_size`` (``--quick``: fewer rows, coarser). Probe rows come from three sources: the
generator of the archive's bench at the fleet's rate with as many rows a path as a merged hour has, and with the many
paths and few rows of one short run; and the shipped recording, as it is and made longer. Every figure is of merged
parts in chDB, indexes and marks included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_io import migrate
from sdfstream.archive.retention import AGING, Retention
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.tables import table_of
from sdfstream.archive.target import Folder
from sdfstream.archive.upkeep.passes_io import Upkeep
from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK, OWD, PROBE, Topic
from sdfstream.records.units import NS_PER_MS
from tests.bench.harness import Result, against, main
from tests.fixtures.archive import EPOCH_NS
from tests.fixtures.archive_load import probe_messages
from tests.fixtures.archive_scaled import longer

GOAL_BYTES = 12.0
GOAL_GB = 100.0
PER_INSERT = 400_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the goal is stated for."""

    nics: int = 4000
    peers: int = 10
    rate_hz: int = 64
    clocks: int = 4400
    """A hardware clock per NIC and a system clock per host of ten NICs."""
    findings_a_day: int = 20
    """Each kept at its beginning and its end, with as many paths as may be kept."""

    def rows_per_s(self, keep: Retention) -> dict[str, float]:
        """Rows that enter each table."""
        paths = 2 * self.nics * self.peers
        kept_s = 2 * self.findings_a_day * 2 * keep.around_minutes * 60 / 86400
        return {
            "raw_probe": self.nics * self.peers * self.rate_hz,
            "derived_owd": 10 * paths,
            "owd_1s": paths,
            "owd_1m": paths / 60,
            "owd_1h": paths / 3600,
            "state_clock": 2 * 10 * self.clocks,
            "clock_1m": 2 * self.clocks / 60,
            "raw_probe_kept": kept_s * keep.kept_paths * self.rate_hz,
            "derived_owd_kept": kept_s * keep.kept_paths * 2 * 10,
        }


def insert(engine: Engine, topic: Topic, messages: Iterable[Message]) -> None:
    waiting: list[Message] = []
    rows = number = 0
    for each in messages:
        waiting.append(each)
        rows += each.rows
        if rows >= PER_INSERT:
            engine.insert(table_of(topic.name), bulk_rows(topic, waiting, "size").table, f"{number}")
            waiting, rows, number = [], 0, number + 1
    if waiting:
        engine.insert(table_of(topic.name), bulk_rows(topic, waiting, "size").table, f"{number}")


def bytes_per_row(engine: Engine, table: str) -> float:
    """Of merged, wide parts: what small runs leave compact, an hour of a fleet does not."""
    engine.command(f"ALTER TABLE {table} MODIFY SETTING min_bytes_for_wide_part = 0")
    engine.command(f"OPTIMIZE TABLE {table} FINAL")
    sql = (
        "SELECT sum(bytes_on_disk) / sum(rows) FROM system.parts"
        " WHERE active AND database = currentDatabase() AND table = {t:String}"
    )
    return float(engine.rows(sql, {"t": table})[0][0])


def by_column(engine: Engine, table: str) -> list[tuple[str, float]]:
    sql = (
        f"SELECT name, data_compressed_bytes / (SELECT count() FROM {table}) AS b FROM system.columns"
        " WHERE database = currentDatabase() AND table = {t:String} AND default_kind != 'ALIAS' ORDER BY b DESC"
    )
    return [(str(name), float(b)) for name, b in engine.rows(sql, {"t": table})]


def windows(paths: int, seconds: int, rng: np.random.Generator, together: int = 1) -> Iterable[Message]:
    """Delays by window as of 64 probes a second: 6 or 7 in each, heavy-tailed queues over a floor of the path."""
    names = [f"h{i // 10:02d}/r{i % 10}" for i in range(paths + 1)]
    floor = rng.integers(20_000, 40_000, (paths, 1))
    for second in range(0, seconds, 10):
        at = EPOCH_NS + (10 * second + np.arange(100)) * 100 * NS_PER_MS
        queue = rng.lognormal(7.5, 0.8, (paths, 100, 7)) + rng.normal(0, 30, (paths, 100, 1))
        n = np.where(rng.random((paths, 100)) < 0.4, 7, 6)
        queue[..., 6] = np.where(n == 7, queue[..., 6], np.inf)
        delays = np.sort(floor[..., None] + queue, axis=2)
        low, top = delays[..., 0], np.where(n == 7, delays[..., 6], delays[..., 5])
        mid = np.where(n == 7, delays[..., 3], (delays[..., 2] + delays[..., 3]) / 2)
        below = np.where(n == 7, delays[..., 5], delays[..., 4])
        high = top - (top - below) * (n - 1) * 0.01
        err = 350 + 40 * np.sin(at / 37e9)[None] + rng.normal(0, 2, (1, 100)).repeat(paths, 0)
        who = np.arange(paths).repeat(100)
        batch = columns.build(
            OWD.columns,
            {
                "at_ns": np.tile(at, paths), "window_ns": np.full(who.size, 100 * NS_PER_MS),
                "src": columns.name_column(who, names), "dst": columns.name_column(who + 1, names),
                "transport": columns.name_column(who * 0, ["udp"]),
                "path": (49_152 + who % 4).astype(np.uint32), "dscp": np.zeros(who.size, np.uint8),
                "dir": columns.name_column(who % 2, ["fwd", "rev"]),
                "n": n.ravel().astype(np.uint32), "lost": (rng.random(who.size) < 0.0064).astype(np.uint32),
                "ce": (rng.random(who.size) < 0.06).astype(np.uint32),
                "owd_min_ns": low.ravel(), "owd_p50_ns": mid.ravel(), "owd_p99_ns": high.ravel(),
                "owd_max_ns": top.ravel(), "excess_p50_ns": (mid - floor).ravel(), "err_ns": err.ravel(),
            },
        )  # fmt: skip
        # the stage publishes each window 300 ms after it, message by message (or some `together`)
        for k in range(0, 100, together):
            rows = batch.take(pa.array((np.arange(paths)[:, None] * 100 + np.arange(k, k + together)).ravel()))
            number = 10 * second + k
            at_ns = EPOCH_NS + (number + 3) * 100 * NS_PER_MS
            yield Message(OWD.name, "h00", rows, at_ns, number, "boot", number)


def clocks(number: int, seconds: int, rng: np.random.Generator) -> Iterable[Message]:
    """Clock rows: random walks to the last bit of a float."""
    ticks = 10 * seconds
    skew = rng.normal(0, 5_000, (number, 1)) + np.cumsum(rng.normal(0, 0.3, (number, ticks)), axis=1)
    offset = rng.normal(0, 1e6, (number, 1)) + np.cumsum(skew * 0.1 + rng.normal(0, 3, skew.shape), axis=1)
    err = 150 + np.abs(np.cumsum(rng.normal(0, 1, skew.shape), axis=1))
    names = [f"h{i // 10:02d}/r{i % 10}" for i in range(number)]
    for tick in range(ticks):
        at_ns = EPOCH_NS + tick * 100 * NS_PER_MS
        rows = columns.build(
            CLOCK.columns,
            {
                "clock": columns.name_column(np.arange(number), names),
                "at_ns": at_ns - 100 * NS_PER_MS + offset[:, tick].astype(np.int64),
                "offset_ns": offset[:, tick], "skew_ppb": skew[:, tick], "err_ns": err[:, tick],
                "n": rng.integers(60, 70, number).astype(np.uint32),
                "status": ["synced"] * number, "kind": ["causal"] * number,
            },
        )  # fmt: skip
        yield Message(CLOCK.name, "mesh", rows, at_ns, tick, "boot", tick)


def measure(result: Result, quick: bool) -> None:
    rows = 60_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="sdf-size-") as folder:
        path = str(Path(folder) / "archive")
        probes = {
            "a merged hour at 64/s": probe_messages(rows, rate_hz=64, rounds=6, senders=1),
            "a merged hour at 16/s": probe_messages(rows, senders=1),
            "1,600 paths for a short time": probe_messages(2 * rows),
            "the shipped recording made longer": longer_or_not(2 if quick else 10),
            "the shipped recording": longer_or_not(1),
        }
        if quick:
            del probes["the shipped recording made longer"]
        each = {}
        for number, (name, messages) in enumerate(probes.items()):
            with Engine.open(Folder(path, f"p{number}"), create=True) as engine:
                migrate(engine)
                insert(engine, PROBE, messages)
                each[name] = bytes_per_row(engine, "raw_probe")
                ((count, paths),) = engine.rows("SELECT count(), uniqExact(src, dst, path) FROM raw_probe")
                result.say(f"raw_probe, {name}: {each[name]:.2f} bytes a row ({count:,} rows of {paths} sessions)")
                result.say("  " + " ".join(f"{n} {b:.3f}" for n, b in by_column(engine, "raw_probe")))
                engine.command(f"DROP DATABASE p{number}")
        size = each["a merged hour at 64/s"]
        result.say(against(f"at most {GOAL_BYTES:g} bytes a row, full rows, merged", size <= GOAL_BYTES))
        table = {"raw_probe": size, "raw_probe_kept": size} | _others(path, quick, result)
    result.figures |= {"raw_probe": {k: round(v, 2) for k, v in each.items()}, "bytes_per_row": table}
    _fleet(result, table)


def longer_or_not(times: int) -> Iterable[Message]:
    """The shipped recording; 1: as it was recorded, message by message."""
    if times > 1:
        yield from longer(times)
        return
    from sdfstream.bus.recording.reader_io import open_recording
    from tests.fixtures.archive_scaled import SHIPPED

    yield from open_recording(SHIPPED).messages([PROBE.name])


def _others(path: str, quick: bool, result: Result) -> dict[str, float]:
    rng = np.random.default_rng(1)
    paths, seconds = (3, 2_400) if quick else (20, 6_000)
    with Engine.open(Folder(path, "rest"), create=True) as engine:
        migrate(engine)
        insert(engine, OWD, windows(paths, seconds, rng, together=20 if quick else 1))
        insert(engine, CLOCK, clocks(20, seconds // (40 if quick else 4), rng))
        keep = Retention()
        Upkeep(engine, keep).run()
        names = ("derived_owd", "owd_1s", "owd_1m", "owd_1h", "state_clock", "clock_1m")
        found = {name: bytes_per_row(engine, name) for name in names}
        for name, size in found.items():
            ((count,),) = engine.rows(f"SELECT count() FROM {name}")
            result.say(f"{name}: {size:.2f} bytes a row ({count:,} rows)")
            result.say("  " + " ".join(f"{n} {b:.3f}" for n, b in by_column(engine, name) if b >= 0.01))
        engine.command("DROP DATABASE rest")
    return {name: round(size, 2) for name, size in found.items()} | {"derived_owd_kept": round(found["derived_owd"], 2)}


def _fleet(result: Result, size: dict[str, float]) -> None:
    fleet, keep = Fleet(), Retention()
    setting = {aging.table: aging.setting for aging in AGING}
    result.say(
        f"{fleet.nics:,} NICs x {fleet.peers} peers x {fleet.rate_hz}/s: "
        f"{fleet.nics * fleet.peers * fleet.rate_hz / 1e6:.2f} M exchanges/s; table, rows/s, bytes/row, kept, "
        "GB on disk once it is full, GB that each further day adds until then"
    )
    whole = growth = ring = 0.0
    for table, rate in fleet.rows_per_s(keep).items():
        length = getattr(keep, setting[table])
        hours = length if setting[table].endswith("_hours") else 24 * length
        full = rate * size[table] * hours * 3600 / 1e9
        a_day = rate * size[table] * 86400 / 1e9 if hours > 24 else 0.0
        whole, growth, ring = whole + full, growth + a_day, ring + (0 if hours > 24 else full)
        kept = f"{hours:g} h" if hours <= 24 else f"{hours / 24:g} d"
        result.say(f"  {table:<17} {rate:>12,.1f} {size[table]:>8.2f} {kept:>6} {full:>9.1f} {a_day:>7.2f}")
    result.say(
        f"  in all: {growth:.1f} GB a day, beside {ring:.0f} GB that are always there; {whole:,.0f} GB when full"
    )
    result.say(against(f"at most {GOAL_GB:g} GB a day", growth <= GOAL_GB))
    result.figures |= {"gb_a_day": round(growth, 1), "gb_always": round(ring, 1), "gb_full": round(whole)}


if __name__ == "__main__":
    main("archive_size", measure)
