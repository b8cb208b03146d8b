"""ICMP and ICMPv6 errors that our datagrams caused, as the error queue of a socket reports them (ip(7), IP_RECVERR)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_ORIGIN_ICMP, _ORIGIN_ICMP6 = 2, 3
QUOTE_BYTES: Final = 64
"""Of a quoted datagram, so much is stored."""
_AF_INET6: Final = 10


@dataclass(frozen=True, slots=True)
class IcmpError:
    """An ICMP or ICMPv6 error that one of our datagrams caused."""

    slot: int
    destination: bytes
    """16 octets: where the datagram was going."""
    port: int
    """Its destination port."""
    offender: bytes
    """16 octets: the router that sent the error."""
    type: int
    code: int
    v6: bool
    quote: bytes
    """The first octets of our payload as quoted; may be empty (a router need not quote that far)."""

    @property
    def is_time_exceeded(self) -> bool:
        """Whether the TTL ran out in transit (RFC 792 type 11, RFC 4443 type 3)."""
        return self.type == (3 if self.v6 else 11) and self.code == 0


def icmp_error(slot: int, error: bytes, name: bytes, offender: bytes, quote: bytes) -> IcmpError | None:
    """One entry of an error queue; None for an error of local origin (a packet longer than the MTU).

    Parameters
    ----------
    slot : int
        Of the socket table.
    error : bytes
        ``struct sock_extended_err``: errno (4 octets), origin, type, code, …
    name, offender : bytes
        Socket addresses: where the datagram was going, and the router behind ``SO_EE_OFFENDER``.
    quote : bytes
        The payload as quoted.
    """
    if error[4] not in (_ORIGIN_ICMP, _ORIGIN_ICMP6):
        return None
    return IcmpError(
        slot=slot,
        destination=_sockaddr_address(name),
        port=int.from_bytes(name[2:4], "big"),
        offender=_sockaddr_address(offender),
        type=error[5],
        code=error[6],
        v6=error[4] == _ORIGIN_ICMP6,
        quote=quote,
    )


def _sockaddr_address(sockaddr: bytes) -> bytes:
    """16 octets of the address in a sockaddr_in or sockaddr_in6."""
    family = int.from_bytes(sockaddr[:2], "little")
    if family == _AF_INET6:
        return sockaddr[8:24]
    return bytes(10) + b"\xff\xff" + sockaddr[4:8]
