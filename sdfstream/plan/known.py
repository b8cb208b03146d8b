"""What the plan stage knows: announced agents, declared cabling, traced routes. Messages in, an `Inventory` out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sdfstream.errors import FormatError
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.inventory import Inventory, Nic, ProbeRoute
from sdfstream.records.fabric import Topology
from sdfstream.records.mesh import HostHere, host_here

_LEAST_HOPS = 2
"""The first leaf, and what lies behind it; a path of one hop stays on its leaf and crosses no route."""
_MOST_HOPS = 16


@dataclass(slots=True)
class Agent:
    """One agent as last announced."""

    here: HostHere
    received_at_ns: int
    """Last sign of life, bus time."""
    away: dict[str, int]
    """NICs that cannot be used, and since when, bus time."""


class LeafMap(NamedTuple):
    """Declared cabling, as far as a plan needs it."""

    rail: dict[str, int]
    """By NIC id."""
    leaf: dict[str, str]
    """By NIC id."""
    crossings: dict[tuple[str, str], int]
    """See `Inventory.crossings`."""


@dataclass(slots=True)
class _Traced:
    hops: tuple[str, ...]
    at_ns: int


class Known:
    """Everything received so far that a plan depends on."""

    def __init__(self, config: PlanConfig) -> None:
        self._config = config
        self.agents: dict[str, Agent] = {}
        self.alive: dict[str, int] = {}
        """Every host that gave a sign of life, and when, bus time; also those whose agents ask for no plan."""
        self._leaf_map = LeafMap({}, {}, {})
        self._routes: dict[tuple[str, str, int, int, bool], _Traced] = {}
        self.changed = False
        """Hosts or cabling have changed since `settled`."""
        self.traced = False
        """A route has changed since `settled`."""

    def settled(self) -> None:
        """A plan was drawn of all this."""
        self.changed = self.traced = False

    def take_sign_of_life(self, host: str, at_ns: int) -> None:
        """A sign of life of an agent."""
        if host in self.alive or len(self.alive) < 2 * self._config.max_hosts:
            self.alive[host] = at_ns
        agent = self.agents.get(host)
        if agent is not None:
            agent.received_at_ns = at_ns

    def take_host(self, data: Mapping[str, Any], key: str, at_ns: int) -> HostHere:
        """Take an agent's announcement.

        Raises
        ------
        FormatError
            ``mesh-host``, ``foreign`` (another host's key), ``too-many-hosts``.
        """
        here = host_here(data)
        if key not in ("", here.host, f"host:{here.host}"):
            raise FormatError("foreign", f"{here.host} under the key {key}")
        agent = self.agents.get(here.host)
        if agent is None and len(self.agents) >= self._config.max_hosts:
            raise FormatError("too-many-hosts", here.host)
        before = agent.away if agent is not None else {}
        away = {nic.id: before.get(nic.id, at_ns) for nic in here.nics if not nic.usable}
        if agent is None or _offer(agent.here) != _offer(here):
            self.changed = True
        self.agents[here.host] = Agent(here, at_ns, away)
        self.take_sign_of_life(here.host, at_ns)
        return here

    def take_declared(self, data: Mapping[str, Any]) -> None:
        """The cabling as planned; FormatError ``topology`` when it cannot be read."""
        topology = Topology(data).refuse("links", "links.id", "nodes", "nics")
        ends = {str(link.id): (link.ends[0].node, link.ends[1].node) for link in topology.links}
        rail = {name: int(nic.rail) for name, nic in topology.nics.items() if isinstance(nic.rail, int)}
        leaf: dict[str, str] = {}
        for name, nic in topology.nics.items():
            switches = [n for n in ends.get(str(nic.link), ()) if topology.kinds.get(n, "host") != "host"]
            if len(switches) == 1:
                leaf[name] = switches[0]
        leaf_map = LeafMap(rail, leaf, _crossings(ends, set(leaf.values())))
        self.changed |= leaf_map != self._leaf_map
        self._leaf_map = leaf_map

    @property
    def leaf_map(self) -> LeafMap:
        """The cabling as last declared."""
        return self._leaf_map

    def take_path(self, data: Mapping[str, Any], at_ns: int) -> None:
        """A probe path was traced.

        Raises
        ------
        FormatError
            ``topology-path`` when it cannot be read, ``too-many-ways``.
        """
        try:
            hops, complete = list(data["hops"]), bool(data["complete"])
            direction = {"fwd": True, "rev": False}[data.get("dir", "fwd")]
            key = (str(data["src"]), str(data["dst"]), int(data["path"]), int(data["dscp"]), direction)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError("topology-path", str(error)) from error
        whole = complete and len(hops) <= _MOST_HOPS and all(isinstance(h, str) and h for h in hops)
        if not whole or len(hops) < _LEAST_HOPS:
            self.traced |= self._routes.pop(key, None) is not None
            return
        before = self._routes.get(key)
        if before is None and len(self._routes) >= self._config.max_ways:
            raise FormatError("too-many-ways", "")
        behind = tuple(str(h) for h in hops[1:])
        if before is None or before.hops != behind:
            self.traced = True
        self._routes[key] = _Traced(behind, at_ns)

    def forget(self, now_ns: int) -> list[str]:
        """Drop agents that have left; the hosts."""
        left = [h for h, a in self.agents.items() if now_ns - a.received_at_ns >= self._config.leave_ns]
        for host in left:
            del self.agents[host]
        self.alive = {h: at for h, at in self.alive.items() if now_ns - at < self._config.leave_ns}
        self.changed |= bool(left)
        return sorted(left)

    def forget_routes(self, now_ns: int) -> None:
        """Drop traces that were not repeated for long."""
        old = [key for key, route in self._routes.items() if now_ns - route.at_ns >= self._config.ways_keep_ns]
        for key in old:
            del self._routes[key]
        self.traced |= bool(old)

    def gone_nics(self, now_ns: int) -> frozenset[str]:
        """NICs that have been away for so long that they count as gone."""
        return frozenset(
            nic for a in self.agents.values() for nic, at in a.away.items() if now_ns - at >= self._config.leave_ns
        )

    def all_announced(self) -> bool:
        """Every host that gives signs of life has announced its NICs."""
        return all(host in self.agents for host in self.alive)

    def inventory(self, now_ns: int) -> Inventory:
        """What there is to plan with."""
        gone = self.gone_nics(now_ns)
        return Inventory(
            nics=tuple(nic for nic in self._nics() if nic.id not in gone),
            budgets={host: agent.here.budget_pps for host, agent in self.agents.items()},
            routes=[ProbeRoute(*key, route.hops) for key, route in sorted(self._routes.items())],
            crossings=dict(self._leaf_map.crossings),
        )

    def _nics(self) -> Iterator[Nic]:
        for host, agent in sorted(self.agents.items()):
            for nic in agent.here.nics:
                yield Nic(
                    nic.id,
                    host,
                    nic.clock,
                    nic.address,
                    agent.here.reflector_port,
                    nic.plane,
                    self._leaf_map.rail.get(nic.id),
                    self._leaf_map.leaf.get(nic.id),
                    agent.here.first_port,
                    agent.here.ports,
                    nic.rdma is not None,
                )

    def snapshot(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "agents": [[a.here.as_data(), a.received_at_ns, a.away] for a in self.agents.values()],
            "alive": self.alive,
            "rail": self._leaf_map.rail,
            "leaf": self._leaf_map.leaf,
            "crossings": [[*pair, n] for pair, n in self._leaf_map.crossings.items()],
            "routes": [[*key, list(route.hops), route.at_ns] for key, route in self._routes.items()],
            "changed": self.changed,
            "traced": self.traced,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.agents = {}
        for data, received, away in saved["agents"]:
            here = host_here(data)
            self.agents[here.host] = Agent(here, received, dict(away))
        self.alive = dict(saved["alive"])
        crossings = {(a, b): n for a, b, n in saved["crossings"]}
        self._leaf_map = LeafMap(dict(saved["rail"]), dict(saved["leaf"]), crossings)
        self._routes = {tuple(key): _Traced(tuple(hops), at) for *key, hops, at in saved["routes"]}
        self.changed, self.traced = saved["changed"], saved["traced"]


def _offer(here: HostHere) -> tuple[object, ...]:
    """What of an announcement changes the plan at once; a NIC that is away does so only after a while."""
    nics = tuple((n.id, n.address, n.clock, n.plane, n.rdma) for n in here.nics)
    return nics, here.budget_pps, here.reflector_port, here.first_port, here.ports


def _crossings(ends: Mapping[str, tuple[str, str]], leaves: set[str]) -> dict[tuple[str, str], int]:
    """How many routes over one switch in between lead from one leaf to another, parallel cables counted."""
    names = sorted(leaves)
    number = {name: i for i, name in enumerate(names)}
    spines = sorted({n for pair in ends.values() for n in pair if n not in leaves and leaves & set(pair)})
    column = {name: i for i, name in enumerate(spines)}
    cables = np.zeros((len(names), len(spines)), dtype=np.int64)
    for a, b in ends.values():
        for leaf, spine in ((a, b), (b, a)):
            if leaf in number and spine in column:
                cables[number[leaf], column[spine]] += 1
    routes = cables @ cables.T
    return {
        (names[i], names[j]): int(routes[i, j])
        for i, j in zip(*np.triu_indices(len(names), 1), strict=True)
        if routes[i, j]
    }
