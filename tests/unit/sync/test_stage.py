"""The sync stage keeps the promises of a stage: however rows are cut, and wherever it is stopped and taken up again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sdfstream.records.message import Message
from sdfstream.records.topics import ANOMALY, CLOCK
from sdfstream.records.units import NS_PER_S
from sdfstream.sync import SyncConfig, SyncStage
from tests.checks import check_stage
from tests.fixtures.sync_sim import START_NS, Session, World, drive, law, mesh, pair

Story = Callable[[], list[Message]]


def in_order(messages: list[Message]) -> list[Message]:
    """As a bus would hand them out."""
    messages = sorted(messages, key=lambda m: (m.bus_at_ns, m.key))
    return [replace(m, bus_seq=k) for k, m in enumerate(messages)]


def plain_pair() -> list[Message]:
    return pair("B", 32.0, 1).messages(5.0)


def quiet() -> list[Message]:
    """Law A: normal, 5 ns; after three seconds the means are believed."""
    return pair("A", 16.0, 2).messages(6.0)


def step() -> list[Message]:
    world = mesh(5, 4, "L40", 16.0, 1)
    world.clocks["h03"].step_at_s, world.clocks["h03"].step_ns = 3.0, 250e3
    return world.messages(5.5)


def lost() -> list[Message]:
    """A third of the exchanges, and for a second and a half all of one host's."""
    world = mesh(4, 3, "B", 16.0, 3)
    for s in world.sessions:
        s.loss = 0.3
        if "h02" in (s.src, s.dst):
            s.cut_s = (2.0, 4.5)
    return world.messages(6.0)


def late() -> list[Message]:
    """One host's messages of a second come two seconds late, one host's all half a second; one comes after six."""
    moved = []
    for m in mesh(4, 3, "B", 16.0, 4).messages(6.0):
        by = 0.5 if m.key == "h01" else 0.0
        if m.key == "h00" and 2.0 < (m.bus_at_ns - START_NS) / NS_PER_S < 3.0:
            by = 2.0
        if m.key == "h00" and 1.0 < (m.bus_at_ns - START_NS) / NS_PER_S < 1.15:
            by = 6.0
        moved.append(replace(m, bus_at_ns=m.bus_at_ns + int(by * NS_PER_S)))
    return in_order(moved)


def joins_and_leaves() -> list[Message]:
    """h03 is gone after three seconds; h04 comes at four and goes at nine, h05 is there from eleven to thirteen."""
    clocks = mesh(6, 3, "B", 4.0, 5).clocks

    def part(names: tuple[str, ...], low_s: float, high_s: float) -> list[Message]:
        sessions = [Session(a, b, 6.0, law("B")) for k, a in enumerate(names) for b in names[k + 1 :]]
        return World(clocks, sessions, np.random.default_rng(int(low_s))).messages(high_s, low_s)

    return in_order(
        [
            *part(("h00", "h01", "h02", "h03"), 0.0, 3.0),
            *part(("h00", "h01", "h04"), 3.5, 9.0),
            *part(("h00", "h01", "h02"), 9.5, 19.0),
            *part(("h01", "h05"), 11.0, 13.0),
        ]
    )


@pytest.mark.parametrize("story", [plain_pair, quiet, step, lost, late])
def test_the_battery_holds(story: Story) -> None:
    plain = check_stage(SyncStage, story())
    assert {o.topic for _, o in plain} == {"sdf.state.clock.v1", "sdf.derived.owd.v1"}


def test_a_reroute_is_published_once_with_its_length() -> None:
    world = pair("L40", 64.0, 1)
    world.sessions[0].extra_forward = world.sessions[0].extra_reverse = lambda t, g: np.where(t > 12e9, -3e3, 0.0)
    out = drive(SyncStage(), world.messages(16.0))
    reported = [o.body.data for _, o in out if o.topic == ANOMALY.name]
    assert [d["kind"] for d in reported] == ["reroute"]
    assert (reported[0]["src"], reported[0]["dst"]) == ("a/r0", "b/r0")
    assert reported[0]["change_ns"] == pytest.approx(-3e3, abs=300.0)


def test_a_peer_that_never_answers_stops_nobody() -> None:
    world = mesh(3, 2, "A", 32.0, seed=1)
    for s in world.sessions:
        s.loss = 1.0 if "h02" in (s.src, s.dst) else 0.0
    # h02 does not probe either
    world.sessions = [s for s in world.sessions if s.src != "h02"]
    out = drive(SyncStage(), world.messages(3.0))
    last = [o for _, o in out if o.topic == CLOCK.name][-1].body
    assert set(last["clock"].to_pylist()) == {"h00", "h01"}


def test_the_battery_holds_while_clocks_join_and_are_forgotten() -> None:
    made: list[SyncStage] = []

    def make() -> SyncStage:
        made.append(SyncStage(SyncConfig(forget_ns=2 * NS_PER_S)))
        return made[-1]

    messages = joins_and_leaves()
    plain = check_stage(make, messages, end_ns=START_NS + 21 * NS_PER_S)
    forgotten = made[1].counters.values
    assert forgotten["forgotten", "clocks"] >= 2
    assert forgotten["forgotten", "sessions"] >= 4
    names = {at // NS_PER_S: clocks_of(o) for at, o in plain if o.topic == "sdf.state.clock.v1"}
    start = START_NS // NS_PER_S
    assert names[start + 2] == {"h00", "h01", "h02", "h03"}
    assert "h04" in names[start + 8] and "h05" in names[start + 12]
    # the sweep that forgets sessions comes after the mesh's own, every ten seconds
    assert "h03" in names[start + 12] and "h03" not in names[start + 20]


def clocks_of(output: object) -> set[str]:
    return set(output.body.column("clock").to_pylist())  # type: ignore[attr-defined]
