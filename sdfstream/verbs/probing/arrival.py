"""The 40 octets that a UD queue pair puts before each received message.

InfiniBand and RoCEv2 over IPv6 put the packet's Global Routing Header or IPv6 header there; RoCEv2 over IPv4 leaves the
first 20 octets undefined and puts the IPv4 header behind them (InfiniBand specification, annex A17, section 17.4.5.2).
Which it is, is decided as libibverbs does: IPv4 where that header's own checksum is right.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.records.units import Bools, Int64s, UInt8s

HEADER_BYTES: Final = 40
_IPV4: Final = slice(20, 40)
_MAPPED: Final = np.array([0] * 10 + [0xFF] * 2, dtype=np.uint8)


class PacketHeaders(NamedTuple):
    """What the headers of n messages say. All arrays are (n,) unless said otherwise."""

    address: UInt8s
    """(n, 16) the packet's source address, IPv4 as ::ffff:a.b.c.d; zeros where it is not known."""
    tos: UInt8s
    """TOS or traffic class octet: DSCP << 2 | ECN, as it arrived."""
    ttl: UInt8s
    """TTL or hop limit as it arrived; 0: not known."""
    known: Bools
    """Where there was a header that can be read."""


def packet_headers(headers: UInt8s) -> PacketHeaders:
    r"""Read the headers (n, 40) of n messages.

    >>> header = np.zeros((1, 40), dtype=np.uint8)
    >>> header[0, 20:] = list(bytes.fromhex("4568002c000040003f111e580a0000010a000901"))
    >>> found = packet_headers(header)
    >>> bytes(found.address[0, 12:]), int(found.tos[0]), int(found.ttl[0])
    (b'\n\x00\x00\x01', 104, 63)
    """
    four = _is_ipv4(headers[:, _IPV4])
    six = ~four & (headers[:, 0] >> 4 == 6)
    known = four | six
    address = np.where(six[:, None], headers[:, 8:24], np.uint8(0))
    address[four, :12] = _MAPPED
    address[four, 12:] = headers[four, 32:36]
    tos = np.where(four, headers[:, 21], (headers[:, 0] << 4) | (headers[:, 1] >> 4))
    ttl = np.where(four, headers[:, 28], headers[:, 7])
    none = np.uint8(0)
    return PacketHeaders(address, np.where(known, tos, none), np.where(known, ttl, none), known)


def _is_ipv4(header: UInt8s) -> Bools:
    """Whether each (20,) is an IPv4 header without options whose checksum is right (RFC 791: the sum is 0xffff)."""
    words = header[:, 0::2].astype(np.int64) << 8 | header[:, 1::2]
    total: Int64s = words.sum(axis=1)
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    result: Bools = (header[:, 0] == 0x45) & (total == 0xFFFF)
    return result
