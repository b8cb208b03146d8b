"""Sender and reflector joined back to back by a wire in memory: rows, marks, refusals, and ports that go down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sdfstream.errors import UnavailableError
from sdfstream.records.units import StampKind
from sdfstream.verbs.probing.device_events import PortChange
from sdfstream.verbs.probing.meeting_io import End
from sdfstream.verbs.probing.session_io import Reflector, Sender, session
from tests.unit.verbs.probing.wire import WireEnd

PORTS = (49153, 49160)


class Waiting:
    """Stands for `Meetings`."""

    def __init__(self, *ends: End) -> None:
        self.ends = list(ends)

    def arrived(self) -> list[End]:
        found, self.ends = self.ends, []
        return found


class World:
    """One sender, one reflector, and what the sender's port said."""

    def __init__(self, address: str = "10.0.0.1", *, stamps: bool = False, known: bool = True) -> None:
        ends: dict[int, WireEnd] = {}
        self.near = WireEnd(address, 17, 0x11, ends, stamps=stamps)
        far_address = "10.0.9.1" if "." in address else "fd00::9"
        self.far = WireEnd(far_address, 18, 0x22, ends, stamps=stamps)
        near, far = End("h00/rxa0", self.near.address), End("h04/rxb0", self.far.address)
        self.changes: list[PortChange] = []
        rng = np.random.default_rng(1)
        config = session(near, far, PORTS, 5.0, 26, 160)
        self.sender = Sender(self.near, config, far, rng, self.changes.append)  # type: ignore[arg-type]
        meetings: Any = Waiting(near) if known else Waiting()
        self.reflector = Reflector(self.far, "h04/rxb0", meetings, self.changes.append)  # type: ignore[arg-type]
        self.near.wait = self._answer  # type: ignore[method-assign]

    def _answer(self, timeout_s: float) -> None:
        self.near.now_ns = self.far.now_ns = time.time_ns()
        self.reflector.turn()
        time.sleep(min(timeout_s, 0.001))

    def rows(self) -> dict[str, list[Any]]:
        """Of four probes on each path, whose time-out is a second: a slow machine loses none."""
        columns: dict[str, list[Any]] = {}
        for batch in self.sender.run(60, count=4):
            for name in batch.schema.names:
                columns.setdefault(name, []).extend(batch.column(name).to_pylist())
        return columns


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1"])
def test_probes_are_answered_on_their_own_paths(address: str) -> None:
    world = World(address)
    rows = world.rows()
    assert len(rows["path"]) >= 8
    assert set(rows["path"]) == set(PORTS)
    assert set(rows["transport"]) == {"rocev2"}
    assert set(zip(rows["src"], rows["dst"], strict=True)) == {("h00/rxa0", "h04/rxb0")}
    assert None not in rows["t4_ns"]
    assert {(d, e) for d, e in zip(rows["dscp_fwd"], rows["ecn_fwd"], strict=True)} == {(26, 2)}
    assert set(rows["ttl_fwd"]) == set(rows["ttl_rev"]) == {62}
    assert rows["seq_rev"] == rows["seq"], "its reflector counts the answers of each path, and none is lost"
    assert set(rows["size_bytes"]) == {160}
    assert {k for i in range(1, 5) for k in rows[f"t{i}_kind"]} == {StampKind.USER}
    asked = {(route.flow_label, port) for route, port in world.near.routes}
    assert {(route.flow_label, port) for route, port in world.far.routes} == asked


def test_marks_of_each_direction_are_seen_where_they_arrive() -> None:
    world = World()
    world.near.tos_set = 3
    rows = world.rows()
    assert (set(rows["ecn_fwd"]), set(rows["ecn_rev"])) == ({3}, {2})


def test_a_device_that_stamps_gives_hardware_times_by_the_nics_clock() -> None:
    rows = World(stamps=True).rows()
    hardware = [i for i, kind in enumerate(rows["t1_kind"]) if kind == StampKind.HARDWARE]
    assert len(hardware) >= 4
    assert {rows["clock_src"][i] for i in hardware} == {"h00/rxa0"}
    assert {rows["t2_kind"][i] for i in hardware} == {StampKind.HARDWARE}
    assert StampKind.HARDWARE in {rows["t3_kind"][i] for i in hardware}


def test_a_sender_that_has_not_met_the_reflector_gets_no_answer() -> None:
    world = World(known=False)
    assert set(world.rows()["t4_ns"]) == {None}
    assert world.reflector.engine.counters.get("answered") == 0
    assert world.reflector.engine.counters.get("refused", "stranger") > 0


def test_lost_probes_are_rows_without_an_answer() -> None:
    world = World()
    world.near.lost = True
    rows = world.rows()
    assert len(rows["t4_ns"]) >= 8
    assert set(rows["t4_ns"]) == {None}


def test_a_port_that_goes_down_pauses_its_paths() -> None:
    world = World()

    def run() -> Iterator[int]:
        for batch in world.sender.run(1.5):
            yield batch.num_rows

    sent = run()
    next(sent)
    world.near.state = 1
    world.near.events.append("PORT_ERR")
    next(sent)
    count = len(world.near.routes)
    list(sent)
    assert len(world.near.routes) - count <= 2 * len(PORTS)
    assert [(c.port, c.usable) for c in world.changes] == [(1, False)]
    assert {e["state"] for e in world.sender.engine.liveness(time.monotonic_ns(), 0, complete=True)} == {"unknown"}


def test_a_device_that_goes_away_ends_the_session_in_words() -> None:
    world = World()
    world.near.state = 0
    world.near.events.append("DEVICE_FATAL")
    with pytest.raises(UnavailableError, match=r"rx17 is gone \(DEVICE_FATAL\)"):
        world.rows()
