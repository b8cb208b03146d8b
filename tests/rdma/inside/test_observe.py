"""What is seen of a queue pair from outside its process is what the process knows; counters count what happened."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from sdfstream.probes.rdma.command_io import port_statistics
from sdfstream.probes.rdma.devices_io import rdma_ports
from sdfstream.probes.rdma.gids import index_differs, index_fault
from sdfstream.probes.rdma.hw_counters import common_counters
from sdfstream.probes.rdma.observed_qps import statistics
from sdfstream.stats import Counters
from sdfstream.verbs.endpoint_io import ConnectionSettings
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.machine_io import survey
from tests.rdma.inside import fabric
from tests.rdma.inside.pairs import Pair


@pytest.fixture(scope="module")
def pair(devices: tuple[str, ...]) -> Iterator[Pair]:
    made = Pair(Verbs(), "rxa0", "rxb0", ConnectionSettings(fabric.ports_by_path(1)["p0"][0]))
    yield made
    made.close()


def test_devices_are_up_and_source_ports_take_both_paths(devices: tuple[str, ...]) -> None:
    links = json.loads(subprocess.run(["rdma", "-j", "link"], check=True, capture_output=True, text=True).stdout)
    assert {link["ifname"]: link["state"] for link in links} == dict.fromkeys(devices, "ACTIVE")
    assert [len(ports) for ports in fabric.ports_by_path(4).values()] == [4, 4]


def test_queue_pairs_with_their_owner(pair: Pair) -> None:
    shown = survey()
    assert (shown["why_none"], shown["why_no_qps"], shown["refused"]) == ("", "", {})
    own = [qp for qp in shown["qps"] if qp["pid"] == os.getpid()]
    assert {(qp["device"], qp["number"], qp["peer_number"], qp["kind"], qp["state"]) for qp in own} == {
        ("rxa0", pair.a.address.number, pair.b.address.number, "RC", "RTS"),
        ("rxb0", pair.b.address.number, pair.a.address.number, "RC", "RTS"),
    }


def test_addresses_and_the_index_to_use(devices: tuple[str, ...]) -> None:
    ports = {port.device: port for port in rdma_ports("/", Counters("rdma"))}
    assert sorted(ports) == sorted(devices)
    assert {port.state for port in ports.values()} == {"ACTIVE"}
    assert {entry.version for port in ports.values() for entry in port.gids} == {"RoCE v2"}
    assert [e.address for e in ports["rxa0"].gids if e.index == 1] == ["10.0.0.1"]
    assert index_fault(ports["rxa0"].gids, 1) == ""
    assert "link-local" in index_fault(ports["rxa0"].gids, 0)
    assert index_differs({name: port.gids for name, port in ports.items()}) == ""


def test_both_readers_count_the_same_and_retries_are_seen(pair: Pair) -> None:
    def read() -> tuple[dict[str, int], dict[str, int]]:
        refused = Counters("rdma")
        files = next(port.counters for port in rdma_ports("/", refused) if port.device == "rxa0")
        netlink = common_counters(dict(statistics(port_statistics(), refused)["rxa0", 1]), refused)
        assert not refused.as_dict()
        return files, netlink

    before, same = read()
    assert before == same
    fabric.black_hole("p0", on=True)
    pair.post(4)
    time.sleep(0.15)  # two acknowledgement time-outs
    fabric.black_hole("p0", on=False)
    assert [c.status for c in pair.wait(4)] == [0] * 4
    after, same = read()
    assert after == same
    assert after["retries"] > before["retries"]
    assert after["retries_exhausted"] == before["retries_exhausted"]
