"""Several queue pairs converge on one NIC: each is limited to its fair share of the NIC's cable, less a little.

No other way helps against incast, for all ways end in the same cable. Off by default. A limit is a lease like any
other: it is renewed while the finding is open, lifted when that has been gone for a while or after `throttle_max_s`,
and the host lifts it by itself when the controller is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Parts
from sdfstream.actuate.guard import Proposal, check
from sdfstream.actuate.ledger import Doubt, Lease
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S

_LOOK_EVERY: Final = 5
_CALM_NS: Final = 5 * NS_PER_S
"""The finding must have been gone for this long: the limit itself ends it."""


@dataclass(frozen=True, slots=True)
class Incast:
    """A NIC that more converges on than its cable carries."""

    nic: str
    reason: tuple[str, ...]


class Throttles:
    """Limits of queue pairs, by queue pair."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._leases: dict[str, str] = {}
        self._wanted_ns: dict[str, int] = {}
        """When a finding last asked for the limit."""

    def tick(self, tick: int, now_ns: int) -> list[Output]:
        """Limit, renew, lift."""
        if tick % _LOOK_EVERY or not (self._parts.config.throttle_incast or self._leases):
            return []
        out: list[Output] = []
        if self._parts.config.throttle_incast:
            rates = self._parts.windows.rates(10, now_ns)
            for place in incasts(self._parts):
                out += self._share(place, rates, now_ns)
        for qp in list(self._leases):
            out += self._keep(qp, now_ns)
        return out

    def _share(self, place: Incast, rates: Mapping[str, float], now_ns: int) -> list[Output]:
        """Limit every queue pair that converges on the NIC."""
        parts, out = self._parts, list[Output]()
        speed = parts.topology.nic_speed_bps(place.nic)
        several = [
            owned
            for owned in parts.jobs
            if owned.pair.dst == place.nic
            and rates.get(owned.pair.qp, 0.0) >= parts.config.busy_share * speed
            and owned.pair.steering != "none"
        ]
        if len(several) < 2:
            return []
        rate = int(speed / len(several) * parts.config.throttle_headroom)
        for owned in several:
            qp = owned.pair.qp
            self._wanted_ns[qp] = now_ns
            if self._lease(qp) is not None:
                continue
            proposal = Proposal("throttle", owned, reason=place.reason)
            doubt = check(proposal, parts.facts, now_ns)
            if doubt is not None:
                out += parts.refuse(proposal, doubt, now_ns)
                continue
            before = {"rate_bps": owned.pair.rate_bps}
            lease, said = parts.open(proposal, before, {"rate_bps": rate}, {"rate_bps": None}, now_ns)
            out += said
            if lease is not None:
                self._leases[qp] = lease.id
        return out

    def _lease(self, qp: str) -> Lease | None:
        lease = self._parts.ledger.get(self._leases.get(qp, ""))
        return None if lease is None or lease.state == "over" else lease

    def _keep(self, qp: str, now_ns: int) -> list[Output]:
        parts, lease = self._parts, self._lease(qp)
        owned = parts.jobs.get(qp)
        if lease is None or owned is None or not parts.wanted(lease, now_ns):
            if lease is not None:
                parts.ledger.end(lease, now_ns)
            self._drop(qp)
            return []
        if lease.state == "told":
            if now_ns >= lease.expires_at_ns:
                parts.ledger.end(lease, now_ns)
            return []
        proposal = Proposal("throttle", owned, reason=tuple(lease.reason), renewal=lease.state != "approved")
        if lease.state == "approved":
            doubt: Doubt | None = parts.approved(lease, proposal, now_ns)
            return parts.refuse(proposal, doubt, now_ns) if doubt is not None else [parts.say(lease, now_ns)]
        calm = now_ns - self._wanted_ns.get(qp, now_ns) >= _CALM_NS
        spent = now_ns - lease.began_at_ns >= ns(parts.config.throttle_max_s)
        if lease.in_force and (calm or spent):
            self._drop(qp)
            parts.facts.banned[qp, 0] = now_ns + (ns(parts.config.path_ban_s) if spent else 0)
            return parts.undo(lease, tuple(lease.reason), now_ns)
        if not lease.in_force or now_ns < lease.issued_at_ns + parts.config.renew_ns:
            return []
        doubt = check(proposal, parts.facts, now_ns)
        return parts.refuse(proposal, doubt, now_ns) if doubt is not None else [parts.say(lease, now_ns)]

    def _drop(self, qp: str) -> None:
        self._leases.pop(qp, None)
        self._wanted_ns.pop(qp, None)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"leases": list(self._leases.items()), "wanted": list(self._wanted_ns.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._leases = {qp: name for qp, name in state["leases"]}
        self._wanted_ns = {qp: at_ns for qp, at_ns in state["wanted"]}


def incasts(parts: Parts) -> list[Incast]:
    """NICs that a finding says are converged upon."""
    found: dict[str, tuple[str, ...]] = {}
    for trouble in parts.findings:
        if trouble.kind != "congestion" or not trouble.confidence >= parts.config.least_confidence:
            continue
        for direction in trouble.directions:
            nic = direction.partition("->")[2]
            if parts.topology.nic_speed_bps(nic):
                found[nic] = (*found.get(nic, ()), trouble.id)
    return [Incast(nic, reason) for nic, reason in sorted(found.items())]
