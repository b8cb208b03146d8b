"""The networks that hold a mesh's NICs, few enough to stand in every host's plan."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

MOST: Final = 64
"""Networks of each family in a plan."""
_WIDEST: Final = {4: 8, 6: 32}


def covering(addresses: Iterable[str]) -> tuple[str, ...]:
    """Networks of one length that hold all `addresses`: single addresses while these are few, then as narrow as `MOST`
    allows; a family that would need wider ones than /8 (IPv6: /32) is left out.

    >>> covering(["10.0.0.1", "10.0.0.2"])
    ('10.0.0.1/32', '10.0.0.2/32')
    >>> wide = covering(f"10.0.{i // 250}.{i % 250}" for i in range(10_000))
    >>> wide[0], len(wide)
    ('10.0.0.0/24', 40)
    """
    found: list[str] = []
    parsed = sorted({ipaddress.ip_address(a) for a in addresses}, key=lambda a: (a.version, int(a)))
    for version, bits in ((4, 32), (6, 128)):
        numbers = [int(a) for a in parsed if a.version == version]
        for length in range(bits, _WIDEST[version] - 1, -1):
            blocks = sorted({number >> (bits - length) for number in numbers})
            if len(blocks) <= MOST:
                kind = ipaddress.IPv4Network if version == 4 else ipaddress.IPv6Network
                found += [str(kind((block << (bits - length), length))) for block in blocks]
                break
    return tuple(found)
