"""Hosts with hardware clocks: all 24 clocks of 8 hosts on one time line, system clocks among them; no path too many."""

from functools import cache

import numpy as np

from sdfstream.records.topics import CLOCK, OWD
from sdfstream.sync import SyncStage
from tests.checks import check_stage
from tests.fixtures.host_mesh import HostMesh
from tests.fixtures.sync_sim import drive

SECONDS = 20.0
FLOAT_GRAIN = 256.0
"""offset_ns is a float64: a clock that counts from 1970 has an offset of 1.8e18 ns, and neighbours lie so far apart."""


@cache
def outcome(seed: int) -> tuple[HostMesh, SyncStage, dict[str, list[dict]], list[dict]]:
    world, stage = HostMesh(seed=seed), SyncStage()
    rows: dict[str, list[dict]] = {}
    delays: list[dict] = []
    for _, output in drive(stage, world.messages(SECONDS)):
        if output.topic == CLOCK.name:
            for row in output.body.to_pylist():
                rows.setdefault(row["clock"], []).append(row)
        elif output.topic == OWD.name:
            delays += output.body.select(["src", "dst", "transport"]).to_pylist()
    return world, stage, rows, delays


def errors(world: HostMesh, rows: list[dict], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Errors and bounds of one clock's rows of the last ten seconds, against the reference h0."""
    late = [r for r in rows if r["kind"] == kind][-100:]
    at = np.array([r["at_ns"] for r in late])
    whole, rest = world.true_offset(late[0]["clock"], at)
    instant = at - whole - np.rint(rest).astype(np.int64)
    base = world.clocks["h0"].offset((instant - 1_800_000_000 * 10**9).astype(np.float64))
    published = np.array([r["offset_ns"] for r in late])
    return (published - whole) - (rest - base), np.array([r["err_ns"] for r in late])


def test_all_clocks_of_all_hosts_are_on_one_time_line_inside_their_bounds() -> None:
    for seed in (1, 2, 4):
        world, stage, rows, _ = outcome(seed)
        assert sorted(rows) == sorted([*world.nics, *(f"h{i}" for i in range(8))])
        assert stage.counters.total("refused") == 0
        for name, mine in rows.items():
            assert mine[-1]["status"] == "synced"
            grain = FLOAT_GRAIN if name == world.unset else 1.0
            for kind in ("causal", "smoothed"):
                error, bound = errors(world, mine, kind)
                assert (np.abs(error) <= bound + grain).mean() >= 0.999, (seed, name, kind)
                assert np.abs(error).max() < 1_000.0 + grain, (seed, name, kind)


def test_a_host_without_peers_ties_its_own_clocks() -> None:
    world = HostMesh(hosts=2, degree=2)
    alone = [m for m in world.messages(8.0) if m.key == "h0" and m.body.column("transport")[0].as_py() == "host"]
    rows: dict[str, list[dict]] = {}
    for _, output in drive(SyncStage(), alone):
        for row in output.body.to_pylist():
            rows.setdefault(row["clock"], []).append(row)
    assert set(rows) == {"h0", "h0/r0", "h0/r1"}
    for mine in rows.values():
        assert mine[-1]["status"] == "synced" and mine[-1]["err_ns"] < 5_000.0
        error, bound = errors(world, mine, "causal")
        assert (np.abs(error[-30:]) <= bound[-30:] + 1.0).all() and np.abs(error[-30:]).max() < 200.0


def test_a_host_edge_has_no_window_of_delay() -> None:
    world, _, _, delays = outcome(1)
    assert delays and {d["transport"] for d in delays} == {"udp"}
    assert {(d["src"], d["dst"]) for d in delays} == {(world.nics[a], world.nics[b]) for a, b in world.probes}


def test_without_host_edges_no_system_clock_is_there() -> None:
    world = HostMesh(hosts=3, degree=4, edges=False)
    stage = SyncStage()
    names = {
        r["clock"] for _, o in drive(stage, world.messages(2.0)) if o.topic == CLOCK.name for r in o.body.to_pylist()
    }
    assert names == set(world.nics)


def test_the_battery_holds_with_host_edges() -> None:
    world = HostMesh(hosts=3, degree=2, rate=8.0)
    plain = check_stage(SyncStage, world.messages(3.0))
    assert {o.topic for _, o in plain} == {CLOCK.name, OWD.name}
