"""When the flows of queue pairs are traced, by packets of their five-tuples.

A flow is traced at once when it is newly requested, when it has moved up in the list of requests (a queue pair was
moved to it), and when probe paths between the same two leaves change state; after that at the usual interval. The
list's order is the order of tracing; flows that are not urgent come after new probe paths. The leaf of a far NIC is
known by its routers' addresses: NICs whose traces end at the same last router hang on one leaf.

The number of routers to the far NIC must be known, which only our own probes to it measure; until then nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.trace.packets import PROTOCOLS, FiveTuple, PacketTemplate
from sdfstream.probes.trace.paths import SETTLE_NS, PathBook, PathChanges, Ready
from sdfstream.probes.trace.tracer import LATER, NOW, Tracer
from sdfstream.records.fabric import Flow
from sdfstream.stats import Counters

MOST: Final = 2048
"""Flows traced per host."""
_MOST_ROUTERS: Final = 64
"""Last routers remembered per NIC: a leaf has one address for each of its uplinks."""


@dataclass(frozen=True, slots=True)
class FlowRequest:
    """A flow to be traced; the first of a list are traced first."""

    flow: Flow
    """Its `src` is one of the host's NICs."""
    dst_address: str
    urgent: bool = True
    """A queue pair waits for it; False: another one serves until it is known."""


class Leaves:
    """Which far NICs hang on one leaf, by the last routers of traces to them."""

    def __init__(self) -> None:
        self._last: dict[str, dict[bytes, None]] = {}

    def note(self, dst: str, hops: Sequence[bytes | None]) -> None:
        """A trace to `dst` met these routers."""
        if hops and hops[-1] is not None:
            known = self._last.setdefault(dst, {})
            known.pop(hops[-1], None)
            known[hops[-1]] = None
            if len(known) > _MOST_ROUTERS:
                del known[next(iter(known))]

    def same(self, a: str, b: str) -> bool:
        """Whether traces to both have ended at one router."""
        return a == b or not self._last.get(a, {}).keys().isdisjoint(self._last.get(b, {}))


class FlowBook:
    """The flows that are wanted, and when each is traced. Its subjects are `Flow`s.

    Parameters
    ----------
    tracer : Tracer
    paths : PathBook
        Measures distances.
    nics : NIC id to address
        Of the host.
    ready : NIC id to bool
        Whether packets can be sent by it now.
    counters : Counters
        Gets ``refused.flow-…`` and ``shed.flow``.
    """

    def __init__(
        self, tracer: Tracer, paths: PathBook, nics: Mapping[str, str], ready: Ready, counters: Counters
    ) -> None:
        self._tracer = tracer
        self._ready = ready
        self._paths = paths
        self._own = {nic: address_octets(address) for nic, address in nics.items()}
        self._counters = counters
        self.templates: dict[Flow, PacketTemplate] = {}
        """By flow that is to be traced."""
        self._urgent: dict[Flow, bool] = {}

    def take(self, requests: Iterable[FlowRequest], now_ns: int) -> None:
        """Take the flows to be traced from now on, most wanted first; malformed requests are counted and left out."""
        wanted: dict[Flow, PacketTemplate] = {}
        self._urgent = {}
        for request in requests:
            template, why = self._read(request)
            if template is None:
                self._counters.add("refused", why)
            elif len(wanted) >= MOST and request.flow not in wanted:
                self._counters.add("shed", "flow")
            else:
                wanted.setdefault(request.flow, template)
                self._urgent[request.flow] = request.urgent or self._urgent.get(request.flow, False)
        before = self.templates
        due = risen(list(before), list(wanted)) | {flow for flow, s in wanted.items() if before.get(flow) != s}
        for flow in before:
            if flow not in wanted:
                self._tracer.drop(flow)
        self.templates = wanted
        for order, (flow, template) in enumerate(wanted.items()):
            if before.get(flow) != template:
                self._tracer.drop(flow)
                self._tracer.add(flow, template.five_tuple)
            if flow in due:
                self._request(flow, now_ns + order)

    def step(self, changes: PathChanges, leaves: Leaves, now_ns: int) -> None:
        """Request the traces that follow from `changes`."""
        if not changes:
            return
        for order, flow in enumerate(self.templates):
            if (flow.src, flow.dst) in changes.distance_changed or flow.src in changes.opened_nics:
                self._request(flow, now_ns + order)
            elif any(flow.src == src and leaves.same(flow.dst, dst) for src, dst in changes.state_changed):
                self._request(flow, now_ns + SETTLE_NS + order)

    def _request(self, flow: Flow, due_at_ns: int) -> None:
        distance = self._paths.distance((flow.src, flow.dst))
        if distance is None or not self._ready(flow.src):
            self._tracer.hold(flow)
        else:
            rank = NOW if self._urgent[flow] else LATER
            self._tracer.request(flow, distance.routers, due_at_ns, rank)

    def _read(self, request: FlowRequest) -> tuple[PacketTemplate | None, str]:
        """How the flow's packets are sent, or why they cannot be."""
        flow = request.flow
        own = self._own.get(flow.src)
        if own is None:
            return None, "flow-foreign-nic"
        try:
            far = address_octets(request.dst_address)
        except ConfigError:
            return None, "flow-address"
        numbers = (flow.source_port, flow.destination_port)
        if flow.protocol not in PROTOCOLS or not all(0 < n < 65536 for n in numbers) or not 0 <= flow.dscp <= 63:
            return None, "flow-malformed"
        five = FiveTuple(PROTOCOLS[flow.protocol], own, far, *numbers)
        if five.v6 != FiveTuple(0, far, own, 0, 0).v6:
            return None, "flow-address"
        return PacketTemplate(flow.src, five, flow.dscp << 2), ""


def risen(before: Sequence[Flow], after: Sequence[Flow]) -> set[Flow]:
    """Flows that have overtaken another one that is still wanted.

    >>> a, b, c = (Flow("h0/r", "h1/r", "udp", port, 4791, 0) for port in (1, 2, 3))
    >>> [flow.source_port for flow in risen([a, b, c], [c, a])]
    [3]
    """
    rank = {flow: i for i, flow in enumerate(before)}
    found: set[Flow] = set()
    least = len(before)
    for flow in reversed([f for f in after if f in rank]):
        if least < rank[flow]:
            found.add(flow)
        least = min(least, rank[flow])
    return found
