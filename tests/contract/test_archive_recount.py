"""Every view against an independent recount: equal to the row and the ns, or within what the view states."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.retention import Retention
from sdfstream.archive.upkeep.expiry_io import Expiry
from sdfstream.archive.upkeep.rollups_io import RollUps
from sdfstream.archive.writer_io import Archive
from sdfstream.records.message import Message
from sdfstream.stats import Counters
from tests.fixtures.leafspine import EPOCH
from tests.fixtures.recount import clocks, exchanges, hops, links, paths, plans, queue_pairs, statements
from tests.fixtures.recount.frames import Frames
from tests.fixtures.recount.world import messages

Row = dict[str, Any]
PATH = ("src", "dst", "transport", "path", "dscp", "dir")


@dataclass(frozen=True)
class View:
    """How a view is compared with its recount."""

    name: str
    recount: Callable[[Frames], list[Row]]
    key: tuple[str, ...]
    """Columns that name a row; they sort it."""
    spoken: tuple[str, ...] = ()
    """Columns of the recount that are other expressions in SQL, as ``name=sql``."""
    rough: tuple[str, ...] = ()
    """Columns that the view states to 1 %."""
    where: str = ""


def _ns(*names: str) -> tuple[str, ...]:
    """Instants as int64 nanoseconds: ``at_ns=toUnixTimestamp64Nano(at)``."""
    return tuple(f"{n}_ns=toUnixTimestamp64Nano({n})" for n in names)


def _s(name: str) -> str:
    return f"{name}=toInt64(toUnixTimestamp({name}))"


_WHOLE_SECOND = "second=intDiv(toUnixTimestamp64Nano(second), 1000000000)"
SKETCHED = ("typical_p50_ns", "typical_p99_ns", "worst_p50_ns", "worst_p99_ns")
VIEWS = (
    View("v_path_1s", paths.seconds, (*PATH, "second"), (_s("second"),)),
    View("v_path_1m", paths.minutes, (*PATH, "minute"), (_s("minute"),)),
    View("v_path_1h", paths.hours, (*PATH, "hour"), (_s("hour"),), SKETCHED),
    View("v_path_now", paths.newest, PATH, _ns("last_at")),
    View("v_links", links.links, ("direction",)),
    View("v_path_links", links.path_links, (*PATH, "direction")),
    View("v_links_worst", links.worst, ("direction",)),
    View("v_links_1h", links.by_the_hour, ("direction", "hour"), (_s("hour"),), ("worst_p99_most_ns",)),
    View("v_clock", clocks.latest, ("clock",), _ns("at", "bus_at", "first_at"), ("err_p50_ns",)),
    View("v_clock_1m", clocks.minutes, ("clock", "kind", "minute"), (_s("minute"), "statuses=arraySort(statuses)")),
    View("v_probe", exchanges.probes, ("src", "dst", "path", "seq", "t1_ns"), _ns("t1", "t2", "t3", "t4", "bus_at")),
    View("v_host_edge", exchanges.host_edges, ("nic_clock", "system_at_ns"), _ns("system_at", "nic_at")),
    View("v_freshness", exchanges.freshness, ("what", "host", "minute"), (_s("minute"),), ("p50_ms", "p99_ms")),
    View("v_qp", queue_pairs.seconds, ("job", "qp", "second"), (_WHOLE_SECOND,)),
    View("v_hops", hops.minutes, ("direction", "minute"), (_s("minute"),)),
    View("v_job_throughput", queue_pairs.jobs, ("job", "second"), (_WHOLE_SECOND,)),
    View("v_gains", queue_pairs.gains, ("id",)),
    View(
        "v_findings", statements.findings, ("id",),
        tuple(f"{n}_ns=toUnixTimestamp64Nano({n}_at)" for n in ("since", "opened", "resolved")),
    ),
    View("v_finding_evidence", statements.evidence, ("id", "what", "value", "place")),
    View(
        "v_nic_state", statements.health, ("nic", "direction"),
        tuple(f"{n}_ns=toUnixTimestamp64Nano({n}_at)" for n in ("since", "seen")),
    ),
    View(
        "v_liveness", statements.liveness, ("bus_seq", "src", "dst", "transport", "path", "dscp", "role", "observer"),
        ("since_ns=toUnixTimestamp64Nano(since_at)",),
    ),
    View("v_job_parts", plans.shares, ("job", "host"), ("since_ns=toUnixTimestamp64Nano(since_at)",)),
    View("v_flows", plans.flows, plans.FLOW, ("traced_ns=toUnixTimestamp64Nano(traced_at)",)),
    View("v_flow_links", plans.flow_links, plans.FLOW),
    View("v_mesh", plans.plan, ("host", "src", "dst", "path", "dscp"), _ns("at")),
    View("v_nic_timeline", statements.story, ("nic", "at_ns", "what", "state"), _ns("at")),
)  # fmt: skip
BY_HAND = {
    "v_commands", "v_job_paths", "v_jobs",  # test_archive_views.py
    "v_silences", "v_labels",  # test_api_contract.py
    "v_kept", "v_owd_kept", "v_probe_kept",  # test_archive_rollups.py
}  # fmt: skip


@pytest.fixture(scope="module")
def bus() -> list[Message]:
    return messages()


@pytest.fixture(scope="module")
def recorded(bus: list[Message]) -> Frames:
    return Frames(bus)


@pytest.fixture(scope="module")
def engine(bus: list[Message], migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = str(shutil.copytree(migrated, tmp_path_factory.mktemp("recount") / "archive", symlinks=True))
    archive = Archive.open(ArchiveConfig(folder, "recount", limits=REPLAY, retention=Retention(minute_days=None)))
    archive.add_blocking(bus)
    archive.close_blocking()
    with Engine.open(folder) as engine:
        yield engine


def _rows(engine: Engine, view: View, names: list[str]) -> list[Row]:
    spoken = dict(each.split("=", 1) for each in view.spoken)
    columns = ", ".join(f"({spoken[n]}) AS c_{n}" if n in spoken else f"{n} AS c_{n}" for n in names)
    return [dict(zip(names, row, strict=True)) for row in engine.rows(f"SELECT {columns} FROM {view.name}")]


def _check(engine: Engine, view: View, recorded: Frames) -> int:
    """Compare; the number of rows."""
    wanted = view.recount(recorded)
    assert wanted, "a world in which there is nothing to count"
    names = [name for name in wanted[0] if not name.startswith("_")]
    order = [*view.key, *(n for n in names if n not in view.key)]

    def by_key(row: Row) -> tuple[Any, ...]:
        return tuple((row[n] is not None, row[n]) if n in view.key else 0 for n in order)

    got = sorted(_rows(engine, view, names), key=by_key)
    wanted.sort(key=by_key)
    keys = [[tuple(r[k] for k in view.key) for r in rows] for rows in (got, wanted)]
    assert keys[0] == keys[1]
    for name in names:
        triples = [(g[name], w[name], w.get(f"_{name}", 2e-5)) for g, w in zip(got, wanted, strict=True)]
        assert [g is None for g, *_ in triples] == [w is None for _, w, _ in triples], (view.name, name)
        for g, w, within in triples:
            if not isinstance(w, float):
                assert g == w, (view.name, name)
            else:
                rel = paths.SKETCH if name in view.rough else 1e-9
                assert g == pytest.approx(w, rel=rel, abs=within), (view.name, name)
    return len(got)


@pytest.mark.parametrize("view", VIEWS, ids=lambda v: v.name)
def test_a_view_says_what_was_recorded(engine: Engine, recorded: Frames, view: View) -> None:
    assert _check(engine, view, recorded) > 0


def test_a_port_that_flapped_between_two_readings_is_told_each_time(engine: Engine) -> None:
    sql = "SELECT countIf(state = 'down'), countIf(state = 'up') FROM v_nic_timeline"
    sql += " WHERE nic = 'h02/r1' AND what = 'port'"
    assert engine.rows(sql) == [(5, 6)], "down four times for 0.2 s, once for 3 s, and up at first"


def test_every_view_is_recounted_or_worked_out_by_hand(engine: Engine) -> None:
    views = {n for (n,) in engine.rows("SELECT name FROM system.tables WHERE database = 'sdf' AND engine = 'View'")}
    assert views == {v.name for v in VIEWS} | BY_HAND


def test_history_says_the_same_once_it_is_finished_and_its_rows_are_gone(engine: Engine, recorded: Frames) -> None:
    roll_ups = RollUps(engine, Counters("upkeep"))
    history = [v for v in VIEWS if v.name.endswith(("_1s", "_1m", "_1h")) or v.name == "v_nic_timeline"]
    roll_ups.finish()
    for view in history:
        _check(engine, view, recorded)
    Expiry(engine, roll_ups, Counters("upkeep")).run(EPOCH + 5 * 24 * 3600 * 1_000_000_000)
    assert engine.rows("SELECT count() FROM derived_owd") == [(0,)]
    for view in history:
        if view.name not in ("v_path_1s", "v_nic_timeline"):  # their rows go with this age
            _check(engine, view, recorded)


def test_instants_have_the_arrow_types_that_the_readme_names(engine: Engine) -> None:
    def kinds(sql: str) -> list[str]:
        return [str(field.type) for field in engine.arrow(sql).schema]

    assert kinds("SELECT minute, toDateTime64(minute, 0, 'UTC') FROM v_path_1m") == ["uint32", "timestamp[s, tz=UTC]"]
    assert kinds("SELECT bus_at, t1 FROM v_probe") == ["timestamp[ns, tz=UTC]"] * 2
    assert kinds("SELECT second FROM v_qp") == ["timestamp[ns, tz=UTC]"]
