"""Queues: their causes, what they hold up, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdfstream.detect.congestion import CongestionDetector, observe
from sdfstream.detect.localise import Location
from sdfstream.detect.queues.placed import crossing
from sdfstream.detect.root.hidden_queues import HiddenQueues
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape
from tests.unit.detect.instants import at

SHAPE = Shape(hosts=8, rails=1, leaves=4, spines=2, ports=3, rate_hz=12.0, peers=4)
LINK, SWITCH, PATH = Subject("link", "l0--s0"), Subject("switch", "s0"), Subject("path", "p")


@pytest.fixture(scope="module")
def fabric() -> tuple[Any, np.ndarray, np.ndarray]:
    """A detector that knows the fabric's routes; directed paths over l0->s0, and others."""
    stage, made = DetectStage(), Fabric(3, [], SHAPE)
    run(stage, made.messages(4))
    detector = stage._engines.congestion
    cabling = detector.cabling
    numbers = np.arange(2 * cabling.sessions.count)
    element, weight = cabling.element[numbers // 2, numbers % 2], cabling.weight[numbers // 2, numbers % 2]
    over = (np.isin(element, cabling.numbers(["l0->s0"])) & (weight > 0.9)).any(axis=1)
    assert over.sum() >= 4 and (~over).sum() >= 4
    return detector, numbers[over], numbers[~over]


def location(subject: Subject, number: np.ndarray, directions: list[str]) -> tuple[Location, np.ndarray]:
    names = ["rev" if n % 2 else "fwd" for n in number.tolist()]
    found = Location(subject, directions, True, 1.0, number // 2, [(directions[0], 0.7)], 0.7, names)
    return found, number


def fresh(detector: CongestionDetector) -> CongestionDetector:
    return CongestionDetector(
        detector.config,
        detector.delays,
        detector.marks,
        detector.pauses,
        detector.rates,
        detector.cabling,
        detector.siblings,
    )


@pytest.mark.parametrize(("stands", "cause"), [(True, "ecn-mistuned"), (False, "queueing")])
def test_only_paths_on_which_a_queue_still_stands_say_that_it_is_not_marked(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, stands: bool, cause: str
) -> None:
    """As it drains, the delay that was seen last outlives the marks."""
    detector, over, _ = fabric
    mine, now = fresh(detector), at(100 * NS_PER_S)
    monkeypatch.setattr(mine.marks, "marks_class", lambda *_: True)
    for column, value in (("held", NS_PER_MS), ("since_ns", 10 * NS_PER_S), ("score", float(stands))):
        monkeypatch.setitem(mine.delays.table._views, column, np.full(mine.delays.table.rows, value))
    unmarked = np.zeros(2 * mine.cabling.sessions.count)

    found = mine._detection(*location(LINK, over, ["l0->s0"]), unmarked, now)

    assert found.cause == cause


@pytest.mark.parametrize(("neighbours", "cause"), [(False, "slow-nic"), (True, "queueing")])
def test_a_nic_that_moves_little_is_slow_where_those_beside_it_do_not_wait(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, neighbours: bool, cause: str
) -> None:
    mine, now = fresh(fabric[0]), at(100 * NS_PER_S)
    monkeypatch.setattr(mine.rates, "use_of", lambda *_: SimpleNamespace(rate_bps=1e6, speed_bps=100e9, paused_hz=0.0))
    monkeypatch.setattr("sdfstream.detect.congestion.neighbours_wait", lambda *_: neighbours)
    monkeypatch.setattr(mine, "_of_few", lambda *_: False)
    nic = mine.cabling.sessions.nics.list[0]
    place = location(Subject("nic", nic), fabric[1][:1], [f"{nic}->l0"])[0]
    told, _ = mine._cause(place, fabric[1][:1], now.reached_ns - 2 * NS_PER_S, 60.0, np.zeros(0), now)
    assert told == cause


@pytest.mark.parametrize(("directions", "cause"), [(["l0->s0"], "ecn-mistuned"), (["h00/r0->l0"], "queueing")])
def test_what_a_nic_sends_waits_in_its_host_where_nothing_marks(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, directions: list[str], cause: str
) -> None:
    detector, over, _ = fabric
    mine, now = fresh(detector), at(100 * NS_PER_S)
    monkeypatch.setattr(mine.marks, "marks_class", lambda *_: True)
    place = location(LINK, over, directions)[0]
    assert mine._cause(place, over, 10 * NS_PER_S, 800.0, np.zeros(over.size), now)[0] == cause


def test_a_queue_that_holds_up_all_before_it_is_placed_by_the_paths_that_wait_longest(
    fabric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s0->l2 is full and pauses all that feed s0: every path over s0 is slow, and those alone explain the others."""
    detector, _, _ = fabric
    mine, cabling = fresh(detector), detector.cabling
    numbers = np.arange(2 * cabling.sessions.count)

    def over(directions: list[str]) -> np.ndarray:
        return numbers[crossing(cabling, numbers, location(LINK, numbers[:1], directions)[0]) > 0.9]

    full, fed = over(["s0->l2"]), over(["l0->s0", "l1->s0", "l3->s0"])
    assert full.size >= 3 and np.isin(full, fed).all()
    peak = np.zeros(mine.delays.table.rows)
    peak[fed], peak[full] = 100e3, 900e3
    monkeypatch.setitem(mine.delays.table._views, "peak", peak)
    well = np.setdiff1d(numbers, fed)

    before = mine._locate(observe(fed, well))
    found = mine._located(fed, well, observe(fed, well))

    assert "l2--s0" not in {one.subject.id for one in before}
    assert found[0].directions == ["s0->l2"]
    assert sorted(found[0].directed_paths().tolist()) == sorted(full.tolist())


def test_a_queue_may_stand_unseen_where_slow_paths_cross_and_none_that_is_well(fabric: Any) -> None:
    detector, over, beside = fabric
    assert HiddenQueues(detector.cabling, over, beside).may_stand("l0", "s0")
    assert not HiddenQueues(detector.cabling, over[1:], np.append(beside, over[0])).may_stand("l0", "s0")
    assert not HiddenQueues(detector.cabling, over, beside).may_stand("l9", "s0")
    assert not HiddenQueues(detector.cabling, over, beside).may_stand("h00/r0", "l0")


def test_queues_towards_one_spine_are_two_queues_and_not_the_spine() -> None:
    """Two leaves that load the same spine: queues belong to the leaves' ports."""
    stage, made = DetectStage(), Fabric(3, [], replace(SHAPE, leaves=2, spines=4, ports=8))
    run(stage, made.messages(4))
    detector = stage._engines.congestion
    cabling = detector.cabling
    numbers = np.arange(2 * cabling.sessions.count)
    element, weight = cabling.element[numbers // 2, numbers % 2], cabling.weight[numbers // 2, numbers % 2]
    slow = (np.isin(element, cabling.numbers(["l0->s1", "l1->s1"])) & (weight > 0.9)).any(axis=1)
    found = detector._locate(observe(numbers[slow], numbers[~slow]))
    assert sorted((x.subject.id, *x.directions) for x in found) == [("l0--s1", "l0->s1"), ("l1--s1", "l1->s1")]


@pytest.mark.parametrize(
    ("paths", "age_s", "severity"),
    [(2, 1, "info"), (2, 6, "warning"), (None, 1, "warning"), (1, 6, "info"), (1, 31, "warning")],
)
def test_of_what_arrives_at_a_nic_few_paths_may_wait_in_its_host(
    fabric: Any, paths: int | None, age_s: int, severity: str
) -> None:
    """Before the port of a NIC all would wait; where its host's processors are busy some do, for a while. A single one
    of several may be one that became longer.
    """
    detector, _, _ = fabric
    mine, cabling = fresh(detector), detector.cabling
    nic = cabling.sessions.nics.list[0]
    leaf = cabling.topology.leaf_of[nic]
    numbers, subject = np.arange(2 * cabling.sessions.count), Subject("nic", nic)
    arriving = numbers[crossing(cabling, numbers, location(subject, numbers[:1], [f"{leaf}->{nic}"])[0]) > 0.9]
    assert arriving.size >= 6
    place = location(subject, arriving[:paths], [f"{leaf}->{nic}"])[0]
    now = at(100 * NS_PER_S)
    told = mine._severity(place, "queueing", 600.0, np.zeros(0), now.reached_ns - age_s * NS_PER_S, now)
    assert told == severity


def on_a_link(detector: Any, paths: int | None) -> Any:
    """A queue in one direction of a link, seen by some or all of the paths over it."""
    cabling = detector.cabling
    numbers = np.arange(2 * cabling.sessions.count)
    whole = location(Subject("link", "l0--s0"), numbers[:1], ["l0->s0"])[0]
    over = numbers[crossing(cabling, numbers, whole) > 0.9]
    assert over.size >= 4
    found = location(Subject("link", "l0--s0"), over[:paths], ["l0->s0"])[0]
    found.probability = 0.95
    return found


def severity(detector: Any, place: Any, at_s: float, age_s: float, us: float = 60.0) -> str:
    now = at(int(at_s * NS_PER_S))
    told: str = detector._severity(place, "queueing", us, np.zeros(0), now.reached_ns - int(age_s * NS_PER_S), now)
    return told


@pytest.mark.parametrize(
    ("windows", "usual_us", "told"), [(5, 15.0, "info"), (15, 15.0, "warning"), (15, 30.0, "info")]
)
def test_a_path_that_waits_alone_is_worth_a_warning_by_windows_as_well_as_by_time(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, windows: int, usual_us: float, told: str
) -> None:
    """Of a path that is probed once a second, five seconds show as little as five windows; and no more is told of it
    than of what quiet paths meet now and then."""
    mine, now = fresh(fabric[0]), at(100 * NS_PER_S)
    mine.delays.noise.restore([7e3, 400, 1e3 * usual_us])
    monkeypatch.setitem(mine.delays.table._views, "waits", np.full(mine.delays.table.rows, windows))
    place = location(PATH, fabric[1][:1], [PATH.id])[0]
    assert mine._severity(place, "queueing", 60.0, np.zeros(0), now.reached_ns - 6 * NS_PER_S, now) == told


def test_a_switch_that_one_path_of_many_names_may_be_a_busy_host(fabric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One path that waits names a switch where two of its ports are as likely; others over them do not wait."""
    mine = fresh(fabric[0])
    monkeypatch.setattr(mine.delays, "current", lambda _: np.ones(2 * mine.cabling.sessions.count, np.bool_))
    ports = ["l0->s0", "l0->s1"]
    one, two = (location(Subject("switch", "l0"), fabric[1][:n], ports)[0] for n in (1, 2))
    assert severity(mine, one, 100.0, 2.0, us=1160.0) == "info"
    assert severity(mine, one, 100.0, 29.0, us=1160.0) == "info"
    assert severity(mine, one, 100.0, 31.0, us=1160.0) == "warning"
    assert severity(fresh(fabric[0]), two, 100.0, 2.0, us=1160.0) == "warning"


def test_a_link_that_one_path_in_doubt_names_may_be_another(fabric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a link of its leaf has died no path surely crosses the others, and so none says that all is well there."""
    nothing = np.zeros(2 * fabric[0].cabling.sessions.count, np.bool_)
    monkeypatch.setattr(fabric[0].delays, "current", lambda _: nothing)
    sure, doubted = on_a_link(fabric[0], 1), on_a_link(fabric[0], 1)
    doubted.probability = 0.82
    assert severity(fresh(fabric[0]), sure, 100.0, 2.0, us=358.0) == "warning"
    assert severity(fresh(fabric[0]), doubted, 100.0, 2.0, us=358.0) == "info"
    assert severity(fresh(fabric[0]), doubted, 100.0, 6.0, us=358.0) == "warning"


def test_a_queue_at_a_link_that_few_paths_see_is_no_worse_when_one_of_them_is_left(
    fabric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = fresh(fabric[0])
    assert severity(mine, on_a_link(mine, 2), 100.0, 0.5) == "info"
    # of the other paths nothing is known now
    monkeypatch.setitem(mine.delays.table._views, "seen_ns", np.zeros_like(mine.delays.table["seen_ns"]))
    saved = mine.snapshot()
    assert severity(mine, on_a_link(mine, 1), 100.0, 2.0) == "info"
    assert severity(mine, on_a_link(mine, 1), 104.0, 6.0) == "warning"
    assert severity(fresh(fabric[0]), on_a_link(mine, 1), 100.0, 2.0) == "warning"
    again = fresh(fabric[0])
    again.restore(saved)
    assert severity(again, on_a_link(again, 1), 100.0, 2.0) == "info"


def test_a_queue_at_a_link_is_information_while_load_has_grown_and_a_while_after(
    fabric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, grown = fresh(fabric[0]), [True]
    place = on_a_link(mine, None)
    monkeypatch.setattr("sdfstream.detect.queues.surges.load_has_grown", lambda *_: grown[0])
    for at_s in np.arange(99.0, 100.1, 0.2).tolist():
        assert severity(mine, place, at_s, 6.0) == "info"
    assert severity(fresh(fabric[0]), place, 100.0, 6.0, us=900.0) == "warning"
    grown[0] = False  # what is longer everywhere has become normal
    assert severity(mine, place, 108.0, 14.0) == "info"
    saved = mine.snapshot()
    assert severity(mine, place, 114.0, 20.0) == "info", (
        "a surge of fifteen seconds makes queues of fifteen and a little"
    )
    assert severity(mine, place, 116.0, 22.0) == "warning"
    again = fresh(fabric[0])
    again.restore(saved)
    assert severity(again, place, 109.0, 1.0) == "info"
    assert severity(again, place, 116.0, 1.0) == "warning"
    assert severity(fresh(fabric[0]), place, 108.0, 14.0) == "warning"


def test_what_grows_for_tenths_of_a_second_at_a_time_is_a_job_that_sends_in_steps(
    fabric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, grown = fresh(fabric[0]), [True]
    place = on_a_link(mine, None)
    monkeypatch.setattr("sdfstream.detect.queues.surges.load_has_grown", lambda *_: grown[0])
    for tick in range(100):
        grown[0] = tick % 10 < 6
        worth = severity(mine, place, 100.0 + 0.1 * tick, 6.0 + 0.1 * tick)
        assert worth == ("info" if grown[0] else "warning"), "as long as nothing was told of it"


def test_so_is_one_before_a_nic_though_load_is_seen_to_have_grown_a_moment_after_it_began(
    fabric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, grown = fresh(fabric[0]), [False]
    nic, numbers = mine.cabling.sessions.nics.list[0], np.arange(2 * mine.cabling.sessions.count)
    into, out = (f"{mine.cabling.topology.leaf_of[nic]}->{nic}", f"{nic}->{mine.cabling.topology.leaf_of[nic]}")
    arriving = numbers[crossing(mine.cabling, numbers, location(Subject("nic", nic), numbers[:1], [into])[0]) > 0.9]
    place = location(Subject("nic", nic), arriving, [into])[0]
    monkeypatch.setattr("sdfstream.detect.queues.surges.load_has_grown", lambda *_: grown[0])
    assert severity(mine, place, 100.0, 0.4) == "warning"
    grown[0] = True
    assert severity(mine, place, 100.2, 0.6) == "info", "nothing was told of it yet"
    assert severity(mine, place, 100.2, 0.6, us=260.0) == "warning", "no surge makes so long a queue"
    sent = location(Subject("nic", nic), arriving, [out])[0]
    assert severity(mine, sent, 100.2, 0.6, us=400.0) == "warning"


@pytest.mark.parametrize(
    ("subject", "directions"),
    [
        (Subject("path", "h00/r0>h01/r0 fwd"), ["h00/r0>h01/r0 fwd"]),
        (Subject("switch", "l0"), ["s0->l0", "l0->h00/r0"]),
    ],
)
def test_nor_is_what_a_surge_makes_of_a_single_path_or_of_two_ports_of_a_switch(
    fabric: Any, monkeypatch: pytest.MonkeyPatch, subject: Subject, directions: list[str]
) -> None:
    mine, grown = fresh(fabric[0]), [True]
    mine.delays.noise.restore([7e3, 400, 15e3])
    monkeypatch.setitem(mine.delays.table._views, "waits", np.full_like(mine.delays.table["waits"], 99))
    monkeypatch.setattr("sdfstream.detect.queues.surges.load_has_grown", lambda *_: grown[0])
    place = location(subject, fabric[1][: 1 if subject.type == "path" else 2], directions)[0]
    assert severity(mine, place, 100.0, 16.0) == "info"
    assert severity(fresh(fabric[0]), place, 100.0, 16.0, us=260.0) == "warning"
    grown[0] = False
    assert severity(mine, place, 100.0 + 16.0, 32.0) == "warning", "what is normal has followed, and the queue stands"
    assert severity(fresh(fabric[0]), place, 100.0, 16.0) == "warning"
