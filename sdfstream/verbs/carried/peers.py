"""The far ends of one NIC's sessions: whose queue pair is known, and whom to meet when. Steady clock, ns.

A far end is met before anything is sent to it: nobody else can say its queue pair and key. It is met again now and
then, and soon when it falls silent, since an agent that began anew has another queue pair; until then its last one is
probed, so that its paths are silent and not unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.records.units import NS_PER_S
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress

RENEW_NS: Final = 30 * NS_PER_S
"""Between two meetings of ends that know each other: the far end forgets a sender only when it begins anew."""
SOON_NS: Final = NS_PER_S
"""The first pause after a meeting that failed; each further one is twice as long, up to `RENEW_NS`."""
PATIENCE_NS: Final = 5 * NS_PER_S
"""For so long a far end that cannot be met is no trouble: both agents may be starting."""


@dataclass(slots=True)
class _FarEnd:
    since_ns: int
    due_ns: int
    address: UdAddress | None = None
    """None: it has not been met."""
    asked_ns: int = 0
    pause_ns: int = SOON_NS
    asking: bool = False
    why: str = ""
    """Why the last meeting failed."""


class Peers:
    """The far ends of one NIC, by address."""

    def __init__(self) -> None:
        self._peers: dict[str, _FarEnd] = {}
        self._octets: dict[bytes, _FarEnd] = {}

    def want(self, addresses: Mapping[str, object], now_ns: int) -> None:
        """These are the far ends from now on; new ones are to be met at once."""
        wanted = {a: self._peers.get(a) or _FarEnd(now_ns, now_ns) for a in addresses}
        self._peers = wanted
        self._octets = {address_octets(a): peer for a, peer in wanted.items()}

    def due(self, now_ns: int) -> list[str]:
        """Those to meet now, which counts as begun."""
        found = [a for a, peer in self._peers.items() if not peer.asking and peer.due_ns <= now_ns]
        for address in found:
            peer = self._peers[address]
            peer.asking, peer.asked_ns = True, now_ns
        return found

    def met(self, address: str, found: UdAddress, now_ns: int) -> None:
        """A meeting went well."""
        if (peer := self._peers.get(address)) is not None:
            peer.address, peer.why, peer.asking = found, "", False
            peer.pause_ns, peer.due_ns = SOON_NS, now_ns + RENEW_NS

    def failed(self, address: str, why: str, now_ns: int) -> None:
        """A meeting failed; a known queue pair stays known."""
        if (peer := self._peers.get(address)) is not None:
            peer.why, peer.asking = why, False
            peer.due_ns = now_ns + peer.pause_ns
            peer.pause_ns = min(2 * peer.pause_ns, RENEW_NS)

    def is_silent(self, address: str, now_ns: int) -> None:
        """Nothing comes from there: meet it soon, unless that was tried a moment ago."""
        if (peer := self._peers.get(address)) is not None:
            peer.due_ns = min(peer.due_ns, max(now_ns, peer.asked_ns + peer.pause_ns))

    def at(self, octets: bytes) -> UdAddress | None:
        """The queue pair at this address, of 16 octets; None: it has not been met."""
        peer = self._octets.get(octets)
        return None if peer is None else peer.address

    def unmet(self, now_ns: int) -> dict[str, str]:
        """Address to reason of those that should have been met by now."""
        late = {a: p for a, p in self._peers.items() if p.address is None and now_ns - p.since_ns >= PATIENCE_NS}
        return {address: peer.why or "no answer yet" for address, peer in late.items()}
