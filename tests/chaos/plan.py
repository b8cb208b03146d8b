"""What is done to whom, and when: all drawn from the seed before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.chaos.story import Known, Script

STAGES = (
    ("sync-edge", ("a", "b")),
    ("sync-mesh", ("a",)),
    ("workload", ("a",)),
    ("detect", ("a", "b")),
    ("actuate", ("a",)),
    ("archive", ("a", "b")),
)
"""Each stage and its processes; of those with two, one stands by (sync-edge: both work)."""
AGENTS = {"A0": ("h00", "h01"), "A1": ("h02", "h03"), "A2": ("h04", "h05"), "A3": ("h06", "h07")}
"""Each agent's process and its hosts; the last one reaches the broker by the relay, and has a small disk."""
CUT = "A3"
MEMBERS = tuple(f"{stage}-{member}" for stage, members in STAGES for member in members)


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that is done."""

    at_s: float
    """Since the story's beginning."""
    what: str
    """kill, away (kill and come back late), freeze, cut, full (disk), step (clock), poison."""
    whom: str
    for_s: float = 0.0
    """Until it is undone; of a kill: until the process is started again."""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    """How long and how hard."""

    story_s: float
    first_s: float
    """Nothing is done before: clocks converge, leases are armed."""
    calm_s: float
    """Nothing is done in so long at the end, so that findings can be resolved."""
    kills: int
    broker_kills: int
    archive_kills: int
    archive_away_s: float
    """Once ClickHouse is away for so long."""
    freezes: int
    freeze_s: float
    """Longer than any session lasts: the others take the work over, and what wakes up is a zombie."""
    steps: int
    poisons: int
    cut_s: float = 18.0


SHORT = Size(205.0, 25.0, 30.0, 28, 2, 3, 15.0, 2, 14.0, 2, 12)
FULL = Size(2400.0, 25.0, 40.0, 208, 12, 14, 60.0, 12, 14.0, 6, 60)
LONG = Size(3000.0, 25.0, 60.0, 208, 12, 14, 600.0, 12, 14.0, 6, 60)


def draw(seed: int, size: Size, script: Script) -> list[Act]:
    """Everything that is done, in order of time."""
    rng, known = np.random.default_rng([seed, 2]), script.known
    last_s = size.story_s - size.calm_s
    acts = _outages(rng, size, last_s, script)
    stage_kills = size.kills - sum(act.what == "away" for act in acts)
    everyone = [*MEMBERS, *AGENTS]
    victims = [v for _ in range(1 + stage_kills // len(everyone)) for v in rng.permutation(everyone).tolist()]
    for victim in victims[:stage_kills]:
        at_s = float(rng.uniform(size.first_s, last_s))
        while victim in AGENTS and _hides(known, AGENTS[victim], at_s):
            at_s = float(rng.uniform(size.first_s, last_s))
        acts.append(Act(at_s, "kill", victim, float(rng.choice([0.0, 0.5, 3.0]))))
    frozen = rng.permutation(MEMBERS).tolist()
    for i in range(size.freezes):
        at_s = float(rng.uniform(size.first_s, last_s - size.freeze_s))
        acts.append(Act(at_s, "freeze", frozen[i % len(frozen)], size.freeze_s))
    for i in range(size.steps):
        whom = ("detect", "actuate")[i % 2]
        hours = float(rng.choice([-5.0, -0.01, 0.02, 7.0]))
        acts.append(Act(float(rng.uniform(size.first_s, last_s - 20)), "step", whom, 15.0, round(hours * 3600)))
    first_kind = int(rng.integers(12))
    for i in range(size.poisons):
        acts.append(Act(float(rng.uniform(10.0, last_s)), "poison", "", number=first_kind + i))
    acts += [
        Act(k.at_s, "cut", CUT, k.until_s - k.at_s) for k in known if k.name == "cut" and k.target == AGENTS[CUT][0]
    ]
    return sorted(acts, key=lambda act: act.at_s)


def _outages(rng: np.random.Generator, size: Size, last_s: float, script: Script) -> list[Act]:
    """Of ClickHouse in slots, never two at once; of the broker between faults, where it hides none of them."""
    acts = []
    slots = np.linspace(size.first_s, last_s, size.archive_kills + 1)
    longest = int(rng.integers(size.archive_kills))
    for i in range(size.archive_kills):
        away_s = size.archive_away_s if i == longest else float(rng.choice([0.0, 1.0, 3.0]))
        room_s = max(1.0, slots[i + 1] - slots[i] - min(away_s, 20.0) - 6.0)
        acts.append(Act(float(slots[i] + rng.uniform(0, room_s)), "away", "clickhouse", away_s))
        if i == longest:  # only then does the archive need its spill
            acts += [Act(acts[-1].at_s + 2, "full", f"archive-{m}", min(away_s / 2, 20.0)) for m in "ab"]
    pauses = [at_s for at_s in script.pauses_s if at_s < last_s]
    for at_s in sorted(rng.permutation(pauses)[: size.broker_kills].tolist()):
        acts.append(Act(at_s, "away", "broker", float(rng.choice([0.0, 1.0, 2.0]))))
    # the disk of the cut-off agent fills up while it is cut off: only then does anything go there
    cut = [k for k in script.known if k.name == "cut" and k.target == AGENTS[CUT][0]]
    return [*acts, *(Act(k.at_s + 3, "full", CUT, 10.0) for k in cut[:1])]


def _hides(known: Sequence[Known], hosts: Sequence[str], at_s: float) -> bool:
    """Whether a fault that only these hosts' own agents could tell of is near."""
    near = [k for k in known if k.at_s - 8 <= at_s <= k.until_s + 8]
    return any(set(k.hosts) & set(hosts) for k in near)
