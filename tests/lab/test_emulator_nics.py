"""The job's sockets on a pair of namespaces: what they send, receive, refuse, and a device that is made anew."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.process_net_io import JobNet
from sdfstream.emulator.rank_job import OutgoingDatagram
from sdfstream.emulator.rank_plan import NicEndpoint
from sdfstream.probes.net.netns_io import inside
from sdfstream.stats import Counters
from tests.fixtures.namespaces import Namespaces, namespaces

__all__ = ["namespaces"]
pytestmark = pytest.mark.lab
RUN = 0xABCD0123
PACKET = wire.ack_packet(wire.Ack(RUN, 1, 0, 0, 0, 0, 0, ()))


@pytest.fixture
def pair(namespaces: Namespaces) -> Iterator[tuple[Namespaces, JobNet]]:
    namespaces.add("a", "b")
    cable(namespaces)
    nics = [
        NicEndpoint("a/e", "e", "10.9.0.0", namespaces.path("a")),
        NicEndpoint("b/e", "e", "10.9.0.1", namespaces.path("b")),
    ]
    net = JobNet(nics, RUN, inside, Counters("job"))
    yield namespaces, net
    net.close()


def cable(namespaces: Namespaces) -> None:
    namespaces.cable("a", "e", "b", "e")
    namespaces.ip("a", "addr add 10.9.0.0/31 dev e")
    namespaces.ip("b", "addr add 10.9.0.1/31 dev e")


def received(net: JobNet, seconds: float = 5.0) -> list[tuple[int, int, int, int, bytes]]:
    """The first datagrams to come."""
    got: list[tuple[int, int, int, int, bytes]] = []
    end = time.monotonic() + seconds
    while not got and time.monotonic() < end:
        net.receive(lambda rank, port, tos, at_ns, data: got.append((rank, port, tos, at_ns, bytes(data))))
        time.sleep(0.001)
    return got


def test_a_packet_crosses_with_any_port_and_its_class_and_the_kernel_stamps_both_ends(
    pair: tuple[Namespaces, JobNet],
) -> None:
    _, net = pair
    stamps_ns: list[int] = []
    for port in (49_152, 50_001, 65_535):
        begin_ns = time.time_ns()
        net.send([OutgoingDatagram(0, 1, port, 26 << 2 | 2, PACKET, stamps_ns.append)])
        [(rank, source, tos, at_ns, data)] = received(net)
        assert (rank, source, tos, data) == (1, port, 26 << 2 | 2, PACKET)
        for _ in range(1000):
            net.receive(lambda *_: None)
            if len(stamps_ns) == 2:
                break
            time.sleep(0.001)
        user_ns, kernel_ns = stamps_ns
        assert begin_ns <= user_ns <= kernel_ns <= at_ns
        stamps_ns.clear()


def test_packets_of_other_jobs_and_strangers_are_ignored_and_no_port_unreachable_is_sent(
    pair: tuple[Namespaces, JobNet],
) -> None:
    namespaces, net = pair
    other = wire.ack_packet(wire.Ack(RUN + 1, 1, 0, 0, 0, 0, 0, ()))
    stranger = inside(namespaces.path("a"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with stranger:
        stranger.connect(("10.9.0.1", wire.PORT))
        for data in (other, b"", b"x" * 200, PACKET):
            stranger.send(data)  # a refusal by ICMP would make the next send fail
            time.sleep(0.02)
        assert [data for *_, data in received(net)] == [PACKET]


def test_a_device_that_is_made_anew_is_used_again(pair: tuple[Namespaces, JobNet]) -> None:
    namespaces, net = pair
    counters = net._counters
    item = OutgoingDatagram(0, 1, 50_000, 0, PACKET, None)
    namespaces.ip("a", "link set e down")
    net.send([item])
    assert counters.total("unsent") == 1
    namespaces.ip("a", "link set e up")
    namespaces.ip("a", "link del e")
    for rank in (0, 1):
        net.send([item._replace(rank=rank, peer=1 - rank)])
    assert counters.get("nic-away") == 2
    net.send([item])
    net.reopen()  # too early: nothing there
    assert counters.get("nic-back") == 0
    cable(namespaces)
    net.reopen()
    assert counters.get("nic-back") == 2
    net.send([item])
    assert [data for *_, data in received(net)] == [PACKET]
