"""What traces show: the route of every flow and probe path (`Routes`), and whether a source port selects one.

A route is the list of hop addresses, each one link direction. It counts only when every hop answered and it was traced
lately; everything else is unknown, and nothing is filled in. A trace with gaps that agrees with a complete one before
it neither renews nor refutes it; one that contradicts it makes the route unknown until it is traced whole again.

Ages are bus time: tracing hosts' clocks may be hours off.

**Does the source port select a path?** yes, no or unknown per pair of NICs (`Selectable`), with the counts:

- **no, sprayed**: the same five-tuple took different routes without a change of the topology, or a trace holds hops
  that are no neighbours (its packets took several routes), or most five-tuples of the pair were found on another route
  three times in a row, whatever the reason. Steering such traffic does nothing that lasts.
- **no, hashed alike**: many source ports were traced whole and all took one route.
- **yes**: two source ports with different whole routes, enough traces, and nothing of the above.
- **unknown**: everything else, and for as long as a changed route is not explained yet.

A change is explained by *unrest*: some probe path fell silent or came back (or a link was found down or well) between
the trace before and shortly after the trace that differs. That may be known later than the trace: the decision waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.records.fabric import Flow
from sdfstream.records.units import TICK_NS

MAX_ROUTES: Final = 400_000
"""Routes held at once, flows and probe paths together; more are refused and counted."""

Change = Literal["new", "same", "changed", "gaps"]
Hops = tuple[str | None, ...]


class ProbeKey(NamedTuple):
    """A probe path, as watches name it (with the sending NIC)."""

    src: str
    dst: str
    path: int
    dscp: int


class Directed(NamedTuple):
    """One direction of a probe path: ``fwd`` from its sender, ``rev`` back to it."""

    key: ProbeKey
    dir: str


@dataclass(slots=True)
class Route:
    """Hops by the last traces."""

    hops: Hops
    complete: bool
    at_ns: int
    """Bus time of the last whole trace of this route; of the first trace with gaps where there was none."""
    traces: int = 1
    """Whole traces in a row with the same hops."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a trace changed."""

    change: Change
    before_ns: int
    """When the route was last traced before; now, when it is new."""


class Routes:
    """Routes by flow and by directed probe path; one that was not traced whole for `max_age_ns` is unknown."""

    def __init__(self, max_age_ns: int) -> None:
        self.max_age_ns = max_age_ns
        self._flows: dict[Flow, Route] = {}
        self._probes: dict[Directed, Route] = {}
        self._crossing: dict[tuple[str, str], dict[Directed, None]] = {}
        """(sending NIC, hop) to its probe paths whose route crosses the hop."""
        self._over: dict[str, dict[Directed, None]] = {}
        """Hop to all directed probe paths over it."""
        self.version = 0
        """Grows whenever the route of a probe path changes."""

    def __len__(self) -> int:
        return len(self._flows) + len(self._probes)

    def take_flow(self, flow: Flow, hops: Hops, complete: bool, at_ns: int) -> Learned | None:
        """Take a traced flow; None when there is no room."""
        return self._take(self._flows, flow, hops, complete, at_ns)

    def take_probe(self, path: Directed, hops: Hops, complete: bool, at_ns: int) -> Learned | None:
        """Take a traced probe path; None when there is no room."""
        before = self._probes.get(path)
        old = before.hops if before is not None and before.complete else ()
        learned = self._take(self._probes, path, hops, complete, at_ns)
        route = self._probes.get(path)
        new = route.hops if route is not None and route.complete else ()
        if old != new:
            self._index(path, old, new)
        return learned

    def _take(self, table: dict[Any, Route], key: Any, hops: Hops, complete: bool, at_ns: int) -> Learned | None:
        before = table.get(key)
        if before is None:
            if len(self) >= MAX_ROUTES:
                return None
            table[key] = Route(hops, complete, at_ns)
            return Learned("new", at_ns)
        before_ns = before.at_ns
        if not _agree(before.hops, hops):
            table[key] = Route(hops, complete, at_ns)
            return Learned("changed", before_ns)
        if not complete:
            return Learned("gaps", before_ns)
        same = before.complete
        table[key] = Route(hops, True, at_ns, before.traces + 1 if same else 1)
        return Learned("same" if same else "new", before_ns)

    def flow(self, flow: Flow, now_ns: int) -> tuple[str, ...] | None:
        """The route of a flow; None: unknown."""
        return self._known(self._flows.get(flow), now_ns)

    def _known(self, route: Route | None, now_ns: int) -> tuple[str, ...] | None:
        if route is None or not route.complete or now_ns - route.at_ns > self.max_age_ns:
            return None
        return tuple(hop for hop in route.hops if hop is not None)

    def crossing(self, nic: str, hop: str, now_ns: int) -> list[ProbeKey]:
        """Probe paths that `nic` sends which cross `hop` there or back, in order of their names."""
        found = self._crossing.get((nic, hop), {})
        return sorted({path.key for path in found if self._known(self._probes.get(path), now_ns) is not None})

    def over(self, hop: str, now_ns: int) -> list[Directed]:
        """All directed probe paths over `hop`, in order of their names."""
        found = self._over.get(hop, {})
        return sorted(path for path in found if self._known(self._probes.get(path), now_ns) is not None)

    def forget(self, now_ns: int) -> int:
        """Drop what was not traced for three times the age at which it is unknown; how much."""
        before_ns, gone = now_ns - 3 * self.max_age_ns, 0
        for flow in [f for f, route in self._flows.items() if route.at_ns < before_ns]:
            del self._flows[flow]
            gone += 1
        for path in [p for p, route in self._probes.items() if route.at_ns < before_ns]:
            route = self._probes.pop(path)
            self._index(path, route.hops if route.complete else (), ())
            gone += 1
        return gone

    def _index(self, path: Directed, old: Hops, new: Hops) -> None:
        self.version += 1
        for hop in old:
            if hop is not None:
                self._crossing.get((path.key.src, hop), {}).pop(path, None)
                self._over.get(hop, {}).pop(path, None)
        for hop in new:
            if hop is not None:
                self._crossing.setdefault((path.key.src, hop), {})[path] = None
                self._over.setdefault(hop, {})[path] = None

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "flows": [[*f, list(w.hops), w.complete, w.at_ns, w.traces] for f, w in self._flows.items()],
            "probes": [[*p.key, p.dir, list(w.hops), w.complete, w.at_ns, w.traces] for p, w in self._probes.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._flows = {Flow(*row[:6]): _route_of(row[6:]) for row in state["flows"]}
        self._probes = {Directed(ProbeKey(*row[:4]), row[4]): _route_of(row[5:]) for row in state["probes"]}
        self._crossing, self._over = {}, {}
        for path, route in self._probes.items():
            if route.complete:
                self._index(path, (), route.hops)


def hops_of(value: Any) -> Hops:
    """The `hops` of a trace event.

    Raises
    ------
    TypeError
        It is no list of texts and nulls.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError("hops is no list")
    hops = tuple(value)
    if not all(hop is None or isinstance(hop, str) for hop in hops):
        raise TypeError("a hop is an address or null")
    return hops


def _agree(before: Iterable[str | None], now: Iterable[str | None]) -> bool:
    old, new = tuple(before), tuple(now)
    return len(old) == len(new) and all(a is None or b is None or a == b for a, b in zip(old, new, strict=True))


def _route_of(row: Sequence[Any]) -> Route:
    return Route(tuple(row[0]), bool(row[1]), int(row[2]), int(row[3]))


Answer = Literal["yes", "no", "unknown"]
Pair = tuple[str, str]

_RESTLESS: Final = 3
"""Changes in a row: a link that goes and comes back makes two."""
_MOST_UNREST: Final = 10_000
_MOST_PENDING: Final = 100_000


@dataclass(frozen=True, slots=True)
class Selectability:
    """Whether the source port selects a path from one NIC to another, and what that rests on."""

    src: str
    dst: str
    answer: Answer
    why: str
    ports: int
    """Source ports of the most telling class of five-tuples with a whole, fresh route."""
    routes: int
    """Different routes among them."""
    traces: int
    """Whole traces of the pair, both directions."""
    changes: int
    """Unexplained changes remembered."""


@dataclass(slots=True)
class _Evidence:
    routes: dict[str, dict[int, tuple[Hops, int]]] = field(default_factory=dict)
    """Class of five-tuples (all but the source port) to source port to (route, when traced)."""
    traces: int = 0
    streaks: dict[str, dict[int, int]] = field(default_factory=dict)
    """Class and source port to the changes in a row up to its last trace."""
    sprayed: list[int] = field(default_factory=list)
    """When an unexplained change was seen."""


@dataclass(frozen=True, slots=True)
class _Pending:
    pair: Pair
    from_ns: int
    at_ns: int


class Selectable:
    """Evidence per directed pair of NICs."""

    def __init__(self, config: ActuateConfig) -> None:
        self.config = config
        self._explain_ns, self._memory_ns = ns(config.explain_s), ns(config.spray_memory_s)
        self._max_age_ns = ns(config.route_max_age_s)
        self._pairs: dict[Pair, _Evidence] = {}
        self._unrest: list[int] = []
        self._pending: list[_Pending] = []

    def note(self, pair: Pair, kind: str, port: int, hops: Hops, change: Change, before_ns: int, at_ns: int) -> None:
        """Take a trace: `change` says how it compares with the trace before, at `before_ns`."""
        found = self._pairs.setdefault(pair, _Evidence())
        ports = found.routes.setdefault(kind, {})
        if None not in hops:
            found.traces += 1
            ports[port] = (hops, at_ns)
        elif change == "changed":
            ports.pop(port, None)
        if change in ("same", "changed"):
            streaks = found.streaks.setdefault(kind, {})
            streaks[port] = streaks.get(port, 0) + 1 if change == "changed" else 0
        if change == "changed":
            self._suspect(_Pending(pair, before_ns, at_ns))

    def broken(self, pair: Pair, kind: str, port: int, at_ns: int) -> None:
        """A trace of this pair holds hops that are no neighbours."""
        found = self._pairs.setdefault(pair, _Evidence())
        found.routes.get(kind, {}).pop(port, None)
        streaks = found.streaks.setdefault(kind, {})
        streaks[port] = streaks.get(port, 0) + 1
        self._suspect(_Pending(pair, at_ns - self._explain_ns, at_ns))

    def _suspect(self, change: _Pending) -> None:
        if len(self._pending) < _MOST_PENDING:
            self._pending.append(change)

    def unrest(self, at_ns: int) -> None:
        """The fabric changes: what is traced differently around now has its reason."""
        if not self._unrest or at_ns - self._unrest[-1] >= TICK_NS:
            self._unrest.append(at_ns)
            if len(self._unrest) > _MOST_UNREST:
                del self._unrest[: _MOST_UNREST // 2]

    def settle(self, now_ns: int) -> None:
        """Decide on the changes whose time for an explanation is over."""
        waiting = []
        for change in self._pending:
            if now_ns - change.at_ns < self._explain_ns:
                waiting.append(change)
            elif not self._explained(change):
                self._pairs[change.pair].sprayed.append(change.at_ns)
        self._pending = waiting

    def _explained(self, change: _Pending) -> bool:
        at = bisect_left(self._unrest, change.from_ns - self._explain_ns)
        return at < len(self._unrest) and self._unrest[at] <= change.at_ns + self._explain_ns

    def of(self, src: str, dst: str, now_ns: int) -> Selectability:
        """Verdict for data from `src` to `dst`, whose answers come back."""
        there, back = self._pairs.get((src, dst), _Evidence()), self._pairs.get((dst, src), _Evidence())
        ports, routes = self._best_evidence(there, now_ns)
        traces = there.traces + back.traces
        memory_ns = now_ns - self._memory_ns
        changes = sum(at > memory_ns for one in (there, back) for at in one.sprayed)
        answer, why = self._decide(ports, routes, traces)
        if any(change.pair in ((src, dst), (dst, src)) for change in self._pending):
            answer, why = "unknown", "a way has just changed and the reason is not known yet"
        if _restless(there) or _restless(back):
            answer, why = "no", "most five-tuples go another way at every trace: sprayed, or ways never rest"
        if changes:
            answer, why = "no", f"the same five-tuple took different ways without a cause, {changes} times"
        return Selectability(src, dst, answer, why, ports, routes, traces, changes)

    def _best_evidence(self, found: _Evidence, now_ns: int) -> tuple[int, int]:
        """(ports, different routes) of the class of five-tuples that says most."""
        oldest_ns, best = now_ns - self._max_age_ns, (0, 0)
        for ports in found.routes.values():
            fresh = [hops for hops, at_ns in ports.values() if at_ns >= oldest_ns]
            routes = len(set(fresh))
            if (routes, len(fresh)) > (best[1], best[0]):
                best = (len(fresh), routes)
        return best

    def _decide(self, ports: int, routes: int, traces: int) -> tuple[Answer, str]:
        if routes >= 2 and traces >= self.config.selectable_traces:
            return "yes", f"{ports} source ports went {routes} different ways"
        if routes == 1 and ports >= self.config.selectable_ports:
            return "no", f"{ports} source ports were traced and all went one way"
        return "unknown", f"{ports} source ports traced whole, {routes} ways, {traces} traces: too little to tell"

    def all(self, now_ns: int) -> list[Selectability]:
        """Verdicts of all pairs that anything is known of, by name."""
        return [self.of(src, dst, now_ns) for src, dst in sorted(self._pairs)]

    def forget(self, now_ns: int) -> None:
        """Drop what is too old to count."""
        oldest_ns = now_ns - self._max_age_ns
        memory_ns = now_ns - self._memory_ns
        self._unrest = self._unrest[bisect_left(self._unrest, min(oldest_ns, memory_ns)) :]
        for pair, found in list(self._pairs.items()):
            found.sprayed = [at for at in found.sprayed if at > memory_ns]
            for kind, ports in list(found.routes.items()):
                found.routes[kind] = {p: route for p, route in ports.items() if route[1] >= oldest_ns}
                if not found.routes[kind]:
                    del found.routes[kind]
                    found.streaks.pop(kind, None)
            if not found.routes and not found.sprayed and not any(p.pair == pair for p in self._pending):
                del self._pairs[pair]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        pairs = [
            [
                *pair,
                [[kind, [[p, list(h), at] for p, (h, at) in ports.items()]] for kind, ports in e.routes.items()],
                e.traces,
                [[kind, list(streaks.items())] for kind, streaks in e.streaks.items()],
                e.sprayed,
            ]
            for pair, e in self._pairs.items()
        ]
        pending = [[*p.pair, p.from_ns, p.at_ns] for p in self._pending]
        return {"pairs": pairs, "unrest": self._unrest, "pending": pending}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._pairs = {}
        for src, dst, kinds, traces, rows, sprayed in state["pairs"]:
            routes = {kind: {p: (tuple(h), at) for p, h, at in ports} for kind, ports in kinds}
            streaks = {kind: {port: n for port, n in row} for kind, row in rows}
            self._pairs[src, dst] = _Evidence(routes, traces, streaks, list(sprayed))
        self._unrest = list(state["unrest"])
        self._pending = [_Pending((a, b), from_ns, at_ns) for a, b, from_ns, at_ns in state["pending"]]


def _restless(found: _Evidence) -> bool:
    """Whether most five-tuples of a pair, of two at least, have changed their route time and again."""
    rows = [n for streaks in found.streaks.values() for n in streaks.values()]
    restless = sum(n >= _RESTLESS for n in rows)
    return restless >= 2 and 2 * restless > len(rows)
