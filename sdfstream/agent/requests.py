"""What the queue pairs of a host ask of its probes: watch sessions, and flows to be traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sdfstream.agent.observer import WatchRequest
from sdfstream.probes.trace.flows import FlowRequest
from sdfstream.records.fabric import Flow, QueuePair

URGENT: Final = 4
"""Alternates of a queue pair that are traced before the watch ports."""


def watch_requests(qps: Iterable[QueuePair]) -> list[WatchRequest]:
    """Watch sessions for the NIC pairs of queue pairs, also of those that no actuator can move.

    >>> watch_requests([])
    []
    """
    flows: dict[tuple[str, str, str, int], dict[Flow, None]] = {}
    for q in qps:
        flows.setdefault((q.src, q.dst, q.dst_address, q.dscp), {})[q.flow()] = None
    return [WatchRequest(*pair, tuple(found)) for pair, found in flows.items()]


def return_watch_requests(
    receives: Iterable[QueuePair], configured: frozenset[tuple[str, str]], address_of: Callable[[str], str | None]
) -> list[WatchRequest]:
    """Watch sessions to senders that no configured session probes: only these tell how many hops answers are traced.

    None of their probes need be fast for that.

    Parameters
    ----------
    receives : iterable of QueuePair
        Whose receiving end is here.
    configured : set of (source NIC id, destination NIC id)
        Of the configured sessions.
    address_of : callable
        Of a NIC; None: not known, and then there is no request.
    """
    pairs = {(q.dst, q.src, q.dscp) for q in receives if (q.dst, q.src) not in configured}
    known = ((pair, address_of(pair[1])) for pair in sorted(pairs))
    return [
        WatchRequest(src, dst, address, dscp, quick=False) for (src, dst, dscp), address in known if address is not None
    ]


def watching_senders(
    qps: Iterable[QueuePair], receives: Iterable[QueuePair], address_of: Callable[[str], str | None]
) -> dict[str, str]:
    """Address to NIC id of the far ends of queue pairs: their agents' watch sessions are to be answered here."""
    senders = {q.dst_address: q.dst for q in qps}
    named = ((q.src_address or address_of(q.src), q.src) for q in receives)
    return senders | {address: nic for address, nic in named if address is not None}


def flow_requests(
    qps: Sequence[QueuePair], receives: Sequence[QueuePair], address_of: Callable[[str], str | None]
) -> list[FlowRequest]:
    """Flows to trace: those in use first, then the alternates; answers are traced from where they start.

    The first `URGENT` alternates of each are urgent: of four equal-cost routes they miss all but the present one in one
    of 256 cases, and a failover can be armed with one. The others can wait until the watch ports are traced.

    Parameters
    ----------
    qps, receives : sequence of QueuePair
        Whose sending or receiving end is here.
    address_of : callable
        Of a NIC; None: not known, and then there is no request.
    """
    requests: dict[Flow, FlowRequest] = {}
    answered = [(q, address) for q in receives if (address := address_of(q.src)) is not None]
    for ports, urgent in ((_present, True), (_first, True), (_others, False)):
        found = [FlowRequest(q.flow(path), q.dst_address, urgent) for q in qps for path in ports(q)]
        found += [FlowRequest(q.answers(path), address, urgent) for q, address in answered for path in ports(q)]
        for request in found:
            requests.setdefault(request.flow, request)
    return list(requests.values())


def _present(q: QueuePair) -> Sequence[int]:
    return (q.path,)


def _first(q: QueuePair) -> Sequence[int]:
    return q.alternates[:URGENT]


def _others(q: QueuePair) -> Sequence[int]:
    return q.alternates[URGENT:]
