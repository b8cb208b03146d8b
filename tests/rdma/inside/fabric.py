"""Soft-RoCE devices with two equal-cost paths between the first pair, and a second, direct pair.

::

    a0 ── r1 ══ two paths ══ r2 ── b0        10.0.0.1, 10.0.9.1
    a1 ───────────────────────── b1          10.1.0.1, 10.1.0.2

Soft-RoCE of Linux 6.1 receives in the initial network namespace only, so all four devices are there, and rules by
destination keep their packets from taking the shortcut inside the kernel. The routers have namespaces of their own.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

ADDRESSES = {"a0": "10.0.0.1", "b0": "10.0.9.1", "a1": "10.1.0.1", "b1": "10.1.0.2"}
PATHS = ("p0", "p1")
"""Interfaces of r1, one for each of the two paths."""

_MAIN = """
link add a0 mtu 4200 address 02:00:00:00:00:a0 type veth peer name e1 netns r1 mtu 4200 address 02:00:00:00:01:a0
link add b0 mtu 4200 address 02:00:00:00:00:b0 type veth peer name e2 netns r2 mtu 4200 address 02:00:00:00:02:b0
link add a1 mtu 4200 address 02:00:00:00:00:a1 type veth peer name b1 mtu 4200 address 02:00:00:00:00:b1
address add 10.0.0.1/24 dev a0
address add 10.0.9.1/24 dev b0
address add 10.1.0.1/24 dev a1
address add 10.1.0.2/24 dev b1
rule add pref 10 iif a0 lookup local
rule add pref 10 iif b0 lookup local
rule add pref 10 iif a1 lookup local
rule add pref 10 iif b1 lookup local
rule add pref 20 to 10.0.9.1 lookup 101
rule add pref 20 to 10.0.0.1 lookup 102
rule add pref 20 to 10.1.0.2 lookup 103
rule add pref 20 to 10.1.0.1 lookup 104
rule add pref 100 lookup local
rule del pref 0
"""
_UP = """
link set {a} up
link set {b} up
neigh replace {near} lladdr {near_mac} dev {a} nud permanent
neigh replace {far} lladdr {far_mac} dev {b} nud permanent
route replace {to} {by_a} dev {a} src {own} table {table}
route replace {own} {by_b} dev {b} src {to} table {back}
"""
_ROUTER = """
address add {edge} dev {port}
link set {port} up
neigh replace {host} lladdr {mac} dev {port} nud permanent
"""
_CABLE = """
link add p{n} mtu 4200 type veth peer name q{n} netns r2 mtu 4200
"""
_SYSCTL = {
    "accept_local": "1",
    "rp_filter": "0",
    "arp_ignore": "1",
    "arp_announce": "2",
}


def build() -> None:
    """Make the fabric and its devices rxa0, rxb0, rxa1, rxb1."""
    for where in ("all", "default"):
        for name, value in _SYSCTL.items():
            Path(f"/proc/sys/net/ipv4/conf/{where}/{name}").write_text(value)
    for router in ("r1", "r2"):
        ip("netns", "add", router)
        no_ipv6 = ["net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"]
        subprocess.run(["ip", "netns", "exec", router, "sysctl", "-qw", *no_ipv6], check=True)
    ip_batch(_MAIN)
    up()
    cables = "".join(_CABLE.format(n=n) for n in (0, 1))
    here = {"edge": "10.0.0.254/24", "port": "e1", "host": "10.0.0.1", "mac": "02:00:00:00:00:a0"}
    there = {"edge": "10.0.9.254/24", "port": "e2", "host": "10.0.9.1", "mac": "02:00:00:00:00:b0"}
    ip_batch(cables + _ROUTER.format(**here) + _between("p", 1), "r1")
    ip_batch(_ROUTER.format(**there) + _between("q", 2), "r2")
    ip_batch("route add 10.0.9.0/24 nexthop via 10.2.0.2 dev p0 nexthop via 10.2.1.2 dev p1\n", "r1")
    ip_batch("route add 10.0.0.0/24 nexthop via 10.2.0.1 dev q0 nexthop via 10.2.1.1 dev q1\n", "r2")
    for router in ("r1", "r2"):
        # by all five fields: the policy for ports alone takes a hash that the sender has written into the packet
        settings = ["ip_forward=1", "fib_multipath_hash_policy=3", "fib_multipath_hash_fields=0x37"]
        # a trace names the cable it came in by, and none of its answers is withheld
        settings += ["icmp_errors_use_inbound_ifaddr=1", "icmp_ratelimit=0", "icmp_ratemask=0"]
        command = ["ip", "netns", "exec", router, "sysctl", "-qw", *(f"net.ipv4.{one}" for one in settings)]
        subprocess.run(command, check=True)
    for name in ADDRESSES:
        subprocess.run(["rdma", "link", "add", f"rx{name}", "type", "rxe", "netdev", name], check=True)


def up() -> None:
    """Links of all hosts up, with neighbours and routes, which a link that goes down loses."""
    ip_batch(
        _UP.format(
            a="a0", b="b0", own="10.0.0.1", to="10.0.9.1", table=101, back=102, near="10.0.0.254", far="10.0.9.254",
            by_a="via 10.0.0.254", by_b="via 10.0.9.254",
            near_mac="02:00:00:00:01:a0", far_mac="02:00:00:00:02:b0",
        )
        + _UP.format(
            a="a1", b="b1", own="10.1.0.1", to="10.1.0.2", table=103, back=104, near="10.1.0.2", far="10.1.0.1",
            by_a="", by_b="",
            near_mac="02:00:00:00:00:b1", far_mac="02:00:00:00:00:a1",
        )
    )  # fmt: skip


def black_hole(path: str, *, on: bool) -> None:
    """Drop everything that r1 sends by `path`, or no more."""
    _tc("r1", path, "loss 100%" if on else None)


def lose_answers(*, on: bool) -> None:
    """Drop everything from b0 to a0, or no more: what is sent arrives, and nobody learns it."""
    for path in ("q0", "q1"):
        _tc("r2", path, "loss 100%" if on else None)


def drop_roce(*, on: bool) -> None:
    """Have r1 drop the RoCEv2 packets that come from a0, and let all others pass, or no more."""
    if not on:
        subprocess.run(["tc", "-n", "r1", "qdisc", "del", "dev", "e1", "ingress"], check=True)
        return
    subprocess.run(["tc", "-n", "r1", "qdisc", "add", "dev", "e1", "ingress"], check=True)
    match = ["flower", "ip_proto", "udp", "dst_port", "4791", "action", "drop"]
    subprocess.run(["tc", "-n", "r1", "filter", "add", "dev", "e1", "ingress", "protocol", "ip", *match], check=True)


def lose(path: str, percent: float) -> None:
    """Drop a share of what r1 sends by `path`; `black_hole` off ends that too."""
    _tc("r1", path, f"loss {percent}%")


def narrow(path: str, *, on: bool) -> None:
    """Have r1 send by `path` at 2 Mbit/s only, with a queue of a quarter second that marks by RED, or no more."""
    where = ["tc", "-n", "r1", "qdisc"]
    if not on:
        subprocess.run([*where, "del", "dev", path, "root"], check=True)
        return
    rate = ["tbf", "rate", "2mbit", "burst", "6000", "limit", "60000"]
    marks = [
        "red",
        "limit",
        "60000",
        "min",
        "8000",
        "max",
        "24000",
        "avpkt",
        "1000",
        "burst",
        "12",
        "bandwidth",
        "2mbit",
    ]
    subprocess.run([*where, "add", "dev", path, "root", "handle", "1:", *rate], check=True)
    subprocess.run([*where, "add", "dev", path, "parent", "1:1", "handle", "10:", *marks, "ecn"], check=True)


def unplug(*, on: bool) -> None:
    """Take the carrier from a0 at its switch's end, or give it back with what the switch knew of it."""
    if on:
        ip("-n", "r1", "link", "set", "e1", "down")
        return
    ip_batch("link set e1 up\nneigh replace 10.0.0.1 lladdr 02:00:00:00:00:a0 dev e1 nud permanent\n", "r1")


def declared() -> dict[str, Any]:
    """The fabric's cabling, as an operator would declare it: data of ``sdf.state.topology.declared.v1``."""
    cables = [("h00--r1", "h00/r0", ADDRESSES["a0"], "r1", "10.0.0.254")]
    cables += [(f"r1--r2.{n}", "r1", f"10.2.{n}.1", "r2", f"10.2.{n}.2") for n in (0, 1)]
    cables += [("h04--r2", "h04/r0", ADDRESSES["b0"], "r2", "10.0.9.254")]
    nodes = {"h00": "host", "h04": "host", "r1": "leaf", "r2": "leaf"}
    return {
        "nodes": [{"id": node, "kind": kind} for node, kind in nodes.items()],
        "links": [
            {"id": name, "a": {"node": a, "address": near}, "b": {"node": b, "address": far}, "speed_mbps": 10_000}
            for name, a, near, b, far in cables
        ],
        "nics": [
            {
                "id": f"{host}/r0",
                "host": host,
                "address": ADDRESSES[device],
                "link": link,
                "rail": 0,
                "plane": "backend",
            }
            for host, device, link in (("h00", "a0", "h00--r1"), ("h04", "b0", "h04--r2"))
        ],
    }


def delay(path: str, ms: float) -> None:
    """Delay what r1 sends by `path`; `black_hole` off ends that too."""
    _tc("r1", path, f"delay {ms}ms")


def sent(path: str) -> int:
    """Packets that r1 has sent by `path`."""
    shown = json.loads(ip("-n", "r1", "-j", "-s", "link", "show", path))
    return int(shown[0]["stats64"]["tx"]["packets"])


def predicted(source_port: int, to: int = 4791) -> str:
    """The path that r1's routing takes for a flow from a0 to b0 by these UDP ports; RoCEv2's unless said otherwise."""
    flow = ["10.0.9.1", "from", "10.0.0.1", "iif", "e1", "ipproto", "udp", "sport", str(source_port), "dport", str(to)]
    return str(json.loads(ip("-n", "r1", "-j", "route", "get", *flow))[0]["dev"])


def ports_by_path(most: int = 8) -> dict[str, list[int]]:
    """Some source ports of RoCEv2 that take each path."""
    found: dict[str, list[int]] = {path: [] for path in PATHS}
    for port in range(0xC001, 0xC100):
        found[predicted(port)].append(port)
        if min(map(len, found.values())) >= most:
            break
    return {path: ports[:most] for path, ports in found.items()}


def ip(*arguments: str) -> str:
    """What ``ip`` prints."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def ip_batch(commands: str, namespace: str | None = None) -> None:
    """Many ``ip`` commands in one process: a fork takes 34 ms in emulation."""
    where = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *where, "-batch", "-"], check=True, input=commands, text=True)


def _between(port: str, own: int) -> str:
    """One router's ends of the two paths; neighbours are fixed, so that nothing but RoCE is counted there."""
    other, near, far = (2, "a", "b") if own == 1 else (1, "b", "a")
    return "".join(
        f"address add 10.2.{n}.{own}/24 dev {port}{n}\nlink set {port}{n} address 02:00:00:00:0{n}:0{near} up\n"
        f"neigh replace 10.2.{n}.{other} lladdr 02:00:00:00:0{n}:0{far} dev {port}{n} nud permanent\n"
        for n in (0, 1)
    )


def _tc(namespace: str, device: str, netem: str | None) -> None:
    act = ["replace", "dev", device, "root", "netem", *netem.split()] if netem else ["del", "dev", device, "root"]
    subprocess.run(["tc", "-n", namespace, "qdisc", *act], check=netem is not None, stderr=subprocess.DEVNULL)
