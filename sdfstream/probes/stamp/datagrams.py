"""Batches of datagrams as the engines see them: what arrived, what to send, when it was sent.

The engines (`sender`, `reflector`) are sans-IO and meet the sockets (`net.socket_table_io`) only in these three shapes.
All times here are readings of the host's system clock (the engines apply a virtual clock where one is set).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.errors import ConfigError
from sdfstream.records.units import Int32s, Int64s, UInt8s

LONGEST_BYTES: Final = 9_216
"""Of an IP packet that every agent receives whole: the MTU that switches call jumbo. A loopback device's is larger."""
LONGEST_PAYLOAD: Final = LONGEST_BYTES - 28
"""Octets behind IPv4 and UDP."""
SENT_TTL: Final = 255
"""TTL or hop limit of everything we send (as RFC 5357 section 4.1.2), so 255 − TTL on arrival counts routers."""

UInt16s = npt.NDArray[np.uint16]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
_MIX = (np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xC2B2_AE3D_27D4_EB4F), np.uint64(0x1656_67B1_9E37_79F9))


@dataclass(slots=True)
class Received:
    """n datagrams that arrived. The arrays may be views of the shell's buffers: use them before the next drain."""

    data: UInt8s
    """(n, width) UDP payload; bytes beyond `length` are stale."""
    length: Int32s
    """(n,) payload length on the wire; more than width means the rest was cut off (refuse the row)."""
    socket: Int32s
    """(n,) index of the receiving socket in the shell's table."""
    address: UInt8s
    """(n, 16) source address, IPv4 as ::ffff:a.b.c.d."""
    port: UInt16s
    """(n,) source port."""
    at_ns: Int64s
    """(n,) when it arrived, ABSENT_NS where there is no stamp."""
    kind: UInt8s
    """(n,) StampKind of `at_ns`."""
    user_at_ns: int
    """When user space took the batch."""
    tos: UInt8s
    """(n,) the TOS or traffic class octet: DSCP << 2 | ECN."""
    ttl: UInt8s
    """(n,) TTL or hop limit on arrival; 0 when not known."""


@dataclass(slots=True)
class ToSend:
    """n datagrams to send, sorted by `socket`."""

    data: UInt8s
    """(n, width) UDP payload."""
    length: Int32s
    """(n,) payload length."""
    socket: Int32s
    """(n,) index of the sending socket in the shell's table."""
    address: UInt8s
    """(n, 16) destination address, IPv4 as ::ffff:a.b.c.d."""
    port: UInt16s
    """(n,) destination port."""
    tos: UInt8s
    """(n,) TOS or traffic class octet to send with."""
    token: Int64s
    """(n,) the engine's own name for the datagram; comes back in `TxStamps`."""


@dataclass(slots=True)
class TxStamps:
    """When n datagrams were sent, by TX stamps; those without a stamp are absent or have kind USER."""

    token: Int64s
    """(n,) the token of the datagram."""
    at_ns: Int64s
    """(n,) TX stamp."""
    kind: UInt8s
    """(n,) StampKind."""
    user_at_ns: Int64s
    """(n,) when user space handed it to the kernel."""


def address_octets(address: str) -> bytes:
    """16 octets of an IP address, IPv4 as ::ffff:a.b.c.d.

    Raises
    ------
    ConfigError
        Not an IP address.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError as e:
        raise ConfigError(f"{address!r} is not an IP address") from e
    return parsed.packed if parsed.version == 6 else b"\0" * 10 + b"\xff\xff" + parsed.packed


def is_ipv4(address: str) -> bool:
    """Whether the address is IPv4 (or IPv4 mapped into IPv6)."""
    return address_octets(address)[:12] == b"\0" * 10 + b"\xff\xff"


def address_keys(words: UInt64s, extra: UInt64s) -> UInt64s:
    """One 64-bit key from an address (n, 2) and another word (n,). Equal inputs give equal keys; unequal ones nearly
    always unequal keys, so a hit must still be compared.
    """
    key = (words[:, 0] ^ (extra * _MIX[2])) * _MIX[0]
    key ^= key >> np.uint64(29)
    key = (key ^ words[:, 1]) * _MIX[1]
    result: UInt64s = key ^ (key >> np.uint64(32))
    return result
