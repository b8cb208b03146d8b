"""What may be ordered the moment a path is found dead: armed failovers, ready to be carried out without this process.

The packet engine judges paths by the same watches as `path_watch`, and gives an order by itself
(`agent.engine.orders_io`). What it may order is said anew after every change; whatever it has ordered is a request of
the lease from then on, like one that the executor makes. The executor waits for that a moment (`host_state.ORDER_NS`)
before it makes one itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.host_state import HostState, Moment
from sdfstream.agent.commands.inventory import QpState
from sdfstream.agent.commands.lease import Lease, LeaseState
from sdfstream.agent.commands.path_watch import WatchKey, WatchLayout
from sdfstream.records.units import NS_PER_MS

_BY_SOCKET = "socket"
"""Steering of queue pairs whose process takes requests by its control socket."""


class Order(NamedTuple):
    """A move that is to be requested once `watch` is dead, to the first alternate that is clean."""

    command: str
    control: str
    """Control socket of the process that owns the queue pair."""
    watch: WatchKey
    alternates: tuple[tuple[WatchKey, ActuatorRequest], ...]


class GivenOrder(NamedTuple):
    """An order that was given."""

    command: str
    path: int
    """Source port that was asked for."""


class HostOrders(Protocol):
    """Gives the orders of one host."""

    def offer(self, layout: WatchLayout, orders: Sequence[Order] | None) -> Collection[str]:
        """Let these be given from now on, those of the last call where None; `layout` says what is dead and clean.

        Returns
        -------
        collection of str
            Commands of those that are given: there may not be room, or nobody to give them to.
        """

    def given(self, note: Callable[[GivenOrder], int | None], now_ns: int) -> None:
        """Have every order since the last call noted; `note` says which number its answer is to have, if any."""

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """Answers since the last call, of any host; an order whose time is out is answered as not done, perhaps."""


def orders(host_state: HostState, at: Moment) -> list[Order] | None:
    """The orders that may be given on a host from now on; None: those of the last call.

    At most one for each queue pair, by its newest command.
    """
    if not host_state.orders_changed:
        return None
    host_state.orders_changed = False
    found: dict[str, Order] = {}
    for lease in sorted(host_state.leases.values(), key=lambda x: -x.command.issued_at_ns):
        known = host_state.known(lease)
        if known is not None and lease.terms.qp not in found and _may_be_ordered(lease, known, at):
            found[lease.terms.qp] = _order(lease, known)
    return list(found.values())


def _may_be_ordered(lease: Lease, known: QpState, at: Moment) -> bool:
    """Whether a dead path is all that is lacking for a move."""
    return (
        lease.terms.kind == "arm"
        and lease.state in (LeaseState.ARMED, LeaseState.STRANDED)
        and not (lease.request is not None or lease.undo or at.over(lease) or lease.command.epoch < at.epoch)
        and known.qp.steering == _BY_SOCKET
        and known.control != ""
        and known.missing_ns is None
        and known.path == lease.terms.former
        and known.pending_request is None
        and at.now_ns >= lease.retry_ns
    )


def _order(lease: Lease, known: QpState) -> Order:
    lease_ms = (lease.command.expires_at_ns - lease.command.issued_at_ns) // NS_PER_MS

    def request(path: int) -> ActuatorRequest:
        return ActuatorRequest(0, "set", known.qp, known.control, lease.data, path, choice=True, ttl_ms=lease_ms)

    key = lease.command.id
    alternates = tuple((WatchKey(key, path), request(path)) for path in lease.terms.paths if path != known.path)
    return Order(key, known.control, WatchKey(key, known.path), alternates)
