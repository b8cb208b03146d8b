"""IP addresses as the 16 octets that datagram batches carry, and batch lookups by them."""

from __future__ import annotations

import ipaddress

import numpy as np
import numpy.typing as npt

from sdfstream.errors import ConfigError
from sdfstream.records.units import UInt8s

UInt64s = npt.NDArray[np.uint64]

_MIX = (np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xC2B2_AE3D_27D4_EB4F), np.uint64(0x1656_67B1_9E37_79F9))


def octets(address: str) -> bytes:
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
    return octets(address)[:12] == b"\0" * 10 + b"\xff\xff"


def halves(address: UInt8s) -> UInt64s:
    """(n, 16) octets as (n, 2) words, for comparison."""
    return np.ascontiguousarray(address).view(np.uint64)


def mixed(words: UInt64s, extra: UInt64s) -> UInt64s:
    """One 64-bit key from an address (n, 2) and another word (n,). Equal inputs give equal keys; unequal ones nearly
    always unequal keys, so a hit must still be compared.
    """
    key = (words[:, 0] ^ (extra * _MIX[2])) * _MIX[0]
    key ^= key >> np.uint64(29)
    key = (key ^ words[:, 1]) * _MIX[1]
    result: UInt64s = key ^ (key >> np.uint64(32))
    return result
