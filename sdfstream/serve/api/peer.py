"""Which user a connection over loopback comes from, by the kernel's table of TCP sockets. Pure.

Loopback does not tell users apart; the kernel does: each line of ``/proc/net/tcp`` has a socket's two ends and the user
that made it. The line of the caller's end has our address as its remote one.

References
----------
Linux ``Documentation/networking/proc_net_tcp.rst``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

OVERFLOW_UID: Final = 65534
"""How the kernel shows a user whom this user namespace does not know."""
_ESTABLISHED: Final = "01"

End = tuple[str, int]
"""IP address and port."""


def uid_of(lines: Iterable[str], caller: End, ours: End) -> int | None:
    """The user whose socket runs from `caller` to `ours`; None: no such socket, or a user who is not known here."""
    wanted = (_spelt(caller), _spelt(ours))
    for line in lines:
        fields = line.split()
        if len(fields) > 7 and (fields[1], fields[2]) == wanted and fields[3] == _ESTABLISHED:
            uid = int(fields[7])
            return None if uid == OVERFLOW_UID else uid
    return None


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own, also as IPv6 spells IPv4."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def _spelt(end: End) -> str:
    """An end as the kernel writes it on this kind of machine: each 32 bits of the address in host order, in hex.

    >>> _spelt(("127.0.0.1", 9465))
    '0100007F:24F9'
    """
    packed = ipaddress.ip_address(end[0]).packed
    words = (packed[i : i + 4] for i in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, 'little'):08X}" for word in words) + f":{end[1]:04X}"
