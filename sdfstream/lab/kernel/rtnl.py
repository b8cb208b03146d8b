"""rtnetlink requests of the lab: links, addresses, neighbours, nexthops, routes (linux/rtnetlink.h, if_link.h)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from ipaddress import ip_address

from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.plan import Port
from sdfstream.probes.net.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    address,
    attribute,
    attributes,
    nested,
    text,
    u32,
)

RTM_NEWLINK, RTM_GETLINK, RTM_SETLINK = 16, 18, 19
RTM_NEWADDR = 20
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH = 28
RTM_NEWNEXTHOP = 104
IFF_UP = 1
_IFINFO = struct.Struct("=BxHiII")
_ROUTE = struct.Struct("=8BI")
_STATS64 = struct.Struct("=4Q")
_REPLACE = NLM_F_CREATE | NLM_F_REPLACE
_GONE = frozenset({errno.ESRCH, errno.ENOENT})
_UNROUTABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENODEV, errno.EINVAL, errno.ENONET})


def family(ip: str) -> int:
    """AF_INET or AF_INET6 of an address."""
    return 2 if ip_address(ip).version == 4 else 10


def _port(port: Port, mtu_bytes: int, no_offload: bool) -> bytes:
    attrs = [text(3, port.device), attribute(1, port.mac), u32(4, mtu_bytes), u32(31, 1), u32(32, 1)]
    if no_offload:
        # One packet per frame: otherwise TCP moves 64 kB through the fabric as one.
        attrs += [u32(40, 1), u32(41, mtu_bytes + 14)]
    return b"".join(attrs)


def veth(own: Port, peer: Port, peer_netns_fd: int, mtu_bytes: int, *, peer_no_offload: bool) -> KernelRequest:
    """A veth pair: `own` here and up, `peer` in the namespace behind `peer_netns_fd` and down.

    The peer cannot be created up: the kernel opens it before the two are joined (ENOTCONN).
    """
    up_own = _IFINFO.pack(0, 0, own.ifindex, IFF_UP, IFF_UP)
    far = attribute(
        1 | 0x8000,
        _IFINFO.pack(0, 0, peer.ifindex, 0, 0) + _port(peer, mtu_bytes, peer_no_offload) + u32(28, peer_netns_fd),
    )
    info = nested(18, text(1, "veth"), nested(2, far))
    body = up_own + _port(own, mtu_bytes, False) + info
    return KernelRequest(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body, f"create cable {own.node}:{own.device}")


def link_up(ifindex: int, up: bool, what: str = "") -> KernelRequest:
    """Administrator's up or down of an interface."""
    body = _IFINFO.pack(0, 0, ifindex, IFF_UP if up else 0, IFF_UP)
    return KernelRequest(RTM_NEWLINK, 0, body, f"set interface {what or ifindex} {'up' if up else 'down'}")


def set_mtu(ifindex: int, mtu_bytes: int, what: str = "") -> KernelRequest:
    """The largest IP packet of an interface."""
    body = _IFINFO.pack(0, 0, ifindex, 0, 0) + u32(4, mtu_bytes)
    return KernelRequest(RTM_NEWLINK, 0, body, f"set the MTU of interface {what or ifindex} to {mtu_bytes}")


def move_link(ifindex: int, netns_fd: int, what: str) -> KernelRequest:
    """Move an interface into another namespace; its cable stays plugged in."""
    return KernelRequest(
        RTM_NEWLINK, 0, _IFINFO.pack(0, 0, ifindex, 0, 0) + u32(28, netns_fd), f"move interface {what}"
    )


def get_link(ifindex: int) -> KernelRequest:
    """State and counters of one interface."""
    return KernelRequest(RTM_GETLINK, 0, _IFINFO.pack(0, 0, ifindex, 0, 0), f"read interface {ifindex}")


def link_counters(body: bytes) -> tuple[int, int, int, int]:
    """(rx packets, tx packets, rx bytes, tx bytes) of a reply to `get_link`."""
    rx, tx, rx_bytes, tx_bytes = _STATS64.unpack_from(attributes(body[16:])[23])
    return rx, tx, rx_bytes, tx_bytes


def is_operational(body: bytes) -> bool:
    """Whether the interface of a reply to `get_link` has its carrier, and the kernel has drawn the consequences."""
    return attributes(body[16:])[16] == b"\x06"


def new_address(port: Port, bits: int) -> KernelRequest:
    """The address of a port, on-link `bits`; usable at once (no duplicate detection)."""
    ip = address(2, port.address) + address(1, port.address)
    body = struct.pack("=4BI", family(port.address), bits, 0, 0, port.ifindex) + ip + u32(8, 0x02)
    return KernelRequest(RTM_NEWADDR, _REPLACE, body, f"address {port.address} on {port.node}:{port.device}")


def new_neighbour(port: Port, far: Port) -> KernelRequest:
    """A permanent neighbour: no ARP on the first packet or after a flap."""
    body = struct.pack("=BxxxiHBB", family(far.address), port.ifindex, 0x80, 0, 0)
    body += address(1, far.address) + attribute(2, far.mac)
    return KernelRequest(RTM_NEWNEIGH, _REPLACE, body, f"neighbour {far.address} on {port.node}:{port.device}")


def new_nexthop(nexthop_id: int, gateway: str, ifindex: int) -> KernelRequest:
    """A nexthop object; the kernel deletes it by itself when the carrier goes."""
    body = struct.pack("=4BI", family(gateway), 0, 4, 0, 0) + u32(1, nexthop_id) + u32(5, ifindex)
    return KernelRequest(RTM_NEWNEXTHOP, _REPLACE, body + address(6, gateway), f"nexthop {nexthop_id} via {gateway}")


def new_group(group_id: int, members: Sequence[int]) -> KernelRequest:
    """A nexthop group with equal weights."""
    packed = b"".join(struct.pack("=IBBH", member, 0, 0, 0) for member in members)
    body = struct.pack("=4BI", 0, 0, 4, 0, 0) + u32(1, group_id) + attribute(2, packed)
    return KernelRequest(RTM_NEWNEXTHOP, _REPLACE, body, f"nexthop group {group_id} of {list(members)}")


def new_route(prefix: str, bits: int, gateway: str, ifindex: int, metric: int = 0) -> KernelRequest:
    """A route by one gateway; metric 0 is the kernel's own."""
    body = _ROUTE.pack(family(prefix), bits, 0, 0, 254, 4, 0, 1, 0) + address(1, prefix)
    body += address(5, gateway) + u32(4, ifindex) + _metric(metric)
    return KernelRequest(RTM_NEWROUTE, _REPLACE, body, f"route {prefix}/{bits} via {gateway}")


def new_group_route(prefix: str, bits: int, group_id: int) -> KernelRequest:
    """A route by a nexthop group."""
    body = _ROUTE.pack(family(prefix), bits, 0, 0, 254, 4, 0, 1, 0) + address(1, prefix) + u32(30, group_id)
    return KernelRequest(RTM_NEWROUTE, _REPLACE, body, f"route {prefix}/{bits} by nexthop group {group_id}")


def delete_route(prefix: str, bits: int, metric: int = 0) -> KernelRequest:
    """Take a route away; fine when it is gone already."""
    body = _ROUTE.pack(family(prefix), bits, 0, 0, 254, 0, 255, 0, 0) + address(1, prefix) + _metric(metric)
    return KernelRequest(RTM_DELROUTE, 0, body, f"delete route {prefix}/{bits}", tolerate=_GONE)


def ask_route(
    src: str, dst: str, in_ifindex: int, protocol: int, source_port: int, dest_port: int, tos: int = 0
) -> KernelRequest:
    """The egress that a router chooses for this very packet (`ip route get … iif … ipproto … sport … dport …`)."""
    ip_family = family(dst)
    bits = 32 if ip_family == 2 else 128
    body = _ROUTE.pack(ip_family, bits, bits, tos, 0, 0, 0, 0, 0) + address(1, dst) + address(2, src)
    body += u32(3, in_ifindex) + attribute(27, bytes([protocol]))
    body += attribute(28, source_port.to_bytes(2, "big")) + attribute(29, dest_port.to_bytes(2, "big"))
    return KernelRequest(RTM_GETROUTE, 0, body, f"route of {src} to {dst}", tolerate=_UNROUTABLE)


def _metric(metric: int) -> bytes:
    return u32(6, metric) if metric else b""


def out_ifindex(body: bytes) -> int:
    """The outgoing interface of a reply to `ask_route`; 0 when the packet goes nowhere."""
    oif = attributes(body[12:]).get(4)
    return int.from_bytes(oif, "little") if oif else 0
