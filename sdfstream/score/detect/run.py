"""One scenario with one seed through sync, workload and detect, offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sdfstream import pipeline
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.replay import replay
from sdfstream.score.detect.facts import RunFacts, facts
from sdfstream.score.detect.grouping import MeasuredGroups
from sdfstream.score.detect.hops import HopTruth
from sdfstream.settings import Settings
from sdfstream.twin.recording_io import fabric_truth, route_truth
from sdfstream.twin.scenario import read
from sdfstream.twin.simulation import Twin

STAGES: Final = ("sync", "workload", "detect")
GROUPED_NS: Final = 8 * NS_PER_S
"""Who shares a leaf is told by the delays of so long before the end."""
QUICK: Final = ("congested-link", "gray-10-blind", "link-down", "nic-down-blind")
"""Scenarios of ``--quick``, a regression gate of half a minute."""


def run(path: Path, seed: int, settings: Settings) -> RunFacts:
    """Facts of the scenario at `path` with `seed`; the shipped detectors' settings are `settings`."""
    scenario = read(path)
    twin = Twin(scenario, seed, str(path))
    groups = MeasuredGroups(_end_ns(twin) - GROUPED_NS)
    hops = HopTruth(twin)
    said = statements(twin, settings, groups, hops)
    truth = [f.truth(twin.start_ns, twin.seconds, twin.fabric.names) for f in twin.faults]
    blind = not scenario.known.topology and not scenario.known.traces
    fabric = fabric_truth(twin)
    made = facts(fabric | {"routes": route_truth(twin)}, truth, said, blind=blind)
    made.hops = hops.errors().sums()
    made.grouping_ari = groups.against(fabric["leaves"])
    return made


def statements(twin: Twin, settings: Settings, *watching: MeasuredGroups | HopTruth) -> list[dict[str, Any]]:
    """`data` of ``sdf.event.finding.v1``, in order, that the stages make of a twin's messages; all are told to some."""
    stages = [stage for stage in pipeline.stages(settings) if stage.name in STAGES]
    found = []
    for message in replay(twin.messages(), stages, twin.start_ns, _end_ns(twin)):
        for one in watching:
            one.take(message)
        if message.topic == FINDING.name and isinstance(message.body, Event):
            found.append(dict(message.body.data))
    return found


def _end_ns(twin: Twin) -> int:
    return twin.start_ns + round(twin.seconds * 1e9)


def chosen(names: Sequence[str], *, quick: bool, shipped: Sequence[str]) -> list[str]:
    """Scenarios to run: those named, the quick ones, or all that are shipped."""
    return list(names) if names else list(QUICK) if quick else list(shipped)
