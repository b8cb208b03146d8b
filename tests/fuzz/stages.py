"""The stages as a target: hostile traffic through all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import FINDING
from sdfstream.records.units import NS_PER_S
from tests.fixtures.leafspine import Fabric, Fault, Shape
from tests.fuzz import growth
from tests.fuzz.chain import MAKERS, Chain
from tests.fuzz.finds import Finds
from tests.fuzz.traffic import Traffic
from tests.fuzz.values import EVERYBODY, NOW_NS, STRANGERS, Draw

GAPS_NS: Final = (0, 10**5, 10**6, 10**6, 5 * 10**6, 2 * 10**7)
"""Of bus time between messages."""


@dataclass(slots=True)
class StagesRun:
    """One run."""

    chain: Chain

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        for name, times in self.chain.times.items():
            mean_us = times.total_s / max(times.steps, 1) * 1e6
            yield (
                f"  {name:10} {times.steps:8} steps, {mean_us:7.0f} us each, longest {times.message_s * 1e3:6.1f} ms "
                f"({times.of})"
            )
        for name, stage in self.chain.stages.items():
            largest = sorted(growth.containers(stage).items(), key=lambda pair: -pair[1])[:3]
            yield f"  {name:10} largest: " + ", ".join(f"{path} {n}" for path, n in largest)
        yield f"  refused by the codec: {self.chain.refused.total('refused')}"


def run(seed: int, count: int, finds: Finds | None = None, names: tuple[str, ...] = tuple(MAKERS)) -> StagesRun:
    """`count` messages of any content through the stages `names`."""
    rng = random.Random(seed)
    traffic = Traffic(Draw(rng, EVERYBODY))
    chain = Chain(names, Finds() if finds is None else finds)
    for _ in range(count):
        chain.wire(traffic.one(), chain.now_ns + rng.choice(GAPS_NS))
    for name, stage in chain.stages.items():
        for path, entries in growth.containers(stage).items():
            if entries > growth.MOST:
                chain.finds.note(name, f"{path} has {entries} entries")
    chain.finish()
    return StagesRun(chain)


# -- the untouched hosts ------------------------------------------------------------------------------------------

SHAPE: Final = Shape(hosts=4, leaves=2, rails=1, ports=2, peers=2, owd=False, clocks=False, base_loss=0.0)
FAULTS: Final = (
    Fault(("h01/r0->l0", "l0->h01/r0"), 12, 16, drop=1, nic="h01/r0", port="down"),
    Fault(agent="h03", at_s=14, until_s=19),
)
"""A NIC goes down; an agent is silent for a while."""
OURS: Final = re.compile(r"(h\d\d|loop-\d)\b.*|[ls]\d.*")
"""Subjects of findings about the fabric, and about the agents that run beside it (`broker`)."""
Said = tuple[int, str, str, str]


def untouched(
    seed: int,
    count: int,
    seconds: float = 22.0,
    finds: Finds | None = None,
    names: tuple[str, ...] = ("sync", "workload", "detect", "actuate", "plan"),
    damaged: float = 0.5,
) -> list[Said]:
    """What detect says about the fabric's hosts, while strangers send `count` messages beside it, from second 1 on."""
    chain = Chain(names, Finds() if finds is None else finds)
    chain.outputs = []
    rng = random.Random(seed)
    traffic = Traffic(Draw(rng, STRANGERS), damaged=damaged, without=frozenset({DECLARED_TYPE}))
    at_ns = sorted(rng.randrange(NOW_NS + NS_PER_S, NOW_NS + round(seconds * NS_PER_S)) for _ in range(count))
    for message in Fabric(1, list(FAULTS), SHAPE).messages(seconds):
        while at_ns and at_ns[0] <= message.bus_at_ns:
            chain.wire(traffic.one(), at_ns.pop(0))
        chain.message(message.topic, message.key, message.body, message.bus_at_ns, message.boot_id)
    return sorted(_about_the_fabric(chain.outputs))


def _about_the_fabric(outputs: list[tuple[int, str, Output]]) -> Iterator[Said]:
    for now_ns, stage, output in outputs:
        if stage == "detect" and output.topic == FINDING.name and isinstance(output.body, Event):
            data = output.body.data
            if data["severity"] == "info":  # of an instant: which windows are of one depends on who else reports
                continue
            if data["status"] != "update" and OURS.fullmatch(str(data["subject"]["id"])):
                yield (now_ns - NOW_NS) // NS_PER_S, data["kind"], data["subject"]["id"], data["status"]
