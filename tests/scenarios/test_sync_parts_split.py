"""Sync in parts says what one part says, bit for bit, however hosts are dealt out; and lives through a part's death.

Mesh of 12 clocks of degree 6, law B, 24 exchanges/s a session, seed 1.
"""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.records.topics import CLOCK
from sdfstream.score.clock.sim import drive, mesh
from sdfstream.score.clock.tracks import figures, tracks
from sdfstream.sync import SyncEdgeStage, SyncMeshStage, SyncStage
from tests.checks import check_stage
from tests.fixtures.distributed_sync import Parts, clock_rows, delay_rows

SECONDS, SETTLED_S = 18.0, 12.0


class World:
    """One simulation, run once in one part."""

    def __init__(self) -> None:
        self.sim = mesh(12, 6, "B", 24.0, seed=1)
        self.messages = self.sim.messages(SECONDS)
        self.hosts = sorted(self.sim.clocks)
        self.start = self.messages[0].bus_at_ns
        self.whole = self.parts(1).run(self.messages)

    def parts(self, count: int, **given) -> Parts:
        return Parts.of(self.hosts, count, **given)

    def figures(self, out, low_s: float = SETTLED_S) -> dict[str, float]:
        return figures(tracks(self.sim, out), low_s)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("count", [2, 4])
def test_parts_say_what_one_says_bit_for_bit(world: World, count: int) -> None:
    out = world.parts(count).run(world.messages)
    assert len(clock_rows(out)) > 9 * SECONDS
    assert clock_rows(out) == clock_rows(world.whole)
    rows = delay_rows(out)
    assert len(rows) > 10_000
    assert rows == delay_rows(world.whole)


def test_parts_are_as_good_as_one_process(world: World) -> None:
    one = world.figures(drive(SyncStage(), world.messages))
    parts = world.figures(world.whole)
    print(f"mesh 12 x 6, law B, seed 1: one process {one}; in parts {parts}")
    assert parts["covered"] >= 0.99
    assert parts["rms"] <= 50.0
    assert parts["rms"] <= 1.5 * one["rms"]
    assert parts["bound"] <= 1.5 * one["bound"]
    # published a tick later
    made = [at for at, o in world.whole if o.topic == CLOCK.name]
    assert made[1] - made[0] <= 100_000_000


def test_a_part_restored_from_its_snapshot_is_not_noticed(world: World) -> None:
    def swap(parts: Parts, at: int) -> None:
        if abs(at - world.start - int(9e9)) < 50_000_000:
            for k in (0, 1):
                state = parts.edges[k].snapshot()
                parts.edges[k] = SyncEdgeStage(part=f"part{k}")
                parts.edges[k].restore(state)
            state = parts.mesh.snapshot()
            parts.mesh = SyncMeshStage()
            parts.mesh.restore(state)

    out = world.parts(2, before=swap).run(world.messages)
    assert clock_rows(out) == clock_rows(world.whole)
    assert delay_rows(out) == delay_rows(world.whole)


def test_a_part_that_is_away_for_a_second_costs_little(world: World) -> None:
    away: dict[str, bytes] = {}

    def crash(parts: Parts, at: int) -> None:
        s = (at - world.start) / 1e9
        if 10.0 <= s < 11.0 and parts.edges[1] is not None:
            away["state"], parts.edges[1] = parts.edges[1].snapshot(), None
        if s >= 11.0 and parts.edges[1] is None:
            parts.edges[1] = SyncEdgeStage(part="part1")
            parts.edges[1].restore(away["state"])

    found = world.figures(world.parts(2, before=crash).run(world.messages), 10.0)
    print(f"one of two parts away from 10 to 11 s: {found}")
    assert found["covered"] >= 0.99
    assert found["rms"] <= 75.0


def test_a_part_that_dies_for_good_stalls_nobody(world: World) -> None:
    def die(parts: Parts, at: int) -> None:
        if (at - world.start) / 1e9 >= 10.0:
            parts.edges[0] = None

    parts = world.parts(4, before=die)
    out = parts.run(world.messages)
    rows = [
        (at, row) for at, o in out if o.topic == CLOCK.name for row in o.body.to_pylist() if row["kind"] == "causal"
    ]
    last = max(at for at, _ in rows)
    late = {row["clock"]: row["status"] for at, row in rows if at == last}
    assert set(late) == set(world.hosts)
    found = world.figures(out, 14.0)
    print(f"one of four parts dead since 10 s: {found}")
    # the others probe the dead part's clocks too, so all are still known
    assert set(late.values()) == {"synced"}
    assert found["covered"] >= 0.99
    assert found["rms"] <= 75.0


def test_clocks_that_only_a_dead_part_heard_hold_over() -> None:
    sim = mesh(4, 2, "A", 16.0, seed=1)
    # c probes d, and nobody else has to do with the two
    sim.sessions = [s for s in sim.sessions if {s.src, s.dst} in ({"h00", "h01"}, {"h02", "h03"})]
    messages = sim.messages(12.0)

    def die(parts: Parts, at: int) -> None:
        if (at - messages[0].bus_at_ns) / 1e9 >= 7.0:
            parts.edges[1] = None

    parts = Parts.of(["h00", "h02"], 2, before=die)
    out = parts.run(messages)
    last = max(at for at, o in out if o.topic == CLOCK.name)
    status = {
        r["clock"]: r["status"]
        for at, o in out
        if o.topic == CLOCK.name and at < last
        for r in o.body.to_pylist()
        if r["kind"] == "causal"
    }
    assert status["h01"] == "synced"
    assert status["h02"] != "synced" and status["h03"] != "synced"


def test_a_mesh_without_memory_takes_over_from_its_parts(world: World) -> None:
    def forget(parts: Parts, at: int) -> None:
        if abs(at - world.start - int(10e9)) < 50_000_000:
            parts.mesh = SyncMeshStage()

    parts = world.parts(2, before=forget)
    found = world.figures(parts.run(world.messages), 12.0)
    print(f"mesh begun anew at 10 s: {found}")
    assert not any(("begun-anew", "") in e.counters.values for e in parts.edges)
    assert found["covered"] >= 0.99
    assert found["rms"] <= 75.0


def test_both_stages_keep_the_promises_of_a_stage() -> None:
    sim = mesh(4, 3, "B", 32.0, seed=2)
    parts = Parts.of(sorted(sim.clocks), 2)
    parts.run(sim.messages(4.0))
    check_stage(SyncEdgeStage, parts.seen["part1"])
    plain = check_stage(SyncMeshStage, parts.seen["mesh"])
    assert {o.topic for _, o in plain} == {CLOCK.name, "sdf.derived.estimate.v1"}
    assert np.isfinite([r for _, o in plain if o.topic == CLOCK.name for r in o.body["err_ns"].to_pylist()]).all()
