"""A wire between endpoints in memory: it makes the headers that a device would put before each message."""

from __future__ import annotations

import ipaddress
import struct
from collections import deque

import numpy as np

from sdfstream.verbs.probing.arrival import HEADER_BYTES
from sdfstream.verbs.probing.completions_io import UdCompletion
from sdfstream.verbs.probing.device_events import PortFacts
from sdfstream.verbs.probing.routes import RoceRoute
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress, UdMessages

OCTETS = 1024


def header_of(src: str, tos: int, ttl: int, dst: str = "10.0.9.1") -> bytes:
    """What stands before a message: for IPv4 20 octets that mean nothing, then the IPv4 header."""
    address = ipaddress.ip_address(src)
    if address.version == 6:
        return struct.pack("!IHBB", 6 << 28 | tos << 20, 0, 17, ttl) + address.packed + bytes(16)
    head = struct.pack("!BBHHHBBH", 0x45, tos, 60, 0, 0x4000, ttl, 17, 0) + address.packed
    head += ipaddress.ip_address(dst).packed
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return b"\x66" * 20 + head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]


class WireEnd:
    """Stands for `UdEndpoint`; `ends` are all ends of the wire by queue pair number."""

    def __init__(self, address: str, qpn: int, qkey: int, ends: dict[int, WireEnd], *, stamps: bool = False) -> None:
        gid = ipaddress.IPv6Address("::ffff:" + address if "." in address else address).exploded
        self.ip, self.address, self.ends, self.device = address, UdAddress(gid, qpn, qkey), ends, f"rx{qpn}"
        self.stamps, self.tos_set, self.lost = stamps, 0, False
        self.source_ports, self.chooses_ports = (49153,), True
        self.wakes, self.wake_fd, self.events_fd, self.closed = False, -1, -1, False
        self.routes: list[tuple[RoceRoute, int]] = []
        self.events: deque[str] = deque()
        self.state = 4
        self._came: list[tuple[int, int, bytes, bytes]] = []
        self._sent: list[tuple[int, int | None]] = []
        self.now_ns = 0
        ends[qpn] = self

    def send(self, token: int, octets: bytes, to: UdAddress, route: RoceRoute, immediate: int) -> bool:
        self.routes.append((route, immediate))
        self._sent.append((token, self.now_ns if self.stamps else None))
        far = self.ends.get(to.qpn)
        if far is not None and far.address.qkey == to.qkey and not self.lost:
            head = header_of(self.ip, route.traffic_class | self.tos_set, route.hop_limit - 2)
            far._came.append((self.address.qpn, immediate, head, octets))
        return True

    def take(self) -> UdMessages:
        came, self._came = self._came, []
        sent, self._sent = self._sent, []
        data = np.zeros((len(came), OCTETS), dtype=np.uint8)
        heads = np.zeros((len(came), HEADER_BYTES), dtype=np.uint8)
        done = []
        for i, (qpn, immediate, head, octets) in enumerate(came):
            data[i, : len(octets)] = np.frombuffer(octets, dtype=np.uint8)
            heads[i] = np.frombuffer(head, dtype=np.uint8)
            at_ns = self.now_ns if self.stamps else None
            done.append(UdCompletion(i, 0, HEADER_BYTES + len(octets), qpn, immediate, at_ns))
        return UdMessages(done, heads, data, sent, [])

    def event(self) -> str:
        return self.events.popleft() if self.events else ""

    def ports(self) -> dict[int, PortFacts]:
        return {1: PortFacts(self.state, self.address.gid)} if self.state else {}

    def wait(self, timeout_s: float) -> None: ...

    def rearm(self) -> None: ...

    def close(self) -> None:
        self.closed = True
        self.ends.pop(self.address.qpn, None)
