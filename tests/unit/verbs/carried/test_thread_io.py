"""Two agents' RoCEv2 sessions end to end on a wire in memory: met, answered, told; devices go and come back."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sdfstream.probes.config import SessionConfig
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.verbs.carried.host_io import CarriedHost
from sdfstream.verbs.carried.thread_io import RoceThread
from tests.unit.verbs.carried.world import DEVICE_PORTS, FAR, NEAR, STRANGER, config, devices, free_port, running, until
from tests.unit.verbs.probing.wire import WireEnd


class Reader:
    """What an agent's loop takes of one host."""

    def __init__(self, thread: RoceThread, host: str) -> None:
        found = thread.host(host)
        assert isinstance(found, CarriedHost)
        self.host, self.rows, self.states = found, list[dict[str, Any]](), dict[tuple[str, int], str]()
        self.told: list[dict[str, Any]] = []

    def read(self) -> None:
        for batch in self.host.rows():
            self.rows += batch.to_pylist()
        for entry in self.host.liveness(complete=False):
            self.told.append(entry)
            self.states[entry["role"], entry["path"]] = entry["state"]

    def answered(self) -> list[dict[str, Any]]:
        self.read()
        return [row for row in self.rows if row["t4_ns"] is not None]

    def all_are(self, role: str, state: str, count: int) -> bool:
        self.read()
        found = [s for (r, _), s in self.states.items() if r == role]
        return found.count(state) >= count


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def wire() -> dict[int, WireEnd]:
    return {}


def test_two_agents_meet_and_probe_and_tell(port: int, wire: dict[int, WireEnd]) -> None:
    far, near = config("h04", port, transports=("udp", "rocev2")), config("h00", port, to="h04")
    with running(far, devices("h04", wire)) as answering, running(near, devices("h00", wire)) as asking:
        here, there = Reader(asking, "h00"), Reader(answering, "h04")
        there.host.know("plan", {NEAR: KnownSender("h00/r0")})
        assert until(lambda: len(here.answered()) > 40)
        assert until(lambda: here.all_are("sender", "alive", 2))
        assert until(lambda: there.all_are("reflector", "alive", 2))
        rows = here.rows
        assert {(r["src"], r["dst"], r["transport"]) for r in rows} == {("h00/r0", "h04/r0", "rocev2")}
        assert {r["path"] for r in rows} == {49153, 49160}
        assert {(r["dscp_sent"], r["size_bytes"], r["ttl_fwd"]) for r in here.answered()} == {(26, 160, 62)}
        assert dict(here.host.devices) == {"h00/r0": "rxa0"}
        every = here.host.liveness(complete=True)
        assert {(e["transport"], e["path"], e["state"]) for e in every} == {
            ("rocev2", 49153, "alive"),
            ("rocev2", 49160, "alive"),
        }
        assert asking.counters.troubles.current(0.0) == answering.counters.troubles.current(0.0) == {}
        assert asking.all_counters()["rocev2.sender.answered"] > 0


def test_a_device_with_ports_of_its_own_gets_as_many_paths_as_asked_for(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"), reflector_allow=("127.0.0.1/32",))
    near = config("h00", port, to="h04")
    with running(far, devices("h04", wire)), running(near, devices("h00", wire, own_ports=True)) as asking:
        here = Reader(asking, "h00")
        assert until(lambda: {r["path"] for r in here.answered()} == set(DEVICE_PORTS[:2]))


def test_who_is_not_known_is_neither_met_nor_answered(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"))
    with (
        running(far, devices("h04", wire)) as answering,
        running(config("h07", port, to="h04"), devices("h07", wire)) as asking,
    ):
        here = Reader(asking, "h07")
        assert until(lambda: answering.all_counters().get("rocev2.meetings.refused.stranger", 0) > 0)
        assert until(lambda: bool(asking.counters.troubles.current(0.0)))
        assert "h07/r0 peers" in asking.counters.troubles.current(0.0)
        here.read()
        assert here.rows == [], "nothing was sent to nobody"
        assert answering.all_counters().get("rocev2.reflector.answered", 0) == 0
        reading = Reader(answering, "h04")
        reading.host.know("plan", {STRANGER: KnownSender("h07/r0")})  # now a plan names it
        assert until(lambda: len(here.answered()) > 5)
        assert until(lambda: not asking.counters.troubles.current(0.0))


def test_a_device_that_goes_is_told_at_once_and_comes_back(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"), reflector_allow=("127.0.0.1/32",))
    machine = devices("h00", wire)
    with running(far, devices("h04", wire)), running(config("h00", port, to="h04"), machine) as asking:
        here = Reader(asking, "h00")
        assert until(lambda: here.all_are("sender", "alive", 2))
        machine.gone.add("rxa0")
        assert until(lambda: here.all_are("sender", "unknown", 2))
        assert "rxa0" in asking.counters.troubles.current(0.0)["h00/r0"]
        assert asking.counters.get("device-away") == 1
        machine.gone.clear()
        assert until(lambda: here.all_are("sender", "alive", 2))
        assert asking.counters.troubles.current(0.0) == {}
        assert asking.counters.get("device-opened") == 2
        assert len({e.address.qpn for e in machine.made}) == len(machine.made), "with other queue pairs"


def test_an_agent_that_begins_anew_is_met_again(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"), reflector_allow=("127.0.0.1/32",))
    with running(config("h00", port, to="h04"), devices("h00", wire)) as asking:
        here = Reader(asking, "h00")
        with running(far, devices("h04", wire)):
            assert until(lambda: here.all_are("sender", "alive", 2))
        assert until(lambda: here.all_are("sender", "silent", 2)), "it is silent, not unknown, while it is away"
        with running(far, devices("h04", wire)):
            assert until(lambda: here.all_are("sender", "alive", 2))


def test_a_port_that_goes_down_is_told_and_its_paths_are_unknown(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"), reflector_allow=("127.0.0.1/32",))
    machine = devices("h00", wire)
    changed = threading.Event()
    with running(far, devices("h04", wire)):
        asking = RoceThread(config("h00", port, to="h04"), machine, survey_s=0.05)  # type: ignore[arg-type]
        asking.start(bool, changed.set)
        here = Reader(asking, "h00")
        assert until(lambda: here.all_are("sender", "alive", 2))
        reflecting = machine.made[0]
        for state, kind, expected in ((1, "PORT_ERR", "unknown"), (4, "PORT_ACTIVE", "alive")):
            changed.clear()
            reflecting.state = state
            reflecting.events.append(kind)
            assert changed.wait(10.0)
            assert until(lambda expected=expected: here.all_are("sender", expected, 2))
        asking.close()


def test_without_a_device_it_says_so_and_goes_on_looking(port: int, wire: dict[int, WireEnd]) -> None:
    machine = devices("h00", wire)
    machine.missing = "pyverbs is not installed (Debian: python3-pyverbs)"
    with running(config("h00", port, to="h04"), machine) as asking:
        assert until(lambda: bool(asking.counters.troubles.current(0.0)))
        said = asking.counters.troubles.current(0.0)
        assert said == {"h00/r0": f"its RoCEv2 sessions do not run: {machine.missing}"}
        machine.missing = ""
        assert until(lambda: not asking.counters.troubles.current(0.0))


def test_a_host_that_may_answer_by_rocev2_and_has_no_device_at_all_says_it_once(
    port: int, wire: dict[int, WireEnd]
) -> None:
    machine = devices("h04", wire)
    machine.missing = "this machine has no RDMA device"
    with running(config("h04", port, transports=("udp", "rocev2")), machine) as answering:
        assert until(lambda: bool(answering.counters.troubles.current(0.0)))
        assert answering.counters.troubles.current(0.0) == {
            "h04 devices": "no NIC of h04 has an RDMA device: this machine has no RDMA device"
        }


def test_planned_sessions_come_and_go(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"), reflector_allow=("127.0.0.1/32",))
    near = config("h00", port, transports=("udp", "rocev2"))
    with running(far, devices("h04", wire)), running(near, devices("h00", wire)) as asking:
        here = Reader(asking, "h00")
        planned = SessionConfig("h00/r0", "h04/r0", FAR, source_ports=(49170,), rate_hz=50.0, transport="rocev2")
        here.host.plan([planned])
        assert until(lambda: here.all_are("sender", "alive", 1))
        here.host.plan([])
        assert until(lambda: here.all_are("sender", "unknown", 1))
        assert [e for e in here.host.liveness(complete=True) if e["role"] == "sender" and e["state"] == "alive"] == []


def test_a_pass_that_fails_ends_no_probing(port: int, wire: dict[int, WireEnd]) -> None:
    far = config("h04", port, transports=("udp", "rocev2"), reflector_allow=("127.0.0.1/32",))
    machine = devices("h00", wire)
    with running(far, devices("h04", wire)), running(config("h00", port, to="h04"), machine) as asking:
        here = Reader(asking, "h00")
        assert until(lambda: here.all_are("sender", "alive", 2))
        probing = machine.made[1]
        take = probing.take
        probing.take = lambda: 1 // 0  # type: ignore[method-assign]
        assert until(lambda: asking.counters.get("failed", "ZeroDivisionError") > 1)
        probing.take = take  # type: ignore[method-assign]
        count = len(here.answered())
        assert until(lambda: len(here.answered()) > count + 5)


def test_the_loops_calls_never_wait_for_a_device(port: int, wire: dict[int, WireEnd]) -> None:
    machine = devices("h00", wire)
    opening = threading.Event()
    go_on = threading.Event()

    def hang(*_: object) -> WireEnd:
        opening.set()
        go_on.wait(5)
        return WireEnd("127.0.0.1", 5, 6, wire)

    machine.open = hang  # type: ignore[method-assign]
    with running(config("h00", port, to="h04"), machine) as asking:
        here = Reader(asking, "h00")
        assert opening.wait(5)
        began_s = time.monotonic()
        here.read()
        here.host.liveness(complete=True)
        here.host.know("plan", {})
        here.host.plan([])
        asking.all_counters()
        assert time.monotonic() - began_s < 0.5
        go_on.set()


def test_it_ends_in_order_while_far_ends_are_being_met(port: int, wire: dict[int, WireEnd]) -> None:
    machine = devices("h00", wire)
    with running(config("h00", port, to="h04"), machine) as asking:
        found = asking.host("h00")
        assert found is not None
        assert until(lambda: bool(found.open))
        asking._askers.close()
        for nic in found.open.values():
            nic.peers.want({}, 0)
            nic.peers.want({FAR: "h04/r0"}, 0)
        assert until(lambda: all(nic.peers._peers[FAR].asking for nic in found.open.values()))
        time.sleep(0.3)
        assert asking._thread.is_alive()
        assert not any("ended" in why for why in asking.counters.troubles.current(0.0).values())
