"""What is known of routes and probe paths: the hops of every flow and probe path, and which probe paths are alive.

A route is the list of hop addresses, each one link direction. It counts only when every hop answered and it was traced
lately; everything else is unknown, and nothing is filled in. A trace with gaps that agrees with a complete one before
it neither renews nor refutes it; one that contradicts it makes the route unknown until it is traced whole again.

Ages are bus time: tracing hosts' clocks may be hours off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sdfstream.records.fabric import Flow, host_of

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
    complete: bool


class Routes:
    """Routes by flow and by directed probe path.

    Parameters
    ----------
    max_age_ns : int
        A route that was not traced whole for this long is unknown.
    """

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
            return Learned("new", at_ns, complete)
        before_ns = before.at_ns
        if not _agree(before.hops, hops):
            table[key] = Route(hops, complete, at_ns)
            return Learned("changed", before_ns, complete)
        if not complete:
            return Learned("gaps", before_ns, before.complete)
        same = before.complete
        table[key] = Route(hops, True, at_ns, before.traces + 1 if same else 1)
        return Learned("same" if same else "new", before_ns, True)

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


def segments(data: Sequence[str], answers: Sequence[str]) -> tuple[str, ...]:
    """The link directions that a queue pair depends on, but for its two NICs' own cables.

    The first hop of either route is met over the sender's own cable, which every other route of that NIC shares.

    >>> segments(("l0", "s1", "l1"), ("l1b", "s1b", "l0b"))
    ('s1', 'l1', 's1b', 'l0b')
    """
    return tuple(dict.fromkeys((*data[1:], *answers[1:])))


def _agree(before: Iterable[str | None], now: Iterable[str | None]) -> bool:
    old, new = tuple(before), tuple(now)
    return len(old) == len(new) and all(a is None or b is None or a == b for a, b in zip(old, new, strict=True))


def _route_of(row: Sequence[Any]) -> Route:
    return Route(tuple(row[0]), bool(row[1]), int(row[2]), int(row[3]))


MAX_PATHS: Final = 200_000
_STATES: Final = ("alive", "silent", "unknown")


class Probing:
    """Hosts by last sign of life (bus time), and the probe paths that their agents send."""

    def __init__(self) -> None:
        self._last_received_at_ns: dict[str, int] = {}
        self._paths: dict[ProbeKey, tuple[str, int]] = {}
        """State and interval (ns) of every path that exists."""
        self._of_host: dict[str, dict[ProbeKey, None]] = {}
        self.version = 0
        """Grows whenever a probe path comes, goes or changes its pace."""
        self.shed = 0
        """Paths that there was no room for, since it was last read."""

    def received_from(self, host: str, at_ns: int) -> None:
        """Note a message of this host's agent."""
        if host:
            self._last_received_at_ns[host] = max(at_ns, self._last_received_at_ns.get(host, at_ns))

    def silence_ns(self, host: str, now_ns: int) -> int | None:
        """Time since the last message of the host's agent; None: there was none."""
        at_ns = self._last_received_at_ns.get(host)
        return None if at_ns is None else now_ns - at_ns

    def take(self, data: Mapping[str, Any]) -> tuple[set[str], bool]:
        """Take a liveness statement.

        Returns
        -------
        touched : set of str
            NICs whose set of probe paths changed, or how fast they are.
        unrest : bool
            Some path fell silent or came back.

        Raises
        ------
        KeyError, TypeError, ValueError, AttributeError
            The statement does not follow its schema.
        """
        host = str(data["host"])
        mine: dict[ProbeKey, tuple[str, int]] = {}
        for entry in data["changes"]:
            state = entry["state"]
            if state not in _STATES:
                raise ValueError(f"no state {state!r}")
            if entry["role"] == "sender":
                key = ProbeKey(str(entry["src"]), str(entry["dst"]), int(entry["path"]), int(entry["dscp"]))
                mine[key] = (state, int(entry["interval_ns"]))
        touched: set[str] = set()
        unrest = False
        known = len(self._paths)
        for key, (state, interval_ns) in mine.items():
            before = self._paths.get(key)
            if before is None or before[1] != interval_ns:
                touched.add(key.src)
            if before is not None and {before[0], state} == {"alive", "silent"}:
                unrest = True
            self._put(host, key, state, interval_ns)
        if data["complete"]:
            for key in [k for k in self._of_host.get(host, {}) if k not in mine]:
                del self._of_host[host][key]
                self._paths.pop(key, None)
                touched.add(key.src)
        self.version += bool(touched) or len(self._paths) != known
        return touched, unrest

    def _put(self, host: str, key: ProbeKey, state: str, interval_ns: int) -> None:
        if key not in self._paths and len(self._paths) >= MAX_PATHS:
            self.shed += 1
            return
        self._paths[key] = (state, interval_ns)
        self._of_host.setdefault(host, {})[key] = None

    def interval_ns(self, key: ProbeKey) -> int | None:
        """Interval between the path's probes; None: it is not probed."""
        found = self._paths.get(key)
        return None if found is None else found[1]

    def alive(self, key: ProbeKey) -> bool:
        """Whether its sender receives answers on it."""
        found = self._paths.get(key)
        return found is not None and found[0] == "alive"

    def forget(self, before_ns: int) -> None:
        """Drop hosts without a message since."""
        for host in [h for h, at_ns in self._last_received_at_ns.items() if at_ns < before_ns]:
            del self._last_received_at_ns[host]
            for key in self._of_host.pop(host, {}):
                self._paths.pop(key, None)
                self.version += 1

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        of = {key: host for host, keys in self._of_host.items() for key in keys}
        return {
            "heard": list(self._last_received_at_ns.items()),
            "paths": [[*key, *about, of.get(key, host_of(key.src))] for key, about in self._paths.items()],
            "shed": self.shed,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._last_received_at_ns = {host: at_ns for host, at_ns in state["heard"]}
        self._paths, self._of_host = {}, {}
        for src, dst, path, dscp, name, interval_ns, host in state["paths"]:
            key = ProbeKey(src, dst, path, dscp)
            self._paths[key] = (name, interval_ns)
            self._of_host.setdefault(host, {})[key] = None
        self.shed = state["shed"]
