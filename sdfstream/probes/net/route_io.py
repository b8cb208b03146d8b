"""Which of this machine's addresses and interfaces leads to a peer."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

from sdfstream.errors import ConfigError, UnavailableError

_SIOCGIFCONF = 0x8912
_IFREQ_BYTES = 40
_MOST_ADDRESSES = 512


class Local(NamedTuple):
    """An address of this machine and the interface that has it."""

    address: str
    device: str


def resolve(host: str) -> str:
    """The address of `host`, a name or an address; IPv4 where it has both.

    Raises
    ------
    ConfigError
        It has none.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ConfigError(f"peer {host} has no address: {error}") from error
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def local_towards(address: str) -> Local:
    """What the routing table would send to `address` by.

    Raises
    ------
    UnavailableError
        There is no route.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address, 9))
        except OSError as error:
            raise UnavailableError(f"no route to {address}: {error.strerror}") from error
        own = str(sock.getsockname()[0])
    if own == address and not ipaddress.ip_address(own).is_loopback:
        raise ConfigError(f"peer {address} is this machine's own address")
    return Local(own, device_of(own))


def device_of(address: str) -> str:
    """The interface that has `address`; any 127.0.0.0/8 address is the loopback device's.

    Raises
    ------
    ConfigError
        No interface has it.
    """
    parsed = ipaddress.ip_address(address)
    if parsed.is_loopback:
        return "lo"
    for local in locals_here():
        if ipaddress.ip_address(local.address) == parsed:
            return local.device
    raise ConfigError(f"{address} is not an address of this machine")


def locals_here() -> list[Local]:
    """All addresses of this network namespace but loopback and link-local ones."""
    found = [*_ipv4(), *_ipv6()]
    return [
        entry for entry in found if not (ip := ipaddress.ip_address(entry.address)).is_loopback and not ip.is_link_local
    ]


def _ipv4() -> list[Local]:
    """SIOCGIFCONF: ``struct ifreq`` of name (16 octets, an alias behind a colon) and sockaddr_in."""
    space = array("B", bytes(_MOST_ADDRESSES * _IFREQ_BYTES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("@iP", len(space), space.buffer_info()[0])
        used = struct.unpack("@iP", fcntl.ioctl(sock, _SIOCGIFCONF, request))[0]
    octets = space.tobytes()
    entries = [octets[at : at + _IFREQ_BYTES] for at in range(0, used, _IFREQ_BYTES)]
    return [Local(socket.inet_ntoa(e[20:24]), e[:16].split(b"\0")[0].decode().partition(":")[0]) for e in entries]


def _ipv6() -> list[Local]:
    """``if_inet6``: address in hexadecimal, index, prefix length, scope, flags, interface."""
    try:
        lines = Path("/proc/thread-self/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    return [Local(str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))), line.split()[5]) for line in lines]
