"""Every packet on its own rail: two NICs in one subnet, /31s, strict reverse-path filter, policy rules, IPv6."""

from __future__ import annotations

import socket

import pytest

from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.netns_io import inside
from sdfstream.probes.net.socket_table_io import SocketTable
from sdfstream.probes.stamp.datagrams import SENT_TTL
from tests.fixtures.datagrams import open_table, to_send, wait, warm_up
from tests.fixtures.namespaces import Namespaces, namespaces

__all__ = ["namespaces"]
pytestmark = pytest.mark.lab
PORT = 8620


def one_subnet(net: Namespaces) -> None:
    """Hosts a and b with two NICs each on one switch, all in 10.9.0.0/24."""
    net.add("a", "b", "s")
    net.ip("s", "link add sw type bridge", "link set sw up")
    for host, number in (("a", 1), ("b", 11)):
        net.sysctl(host, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1")
        # each NIC answers ARP for its own address only, as hosts with several NICs in one subnet must
        net.sysctl(host, "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2")
        for rail in (0, 1):
            net.cable(host, f"r{rail}", "s", f"{host}{rail}")
            net.ip("s", f"link set {host}{rail} master sw")
            net.ip(host, f"addr add 10.9.0.{number + rail}/24 dev r{rail}")


def rules(net: Namespaces) -> None:
    """What a packet is sent by follows from its source address."""
    for host, number in (("a", 1), ("b", 11)):
        for rail in (0, 1):
            table = 100 + rail
            net.ip(host, f"route add 10.9.0.0/24 dev r{rail} table {table}")
            net.ip(host, f"rule add from 10.9.0.{number + rail} lookup {table}")


def tables(net: Namespaces, a: list[str], b: list[str]) -> tuple[SocketTable, SocketTable]:
    """A table per host, one slot per rail, all on one port."""
    made = []
    for host, addresses in (("a", a), ("b", b)):
        nics = [NicConfig(f"{host}/r{i}", f"r{i}", address, net.path(host)) for i, address in enumerate(addresses)]
        made.append(open_table(*((nic, PORT) for nic in nics)))
    return made[0], made[1]


def check_rails(net: Namespaces, sender: SocketTable, far: SocketTable, a: list[str], b: list[str]) -> None:
    """Probes and answers of each rail pass that rail and no other, at both ends."""
    warm_up([sender, far], [(rail, b[rail], PORT) for rail in (0, 1)])
    for rail in (0, 1):
        before = {(h, r, w): net.counter(h, f"r{r}", w) for h in "ab" for r in (0, 1) for w in ("tx_packets",)}
        assert len(sender.send(to_send([(rail, b[rail], PORT, 0)] * 20))) == 0
        received = wait(far.receive)
        assert received.socket.tolist() == [rail] * 20
        answers = to_send([(rail, a[rail], PORT, 0)] * 20)
        assert len(far.send(answers)) == 0
        back = wait(sender.receive)
        assert back.socket.tolist() == [rail] * 20
        sent = {k: net.counter(k[0], f"r{k[1]}", k[2]) - n for k, n in before.items()}
        assert min(sent["a", rail, "tx_packets"], sent["b", rail, "tx_packets"]) >= 20
        assert max(sent["a", 1 - rail, "tx_packets"], sent["b", 1 - rail, "tx_packets"]) < 10
        while far.read_tx_stamps() is not None or sender.read_tx_stamps() is not None:
            pass
    assert sender.counters.total("refused") == far.counters.total("refused") == 0


def test_two_nics_in_one_subnet_with_policy_rules_and_strict_filter(namespaces: Namespaces) -> None:
    one_subnet(namespaces)
    rules(namespaces)
    a, b = ["10.9.0.1", "10.9.0.2"], ["10.9.0.11", "10.9.0.12"]
    sender, far = tables(namespaces, a, b)
    check_rails(namespaces, sender, far, a, b)
    sender.close_all()
    far.close_all()


def test_a_packet_for_another_nic_of_ours_is_refused_and_counted(namespaces: Namespaces) -> None:
    one_subnet(namespaces)
    sender, far = tables(namespaces, ["10.9.0.1", "10.9.0.2"], ["10.9.0.11", "10.9.0.12"])
    # mis-cabled or mis-learnt: what is meant for rail 1 of b is delivered to its rail 0
    namespaces.ip("a", f"neigh replace 10.9.0.12 lladdr {namespaces.mac('b', 'r0')} dev r0")
    foreign = inside(namespaces.path("a"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with foreign:
        foreign.bind(("10.9.0.1", 0))
        foreign.sendto(b"stray", ("10.9.0.12", PORT))
        wait(lambda: far.receive() or far.counters.get("refused", "wrong-rail") or None)
        assert far.counters.as_dict() == {"io.refused.wrong-rail": 1}
        # the rows around a stray are kept
        foreign.sendto(b"stray", ("10.9.0.12", PORT))
        foreign.sendto(b"right", ("10.9.0.11", PORT))
        received = wait(far.receive)
        assert bytes(received.data[0, :5]) == b"right"
        assert received.socket.tolist() == [0]
    assert far.counters.as_dict() == {"io.refused.wrong-rail": 2}
    sender.close_all()
    far.close_all()


def test_broadcasts_are_not_for_us(namespaces: Namespaces) -> None:
    one_subnet(namespaces)
    sender, far = tables(namespaces, ["10.9.0.1", "10.9.0.2"], ["10.9.0.11", "10.9.0.12"])
    foreign = inside(namespaces.path("a"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        foreign.bind(("10.9.0.1", 0))
        foreign.sendto(b"all", ("10.9.0.255", PORT))
        wait(lambda: far.receive() or far.counters.get("refused", "wrong-address") or None)
    assert far.counters.total("refused") == far.counters.get("refused", "wrong-address") >= 1
    sender.close_all()
    far.close_all()


@pytest.mark.parametrize("v6", [False, True])
def test_point_to_point_links_through_a_leaf(namespaces: Namespaces, v6: bool) -> None:
    """/31s (/127s), each rail behind a leaf of its own; default routes by rail 0 alone, policy rules for rail 1."""
    net = namespaces
    net.add("a", "b", "l0", "l1")
    addresses: dict[str, list[str]] = {"a": [], "b": []}
    for rail in (0, 1):
        leaf = f"l{rail}"
        net.sysctl(leaf, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for number, host in enumerate("ab"):
            near, far = (f"fd00:{rail}:{number}::{i}" if v6 else f"10.8.{rail}.{2 * number + i}" for i in (1, 0))
            bits = 127 if v6 else 31
            net.sysctl(host, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1")
            net.cable(host, f"r{rail}", leaf, f"to-{host}")
            net.ip(host, f"addr add {near}/{bits} dev r{rail}")
            net.ip(leaf, f"addr add {far}/{bits} dev to-{host}")
            family = "-6 " if v6 else ""
            if rail == 0:
                net.ip(host, f"{family}route add default via {far}")
            net.ip(host, f"{family}route add default via {far} dev r{rail} table {100 + rail}")
            net.ip(host, f"{family}rule add from {near} lookup {100 + rail}")
            addresses[host].append(near)
    sender, far_table = tables(net, addresses["a"], addresses["b"])
    check_rails(net, sender, far_table, addresses["a"], addresses["b"])
    sender.send(to_send([(1, addresses["b"][1], PORT, 0xB8)]))
    received = wait(far_table.receive)
    assert received.ttl.tolist() == [SENT_TTL - 1]
    assert received.tos.tolist() == [0xB8]
    sender.close_all()
    far_table.close_all()
