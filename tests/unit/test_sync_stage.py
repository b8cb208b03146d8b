"""The sync stage keeps the promises of a stage."""

from sdfstream.records.topics import CLOCK
from sdfstream.sync import SyncStage
from tests.checks import check_stage
from tests.fixtures.sync_sim import drive, mesh


def test_the_battery_holds_on_a_small_mesh() -> None:
    world = mesh(4, 3, "B", 16.0, seed=1)
    world.sessions[0].loss = 0.2
    plain = check_stage(SyncStage, world.messages(6.0))
    assert {o.topic for _, o in plain} == {"sdf.state.clock.v1", "sdf.derived.owd.v1"}


def test_a_peer_that_never_answers_stops_nobody() -> None:
    world = mesh(3, 2, "A", 32.0, seed=1)
    for s in world.sessions:
        s.loss = 1.0 if "h02" in (s.src, s.dst) else 0.0
    # h02 does not probe either
    world.sessions = [s for s in world.sessions if s.src != "h02"]
    out = drive(SyncStage(), world.messages(3.0))
    last = [o for _, o in out if o.topic == CLOCK.name][-1].body
    assert set(last["clock"].to_pylist()) == {"h00", "h01"}
