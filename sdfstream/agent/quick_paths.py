"""Which watch ports are quick now, within the packets per second that a NIC and a target may have. No I/O.

The watch ports of a NIC pair are *candidates*: probed at `watch_candidate_hz`, often enough to be traced, and known to
live. Of these some are *quick*, probed at `watch_rate_hz`:

- of pairs whose queue pairs are armed: those that `watch_cover` chooses, by the segments and probe paths that the
  commands name (there and back) and by the host's own traces (there), which are newer;
- of pairs of which that is not known (yet): up to `UNMAPPED` ports, on different routes where routes are known.

A path that is not needed any more stays quick for `HOLD_NS`, if there is room: what takes its place is alive by then,
and a choice that goes back and forth changes nothing.

Segments that no candidate crosses are sought by further ports (`spare_ports`), which are candidates then.

Where `watch_nic_pps` does not suffice: segments are no longer told apart, or shown twice (`watch_cover`); then all
quick paths of the NIC are probed at half the rate; then segments are left to the candidates, those of alternates first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from sdfstream.agent.commands.crossings import ProbePath, crosses
from sdfstream.agent.commands.path_watch import WatchedRoutes
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.spare_ports import SparePorts
from sdfstream.agent.watch_cover import Cover, CoverRoom, Crossings, cover
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

UNMAPPED: Final = 4
"""Quick ports of a pair whose routes back are not known: of four equal-cost routes they miss a third on average."""
HOLD_NS: Final = 10 * NS_PER_S
_LOOK_NS: Final = NS_PER_S
_TRACES_NS: Final = 500 * NS_PER_MS
"""Pause between two choices for new traces: at first they come ten a second."""
_BACK: Final = 0.9
"""The full rate comes back when so much of the budget suffices for it."""


_PairName: TypeAlias = tuple[str, str, int]
"""Source and destination NIC id, DSCP."""


def watch_ports(config: AgentConfig) -> tuple[int, ...]:
    """Source ports of every watched pair."""
    return tuple(range(config.watch_first_port, config.watch_first_port + config.watch_ports))


def spare_ports(config: AgentConfig) -> tuple[int, ...]:
    """Further ones, of pairs whose watch ports miss a segment."""
    first = config.watch_first_port + config.watch_ports
    return tuple(range(first, first + config.watch_spare_ports))


@dataclass(slots=True)
class _NicChoice:
    """What was chosen for a NIC."""

    rate_hz: float
    needed_ns: dict[ProbePath, int] = field(default_factory=dict)
    """Quick paths, and when each was last needed; steady clock."""
    shed: tuple[int, int, int] = (0, 0, 0)
    """Segments and pairs that no quick path shows; what is not told apart, or shown once only; paths at half rate."""


class QuickPaths:
    """The quick paths of one host.

    Parameters
    ----------
    config : AgentConfig
    routes : ForwardRoutes
        Of the host's own probe paths and flows.
    counters : Counters
        Gets ``shed.watch-budget`` (segments or pairs not shown), ``shed.watch-apart`` (pairs of segments not told
        apart, segments shown once only), ``shed.watch-rate`` (paths at half the rate) and ``shed.watch-uncrossed``
        (segments that no port of a pair crosses, spare ones neither), each time a choice leaves out more.
    """

    def __init__(self, config: AgentConfig, routes: ForwardRoutes, counters: Counters) -> None:
        self._config = config
        self._routes = routes
        self._counters = counters
        self._pairs: dict[str, list[WatchRequest]] = {}
        self._watched = WatchedRoutes()
        self._chosen: dict[str, _NicChoice] = {}
        self._spares: dict[_PairName, SparePorts] = {}
        self._uncrossed: frozenset[tuple[_PairName, str]] = frozenset()
        self._full_hz = config.watch_rate_hz
        self._changed = False
        self._version = 0
        self._look_at_ns = self._traces_at_ns = 0

    def watch(self, pairs: Iterable[WatchRequest]) -> None:
        """The pairs watched from now on."""
        self._pairs = {}
        for pair in pairs:
            self._pairs.setdefault(pair.src, []).append(pair)
        self._chosen = {nic: found for nic, found in self._chosen.items() if nic in self._pairs}
        names = [_name(pair) for pairs in self._pairs.values() for pair in pairs]
        self._spares = {name: self._spares.get(name) or SparePorts(spare_ports(self._config)) for name in names}
        self._changed = True

    def cover(self, watched: WatchedRoutes) -> None:
        """The routes of armed commands, from now on."""
        self._changed = self._changed or watched != self._watched
        self._watched = watched

    def take_share(self, share: float) -> None:
        """Probe quick paths at `share` of their rate from now on."""
        self._changed = self._changed or self._full_hz != share * self._config.watch_rate_hz
        self._full_hz = share * self._config.watch_rate_hz

    def rate_hz(self, src: str, path: ProbePath) -> float | None:
        """Probes per second of a quick path; None: it is not quick."""
        chosen = self._chosen.get(src)
        return chosen.rate_hz if chosen is not None and path in chosen.needed_ns else None

    def ports(self, pair: WatchRequest) -> tuple[int, ...]:
        """Ports of a watched pair: its candidates' and quick ones."""
        return (*self._watch_ports(pair.src), *self._spares[_name(pair)].probed)

    def _watch_ports(self, src: str) -> tuple[int, ...]:
        """All watch ports, unless the NIC's candidates took more than half the budget."""
        pairs = len(self._pairs.get(src, ()))
        affordable = int(self._config.watch_nic_pps / 2 / self._config.watch_candidate_hz / max(pairs, 1))
        return watch_ports(self._config)[: max(affordable, 1)]

    def choose(self, now_ns: int) -> bool:
        """Choose anew if something has changed; whether the choice may have."""
        traced = self._routes.version != self._version and now_ns >= self._traces_at_ns
        if not self._changed and not traced and now_ns < self._look_at_ns:
            return False
        self._changed, self._version = False, self._routes.version
        self._look_at_ns, self._traces_at_ns = now_ns + _LOOK_NS, now_ns + _TRACES_NS
        nics = self._seek(now_ns)
        targets: dict[str, float] = {}
        for pairs in self._pairs.values():
            for pair in pairs:
                slow_pps = len(self.ports(pair)) * self._config.watch_candidate_hz
                targets[_target(pair)] = targets.get(_target(pair), self._config.watch_target_pps) - slow_pps
        for nic in nics:
            self._choose_for(nic, targets, now_ns)
        self._report_shortage()
        return True

    def _nic(self, name: str) -> _Nic:
        return _Nic(name, {pair: self.ports(pair) for pair in self._pairs[name]}, self._routes, self._watched)

    def _seek(self, now_ns: int) -> list[_Nic]:
        """Try spare ports where no watch port crosses what is watched; candidates may take half of each budget.

        Returns
        -------
        list of _Nic
            With the ports that are probed now.
        """
        hz = self._config.watch_candidate_hz
        at_target: dict[str, int] = {}
        for name, pairs in self._pairs.items():
            for pair in pairs:
                most = at_target.get(_target(pair), int(self._config.watch_target_pps / 2 / hz))
                at_target[_target(pair)] = most - len(self._watch_ports(name))
        nics = []
        for name, pairs in self._pairs.items():
            nic, ports = self._nic(name), self._watch_ports(name)
            before = [self.ports(pair) for pair in pairs]
            left = int(self._config.watch_nic_pps / 2 / hz) - len(pairs) * len(ports)
            for pair in pairs:
                spares = self._spares[_name(pair)]
                known = nic.knowledge(pair, ports)
                room = min(left, at_target[_target(pair)])
                settled, there = known.settled, known.there
                spares.step(known.lacking, known.crossed, known.traced, room, now_ns, settled=settled, there=there)
                left -= len(spares.probed)
                at_target[_target(pair)] -= len(spares.probed)
            nics.append(nic if before == [self.ports(pair) for pair in pairs] else self._nic(name))
        found = frozenset((name, s) for name, spares in self._spares.items() for s in spares.missing)
        self._counters.add("shed", "watch-uncrossed", len(found - self._uncrossed))
        self._uncrossed = found
        return nics

    def _choose_for(self, nic: _Nic, targets: dict[str, float], now_ns: int) -> None:
        config = self._config
        before = self._chosen.setdefault(nic.name, _NicChoice(self._full_hz))
        slow_hz = config.watch_candidate_hz
        left_pps = config.watch_nic_pps - len(nic.target_of) * slow_hz
        for share in (1.0, 0.5):
            rate_hz = max(share * self._full_hz, slow_hz)
            more_hz = max(rate_hz - slow_hz, 1e-3)
            spared = _BACK if share > before.rate_hz / self._full_hz else 1.0
            room = CoverRoom(
                max(0, int(spared * left_pps / more_hz)),
                nic.target_of,
                {target: max(0, int(pps / more_hz)) for target, pps in targets.items()},
            )
            found, starved = nic.choose(room, before.needed_ns)
            if not found.unshown and not starved:
                break
        if rate_hz != before.rate_hz:
            before.rate_hz, before.needed_ns = rate_hz, {}
        self._hold(before, found.paths, room, now_ns)
        for path in before.needed_ns:
            if (target := nic.target_of[path]) in targets:
                targets[target] -= more_hz
        shed = (len(found.unshown) + starved, found.confused + found.once, len(found.paths) if share < 1 else 0)
        for what, n, was in zip(("watch-budget", "watch-apart", "watch-rate"), shed, before.shed, strict=True):
            self._counters.add("shed", what, max(0, n - was))
        before.shed = shed

    @staticmethod
    def _hold(chosen: _NicChoice, paths: Sequence[ProbePath], room: CoverRoom, now_ns: int) -> None:
        """Note what is needed now; what is not stays for a while, the latest needed first, as far as there is room."""
        unneeded = [(-at, path) for path, at in chosen.needed_ns.items() if path not in paths]
        chosen.needed_ns = dict.fromkeys(paths, now_ns)
        for at, path in sorted(unneeded):
            target = room.target_of.get(path)
            if target is None or now_ns + at >= HOLD_NS or len(chosen.needed_ns) >= room.most:
                continue
            if room.at_target.get(target, 1) > 0:
                room.at_target[target] = room.at_target.get(target, 1 << 30) - 1
                chosen.needed_ns[path] = -at

    def _report_shortage(self) -> None:
        """Let the agent's troubles say what no quick path shows."""
        short = {nic: found.shed[0] for nic, found in self._chosen.items() if found.shed[0]}
        if not short:
            self._counters.troubles.end("watches")
            return
        named = ", ".join(f"{n} of {nic}" for nic, n in sorted(short.items()))
        self._counters.troubles.begin(
            "watches",
            f"segments that queue pairs use, or may be moved to, are watched slowly: {named}; watch_nic_pps is "
            f"{self._config.watch_nic_pps:g}, watch_target_pps {self._config.watch_target_pps:g}",
        )


class _Knowledge(NamedTuple):
    """What is known of a pair's routes, for its spare ports (`SparePorts.step`)."""

    lacking: frozenset[str]
    """Its watched segments that no watch port of the NIC crosses."""
    crossed: Mapping[int, frozenset[str]]
    traced: frozenset[int]
    settled: bool
    there: frozenset[str]
    """Segments on the way there of its flows, by the host's own traces."""


class _Nic:
    """The candidates of a NIC, and what is known of its routes."""

    def __init__(
        self,
        name: str,
        pairs: Mapping[WatchRequest, Sequence[int]],
        routes: ForwardRoutes,
        watched: WatchedRoutes,
    ) -> None:
        self.name = name
        self._routes = routes
        self._pairs = {pair: [ProbePath(pair.dst, port, pair.dscp) for port in ports] for pair, ports in pairs.items()}
        self.target_of = {path: _target(pair) for pair, paths in self._pairs.items() for path in paths}
        self._own = own = {path: routes.probe(name, *path) for path in self.target_of}
        crossing = {s: paths for (src, s), paths in watched.crossing.items() if src == name}
        self._crosses = crosses(own, crossing)
        self._armed = armed = [route for route in watched.routes if route.src == name]
        flows = (routes.flow(flow) for pair in pairs for flow in pair.flows)
        in_use = [frozenset(r.segments) for r in armed if r.in_use] + [frozenset(f[1:]) for f in flows if f is not None]
        others = [frozenset(r.segments) for r in armed if not r.in_use]
        self._crossings = Crossings(self._crosses, list(dict.fromkeys(in_use)), list(dict.fromkeys(others)))
        shown = frozenset[str]().union(*self._crosses.values())
        mapped = {(r.dst, r.dscp) for r in armed if r.in_use and shown.issuperset(r.segments)}
        self._unmapped = [pair for pair in pairs if pair.quick and (pair.dst, pair.dscp) not in mapped]

    def knowledge(self, pair: WatchRequest, ports: Collection[int]) -> _Knowledge:
        """What is known of a pair; `ports`: the watch ports, others are spare."""
        flows = [hops[1:] for flow in pair.flows if (hops := self._routes.flow(flow)) is not None]
        mine = [r.segments for r in self._armed if (r.dst, r.dscp) == (pair.dst, pair.dscp)]
        mine += flows
        crossed = (names for path, names in self._crosses.items() if path.port in ports)
        spare = {path.port: path for path in self._pairs[pair] if path.port not in ports}
        return _Knowledge(
            frozenset[str]().union(*mine).difference(*crossed),
            {port: self._crosses[path] for port, path in spare.items()},
            frozenset(port for port, path in spare.items() if self._own[path] is not None),
            all(self._own[path] is not None for path in self._pairs[pair] if path.port in ports),
            frozenset[str]().union(*flows),
        )

    def choose(self, room: CoverRoom, keep: Mapping[ProbePath, int]) -> tuple[Cover, int]:
        """Quick paths within `room`, and how many pairs have none: one for each pair, then the cover, then more."""
        most, reserved = room.most, min(room.most, len(self._unmapped))
        room.most = most - reserved
        found = cover(self._crossings, room, keep)
        room.most = most
        quick = dict.fromkeys(found.paths)
        spread = {pair: self._spread(self._pairs[pair], keep) for pair in self._unmapped}
        for number in range(UNMAPPED):
            for pair, paths in spread.items():
                if sum(path in quick for path in self._pairs[pair]) > number or len(quick) >= most:
                    continue
                target = _target(pair)
                path = next((p for p in paths if p not in quick), None)
                if path is not None and room.at_target.get(target, 1) > 0:
                    quick[path] = None
                    if target in room.at_target:
                        room.at_target[target] -= 1
        starved = sum(not any(path in quick for path in self._pairs[pair]) for pair in self._unmapped)
        return Cover(tuple(quick), found.unshown, found.confused, found.once), starved

    def _spread(self, paths: Sequence[ProbePath], keep: Mapping[ProbePath, int]) -> list[ProbePath]:
        """The candidates of a pair: first one of each known route, then evenly over the ports."""
        step = max(1, len(paths) // UNMAPPED)
        order = [path for first in range(step) for path in paths[first::step]]
        order.sort(key=lambda path: path not in keep)
        seen: set[tuple[str, ...]] = set()
        again: dict[ProbePath, bool] = {}
        for path in order:
            route = self._routes.probe(self.name, *path)
            again[path] = route in seen
            if route is not None:
                seen.add(route)
        return sorted(order, key=lambda path: again[path])


def _name(pair: WatchRequest) -> _PairName:
    return pair.src, pair.dst, pair.dscp


def _target(pair: WatchRequest) -> str:
    return address_octets(pair.dst_address).hex()
