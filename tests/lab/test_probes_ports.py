"""Ports of real veth devices in private namespaces: carrier, administrator, vanishing, returning."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.netns_io import inside
from sdfstream.probes.ports.driver_stats_io import DriverStats
from sdfstream.probes.ports.reader_io import PortReader

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root"),
]
A, B = f"sdfp-{os.getpid()}-a", f"sdfp-{os.getpid()}-b"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


def make_pair() -> None:
    ip("link", "add", "r0", "netns", A, "type", "veth", "peer", "name", "p0", "netns", B)
    ip("-n", A, "link", "set", "r0", "up")
    ip("-n", B, "link", "set", "p0", "up")


@pytest.fixture
def pair() -> Iterator[None]:
    ip("netns", "add", A)
    ip("netns", "add", B)
    try:
        make_pair()
        yield
    finally:
        for name in (A, B):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=10)


def nic(name: str, device: str, space: str | None) -> NicConfig:
    return NicConfig(f"h/{name}", device, "10.0.0.1", netns=f"/run/netns/{space}" if space else None)


def one(ports: PortReader) -> dict[str, Any]:
    batch = ports.read(5)
    assert batch is not None
    (row,) = batch.to_pylist()
    return dict(row)


def until(ports: PortReader, state: str) -> dict[str, Any]:
    """The first row in that state; the carrier follows its cause within the kernel's link watch."""
    ends_at = time.monotonic() + 3.0
    while (row := one(ports))["state"] != state:
        assert time.monotonic() < ends_at, row
        time.sleep(0.01)
    return row


def test_carrier_administrator_and_return(pair: None) -> None:
    ports = PortReader("h", [nic("r0", "r0", A)])
    up = until(ports, "up")
    assert up["speed_mbps"] == 10_000  # what the veth driver says
    assert up["mtu_bytes"] == 1500
    assert up["rx_errors"] == 0

    ip("-n", B, "link", "set", "p0", "down")
    down = until(ports, "down")
    assert down["carrier_changes"] == up["carrier_changes"] + 1
    assert down["link_downed"] == up["link_downed"] + 1

    ip("-n", B, "link", "set", "p0", "up")
    assert until(ports, "up")["carrier_changes"] == up["carrier_changes"] + 2

    ip("-n", A, "link", "set", "r0", "down")
    assert until(ports, "disabled")["mtu_bytes"] == 1500

    ip("-n", A, "link", "del", "r0")
    gone = until(ports, "absent")
    assert gone["carrier_changes"] is None
    make_pair()
    assert until(ports, "up")["rx_packets"] is not None
    ports.close()


def test_a_nic_moved_into_another_namespace_is_absent_not_down(pair: None) -> None:
    ports = PortReader("h", [nic("r0", "r0", A)])
    there = PortReader("h", [nic("r0", "r0", B)])
    until(ports, "up")
    ip("-n", A, "link", "set", "r0", "netns", B)
    assert one(ports)["state"] == "absent"
    ip("-n", B, "link", "set", "r0", "up")
    until(there, "up")
    ip("-n", B, "link", "set", "r0", "netns", A)
    ip("-n", A, "link", "set", "r0", "up")
    until(ports, "up")
    assert one(there)["state"] == "absent"
    ports.close()
    there.close()


def test_a_namespace_that_goes_takes_its_nics_along_and_is_not_kept_alive(pair: None) -> None:
    ports = PortReader("h", [nic("r0", "r0", A)])
    far = PortReader("h", [nic("p0", "p0", B)])
    until(far, "up")
    until(ports, "up")
    ip("netns", "del", A)
    assert one(ports)["state"] == "absent"
    until(far, "absent")  # the peer dies with the namespace once nobody holds it
    ip("netns", "add", A)
    make_pair()
    until(ports, "up")
    ports.close()
    far.close()


def test_the_reading_process_stays_in_its_own_namespace(pair: None) -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    ports = PortReader("h", [nic("r0", "r0", A), nic("lo", "lo", None), nic("none", "r0", None)])
    batch = ports.read(0)
    assert batch is not None
    assert batch.column("state").to_pylist()[1:] == ["up", "absent"]
    assert Path("/proc/thread-self/ns/net").readlink() == before
    ports.close()


def test_counters_count_real_packets(pair: None) -> None:
    ip("-n", A, "addr", "add", "10.9.9.1/24", "dev", "r0")
    ip("-n", B, "addr", "add", "10.9.9.2/24", "dev", "p0")
    ports = PortReader("h", [nic("r0", "r0", A)])
    before = until(ports, "up")
    sender = inside(f"/run/netns/{A}", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with sender:
        for _ in range(3):
            sender.sendto(bytes(100), ("10.9.9.2", 9))
    time.sleep(0.05)
    after = one(ports)
    assert after["tx_packets"] >= before["tx_packets"] + 3
    assert after["tx_bytes"] >= before["tx_bytes"] + 3 * 142
    ports.close()


def test_a_drivers_own_counters_by_ioctl(pair: None) -> None:
    stats = inside(f"/run/netns/{A}", DriverStats)
    names, values = stats.names("r0"), stats.values("r0")
    assert len(names) == len(values)
    peer = subprocess.run(["ip", "-n", B, "-o", "link", "show", "p0"], check=True, capture_output=True, text=True)
    assert values[names.index("peer_ifindex")] == int(peer.stdout.partition(":")[0])
    with pytest.raises(OSError, match="o such device"):
        stats.values("nope")
    with pytest.raises(OSError, match="alternative name"):
        stats.values("a-name-longer-than-fifteen")
    stats.close()


def test_an_alternative_name_names_the_same_device(pair: None) -> None:
    ip("-n", A, "link", "property", "add", "dev", "r0", "altname", "backend-rail-zero-of-host")
    ports = PortReader("h", [nic("r0", "backend-rail-zero-of-host", A)])
    until(ports, "up")
    ports.close()
