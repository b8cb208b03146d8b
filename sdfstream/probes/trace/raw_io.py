"""Raw sockets for tracing flows: packets of any five-tuple out, ICMP errors in, one pair of sockets per NIC.

They need CAP_NET_RAW. Without it flows and answers are not traced, which is counted and logged once; nothing else is
touched. The sockets are opened in a thread, like all that enters a namespace (`nics_io`).
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.netns_io import inside
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.trace.packets import FiveTuple, Quote, packet, quote4, quote6
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

_SOL_RAW, _ICMP_FILTER, _ICMP6_FILTER = 255, 1, 1
_TIME_EXCEEDED: Final = (11, 3)
"""Types, ICMP and ICMPv6."""
_MOST: Final = 256
"""ICMP messages read from one socket in one call."""
_LONGEST: Final = 1500


@dataclass(frozen=True, slots=True)
class RawPair:
    """The raw sockets of one NIC."""

    sending: socket.socket
    receiving: socket.socket
    v6: bool

    def close(self) -> None:
        """Close both."""
        self.sending.close()
        self.receiving.close()


Made = Mapping[str, "RawPair | OSError"]
"""NIC id to its sockets, or the error of opening them."""


class RawSockets:
    """The raw sockets of a host's NICs.

    Parameters
    ----------
    nics : NIC id to NicConfig
    counters : Counters
        Gets ``trace-denied``, ``trace-failed`` and ``unsent.trace-…``.
    """

    def __init__(self, nics: Mapping[str, NicConfig], counters: Counters) -> None:
        self._nics = dict(nics)
        self._counters = counters
        self._open: dict[str, RawPair] = {}
        self._denied = False
        self._fresh: set[str] = set()

    def survey(self, there: Callable[[str], bool]) -> Callable[[], Made]:
        """Opens closed sockets of NICs that are `there`, when called, in any thread; `apply` takes the result."""
        wanted = [nic for name, nic in self._nics.items() if name not in self._open and there(name)]
        return lambda: {} if self._denied else {nic.nic: _opened(nic) for nic in wanted}

    def apply(self, made: Made) -> None:
        """Take the sockets that a survey opened."""
        for nic, pair in made.items():
            if isinstance(pair, RawPair):
                self.close(nic)
                self._open[nic] = pair
                self._fresh.add(nic)
            elif pair.errno in (errno.EPERM, errno.EACCES):
                self._counters.add("trace-denied")
                if not self._denied:
                    self._denied = True
                    _log.warning("flows and ways back cannot be traced: that needs the capability CAP_NET_RAW")
            else:
                self._counters.add("trace-failed", errno.errorcode.get(pair.errno or 0, "unknown").lower())

    def close(self, nic: str) -> None:
        """The NIC is away: close its sockets, if they are open."""
        pair = self._open.pop(nic, None)
        if pair is not None:
            pair.close()

    def close_all(self) -> None:
        """Close everything."""
        for nic in list(self._open):
            self.close(nic)

    def send(self, nic: str, flow: FiveTuple, tos: int, ttl: int, token: int) -> None:
        """Send one packet; one that does not go is counted."""
        pair = self._open.get(nic)
        if pair is None or pair.v6 != flow.v6:
            self._counters.add("unsent", "trace-closed")
            return
        destination = _destination(flow)
        try:
            pair.sending.sendto(packet(flow, tos, ttl, token), destination)
        except OSError as error:
            self._counters.add("unsent", f"trace-{errno.errorcode.get(error.errno or 0, 'unknown').lower()}")

    def opened(self) -> set[str]:
        """NICs by which packets can be sent since the last call."""
        fresh, self._fresh = self._fresh, set()
        return fresh

    def is_open(self, nic: str) -> bool:
        """Whether packets can be sent by this NIC."""
        return nic in self._open

    def take(self) -> list[Quote]:
        """Quotes of packets of this host, ours or not, whose TTL expired, since the last call."""
        return [quote for pair in self._open.values() for quote in _received(pair)]


def discard(made: Made) -> None:
    """Close the sockets of a survey that is not applied."""
    for pair in made.values():
        if isinstance(pair, RawPair):
            pair.close()


def _opened(nic: NicConfig) -> RawPair | OSError:
    try:
        return inside(nic.netns, lambda: _open_here(nic))
    except OSError as error:
        return error


def _open_here(nic: NicConfig) -> RawPair:
    v6 = ipaddress.ip_address(nic.address).version == 6
    family = socket.AF_INET6 if v6 else socket.AF_INET
    device = nic.device.encode() + b"\0"
    with contextlib.ExitStack() as stack:
        # IPPROTO_RAW: the IP header is ours (IP_HDRINCL)
        sending = stack.enter_context(socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_RAW))
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
        number = socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP
        receiving = stack.enter_context(socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, number))
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
        if v6:
            blocked = bytearray(b"\xff" * 32)
            blocked[_TIME_EXCEEDED[1] // 8] &= ~(1 << _TIME_EXCEEDED[1] % 8)
            receiving.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, bytes(blocked))
        else:
            receiving.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("@I", ~(1 << _TIME_EXCEEDED[0]) & 0xFFFFFFFF))
        stack.pop_all()
    return RawPair(sending, receiving, v6)


def _destination(flow: FiveTuple) -> tuple[str, int]:
    if flow.v6:
        return socket.inet_ntop(socket.AF_INET6, flow.destination), 0
    return socket.inet_ntop(socket.AF_INET, flow.destination[12:]), 0


def _received(pair: RawPair) -> list[Quote]:
    found = []
    for _ in range(_MOST):
        try:
            message, source = pair.receiving.recvfrom(_LONGEST)
        except OSError:  # no message, or the device went down, which `nics_io` finds
            break
        quote = quote6(message, address_octets(source[0].partition("%")[0])) if pair.v6 else quote4(message)
        if quote is not None:
            found.append(quote)
    return found
