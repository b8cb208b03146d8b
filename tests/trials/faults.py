"""Faults of every kind at random places and times on the demo's fabric, under its two jobs: how many are told right.

Links and NICs go down, links drop all packets or some in one direction, queues fill, NICs flap; each is held for
seconds, and the next comes a random while after what it left has resolved. The score is that of ``make demo``
(`sdfstream.score.match`). A NIC flaps once at most, and has no fault after that: its ``link-flap`` stands for an hour.

Cross traffic and the jobs' own may fill a queue before or behind the one that is meant. So the kernels' queues are read
all the while, and a finding of congestion where one stood is told as true, though nobody injected it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from sdfstream.actuate.config import ActuateConfig
from sdfstream.demo.lab_io import LARGE
from sdfstream.lab import Fabric
from sdfstream.lab.faults import Fault
from sdfstream.records.topics import FINDING
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.score.match import Scorecard, match
from tests.bench.harness import Result
from tests.trials.world import HOLD_DOWN_MS, World, world

MESH: Final = replace(LARGE.mesh, rate_hz=10.0, liveness_ms=300)
QUIET_S: Final = 15.0
"""Longest wait for what a healed fault left open."""
PAUSE_S: Final = (1.0, 4.0)
QUEUE_S: Final = 0.1
"""Between two readings of all queues."""
STANDS: Final = (0.1, 3)
"""A queue stands while so many readings out of four in a row find this share of its limit in it."""
GOAL: Final = (0.975, 0.9)
"""Share of faults that are told right or near, and right."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault: how it is injected, and for how long it is held."""

    weight: float
    hold_s: float
    inject: Callable[[Fabric, np.random.Generator, set[str]], Fault]


def _link_down(fabric: Fabric, rng: np.random.Generator, _: set[str]) -> Fault:
    return fabric.inject("--".join(sorted(_direction(fabric, rng).split("->"))), "link-down")


def _nic_down(fabric: Fabric, rng: np.random.Generator, flapped: set[str]) -> Fault:
    return fabric.inject(_nic(fabric, rng, flapped), "link-down")


def _black_hole(fabric: Fabric, rng: np.random.Generator, _: set[str]) -> Fault:
    return fabric.inject(_direction(fabric, rng), "black-hole")


def _congestion(fabric: Fabric, rng: np.random.Generator, _: set[str]) -> Fault:
    return fabric.congest(_direction(fabric, rng), float(rng.uniform(1.15, 1.6)))


def _gray_loss(fabric: Fabric, rng: np.random.Generator, _: set[str]) -> Fault:
    share = float(np.exp(rng.uniform(np.log(0.05), np.log(0.15))))
    return fabric.inject(_direction(fabric, rng), "gray-loss", share=share)


def _flap(fabric: Fabric, rng: np.random.Generator, flapped: set[str]) -> Fault:
    nic = _nic(fabric, rng, flapped)
    flapped.add(nic)
    return fabric.flap(nic, times=9, period_s=1.4, down_s=0.8)


KINDS: Final[dict[str, Kind]] = {
    "link-down": Kind(0.25, 6.0, _link_down),
    "nic-down": Kind(0.2, 6.0, _nic_down),
    "black-hole": Kind(0.1, 6.0, _black_hole),
    "congestion": Kind(0.2, 12.0, _congestion),
    "gray-loss": Kind(0.15, 16.0, _gray_loss),
    "flap": Kind(0.1, 15.0, _flap),
}


async def measure(result: Result, trials: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = list(KINDS)
    weights = [KINDS[name].weight for name in names]
    kinds = [str(kind) for kind in rng.choice(names, size=trials, p=weights)]
    flapped: set[str] = set()
    injected: list[Fault] = []
    config = ActuateConfig(mode="enforce", hold_down_ms=HOLD_DOWN_MS)
    record = Path(result.record) if result.record else None
    # in a group: an error of the task that reads queues ends the trial, with its reason
    async with world(LARGE.spec, MESH, config, record=record) as here, asyncio.TaskGroup() as beside:
        await _ready(here)
        for spec in LARGE.jobs:
            await here.start(spec)
        queues = Queues()
        reading = beside.create_task(queues.read(here.fabric))
        await asyncio.sleep(10.0)  # the jobs' normal, by which they are judged
        for number, kind in enumerate(kinds, 1):
            fault = KINDS[kind].inject(here.fabric, rng, flapped)
            injected.append(fault)
            await _hold(here, fault, KINDS[kind].hold_s)
            await here.until(lambda: not _open(here), QUIET_S)
            await asyncio.sleep(float(rng.uniform(*PAUSE_S)))
            result.progress(f"{number}/{trials} {kind} {fault.target}: {_verdict(here, fault)}")
        reading.cancel()
        card = match([f.truth() for f in injected], _statements(here))
    _report(result, card, kinds, seed, queues)


@dataclass
class Queues:
    """When a queue stood in each direction between leaves and spines, by the kernels."""

    stood: dict[str, list[int]] = field(default_factory=dict)
    """Instants, ns since the Unix epoch, by direction."""

    async def read(self, fabric: Fabric) -> None:
        """Read all queues until cancelled."""
        spec = fabric.spec
        pairs = [(f"l{leaf}", f"s{spine}") for leaf in range(spec.leaves) for spine in range(spec.spines)]
        directions = [f"{a}->{b}" for pair in pairs for a, b in (pair, pair[::-1])]
        full: dict[str, deque[bool]] = {direction: deque(maxlen=4) for direction in directions}
        while True:
            waiting = await asyncio.to_thread(lambda: {d: fabric.backlog_bytes(d) for d in directions})
            for direction, size in waiting.items():
                full[direction].append(size >= STANDS[0] * spec.queue_bytes)
                if sum(full[direction]) >= STANDS[1]:
                    self.stood.setdefault(direction, []).append(time.time_ns())
            await asyncio.sleep(QUEUE_S)

    def explain(self, alarm: Mapping[str, Any]) -> bool:
        """Whether a finding of congestion was opened while a queue stood there, or had stood within two seconds."""
        subject = alarm["subject"]
        names = [subject["direction"]] if "direction" in subject else _directions(str(subject["id"]))
        opened_ns = int(alarm["seen_at_ns"])
        near = (at_ns for name in names for at_ns in self.stood.get(name, ()))
        return alarm["kind"] == "congestion" and any(0 <= opened_ns - at_ns <= 2 * NS_PER_S for at_ns in near)


def _directions(link: str) -> list[str]:
    ends = link.split("--")
    return ["->".join(ends), "->".join(reversed(ends))]


async def _ready(here: World, timeout_s: float = 60.0) -> None:
    """Until every NIC is healthy, so that the first fault is one."""

    def all_healthy() -> bool:
        nics = here.running.board.nics(time.time_ns())
        return len(nics) == LARGE.spec.hosts * LARGE.spec.rails and all(n["state"] == "healthy" for n in nics)

    if await here.until(all_healthy, timeout_s) is None:
        raise RuntimeError(f"not every NIC was healthy within {timeout_s:.0f} s")


async def _hold(here: World, fault: Fault, seconds: float) -> None:
    await asyncio.sleep(seconds)
    if fault.healed_at_ns is None:
        here.fabric.heal(fault.id)


def _open(here: World) -> list[Mapping[str, Any]]:
    """Findings that are open, but for flaps, which stand for an hour."""
    return [f for f in here.running.board.findings(open_only=True) if f["kind"] != "link-flap"]


def _statements(here: World) -> list[dict[str, Any]]:
    return [said for said in here.said if said["topic"] == FINDING.name]


def _verdict(here: World, fault: Fault) -> str:
    since_ns = fault.at_ns - NS_PER_S
    card = match([fault.truth()], [s for s in _statements(here) if s["seen_at_ns"] >= since_ns])
    outcome = card.outcomes[0]
    after = "" if outcome.delay_ns is None else f" after {outcome.delay_ns / NS_PER_MS:.0f} ms"
    return f"{outcome.verdict}{after}"


def _direction(fabric: Fabric, rng: np.random.Generator) -> str:
    leaf, spine = int(rng.integers(fabric.spec.leaves)), int(rng.integers(fabric.spec.spines))
    return f"l{leaf}->s{spine}" if rng.random() < 0.5 else f"s{spine}->l{leaf}"


def _nic(fabric: Fabric, rng: np.random.Generator, but: set[str]) -> str:
    names = [f"{host}/r{rail}" for host in fabric.spec.host_names for rail in range(fabric.spec.rails)]
    return str(rng.choice([name for name in names if name not in but]))


def _report(result: Result, card: Scorecard, kinds: list[str], seed: int, queues: Queues) -> None:
    said = card.as_dict()
    beside = [one for one in said["beside"] if one["class"] == "false" and queues.explain(one)]
    told, right, false = said["right"] + said["near"], said["right"], said["false_alarms"] - len(beside)
    met = told >= GOAL[0] * len(kinds) and right >= GOAL[1] * len(kinds) and not false
    result.say(
        f"{len(kinds)} faults: {right} right, {said['near']} near, {said['wrong']} wrong, {said['missed']} missed, "
        f"{false} false, {len(beside)} of queues that stood beside, {said['extra']} told once more, "
        f"{said['early']} closed early, {said['late']} late, {said['telemetry']} of our own telemetry "
        f"(goal ≥ {GOAL[0]:.3g} told, ≥ {GOAL[1]:.3g} right, 0 false: {'met' if met else 'NOT met'})",
        faults=len(kinds), seed=seed, false_alarms=false, queues_beside=len(beside),
        **{key: said[key] for key in ("right", "near", "wrong", "missed", "extra", "early", "late", "telemetry")},
    )  # fmt: skip
    hard = [o.delay_ns / NS_PER_MS for o, kind in _kinds(card, kinds) if kind.endswith("-down") and o.delay_ns]
    if hard:
        result.say(
            f"links and NICs down: named after {np.median(hard):.0f} ms, p99 {np.percentile(hard, 99):.0f} (1,000)",
            down_median_ms=round(float(np.median(hard)), 1), down_p99_ms=round(float(np.percentile(hard, 99)), 1),
        )  # fmt: skip
    for kind, count in sorted(Counter(kinds).items()):
        verdicts = Counter(o.verdict for o, of in _kinds(card, kinds) if of == kind)
        result.say(f"  {kind}: {count}, " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items())))
    for alarm in said["beside"]:
        what = "a queue that stood" if alarm in beside else alarm["class"]
        result.say(f"  {what}: {alarm['kind']} {alarm['subject']} ({alarm.get('fault', 'of no fault')})")


def _kinds(card: Scorecard, kinds: list[str]) -> list[tuple[Any, str]]:
    """Each outcome with the kind that was drawn: both are in order of time."""
    return list(zip(card.outcomes, kinds, strict=True))
