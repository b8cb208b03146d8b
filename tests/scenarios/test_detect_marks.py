"""A port that marks what hardly waited is told as mistuned; marks of queues stay information, whenever those began.

``SDFSTREAM_SEEDS=10 pytest tests/scenarios/test_detect_marks.py`` plays more seeds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdfstream.twin
from sdfstream import settings
from sdfstream.detect.stage import DetectStage
from sdfstream.score.detect.facts import RunFacts
from sdfstream.score.detect.run import run as score
from tests.fixtures.drive import run
from tests.fixtures.faultlist import busy_link, leaf_of
from tests.fixtures.leafspine import Fabric, Fault, Shape

SHAPE = Shape(hosts=6, leaves=6, ports=3)
SEEDS = range(200, 200 + int(os.environ.get("SDFSTREAM_SEEDS", "2")))
QUEUE_US = 30.0
"""A queue that any port marks, and that is too short for its paths to be slow."""


def marks(seed: int, at_s: float, until_s: float, *, delay_us: float, ce: float, nic: bool = False) -> tuple[str, Any]:
    """Element at fault, and the last statement about it."""
    fabric, rng = Fabric(seed, [], SHAPE), np.random.default_rng(seed)
    if nic:
        target = str(rng.choice(fabric.nics))
        direction = leaf_of(fabric, target)[1]
    else:
        leaf, spine = busy_link(fabric, rng)
        target, direction = f"{leaf}--{spine}", f"{leaf}->{spine}"
    faulty = Fabric(seed, [Fault((direction,), at_s, delay_us=delay_us, ce=ce)], SHAPE)
    said = [s for _, s in run(DetectStage(), faulty.messages(until_s)).findings()]
    assert {(s["kind"], s["subject"]["id"]) for s in said} == {("ecn-marks", target)}
    return target, said[-1]


def told(statement: Any) -> tuple[str, str]:
    return statement["severity"], statement["cause"]


def round_trips(statement: Any) -> tuple[float, float]:
    (found,) = [e for e in statement["evidence"] if e["what"] == "marked-round-trip"]
    assert found["unit"] == "µs"
    return found["value"], found["baseline"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nic", [False, True])
def test_marks_of_what_hardly_waited_are_a_mistuned_port(seed: int, nic: bool) -> None:
    _, last = marks(seed, 8.0, 14.0, delay_us=0.0, ce=0.5, nic=nic)
    assert told(last) == ("warning", "ecn-mistuned")
    marked_us, normal_us = round_trips(last)
    assert abs(marked_us - normal_us) < 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nic", [False, True])
def test_marks_of_a_queue_are_information(seed: int, nic: bool) -> None:
    _, last = marks(seed, 8.0, 14.0, delay_us=QUEUE_US, ce=0.5, nic=nic)
    assert told(last) == ("info", "queueing")
    marked_us, normal_us = round_trips(last)
    assert marked_us - normal_us > 0.8 * QUEUE_US


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nic", [False, True])
def test_a_queue_that_marks_everything_is_a_warning(seed: int, nic: bool) -> None:
    _, last = marks(seed, 8.0, 14.0, delay_us=QUEUE_US, ce=1.0, nic=nic)
    assert told(last) == ("warning", "queueing")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nic", [False, True])
def test_a_queue_that_stands_from_the_very_start_is_no_mistuned_port(seed: int, nic: bool) -> None:
    """What is normal would be learnt with it in it."""
    _, last = marks(seed, 0.0, 30.0, delay_us=QUEUE_US, ce=0.2, nic=nic)
    assert told(last) == ("info", "queueing")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_link_mistuned_from_the_very_start_is_known_by_other_paths_between_the_same_nics(seed: int) -> None:
    _, last = marks(seed, 0.0, 25.0, delay_us=0.0, ce=0.5)
    assert told(last) == ("warning", "ecn-mistuned")


def on_the_twin(folder: Path, kind: str, seed: int, known: str = "true") -> RunFacts:
    """The shipped scenario of that name in half its time: what was there before the fault is shorter."""
    file = folder / f"{kind}.yaml"
    file.write_text(
        f"""about: {kind}, as it is shipped but for its time
fabric: {{kind: leaf-spine, hosts: 8, leaves: 4, spines: 4}}
probes: {{peers: 5, ports: 3}}
known: {{topology: {known}, traces: {known}}}
load: {{utilisation: 0.3}}
seconds: 26
faults:
  - {{kind: {kind}, at: 12, lasts: 10, direction: random}}
"""
    )
    return score(file, seed, settings.load(None))


@pytest.mark.parametrize("seed", [2, 4])
def test_a_queue_that_is_marked_too_late_is_the_only_one_told_though_it_pauses_others(
    tmp_path: Path, seed: int
) -> None:
    made = on_the_twin(tmp_path, "ecn-mistuned", seed)
    (fact,) = made.faults
    assert fact.found and fact.exact and fact.directed and fact.cause
    assert not made.false_alarms


@pytest.mark.parametrize("seed", [1, 2])
def test_the_twin_s_mistuned_port_is_found_at_its_place_with_its_cause(tmp_path: Path, seed: int) -> None:
    made = on_the_twin(tmp_path, "ecn-early", seed)
    (fact,) = made.faults
    assert fact.found and fact.exact and fact.directed and fact.cause
    assert fact.reported_class == "configuration"
    assert not made.false_alarms and not made.empty_evidence


@pytest.mark.parametrize("seed", [2, 4, 101])
def test_nics_that_their_leaf_tells_to_wait_are_one_queue_behind_it_where_nothing_is_known(
    tmp_path: Path, seed: int
) -> None:
    made = on_the_twin(tmp_path, "ecn-mistuned", seed, known="false")
    (fact,) = made.faults
    assert fact.found and fact.cause
    (reported,) = fact.reported
    assert reported in (f"congestion link {fact.target}", f"congestion switch {fact.target.split('--')[0]}")
    assert not made.false_alarms


@pytest.mark.parametrize("seed", [192, 195, 404])
def test_a_full_port_whose_pauses_reach_several_leaves_or_all_of_one_is_placed_where_nothing_is_known(
    tmp_path: Path, seed: int
) -> None:
    """192 and 195: into a leaf, the NICs of two others are paused. 404: out of a leaf, both its NICs are."""
    _is_placed(on_the_twin(tmp_path, "ecn-mistuned", seed, known="false"))


def test_a_full_port_that_pauses_all_leaves_but_its_own_is_placed_where_nothing_is_known() -> None:
    shipped = Path(sdfstream.twin.__file__).parent / "scenarios" / "ecn-mistuned-blind.yaml"
    _is_placed(score(shipped, 198, settings.load(None)))


def _is_placed(made: RunFacts) -> None:
    (fact,) = made.faults
    assert fact.found and fact.exact and fact.directed and fact.cause
    assert fact.findings == 1
    assert not made.false_alarms
