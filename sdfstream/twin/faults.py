"""The faults of a scenario: when each holds, its target, its line of truth.

A fault is drawn once (`draw`: its target), then asked at every cell of time (`TwinFault.act`). Events that nobody
should be woken for (`BENIGN`) are drawn and written to the truth alike. What the kinds do: `fault_kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.records.units import Float64s
from sdfstream.twin.conditions import Conditions
from sdfstream.twin.fabric import TwinFabric
from sdfstream.twin.fault_kinds import BENIGN, KINDS


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
    """Of a clock's step, of its drift each second, or of a delay."""
    octets: int | None = None
    """Largest IP packet that a link passes."""
    senders: int = 8
    """Of an incast or a burst."""


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
            name: getattr(self.spec, name) for name in ("share", "reroute_s", "every_s", "up_s", "us", "octets")
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


def swapped(
    specs: tuple[FaultSpec, ...], fabric: TwinFabric, rng: np.random.Generator, file: str
) -> tuple[tuple[int, int], ...]:
    """Pairs of NICs, one a fault of swapped cables: the first as the fault says, the other of its rail, another leaf.

    Raises
    ------
    ConfigError
        The fabric has no such NIC, or none to swap with.
    """
    made: list[tuple[int, int]] = []
    for i, spec in enumerate(specs):
        if KINDS[spec.kind].on != "cables":
            continue
        if spec.target not in ("random", *fabric.nics):
            raise ConfigError(f"{file}: faults[{i}].target: the fabric has no NIC '{spec.target}'")
        nics = len(fabric.nics)
        first = int(rng.integers(nics)) if spec.target == "random" else fabric.nics.index(spec.target)
        fair = (fabric.rail_of == fabric.rail_of[first]) & (fabric.leaf_of != fabric.leaf_of[first])
        fair[[nic for pair in made for nic in pair]] = False
        if not fair.any() or any(first in pair for pair in made):
            raise ConfigError(f"{file}: faults[{i}]: no other leaf has a NIC to swap cables with")
        made.append((first, int(rng.choice(np.flatnonzero(fair)))))
    return tuple(made)


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
    pairs = iter(fabric.swapped)
    for i, spec in enumerate(specs):
        on = KINDS[spec.kind].on
        if on == "cables":
            target = fabric.nics[next(pairs)[0]]
        else:
            target = spec.target if spec.target != "random" else _random_target(on, fabric, crossed, rng)
        direction = spec.direction if spec.direction != "random" else ("fwd", "rev")[int(rng.integers(2))]
        try:
            links = _links(on, target, direction, fabric)
        except (KeyError, ValueError):
            raise ConfigError(f"{file}: faults[{i}].target: the fabric has no {on} '{target}'") from None
        end_s = float("inf") if spec.lasts is None else spec.at + spec.lasts
        made.append(TwinFault(f"f{i}", spec, target, direction, links, end_s))
    return made


def _random_target(on: str, fabric: TwinFabric, crossed: Float64s, rng: np.random.Generator) -> str:
    if on == "link":
        fair = [
            k for k in range(0, fabric.links, 2) if "/" not in fabric.names[k] and min(crossed[k], crossed[k + 1]) > 0
        ]
        busy = [k for k in fair if min(crossed[k], crossed[k + 1]) >= np.median([crossed[j] for j in fair])]
        chosen = busy or fair
        return fabric.names[int(rng.choice(chosen))].replace("->", "--") if chosen else fabric.names[0]
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
    if on == "cables":
        pair = next(pair for pair in fabric.swapped if fabric.nics[pair[0]] == target)
        return [k for nic in pair for k in fabric.directions(fabric.nics[nic])]
    if on in ("fabric", "job"):
        return []
    if on == "hashing leaf":
        return [fabric.favourite(target)]
    if target not in fabric.hosts and target not in (*fabric.leaves, *fabric.middles, *fabric.tops):
        raise KeyError(target)
    return fabric.of_switch(target)
