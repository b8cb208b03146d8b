"""The traces of the hosts' agents: every path now and then, and a few of those that fall silent, at once.

Of a silent path a trace shows how far its packets still get. A router's answer needs a way back, which may be dead
where the path itself is not.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.fabric import PATH_TYPE, SILENT_TYPE
from sdfstream.records.message import Event
from sdfstream.records.topics import TOPOLOGY
from sdfstream.records.units import NS_PER_MS, NS_PER_S, Int64s
from sdfstream.twin import rows
from sdfstream.twin.agents import Agents
from sdfstream.twin.conditions import Conditions

_SILENT_TAKES_NS: Final = 250 * NS_PER_MS
"""From a path's silence to its trace: two waits for answers, and what the agent takes to begin and to end."""
_MOST_SILENT: Final = 4
_SILENT_PAUSE_NS: Final = 10 * NS_PER_S
"""Paths of one NIC traced in so long because they fell silent, each to another NIC."""


class AgentTraces:
    """What agents trace of their sessions' routes.

    Parameters
    ----------
    agents : Agents
    rng : numpy.random.Generator
        Draws the ways back of routers' answers.
    """

    def __init__(self, agents: Agents, rng: np.random.Generator) -> None:
        self.agents, self.sessions, self.fabric, self.rng = agents, agents.sessions, agents.fabric, rng
        self._fallen: list[tuple[int, int]] = []
        """(when its trace is done, session) of paths that fell silent."""
        self._lately_ns: dict[int, dict[int, int]] = {}
        """NIC to far NICs, with when a silent path to each was traced last."""

    def trace(self, numbers: list[int], at_ns: int, now: Conditions) -> None:
        """Trace sessions' routes both ways, a millisecond apart; what is dropped on its route finds nothing."""
        s, table = self.sessions, self.sessions.tables[-1]
        spray, silent = table.fwd.shape[0], now.down | now.mute
        dropping = _dropping(now)
        for turn, k in enumerate(numbers):
            for direction, routes, by, flows in (
                ("fwd", table.fwd, s.src_host, s.flow_fwd),
                ("rev", table.rev, s.dst_host, s.flow_rev),
            ):
                host = int(by[k])
                stops = {x for x in dropping if now.stops(x, flows[k])}
                if silent[host] or (spray == 1 and not stops.isdisjoint(routes[0, k].tolist())):
                    continue
                self._publish(k, direction, host, self._hops(routes[:, k], stops), at_ns + turn * NS_PER_MS // 4)

    def take_silent(self) -> None:
        """Trace a few of the paths that fell silent in the last block."""
        s, fallen = self.sessions, self.agents.fell_silent
        for k, at_ns in zip(fallen.session.tolist(), fallen.at_ns.tolist(), strict=True):
            src, dst = int(s.src[k]), int(s.dst[k])
            lately = {d: t for d, t in self._lately_ns.get(src, {}).items() if at_ns - t < _SILENT_PAUSE_NS}
            if dst not in lately and len(lately) < _MOST_SILENT:
                self._lately_ns[src] = lately | {dst: at_ns}
                self._fallen.append((at_ns + _SILENT_TAKES_NS, k))

    def trace_silent(self, until_ns: int, now: Conditions) -> None:
        """Report traces of silent paths that are done by then; not of those that are answered again."""
        done = [(at_ns, k) for at_ns, k in self._fallen if at_ns <= until_ns]
        self._fallen = [(at_ns, k) for at_ns, k in self._fallen if at_ns > until_ns]
        s, table, dropping = self.sessions, self.sessions.tables[-1], _dropping(now)
        for _, k in sorted(done):
            host = int(s.src_host[k])
            if now.down[host] or now.mute[host] or not self.agents.is_silent(k):
                continue
            stops = {x for x in dropping if now.stops(x, s.flow_fwd[k])}
            stops |= {x for x, largest in now.largest.items() if s.size_bytes[k] > largest}
            hops = self._hops(table.fwd[:, k], stops)
            if table.fwd.shape[0] == 1:
                hops = self._reached(k, stops, now)
            self._publish(k, "fwd", host, hops, until_ns, silent=True)

    def _reached(self, k: int, stops: set[int], now: Conditions) -> list[str | None]:
        """Addresses of the routers that a session's packets reach and whose answers come back; None for the others."""
        route = [x for x in self.sessions.tables[-1].fwd[0, k].tolist() if x != self.fabric.links]
        hops: list[str | None] = []
        for hop in range(len(route) - 1):
            back = self._back(k, route, hop)
            came = stops.isdisjoint(route[: hop + 1]) and not any(now.loss[x] >= 1 for x in back)
            hops.append(self.fabric.address(route[hop]) if came else None)
        return hops

    def _back(self, k: int, route: list[int], hop: int) -> list[int]:
        """The way of a router's answer: back as the packet came while it went up, else as answers between both NICs."""
        if hop <= (len(route) - 2) // 2:
            return [x ^ 1 for x in route[: hop + 1]]
        s = self.sessions
        alike = np.flatnonzero((s.src == s.src[k]) & (s.dst == s.dst[k]))
        rev = [x for x in s.tables[-1].rev[0, self.rng.choice(alike)].tolist() if x != self.fabric.links]
        return rev[len(rev) - 1 - hop :]

    def _hops(self, routes: Int64s, stops: set[int]) -> list[str | None]:
        """Addresses of a trace's hops over one of these (choices, links) routes; None: no answer.

        Sprayed, each packet takes a route of its own, and three try each hop.
        """
        choices = [[x for x in route if x != self.fabric.links] for route in routes.tolist()]
        if len(choices) == 1:
            return [self.fabric.address(x) for x in choices[0][:-1]]
        hops: list[str | None] = []
        for hop in range(len(choices[0]) - 1):
            tried = (choices[self.agents.outbox.rng.integers(len(choices))][: hop + 1] for _ in range(3))
            came = next((route[hop] for route in tried if stops.isdisjoint(route)), None)
            hops.append(None if came is None else self.fabric.address(came))
        return hops

    def _publish(
        self, k: int, direction: str, host: int, hops: list[str | None], at_ns: int, *, silent: bool = False
    ) -> None:
        a, name = self.agents, self.fabric.hosts[host]
        data: dict[str, Any] = rows.route_data(a.name(k), direction, hops, a.clocks.shown(host, at_ns, a.start_ns))
        key, kind = "{} {} {} {} {}".format(*a.name(k), direction), PATH_TYPE
        if silent:
            key, kind = f"{key} silent", SILENT_TYPE
            del data["complete"]
        event = Event(kind, name, f"{key}-{at_ns}", a.start_ns + at_ns, data)
        a.outbox.put(at_ns, TOPOLOGY, key, event, source=name)


def _dropping(now: Conditions) -> set[int]:
    """Directions that drop all packets, or all of some five-tuples."""
    return set(np.flatnonzero(now.loss >= 1).tolist()) | now.hashed.keys()
