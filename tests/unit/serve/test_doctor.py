"""What is said of a host: from facts to lines, and of this one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sdfstream.cli import main
from sdfstream.serve.doctor import HostFacts, checks

GOOD = HostFacts(
    nic_stamps={"eth0": 0x5F},
    stamped=True,
    buffer_bytes=4 << 20,
    files=65_536,
    capabilities=(1 << 41) - 1,
    rtprio=99,
    engine="",
    rdma="",
    namespaces=True,
    clocksource="tsc",
)
NOTHING = HostFacts({}, None, None, None, None, None, None, None, None, None)


def states(facts: HostFacts) -> dict[str, str]:
    return {check.name: check.state for check in checks(facts)}


def test_a_good_host_has_nothing_to_do() -> None:
    assert set(states(GOOD).values()) == {"good"}
    assert [check.do for check in checks(GOOD) if check.do] == []


def test_what_could_not_be_found_out_is_unknown_and_never_good() -> None:
    assert set(states(NOTHING).values()) == {"unknown"}
    assert states(NOTHING).keys() - states(GOOD).keys() == {"NIC stamps"}, "no check is left out in silence"


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        ({"stamped": False}, "kernel stamps", "missing"),
        ({"nic_stamps": {"eth0": 0x08}}, "NIC eth0", "limited"),
        ({"nic_stamps": {"eth0": 0x1A}}, "NIC eth0", "good"),
        ({"nic_stamps": {"eth0": 0}}, "NIC eth0", "unknown"),
        ({"buffer_bytes": 212_992}, "socket buffers", "limited"),
        ({"files": 1024}, "open files", "limited"),
        ({"capabilities": 0}, "CAP_NET_ADMIN", "limited"),
        ({"capabilities": 0, "rtprio": 0}, "real-time priority", "limited"),
        ({"engine": "no compiler"}, "packet engine", "limited"),
        ({"rdma": "no device"}, "RDMA", "limited"),
        ({"namespaces": False}, "namespaces", "limited"),
        ({"clocksource": "hpet"}, "clock source", "limited"),
    ],
)
def test_each_lack_is_named_with_what_to_do(change: dict[str, object], name: str, state: str) -> None:
    found = {check.name: check for check in checks(replace(GOOD, **change))}
    assert found[name].state == state
    assert bool(found[name].do) == (state != "good"), "a line that is not good says what to do"
    others = {
        n: c.state for n, c in found.items() if n != name and not ("capabilities" in change and n.startswith("CAP"))
    }
    assert set(others.values()) == {"good"}, "nothing else is blamed"


def test_this_host_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (1 if said["missing"] else 0)
    found = {check["name"]: check for check in said["checks"]}
    assert found["kernel stamps"]["state"] == "good", "a packet was sent over loopback, and came with a stamp"
    assert {"socket buffers", "open files", "CAP_NET_RAW", "RDMA", "namespaces", "clock source"} <= found.keys()
