"""The sync stage keeps the promises of a stage."""

from sdfstream.sync import SyncStage
from tests.checks import check_stage
from tests.fixtures.sync_sim import mesh


def test_the_battery_holds_on_a_small_mesh() -> None:
    world = mesh(4, 3, "B", 16.0, seed=1)
    world.sessions[0].loss = 0.2
    plain = check_stage(SyncStage, world.messages(6.0))
    assert {o.topic for _, o in plain} == {"sdf.state.clock.v1", "sdf.derived.owd.v1"}
