"""Traced routes and what became of each: confirmed, moved, or put in doubt; and link ends as traces show them.

A route is what a trace showed at one instant. Later it may no longer hold: routers that lose or regain a link hash
their flows anew, also flows that never used that link. What is stored of each route, and by which event it changes:

===================================  ================================================================================
event                                then
===================================  ================================================================================
a trace that agrees                  gaps on either side are filled, doubt beyond the hops it shows is over
a trace that differs                 the old hops become `former` up to `changed_ns`; the router before the first
                                     difference has moved flows, so the routes of others through it are in doubt
a router on it moved flows           in doubt from that router on (`doubt_at`), until it is traced anew
it differed `SPRAYED` times lately   it is not one route: the last few are taken together
===================================  ================================================================================

A path that has fallen silent is traced as well (`SilentTraces`): what its packets pass since is not what silences it.

Where many traces contradict themselves, since each packet of a trace took a way of its own, a class of packets is
**sprayed** (`TracedLinks`): no trace shows the way of any other packet, and nothing of the above is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.records.fabric import Topology
from sdfstream.records.units import NS_PER_S, Int64s

Hops = list[str | None]

SPRAYED: Final = 3
_LATELY_NS: Final = 600 * NS_PER_S
_MOST_OTHERS: Final = 4
_PASSED: Final = 8
_LEAST_HOPS: Final = 3
"""Routers of a trace that can contradict itself: two leaves, and what is between."""
_TRACES, _FEWEST, _CONTRADICT = 64, 8, 0.3
"""So many traces tell whether packets are sprayed, so few do, and this share of them contradicts itself: half of them
where two ways are open, more where there are more; hardly any where routes are hashed."""
_MOST_ADDRESSES: Final = 100_000


@dataclass(slots=True)
class TracedRoute:
    """Hops of one direction of a path, or of a flow. All instants are bus time."""

    hops: Hops
    traced_ns: int
    former: Hops | None = None
    """What it was before."""
    changed_ns: int = 0
    """`former` held up to here."""
    doubt_ns: int = 0
    """A router on it moved flows then; 0: no doubt."""
    doubt_at: int = -1
    """Number of the hop that is that router."""
    moved_ns: list[int] = field(default_factory=list)
    """When it last moved, oldest first."""
    others: list[Hops] = field(default_factory=list)
    """Other hops that it had lately, newest first."""

    def take(self, hops: Hops, at_ns: int) -> int | None:
        """Take a newer trace; when it differs the number of the first hop that does, else None."""
        if at_ns < self.traced_ns:
            return None
        first = differs(self.hops, hops)
        if first is None:
            self._confirm(hops, at_ns)
            return None
        self.others = [self.hops, *(o for o in self.others if o != hops)][:_MOST_OTHERS]
        self.moved_ns = [*(t for t in self.moved_ns[-_MOST_OTHERS:] if at_ns - t < _LATELY_NS), at_ns]
        self.former, self.changed_ns = self.hops, self.doubt_ns or at_ns
        self.hops, self.traced_ns = hops, at_ns
        self.doubt_ns, self.doubt_at = 0, -1
        return first

    def _confirm(self, hops: Hops, at_ns: int) -> None:
        self.hops = [old if new is None else new for old, new in zip(self.hops, hops, strict=True)]
        self.traced_ns = at_ns
        if all(h is not None for h in hops[self.doubt_at + 1 :]):
            self.doubt_ns, self.doubt_at = 0, -1

    def unsettle(self, hop: int, at_ns: int) -> bool:
        """The router at `hop` moved flows at `at_ns`; True when that puts this route in (more) doubt."""
        if at_ns <= self.traced_ns or hop >= len(self.hops) - 1:  # after the last router there is but one route
            return False
        if self.doubt_ns and self.doubt_at <= hop:
            return False
        self.doubt_ns, self.doubt_at = self.doubt_ns or at_ns, hop
        return True

    def unsettled_by(self, moved: Mapping[str, int], router: Callable[[str], str]) -> bool:
        """Routers (by name) moved flows at these instants; True when that puts this route in (more) doubt."""
        for hop, address in enumerate(self.hops[:-1]):
            at_ns = moved.get(router(address)) if address is not None else None
            if at_ns is not None and self.unsettle(hop, at_ns):
                return True
        return False

    def doubted(self, moved: Mapping[str, int], router: Callable[[str], str]) -> int:
        """Bus time since when the route is in doubt, these moves of routers considered; 0: it is in none.

        Asked before a newer trace is taken: what it shows to have changed is then laid to the move that is known, and
        is no later one, which would put in doubt what was traced since.
        """
        self.unsettled_by(moved, router)
        return self.doubt_ns

    def sprayed(self) -> bool:
        """Whether it changes so often that it is no single route."""
        return len(self.moved_ns) >= SPRAYED

    def before(self, then_ns: int) -> Hops:
        """The hops that held at an earlier instant."""
        return self.former if self.former is not None and then_ns < self.changed_ns else self.hops

    def snapshot(self) -> dict[str, Any]:
        """Plain values, to be packed at once: lists are the route's own."""
        return {name: getattr(self, name) for name in self.__slots__}


class TracedLinks:
    """What traces show of declared links and of classes of packets, whosever they are.

    A trace that contradicts itself may have met a route that moved meanwhile; of sprayed packets most traces do.
    """

    def __init__(self) -> None:
        self.passed_ns: dict[str, list[int]] = {}
        """Declared directions by which packets of traces came, with the bus times of the last ones, oldest first."""
        self._contradicted: dict[int, list[bool]] = {}
        """DSCP to whether each of its last traces contradicted itself, oldest first."""

    def take(self, topology: Topology, dscp: int, hops: Hops, at_ns: int) -> bool:
        """Take a trace of a class; True when it is known now to be sprayed, or no more."""
        for hop in hops:
            if hop is not None and topology.arrival(hop) is not None:
                name = topology.direction(hop)
                self.passed_ns[name] = [*self.passed_ns.get(name, [])[1 - _PASSED :], at_ns]
        if len(hops) < _LEAST_HOPS or None in hops or not topology.leaf_of:
            return False
        before, last = self.is_sprayed(dscp), self._contradicted.get(dscp, [])
        # not by the first router: its address may follow its NIC to another leaf (`miscabled`)
        self._contradicted[dscp] = [*last[1 - _TRACES :], topology.contradicted_by(hops[1:])]
        return self.is_sprayed(dscp) != before

    def is_sprayed(self, dscp: int) -> bool:
        """Whether each packet of this class takes a way of its own."""
        last = self._contradicted.get(dscp, ())
        return len(last) >= _FEWEST and sum(last) >= _CONTRADICT * len(last)

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [[[*each] for each in known.items()] for known in (self.passed_ns, self._contradicted)]

    def restore(self, state: Any) -> None:
        """Take up a state made by `snapshot`."""
        passed, contradicted = state
        self.passed_ns = {str(name): [int(at) for at in times] for name, times in passed}
        self._contradicted = {int(dscp): [bool(x) for x in last] for dscp, last in contradicted}


class SilentTraces:
    """How far the packets of silent paths got, by the last trace of each that was made since it fell silent."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Hops]] = {}
        """Session to the bus time of the trace, and its hops."""
        self.version = 0
        """Grows with every trace."""

    @property
    def sessions(self) -> list[int]:
        """Those with a trace."""
        return list(self._known)

    def take(self, slot: int, hops: Hops, at_ns: int) -> None:
        """Take a trace of a session's own packets, made while it was silent; the oldest are forgotten."""
        self._known.pop(slot, None)
        self._known[slot] = at_ns, hops
        while at_ns - next(iter(self._known.values()))[0] >= _LATELY_NS:
            del self._known[next(iter(self._known))]
        self.version += 1

    def forget(self, slots: Iterable[int]) -> None:
        """Drop what is known of these sessions."""
        for slot in slots:
            self._known.pop(slot, None)

    def since(self, slot: int, then_ns: int) -> Hops | None:
        """The hops of a session's trace that was made since then; None: none was."""
        at_ns, hops = self._known.get(slot, (0, []))
        return hops if at_ns > then_ns else None

    def has_any(self, slots: Int64s, then_ns: Int64s) -> bool:
        """Whether any of these sessions was traced since its instant."""
        return bool(self._known) and any(map(self.since, slots.tolist(), then_ns.tolist()))

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [self.version, [[slot, at_ns, hops] for slot, (at_ns, hops) in self._known.items()]]

    def restore(self, state: Any) -> None:
        """Take up a state made by `snapshot`."""
        self.version = int(state[0])
        self._known = {int(slot): (int(at_ns), list(hops)) for slot, at_ns, hops in state[1]}


def reach(topology: Topology, sender: str, receiver: str, route: Hops, silent: Hops) -> tuple[list[str], list[str]]:
    """What the packets of a silent path passed, and what lies beyond what stopped them.

    `route` is what it was while it was answered, `silent` the trace made since; where they contradict each other it
    has moved, and nothing is known of what did not answer. Named as `Topology.direction` and `Topology.router` do;
    the NICs' cables as ``nic tx`` and ``nic rx``. Between the two lists lie the link to the first router that was not
    reached and both its ends, any of which may be what stops them.

    >>> reach(Topology(), "h0/r0", "h1/r0", ["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["10.0.0.1", "10.0.0.2", None])
    (['h0/r0 tx', '->10.0.0.2', '10.0.0.1'], ['h1/r0 rx'])
    """
    reached = max((number for number, hop in enumerate(silent, 1) if hop is not None), default=0)
    hops = silent
    if differs(route, silent) is None:
        hops = [before if hop is None else hop for before, hop in zip(route, silent, strict=True)]
    links = [None if hop is None else topology.direction(hop) for hop in hops]
    routers = [None if hop is None else topology.router(hop) for hop in hops]
    passed = [f"{sender} tx", *links[1:reached], *routers[: max(0, reached - 1)]] if reached else []
    beyond = [*links[reached + 1 :], *routers[reached + 1 :]]
    beyond += [f"{receiver} rx"] if reached < len(hops) else []
    return [name for name in passed if name is not None], [name for name in beyond if name is not None]


def mixed(routes: list[dict[str, float]], others: float) -> dict[str, float]:
    """Elements of the first route and, with the probability `others` in all, of the rest."""
    share = [1.0 - others, *[others / max(1, len(routes) - 1)] * (len(routes) - 1)]
    names: dict[str, float] = {}
    for route, share_of in zip(routes, share, strict=True):
        for name, weight in route.items():
            names[name] = names.get(name, 0.0) + share_of * weight
    return {name: min(1.0, round(weight, 12)) for name, weight in names.items()}


def differs(old: Sequence[str | None], new: Sequence[str | None]) -> int | None:
    """Number of the first hop by which two traces contradict each other; None when they do not.

    >>> differs(["a", "b", None], ["a", None, "c"]), differs(["a", "b"], ["a", "c"]), differs(["a"], ["a", "b"])
    (None, 1, 1)
    """
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a is not None and b is not None and a != b:
            return i
    return None if len(old) == len(new) else min(len(old), len(new))


class LinkEnds:
    """Both ends of a link where no cabling is declared: traced addresses of one point-to-point subnet.

    The addresses that answered as hops, at most `_MOST_ADDRESSES`, oldest first.
    """

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self.addresses: dict[str, None] = {}
        self._outer = 0
        """Addresses that are the first or last of four, as no end of a /30 is."""
        self.note(addresses)

    def note(self, hops: Iterable[str | None]) -> None:
        """Take addresses that answered; None for a hop that did not."""
        for hop in hops:
            if hop is not None and hop not in self.addresses and len(self.addresses) < _MOST_ADDRESSES:
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
