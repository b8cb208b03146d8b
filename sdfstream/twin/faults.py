"""What goes wrong in a twin, when, and what it does to links, hosts, clocks and agents.

A fault is drawn once (`draw`: its target), then asked at every cell of time (`TwinFault.act`). Events that nobody
should be woken for (`BENIGN`) are drawn and written to the truth alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.errors import ConfigError
from sdfstream.records.units import Float64s
from sdfstream.twin.fabric import TwinFabric


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One entry of a scenario's ``faults``."""

    kind: str
    at: float = 20.0
    """Begin, s from the start."""
    lasts: float | None = None
    """s; null: to the end."""
    target: str = "random"
    """A link ``a--b`` or direction ``a->b``, a NIC, host or switch, as the kind needs; random: drawn by the seed."""
    direction: str = "both"
    """Of a link or NIC: both, fwd (as written; out of the NIC), rev, or random (one of the two)."""
    share: float | None = None
    """Of packets lost, of capacity left, of a link's speed that comes in besides, or of flows; each kind has its
    default."""
    reroute_s: float | None = None
    """Switches send their flows over other links after so long; null: never."""
    every_s: float | None = None
    """Of what comes and goes: from one begin to the next."""
    up_s: float | None = None
    """Of what comes and goes: for so long each time."""
    us: float | None = None
    """Of a clock's step, or of a delay."""
    senders: int = 8
    """Of an incast or a burst."""


@dataclass(slots=True)
class Conditions:
    """What holds during one cell of time; `links` + 1 values each (the last stands for no link), or one per host."""

    loss: Float64s
    """Share of packets lost on the link direction, 0..1."""
    capacity: Float64s
    """Share of the speed that is left."""
    cross: Float64s
    """Unresponsive traffic besides, as a share of the speed."""
    thresholds: Float64s
    """ECN thresholds are this many times what they should be."""
    stuck: npt.NDArray[np.bool_]
    """Directions whose far end sends pause frames without end."""
    down: npt.NDArray[np.bool_]
    """(hosts,) the host sends, answers and publishes nothing."""
    mute: npt.NDArray[np.bool_]
    """(hosts,) the agent publishes nothing; its reflector goes on."""
    busy: npt.NDArray[np.bool_]
    """(hosts,) the processor is taken by others."""
    late_s: Float64s
    """(hosts,) what the agent publishes enters the bus so much later."""
    incasts: list[tuple[int, int]] = field(default_factory=list)
    """(receiving NIC, senders)."""
    surge: float = 1.0
    """Factor on the background's demand."""
    inband_us: float = 0.0
    """Queue pairs' packets take so much longer than probes."""
    away: set[int] = field(default_factory=set)
    """Directions that switches send nothing over."""
    salts: dict[str, int] = field(default_factory=dict)
    """Switches that hash anew."""
    polarised: dict[str, float] = field(default_factory=dict)
    """Switches whose hash gives this share of all flows the same value."""
    ports: dict[int, str] = field(default_factory=dict)
    """NIC to the state of its port."""


def calm(fabric: TwinFabric) -> Conditions:
    """Nothing is wrong."""
    n, h = fabric.links + 1, len(fabric.hosts)
    zeros = np.zeros
    return Conditions(
        zeros(n), np.ones(n), zeros(n), np.ones(n), zeros(n, bool), zeros(h, bool), zeros(h, bool), zeros(h, bool),
        zeros(h),
    )  # fmt: skip


@dataclass(slots=True)
class TwinFault:
    """A fault with its target drawn."""

    id: str
    spec: FaultSpec
    target: str
    direction: str
    links: list[int]
    end_s: float

    def holds(self, at_s: float) -> bool:
        """Whether the fault's time has come and is not over; pauses of what comes and goes included."""
        return self.spec.at <= at_s < self.end_s

    def active(self, at_s: float) -> bool:
        """`holds`, pauses excluded."""
        if not self.holds(at_s):
            return False
        every, up = self.spec.every_s, self.spec.up_s
        kind = KINDS[self.spec.kind]
        every, up = every or kind.every_s, up or kind.up_s
        return not every or (at_s - self.spec.at) % every < up

    def act(self, at_s: float, now: Conditions, fabric: TwinFabric) -> None:
        """Add to the conditions what the fault does at `at_s`."""
        if self.active(at_s):
            KINDS[self.spec.kind].act(self, at_s, now, fabric)

    def value(self, name: str) -> float:
        """A parameter, or the kind's default."""
        given = getattr(self.spec, name)
        return float(given) if given is not None else float(getattr(KINDS[self.spec.kind], name))

    def truth(self, start_ns: int, seconds: float, names: Sequence[str] = ()) -> dict[str, Any]:
        """The line of ``truth/faults.jsonl``; instants in true time."""
        parameters = {
            name: getattr(self.spec, name) for name in ("share", "reroute_s", "every_s", "up_s", "us")
        }  # fmt: skip
        ends = self.end_s < seconds
        return {
            "id": self.id,
            "kind": self.spec.kind,
            "target": self.target,
            "direction": self.direction,
            "at_ns": start_ns + round(self.spec.at * 1e9),
            "healed_at_ns": start_ns + round(self.end_s * 1e9) if ends else None,
            "benign": self.spec.kind in BENIGN,
            "links": [names[k] for k in self.links] if names else [],
            "parameters": {k: v for k, v in parameters.items() if v is not None},
        }


def _lose(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.loss[fault.links] = np.maximum(now.loss[fault.links], fault.value("share"))


def _cut(fault: TwinFault, at_s: float, now: Conditions, fabric: TwinFabric) -> None:
    now.loss[fault.links] = 1.0
    if fault.target in fabric.nics and fault.direction == "both":
        now.ports[fabric.nics.index(fault.target)] = "down"
    if fault.spec.reroute_s is not None and at_s >= fault.spec.at + fault.spec.reroute_s:
        now.away |= {k ^ side for k in fault.links for side in (0, 1)}


def _host_down(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.loss[fault.links] = 1.0
    now.down[fabric.hosts.index(fault.target)] = True


def _cross(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.cross[fault.links] += fault.value("share")


def _incast(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.incasts.append((fabric.nics.index(fault.target), fault.spec.senders))


def _stick(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.stuck[fault.links] = True
    now.capacity[fault.links] = fault.value("share")


def _slow(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.capacity[fault.links] = fault.value("share")


def _mistune(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    """Traffic besides shows it: thresholds too high need a queue, of those too low a link that is in use is enough."""
    now.thresholds[fault.links] = fault.value("share")
    now.cross[fault.links] += 1.1 if fault.value("share") > 1 else 0.4


def _inband(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.inband_us = fault.value("us")


def _nothing(_: TwinFault, __: float, ___: Conditions, ____: TwinFabric) -> None:
    """Acts elsewhere: a clock's step is part of the clock."""


def _mute(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.mute[fabric.hosts.index(fault.target)] = True


def _late(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.late_s[fabric.hosts.index(fault.target)] = fault.value("us") / 1e6


def _busy(fault: TwinFault, _: float, now: Conditions, fabric: TwinFabric) -> None:
    now.busy[fabric.hosts.index(fault.target)] = True


def _rehash(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.salts[fault.target] = 1


def _polarise(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.polarised[fault.target] = fault.value("share")


def _surge(fault: TwinFault, _: float, now: Conditions, __: TwinFabric) -> None:
    now.surge = fault.value("share")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: what it happens to, what it does, and its parameters where a scenario gives none."""

    about: str
    on: str
    """link, nic, inbound (a NIC's own ingress), host, switch, leaf, hashing leaf (its links are
    the uplink that its flows crowd on), job or fabric."""
    act: Callable[[TwinFault, float, Conditions, TwinFabric], None]
    benign: bool = False
    share: float = 1.0
    us: float = 0.0
    every_s: float = 0.0
    up_s: float = 0.0


KINDS: Final[Mapping[str, FaultKind]] = {
    "nic-down": FaultKind("a NIC passes nothing, its port loses its carrier", "nic", _cut),
    "host-down": FaultKind("a host is dead, its agent with it", "host", _host_down),
    "link-down": FaultKind("a fabric link passes nothing; healed by rerouting where reroute_s says so", "link", _cut),
    "switch-down": FaultKind("a switch passes nothing", "switch", _cut),
    "flap": FaultKind("a NIC's cable goes down and comes back", "nic", _cut, every_s=2.0, up_s=0.6),
    "gray-loss": FaultKind("a link loses a share of what crosses it", "link", _lose, share=0.02),
    "congested-link": FaultKind("unresponsive traffic takes a link", "link", _cross, share=1.1),
    "incast": FaultKind("many senders, one receiver, for as long as the fault lasts", "inbound", _incast),
    "bursts": FaultKind("an incast of 200 ms every 30 s", "inbound", _incast, every_s=30.0, up_s=0.2),
    "pfc-storm": FaultKind("a NIC sends pause frames without end; pauses spread", "inbound", _stick, share=0.02),
    "slow-nic": FaultKind("a NIC moves its data at a share of its speed", "nic", _slow, share=0.1),
    "ecn-mistuned": FaultKind("a congested link marks far too late", "link", _mistune, share=20.0),
    "ecn-early": FaultKind("a link marks packets that hardly waited", "link", _mistune, share=0.001),
    "ecmp-imbalance": FaultKind("a leaf hashes most flows to one uplink", "hashing leaf", _polarise, share=0.8),
    "rocev1": FaultKind("queue pairs take RoCEv1: 250 µs in band, 10 µs for probes", "job", _inband, us=240.0),
    "clock-step": FaultKind("a host's clock steps", "host", _nothing, us=250.0),
    "agent-dead": FaultKind("an agent publishes nothing more; its reflector answers", "host", _mute),
    "agent-late": FaultKind("what an agent publishes comes late", "host", _late, us=2e6),
    "reroute": FaultKind("a leaf hashes its flows anew", "leaf", _rehash, benign=True),
    "load-surge": FaultKind("planned load: all flows ask for more", "fabric", _surge, benign=True, share=2.0),
    "busy-cpu": FaultKind("a host's processors are taken by others", "host", _busy, benign=True),
}
BENIGN: Final = frozenset(name for name, kind in KINDS.items() if kind.benign)


def draw(
    specs: tuple[FaultSpec, ...],
    fabric: TwinFabric,
    crossed: Float64s,
    rng: np.random.Generator,
    file: str,
) -> list[TwinFault]:
    """The faults of a scenario with their targets.

    `crossed` holds how many probe paths cross each link direction: a random link is one that probes can know of.

    Raises
    ------
    ConfigError
        A target is none of the fabric's.
    """
    made = []
    for i, spec in enumerate(specs):
        target = spec.target if spec.target != "random" else _random_target(KINDS[spec.kind].on, fabric, crossed, rng)
        direction = spec.direction if spec.direction != "random" else ("fwd", "rev")[int(rng.integers(2))]
        try:
            links = _links(KINDS[spec.kind].on, target, direction, fabric)
        except (KeyError, ValueError):
            raise ConfigError(
                f"{file}: faults[{i}].target: the fabric has no {KINDS[spec.kind].on} '{target}'"
            ) from None
        end_s = float("inf") if spec.lasts is None else spec.at + spec.lasts
        made.append(TwinFault(f"f{i}", spec, target, direction, links, end_s))
    return made


def _random_target(on: str, fabric: TwinFabric, crossed: Float64s, rng: np.random.Generator) -> str:
    if on == "link":
        fair = [
            k for k in range(0, fabric.links, 2) if "/" not in fabric.names[k] and min(crossed[k], crossed[k + 1]) > 0
        ]
        busy = [k for k in fair if min(crossed[k], crossed[k + 1]) >= np.median([crossed[j] for j in fair])]
        return fabric.names[int(rng.choice(busy))].replace("->", "--") if busy else fabric.names[0]
    pool = {
        "nic": fabric.nics, "inbound": fabric.nics, "host": fabric.hosts, "leaf": fabric.leaves,
        "hashing leaf": fabric.leaves, "switch": fabric.tops,
    }.get(on, ["fabric"])  # fmt: skip
    return pool[int(rng.integers(len(pool)))]


def _links(on: str, target: str, direction: str, fabric: TwinFabric) -> list[int]:
    if on in ("link", "nic"):
        return fabric.directions(target, direction)
    if on == "inbound":
        return fabric.directions(target, "rev")
    if on in ("fabric", "job"):
        return []
    if on == "hashing leaf":
        return [fabric.favourite(target)]
    if target not in fabric.hosts and target not in (*fabric.leaves, *fabric.middles, *fabric.tops):
        raise KeyError(target)
    return fabric.of_switch(target)
