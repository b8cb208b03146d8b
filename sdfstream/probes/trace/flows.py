"""When flows and the answers of probe paths are traced: both by packets of any five-tuple.

A **flow** is traced at once when it is newly wanted, when it has moved up in the list of wishes (a queue pair moved to
it), and when probe paths between the same two leaves change state; after that at the usual interval. The list's order
is the order of tracing. The leaf of a far NIC is known by its routers' addresses: NICs whose traces end at the same
last router hang on one leaf.

A **way back** is that of the answers to a session that a known peer sends to us: from our reflector's port to its
source port. It is traced when it first arrives, when it comes back, and when paths between the two NICs change.

Both need the distance to the far NIC, which only our own probes to it tell; as long as it is not known nothing is
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.probes.stamp.addresses import octets
from sdfstream.probes.stamp.liveness import ALIVE, PathName
from sdfstream.probes.trace.hops import NOW, SOON, Tracer
from sdfstream.probes.trace.packets import PROTOCOLS, FiveTuple
from sdfstream.probes.trace.paths import SETTLE_NS, Distance, Pair, PathBook
from sdfstream.records.fabric import PathId
from sdfstream.records.flow import Flow
from sdfstream.records.units import UInt8s
from sdfstream.stats import Counters

Ready = Callable[[str], bool]

MOST: Final = 2048
"""Flows traced per host."""
_MOST_ROUTERS: Final = 64
"""Last routers remembered per NIC: a leaf has one address for each of its uplinks."""


@dataclass(frozen=True, slots=True)
class FlowRequest:
    """A flow whose way is wanted; the first of a list are traced first."""

    flow: Flow
    """Its `src` is one of the host's NICs."""
    dst_address: str


@dataclass(frozen=True, slots=True)
class Sending:
    """How packets for a subject are sent."""

    nic: str
    """NIC id that sends them."""
    flow: FiveTuple
    tos: int


class News(NamedTuple):
    """What happened since the last step."""

    changed: set[Pair]
    """NIC of ours and far NIC, some of whose probe paths fell silent or came back."""
    moved: set[Pair]
    """Those whose distance is another one now."""
    opened: set[str]
    """NICs of ours by which packets can be sent since now."""

    def __bool__(self) -> bool:
        return any(self)


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
        Tells distances.
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
        self._own = {nic: octets(address) for nic, address in nics.items()}
        self._counters = counters
        self.sending: dict[Flow, Sending] = {}
        """How each wanted flow's packets are sent."""

    def wish(self, wishes: Iterable[FlowRequest], now_ns: int) -> None:
        """The flows wanted from now on, most wanted first; what makes no sense is counted and left out."""
        wanted: dict[Flow, Sending] = {}
        for wish in wishes:
            sending, why = self._read(wish)
            if sending is None:
                self._counters.add("refused", why)
            elif len(wanted) >= MOST and wish.flow not in wanted:
                self._counters.add("shed", "flow")
            else:
                wanted.setdefault(wish.flow, sending)
        before = self.sending
        due = risen(list(before), list(wanted)) | {flow for flow, s in wanted.items() if before.get(flow) != s}
        for flow in before:
            if flow not in wanted:
                self._tracer.drop(flow)
        self.sending = wanted
        for place, (flow, sending) in enumerate(wanted.items()):
            if before.get(flow) != sending:
                self._tracer.drop(flow)
                self._tracer.add(flow, sending.flow)
            if flow in due:
                self._ask(flow, now_ns + place)

    def step(self, news: News, leaves: Leaves, now_ns: int) -> None:
        """Ask for what is due because of `news`."""
        if not news:
            return
        for place, flow in enumerate(self.sending):
            if (flow.src, flow.dst) in news.moved or flow.src in news.opened:
                self._ask(flow, now_ns + place)
            elif any(flow.src == src and leaves.same(flow.dst, dst) for src, dst in news.changed):
                self._ask(flow, now_ns + SETTLE_NS + place)

    def _ask(self, flow: Flow, due_at_ns: int) -> None:
        distance = self._paths.distance((flow.src, flow.dst))
        if distance is None or not self._ready(flow.src):
            self._tracer.hold(flow)
        else:
            self._tracer.ask(flow, distance.routers, due_at_ns, NOW)

    def _read(self, wish: FlowRequest) -> tuple[Sending | None, str]:
        """How the flow's packets are sent, or why they cannot be."""
        flow = wish.flow
        own = self._own.get(flow.src)
        if own is None:
            return None, "flow-foreign-nic"
        try:
            far = octets(wish.dst_address)
        except ConfigError:
            return None, "flow-address"
        numbers = (flow.source_port, flow.destination_port)
        if flow.protocol not in PROTOCOLS or not all(0 < n < 65536 for n in numbers) or not 0 <= flow.dscp <= 63:
            return None, "flow-malformed"
        five = FiveTuple(PROTOCOLS[flow.protocol], own, far, *numbers)
        if five.v6 != FiveTuple(0, far, own, 0, 0).v6:
            return None, "flow-address"
        return Sending(flow.src, five, flow.dscp << 2), ""


class AnswerBook:
    """The ways back of sessions that known peers send to us. Its subjects are `PathId`s of direction ``rev``.

    Parameters
    ----------
    tracer : Tracer
    paths : PathBook
        Tells distances.
    nics : NIC id to address
        Of the host.
    ready : NIC id to bool
        Whether packets can be sent by it now.
    port : int
        The reflector's.
    """

    def __init__(self, tracer: Tracer, paths: PathBook, nics: Mapping[str, str], ready: Ready, port: int) -> None:
        self._tracer = tracer
        self._ready = ready
        self._paths = paths
        self._own = {nic: octets(address) for nic, address in nics.items()}
        self._port = port
        self._ids: list[PathId] = []
        self._state: UInt8s = np.empty(0, np.uint8)
        self.sending: dict[PathId, Sending] = {}
        """How packets along each way back are sent."""

    def step(
        self, names: Sequence[PathName], addresses: Sequence[bytes], state: UInt8s, news: News, now_ns: int
    ) -> None:
        """Ask for what is due.

        Parameters
        ----------
        names, addresses, state : of the sessions that we reflect, by number
            Names, senders' addresses, states of `liveness`.
        """
        for number in range(len(self._ids), len(names)):
            self._admit(names[number], addresses[number])
        before = np.zeros(len(state), np.uint8)
        before[: len(self._state)] = self._state
        self._state = state.copy()
        changed = {(dst, src) for src, dst in news.changed} | self._changed(before, state)
        moved = {(dst, src) for src, dst in news.moved}
        fresh = (state == ALIVE) & (before != ALIVE)
        for number in np.flatnonzero(fresh).tolist():
            self._ask(self._ids[number], now_ns)
        for number in np.flatnonzero((state != ALIVE) & (before == ALIVE)).tolist():
            self._tracer.hold(self._ids[number])
        if changed or moved or news.opened:
            for number in np.flatnonzero((state == ALIVE) & ~fresh).tolist():
                way = self._ids[number]
                if (way.src, way.dst) in moved or way.dst in news.opened:
                    self._ask(way, now_ns)
                elif (way.src, way.dst) in changed:
                    self._ask(way, now_ns + SETTLE_NS)

    def _changed(self, before: UInt8s, state: UInt8s) -> set[Pair]:
        """Pairs some of whose sessions fell silent or came back; a new session is no change of the others."""
        known = (before != 0) & (state != 0) & (before != state)
        return {(self._ids[n].src, self._ids[n].dst) for n in np.flatnonzero(known).tolist()}

    def _admit(self, name: PathName, address: bytes) -> None:
        way = PathId(name.src, name.dst, name.transport, name.path, name.dscp, "rev")
        five = FiveTuple(PROTOCOLS["udp"], self._own[name.dst], address, self._port, name.path)
        self._ids.append(way)
        self.sending[way] = Sending(name.dst, five, name.dscp << 2)
        self._tracer.add(way, five)

    def _ask(self, way: PathId, due_at_ns: int) -> None:
        distance = self._paths.distance((way.dst, way.src))
        if distance is None or not self._ready(way.dst):
            self._tracer.hold(way)
        else:
            self._tracer.ask(way, distance.routers, due_at_ns, SOON)

    def distance(self, way: PathId) -> Distance | None:
        """How far it is along a way back."""
        return self._paths.distance((way.dst, way.src))


def risen(before: Sequence[Flow], after: Sequence[Flow]) -> set[Flow]:
    """Flows that have overtaken another one that is still wanted.

    >>> a, b, c = (Flow("h0/r", "h1/r", "udp", port, 4791, 0) for port in (1, 2, 3))
    >>> [flow.source_port for flow in risen([a, b, c], [c, a])]
    [3]
    """
    place = {flow: i for i, flow in enumerate(before)}
    found: set[Flow] = set()
    least = len(before)
    for flow in reversed([f for f in after if f in place]):
        if least < place[flow]:
            found.add(flow)
        least = min(least, place[flow])
    return found
