"""Both ends of a link where no cabling is declared: traced addresses of one point-to-point subnet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MOST: Final = 100_000


class LinkEnds:
    """Addresses that answered as hops, at most `_MOST`, oldest first."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self.addresses: dict[str, None] = {}
        self._outer = 0
        """Addresses that are the first or last of four, as no end of a /30 is."""
        self.note(addresses)

    def note(self, hops: Iterable[str | None]) -> None:
        """Take addresses that answered; None for a hop that did not."""
        for hop in hops:
            if hop is not None and hop not in self.addresses and len(self.addresses) < _MOST:
                self.addresses[hop] = None
                self._outer += _number(hop)[1] % 4 in (0, 3)

    def opposite(self, hop: str) -> str | None:
        """The other end of the link that `hop` ends: of its /31 (RFC 3021; IPv6 /127, RFC 6164), or of its /30.

        A /30 is assumed only while no address met is the first or last of four.
        """
        prefix, number = _number(hop)
        if number < 0:
            return None
        other = _address(prefix, number ^ 1)
        if other in self.addresses:
            return other
        other = _address(prefix, number ^ 3)
        return other if not self._outer and len(self.addresses) > 3 and other in self.addresses else None


def _number(address: str) -> tuple[str, int]:
    """Everything before the last group of an IP address, and that group as a number (−1: none)."""
    colon = ":" in address
    prefix, dot, last = address.rpartition(":" if colon else ".")
    try:
        return prefix + dot, int(last or "0", 16 if colon else 10)
    except ValueError:
        return address, -1


def _address(prefix: str, number: int) -> str:
    if ":" not in prefix:
        return f"{prefix}{number}"
    return prefix if number == 0 and prefix.endswith("::") else f"{prefix}{number:x}"
