"""Split sync publishes what one process publishes, bit for bit, however hosts are split; and survives a process.

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
from tests.fixtures.sync_split import SplitSync, clock_rows, delay_rows

SECONDS, SETTLED_S = 18.0, 12.0


class World:
    """One simulation, run once with one share."""

    def __init__(self) -> None:
        self.sim = mesh(12, 6, "B", 24.0, seed=1)
        self.messages = self.sim.messages(SECONDS)
        self.hosts = sorted(self.sim.clocks)
        self.start = self.messages[0].bus_at_ns
        self.whole = self.split(1).run(self.messages)
        self.delays = delay_rows(self.whole)

    def split(self, count: int, **given) -> SplitSync:
        return SplitSync.of(self.hosts, count, **given)

    def figures(self, out, low_s: float = SETTLED_S) -> dict[str, float]:
        return figures(tracks(self.sim, out), low_s)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_shares_publish_what_one_process_does_bit_for_bit(world: World) -> None:
    """Four shares; that two do is shown with the snapshots below."""
    out = world.split(4).run(world.messages)
    assert len(clock_rows(out)) > 9 * SECONDS
    assert clock_rows(out) == clock_rows(world.whole)
    rows = delay_rows(out)
    assert rows.total() > 10_000
    assert rows == world.delays


def test_shares_are_as_good_as_one_process(world: World) -> None:
    one = world.figures(drive(SyncStage(), world.messages))
    split = world.figures(world.whole)
    print(f"mesh 12 x 6, law B, seed 1: one process {one}; split {split}")
    assert split["covered"] >= 0.99
    assert split["rms"] <= 50.0
    assert split["rms"] <= 1.5 * one["rms"]
    assert split["bound"] <= 1.5 * one["bound"]
    # published a tick later
    made = [at for at, o in world.whole if o.topic == CLOCK.name]
    assert made[1] - made[0] <= 100_000_000


def test_a_share_restored_from_its_snapshot_is_not_noticed(world: World) -> None:
    def swap(split: SplitSync, at: int) -> None:
        if abs(at - world.start - int(9e9)) < 50_000_000:
            for k in (0, 1):
                state = split.edges[k].snapshot()
                split.edges[k] = SyncEdgeStage(share=f"share{k}")
                split.edges[k].restore(state)
            state = split.mesh.snapshot()
            split.mesh = SyncMeshStage()
            split.mesh.restore(state)

    out = world.split(2, before=swap).run(world.messages)
    assert clock_rows(out) == clock_rows(world.whole)
    assert delay_rows(out) == world.delays


def test_a_share_that_is_away_for_a_second_costs_little(world: World) -> None:
    away: dict[str, bytes] = {}

    def crash(split: SplitSync, at: int) -> None:
        s = (at - world.start) / 1e9
        if 10.0 <= s < 11.0 and split.edges[1] is not None:
            away["state"], split.edges[1] = split.edges[1].snapshot(), None
        if s >= 11.0 and split.edges[1] is None:
            split.edges[1] = SyncEdgeStage(share="share1")
            split.edges[1].restore(away["state"])

    found = world.figures(world.split(2, before=crash).run(world.messages), 10.0)
    print(f"one of two shares away from 10 to 11 s: {found}")
    assert found["covered"] >= 0.99
    assert found["rms"] <= 75.0


def test_a_share_that_dies_for_good_stalls_nobody(world: World) -> None:
    def die(split: SplitSync, at: int) -> None:
        if (at - world.start) / 1e9 >= 10.0:
            split.edges[0] = None

    split = world.split(4, before=die)
    out = split.run(world.messages)
    rows = [
        (at, row) for at, o in out if o.topic == CLOCK.name for row in o.body.to_pylist() if row["kind"] == "causal"
    ]
    last = max(at for at, _ in rows)
    late = {row["clock"]: row["status"] for at, row in rows if at == last}
    assert set(late) == set(world.hosts)
    found = world.figures(out, 14.0)
    print(f"one of four shares dead since 10 s: {found}")
    # the others probe the dead share's clocks too, so all are still known
    assert set(late.values()) == {"synced"}
    assert found["covered"] >= 0.99
    assert found["rms"] <= 75.0


def test_clocks_that_only_a_dead_share_had_samples_of_hold_over() -> None:
    sim = mesh(4, 2, "A", 16.0, seed=1)
    # c probes d, and nobody else has to do with the two
    sim.sessions = [s for s in sim.sessions if {s.src, s.dst} in ({"h00", "h01"}, {"h02", "h03"})]
    messages = sim.messages(12.0)

    def die(split: SplitSync, at: int) -> None:
        if (at - messages[0].bus_at_ns) / 1e9 >= 7.0:
            split.edges[1] = None

    split = SplitSync.of(["h00", "h02"], 2, before=die)
    out = split.run(messages)
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


def test_a_mesh_without_memory_takes_over_from_the_edges(world: World) -> None:
    def forget(split: SplitSync, at: int) -> None:
        if abs(at - world.start - int(10e9)) < 50_000_000:
            split.mesh = SyncMeshStage()

    split = world.split(2, before=forget)
    found = world.figures(split.run(world.messages), 12.0)
    print(f"mesh begun anew at 10 s: {found}")
    assert not any(("begun-anew", "") in e.counters.values for e in split.edges)
    assert found["covered"] >= 0.99
    assert found["rms"] <= 75.0


def test_both_stages_keep_the_promises_of_a_stage() -> None:
    sim = mesh(4, 3, "B", 32.0, seed=2)
    split = SplitSync.of(sorted(sim.clocks), 2)
    split.run(sim.messages(4.0))
    check_stage(SyncEdgeStage, split.seen["share1"])
    plain = check_stage(SyncMeshStage, split.seen["mesh"])
    assert {o.topic for _, o in plain} == {CLOCK.name, "sdf.derived.estimate.v1"}
    assert np.isfinite([r for _, o in plain if o.topic == CLOCK.name for r in o.body["err_ns"].to_pylist()]).all()
