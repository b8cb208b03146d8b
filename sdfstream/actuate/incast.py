"""Several queue pairs converge on one NIC: each is limited to its fair share of the NIC's cable, less a little.

No other path helps against incast, for all paths end in the same cable. Off by default. A limit is a lease like any
other: it is renewed while the finding is open, lifted when that has been gone for a while or after `throttle_max_s`,
and the host lifts it by itself when the controller is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.actuate.config import ns
from sdfstream.actuate.context import Context
from sdfstream.actuate.guard import Proposal, check
from sdfstream.actuate.ledger import DRY_RUN, IssuedCommand
from sdfstream.actuate.refusals import Doubt
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S

_CALM_NS: Final = 5 * NS_PER_S
"""The finding must have been gone for this long: the limit itself ends it."""


@dataclass(frozen=True, slots=True)
class Incast:
    """A NIC that more converges on than its cable carries."""

    nic: str
    reason: tuple[str, ...]


class Throttles:
    """Limits of queue pairs, by queue pair."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.limits: dict[str, str] = {}
        """Queue pair to the id of its command."""
        self._wanted_ns: dict[str, int] = {}
        """Bus time at which a finding last called for the limit."""

    def tick(self, now_ns: int) -> list[Output]:
        """Limit, renew, lift."""
        out: list[Output] = []
        if self._context.config.throttle_incast:
            rates = self._context.windows.rates(10, now_ns)
            for incast in incasts(self._context):
                out += self._limit(incast, rates, now_ns)
        for qp in list(self.limits):
            out += self._renew(qp, now_ns)
        return out

    def _limit(self, incast: Incast, rates: Mapping[str, float], now_ns: int) -> list[Output]:
        """Limit every queue pair that converges on the NIC."""
        context, out = self._context, list[Output]()
        speed = context.topology.nic_speed_bps(incast.nic)
        several = [
            owned
            for owned in context.jobs
            if owned.pair.dst == incast.nic
            and rates.get(owned.pair.qp, 0.0) >= context.config.busy_share * speed
            and owned.pair.steering != "none"
        ]
        if len(several) < 2:
            return []
        rate = int(speed / len(several) * context.config.throttle_headroom)
        for owned in several:
            qp = owned.pair.qp
            self._wanted_ns[qp] = now_ns
            if self._command(qp) is not None:
                continue
            proposal = Proposal("throttle", owned, reason=incast.reason)
            doubt = check(proposal, context.facts, now_ns)
            if doubt is not None:
                out += context.commands.refuse(proposal, doubt, now_ns)
                continue
            before = {"rate_bps": owned.pair.rate_bps}
            command, published = context.commands.open(proposal, before, {"rate_bps": rate}, {"rate_bps": None}, now_ns)
            out += published
            if command is not None:
                self.limits[qp] = command.id
        return out

    def _command(self, qp: str) -> IssuedCommand | None:
        command = self._context.ledger.get(self.limits.get(qp, ""))
        return None if command is None or command.state == "over" else command

    def _renew(self, qp: str, now_ns: int) -> list[Output]:
        """Renew, lift or let go the limit of one queue pair."""
        context, command = self._context, self._command(qp)
        owned = context.jobs.get(qp)
        if command is None or owned is None or not context.commands.goes_on(command, now_ns):
            if command is not None:
                context.ledger.end(command, now_ns)
            self._drop(qp)
            return []
        if command.state == DRY_RUN:
            if now_ns >= command.expires_at_ns:
                context.ledger.end(command, now_ns)
            return []
        proposal = Proposal("throttle", owned, reason=tuple(command.reason), renewal=command.state != "approved")
        if command.state == "approved":
            return self._publish_unless(context.commands.release(command, proposal, now_ns), command, proposal, now_ns)
        if not command.in_force:
            return []
        if (lifted := self._lift(qp, command, now_ns)) is not None:
            return lifted
        if now_ns < command.issued_at_ns + context.config.renew_ns:
            return []
        return self._publish_unless(check(proposal, context.facts, now_ns), command, proposal, now_ns)

    def _lift(self, qp: str, command: IssuedCommand, now_ns: int) -> list[Output] | None:
        """Undo a limit whose finding is gone, or that has lasted for `throttle_max_s`; None: it goes on."""
        context = self._context
        calm = now_ns - self._wanted_ns.get(qp, now_ns) >= _CALM_NS
        spent = now_ns - command.began_at_ns >= ns(context.config.throttle_max_s)
        if not calm and not spent:
            return None
        self._drop(qp)
        context.facts.ban(qp, now_ns + (ns(context.config.path_ban_s) if spent else 0))
        return context.commands.undo(command, tuple(command.reason), now_ns)

    def _publish_unless(
        self, doubt: Doubt | None, command: IssuedCommand, proposal: Proposal, now_ns: int
    ) -> list[Output]:
        if doubt is not None:
            return self._context.commands.refuse(proposal, doubt, now_ns)
        return [self._context.commands.publish(command, now_ns)]

    def _drop(self, qp: str) -> None:
        self.limits.pop(qp, None)
        self._wanted_ns.pop(qp, None)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"leases": list(self.limits.items()), "wanted": list(self._wanted_ns.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.limits = {qp: name for qp, name in state["leases"]}
        self._wanted_ns = {qp: at_ns for qp, at_ns in state["wanted"]}


def incasts(context: Context) -> list[Incast]:
    """NICs that open findings name as converged upon."""
    found: dict[str, tuple[str, ...]] = {}
    for finding in context.findings:
        if finding.kind != "congestion" or not finding.confidence >= context.config.least_confidence:
            continue
        for direction in finding.directions:
            nic = direction.partition("->")[2]
            if context.topology.nic_speed_bps(nic):
                found[nic] = (*found.get(nic, ()), finding.id)
    return [Incast(nic, reason) for nic, reason in sorted(found.items())]
