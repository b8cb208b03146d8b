"""What comes late proves nothing, and what is on time still does: lateness of one agent, of all, of the pipeline.

Findings of class link, node or workload that name no true fault are false, whatever comes late. ``SDFSTREAM_SEEDS=30``
plays more seeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.message import Message
from sdfstream.records.units import NS_PER_S
from tests.fixtures import lateness
from tests.fixtures.drive import Begun, Reported, begin, run
from tests.fixtures.faultlist import leaf_of
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape

SEEDS = range(int(os.environ.get("SDFSTREAM_SEEDS", "10")))
SMALL = Shape(hosts=4, leaves=4, ports=1, rate_hz=10.0, owd=False, clocks=False, flush_ms=200)
AT_S, HEAL_S, END_S = 8.0, 15.0, 20.0
HOST = "h01"

Late = Callable[[list[Message], int], list[Message]]
LATE: dict[str, Late] = {
    "one-20": lambda messages, _: lateness.late(messages, 6, 14, 20, HOST),
    "all-2": lambda messages, _: lateness.late(messages, 6, 14, 2),
    "all-5": lambda messages, _: lateness.late(messages, 6, 14, 5),
    "pause-5": lambda messages, seed: lateness.paused(messages, 7 + seed % 3, 5),
    "thinned-5th": lambda messages, seed: lateness.thinned(messages, 0.2, seed, 3),
    "windows": lambda messages, _: lateness.without_windows(messages, 3, 1, 4),
}
ON_THE_BUS_S = {"all-2": 2.0, "all-5": 5.0, "pause-5": 5.0}
"""So much later than it happened everything may enter the bus."""
ON_TIME_S = 6.0
"""Until then all is on time, but where rows are shed from the beginning on."""
SHED = ("thinned-5th", "windows")


@cache
def played(seed: int, fault: str) -> tuple[list[Message], str]:
    """Messages on time, and the NIC at fault, of a host that is not late."""
    shape = SMALL if fault != "queue" else replace(SMALL, owd=True)
    quiet, rng = Fabric(seed, [], shape), np.random.default_rng(seed)
    nic = str(rng.choice([nic for nic in quiet.nics if not nic.startswith(HOST)]))
    faults = {
        "none": [],
        "down": [Fault(leaf_of(quiet, nic), AT_S, HEAL_S, drop=1)],
        "queue": [Fault(leaf_of(quiet, nic)[1:], AT_S, HEAL_S, delay_us=2000, ce=0.5)],
    }
    return list(Fabric(seed, faults[fault], shape).messages(END_S)), nic


@cache
def begun(seed: int, fault: str) -> Begun:
    """The run of `played` for as long as nothing is late, whatever will be."""
    return begin(DetectStage(), played(seed, fault)[0], ON_TIME_S)


def reported(seed: int, fault: str, late: str) -> tuple[Reported, str]:
    messages, nic = played(seed, fault)
    there = [m for m in LATE[late](messages, seed) if m.bus_at_ns <= messages[-1].bus_at_ns]
    return run(DetectStage(), there, begun=None if late in SHED else begun(seed, fault)), nic


def told(found: Reported) -> list[tuple[float, str, str, set[str]]]:
    """Instant, kind, class and every name of each finding that opened."""
    return [
        (at_s, f["kind"], FINDING_KINDS[f["kind"]][0], {f["subject"]["id"], *(s["id"] for s in f["suspects"])})
        for at_s, f in found.findings("open")
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_lateness_alone_is_no_fault_and_at_most_one_statement_about_telemetry(seed: int) -> None:
    for late in ("one-20", "all-5", "pause-5", "windows"):
        found = told(reported(seed, "none", late)[0])
        assert [f for f in found if f[2] != "telemetry"] == [], late
        silent = [("agent-stale", HOST)] if late.startswith("one") else []
        assert [(kind, *names) for _, kind, _, names in found] == silent, late


def check(seed: int, fault: str, kind: str, late: str, within_s: float) -> None:
    """The fault is named in time, and nothing else but telemetry is."""
    found, nic = reported(seed, fault, late)
    named = told(found)
    true = [at_s for at_s, k, _, names in named if k == kind and nic in names]
    assert true and min(true) <= AT_S + ON_THE_BUS_S.get(late, 0.0) + within_s, (late, named)
    assert [f for f in named if f[2] != "telemetry" and nic not in f[3]] == [], late


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_nic_is_named_as_soon_as_it_is_on_the_bus_and_nothing_else_is(seed: int) -> None:
    for late in ("one-20", "all-5", "pause-5"):
        check(seed, "down", "nic-down", late, 2.5)


@pytest.mark.parametrize("seed", list(SEEDS)[:2])
def test_a_queue_is_named_as_soon_as_it_is_on_the_bus_and_nothing_else_is(seed: int) -> None:
    for late in ("one-20", "all-2", "pause-5"):
        check(seed, "queue", "congestion", late, 3.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_windows_that_come_in_pieces_the_end_of_one_opens_nothing_and_a_queue_is_named(seed: int) -> None:
    """A burst at the end of a piece looks like a queue that stands, for as long as nothing newer can show that it went.

    A queue that does stand is named with the piece that shows it.
    """
    shape = replace(SMALL, owd=True)
    quiet, rng = Fabric(seed, [], shape), np.random.default_rng(seed)
    nic = str(rng.choice(quiet.nics))
    for at_s, until_s in ((7.5, 7.8), (7.5, 15.0)):
        queue = [Fault(leaf_of(quiet, nic)[1:], at_s, until_s, delay_us=2000, ce=0.5)]
        messages = lateness.windows_in_pieces(Fabric(seed, queue, shape).messages(END_S), 6.2, 1.9)
        named = told(run(DetectStage(), [m for m in messages if m.bus_at_ns <= EPOCH + int(END_S * NS_PER_S)]))
        assert all(nic in names for *_, names in named)
        queues = [at_s for at_s, kind, _, _ in named if kind == "congestion" and at_s < 10.5]
        assert len(queues) == 1 if until_s > 8 else named == []


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_nic_that_flaps_nothing_is_laid_to_switches_and_links_however_slowly_it_is_read(seed: int) -> None:
    """Its paths fall silent and come back one by one, each at a probe of its own: together they look like any link."""
    shape = replace(SMALL, ports=4, rate_hz=5.0, liveness_ms=600)
    quiet, rng = Fabric(seed, [], shape), np.random.default_rng(seed)
    nic = str(rng.choice(quiet.nics))
    flaps = [Fault(leaf_of(quiet, nic), 8 + 1.4 * k, 8 + 1.4 * k + 0.8, drop=1) for k in range(9)]
    messages, each_ms = list(Fabric(seed, flaps, shape).messages(24.0)), (50, 20, 0)[seed % 3]
    found = told(run(DetectStage(), lateness.slowed(messages, 9, 2, each_ms) if each_ms else messages))
    assert [f for f in found if f[2] != "telemetry" and nic not in f[3]] == []
    assert any(nic in f[3] for f in found)


def test_nothing_is_resolved_while_nobody_reports() -> None:
    """A finding does not end because the pipeline stood still: what would end it was not read yet."""
    messages, _ = played(0, "down")
    found = run(DetectStage(), lateness.paused(messages, 11, 5)).findings()
    resolved = [at_s for at_s, f in found if f["kind"] == "nic-down" and f["status"] == "resolved"]
    assert len(resolved) == 1 and resolved[0] >= 16


@pytest.mark.parametrize("seed", list(SEEDS)[:3])
def test_confidence_is_reduced_where_rows_were_shed(seed: int) -> None:
    whole = run(DetectStage(), played(seed, "down")[0], begun=begun(seed, "down")).findings("open")
    thin = reported(seed, "down", "thinned-5th")[0].findings("open")
    sure, unsure = (max(f["confidence"] for _, f in x if f["kind"] == "nic-down") for x in (whole, thin))
    assert unsure < 0.75 * sure
    assert all("rows-received" in [e["what"] for e in f["evidence"]] for _, f in thin if f["kind"] == "nic-down")
