"""The demo's play: a lab, its pipeline, and faults one after the other, each held long enough to be found."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.cli.lab_source import lab_source
from sdfstream.cli.service import Service, service
from sdfstream.errors import UnavailableError
from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.spec import FabricSpec
from sdfstream.pipeline import Watcher
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import FINDING
from sdfstream.score.match import match
from sdfstream.settings import Settings

if TYPE_CHECKING:
    from sdfstream.lab.faults import Fault
    from sdfstream.lab.features import Features

READY_S: Final = 45.0
"""How long the mesh may take until every NIC is judged and every clock is synced."""
QUIET_S: Final = 12.0
"""Longest wait for findings to resolve after a fault was healed."""


@dataclass(frozen=True, slots=True)
class Act:
    """One fault of the play."""

    title: str
    inject: Callable[[Fabric], Fault]
    hold_s: float
    """Held this long, found or not; a flap ends by itself."""
    drops: bool = False
    """Needs something that drops packets at will: eBPF or nf_tables."""


@dataclass(frozen=True, slots=True)
class Play:
    """A fabric, its probe mesh, and the faults in order."""

    spec: FabricSpec
    mesh: MeshSpec
    acts: tuple[Act, ...]


def _acts(pulled: str, flapping: str) -> tuple[Act, ...]:
    return (
        Act(f"link down: the cable of {pulled} is pulled", lambda f: f.inject(pulled, "link-down"), 6.0),
        Act(
            f"flap: {flapping} goes down and up nine times",
            lambda f: f.flap(flapping, times=9, period_s=1.4, down_s=0.8),
            15.0,
        ),
        Act("congested spine: cross traffic at 1.3 × the rate of l0->s1", lambda f: f.congest("l0->s1", 1.3), 12.0),
        Act(
            "gray loss: l2->s2 loses 10 % without a word",
            lambda f: f.inject("l2->s2", "gray-loss", share=0.1),
            18.0,
            drops=True,
        ),
    )


LARGE: Final = Play(
    FabricSpec(),
    MeshSpec(peers_per_nic=3, ports_per_peer=8, rate_hz=10.0, liveness_ms=500),
    _acts("h03/r1", "h05/r0"),
)
SMALL: Final = Play(
    FabricSpec(hosts=4),
    MeshSpec(peers_per_nic=3, ports_per_peer=6, rate_hz=8.0, flush_ms=100, liveness_ms=500),
    _acts("h01/r1", "h02/r0"),
)


async def play(data: Path, piece: Play, *, record: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the whole piece; returns what was injected and found, as plain JSON."""
    started_s = time.monotonic()
    truth = data / "truth"
    with Fabric.up(piece.spec, truth_dir=truth) as fabric:
        built_s = time.monotonic() - started_s
        say(f"lab: {_size(fabric)}, up in {built_s * 1e3:.0f} ms")
        acts, left_out = possible(piece.acts, fabric.features)
        for sentence in left_out:
            say(f"lab: {sentence}")
        statements = _Statements()
        recording = data / "recording" if record else None
        async with service(Settings(data=data), record=recording, watchers=[statements.watcher]) as running:
            async with lab_source(fabric, running, piece.mesh) as agent:
                paths = sum(len(s.source_ports) for h in fabric.agent_config(piece.mesh).hosts for s in h.sessions)
                say(f"agent: {paths} paths at {piece.mesh.rate_hz:g}/s; watch: sdfstream top --data {data}")
                ready_s = await _ready(running, fabric, agent, say)
                for number, act in enumerate(acts, 1):
                    await _perform(f"{number}/{len(acts)}", act, fabric, running, say)
                clocks = _clocks(running)
                rates = running.board.view(time.time_ns())["pipeline"]
            counters = running.counters()
    faults = [json.loads(line) for line in (truth / "faults.jsonl").read_text().splitlines()]
    result = match(faults, statements.all)
    return {
        "mode": "lab",
        "ready_s": round(ready_s, 1),
        "seconds": round(time.monotonic() - started_s, 1),
        "faults": faults,
        "left_out": left_out,
        "findings": statements.all,
        "outcome": result.as_dict(),
        "clocks": clocks,
        "pipeline": rates,
        "counters": counters,
        "load": list(os.getloadavg()),
    }


def possible(acts: Sequence[Act], features: Features) -> tuple[tuple[Act, ...], list[str]]:
    """The acts that this machine allows, and in sentences what is missing or done in another way."""
    said = [f"without {one}" for one in features.missing]
    if features.drops is not None:
        return tuple(acts), said
    left_out = [act.title.partition(":")[0] for act in acts if act.drops]
    said += [f"left out, since nothing here can drop packets: {title}" for title in left_out]
    return tuple(act for act in acts if not act.drops), said


class _Statements:
    """Every statement of every finding, in order: the score judges what was said when."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.watcher = Watcher("score", (FINDING.name,), self._take)

    async def _take(self, messages: Sequence[Message]) -> None:
        self.all += [dict(m.body.data) for m in messages if isinstance(m.body, Event)]


async def _ready(
    running: Service, fabric: Fabric, agent: asyncio.subprocess.Process, say: Callable[[str], None]
) -> float:
    """Wait until every NIC is judged healthy both ways and every clock is synced."""
    began_s = time.monotonic()
    wanted_nics = fabric.spec.hosts * fabric.spec.rails
    while (waited_s := time.monotonic() - began_s) < READY_S:
        if agent.returncode is not None:
            raise UnavailableError(f"the agent ended with {agent.returncode}; see {running.link.parent / 'agent.log'}")
        view = running.board.view(time.time_ns())
        healthy, synced = view["nics"]["healthy"], view["clocks"]["by_status"].get("synced", 0)
        if healthy == wanted_nics and synced == fabric.spec.hosts:
            err_ns = view["clocks"]["worst_err_ns"]
            say(f"ready after {waited_s:.1f} s: {healthy} NICs healthy, {synced} clocks synced within {err_ns:.0f} ns")
            return waited_s
        await asyncio.sleep(0.1)
    raise UnavailableError(f"not ready after {READY_S:.0f} s: {healthy} NICs healthy, {synced} clocks synced")


async def _perform(number: str, act: Act, fabric: Fabric, running: Service, say: Callable[[str], None]) -> None:
    say(f"{number} {act.title}")
    fault = act.inject(fabric)
    told: set[str] = set()
    end_s = time.monotonic() + act.hold_s
    while time.monotonic() < end_s:
        _tell(running, fault.at_ns, told, say)
        await asyncio.sleep(0.1)
    if fault.healed_at_ns is None:
        fabric.heal(fault.id)
    say(f"{number} healed")
    quiet_s = time.monotonic() + QUIET_S
    while time.monotonic() < quiet_s and running.board.findings(open_only=True):
        _tell(running, fault.at_ns, told, say)
        await asyncio.sleep(0.1)


def _tell(running: Service, since_ns: int, told: set[str], say: Callable[[str], None]) -> None:
    """Say each finding once, when it is first seen."""
    for finding in running.board.findings(open_only=True):
        if finding["id"] not in told and finding["seen_at_ns"] >= since_ns:
            told.add(finding["id"])
            after_s = (finding["seen_at_ns"] - since_ns) / 1e9
            subject = finding["subject"]
            say(f"      +{after_s:5.2f} s  {finding['severity']}: {finding['kind']} {subject['type']} {subject['id']}")


def _clocks(running: Service) -> dict[str, Any]:
    view: dict[str, Any] = running.board.view(time.time_ns())["clocks"]
    return {k: view[k] for k in ("known", "by_status", "worst_err_ns")}


def _size(fabric: Fabric) -> str:
    spec = fabric.spec
    sizes = f"{spec.hosts} hosts × {spec.rails} rails, {spec.leaves} leaves, {spec.spines} spines"
    return f"{sizes} at {spec.rate_bps / 1e6:g} Mbit/s"
