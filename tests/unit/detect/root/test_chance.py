"""A few probes lost in a row over a link that loses some are its symptom; more than chance brings about are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.detect.gray.dead_uplink import SPRAYED
from sdfstream.detect.root.chance import silences
from sdfstream.detect.stage import DetectStage
from sdfstream.records.finding import Evidence, Subject
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Shape

SHAPE = Shape(hosts=8, rails=1, leaves=4, spines=2, ports=3, rate_hz=12.0, peers=4)
LINK = "l0->s0"


@pytest.fixture(scope="module")
def cabling() -> Cabling:
    stage = DetectStage()
    run(stage, Fabric(3, [], SHAPE).messages(4))
    return stage._engines.congestion.cabling


def sessions_over(cabling: Cabling, *, crossing: bool) -> tuple[int, ...]:
    slots = np.arange(cabling.sessions.count)
    over = np.isin(cabling.element[slots], cabling.numbers([LINK])) & (cabling.weight[slots] > 0.9)
    return tuple(slots[over.any(axis=(1, 2)) == crossing].tolist())


def loss(share: float) -> Detection:
    evidence = (Evidence("loss-share-high", share, "1", LINK),)
    return Detection("loss", Subject("link", "l0--s0"), 0, "gray-failure", 1.0, evidence, directions=(LINK,))


def silent(missed: int, sessions: tuple[int, ...]) -> Detection:
    subject = Subject("path", "p")
    return Detection("path-down", subject, 0, "unknown", 1.0, (), sessions=sessions, missed=missed)


@pytest.mark.parametrize(
    ("share", "missed", "chance"),
    [(0.1, 4, True), (0.1, 40, False), (0.002, 4, False), (0.5, 20, True), (1.0, 99, True)],
)
def test_so_many_losses_in_a_row_as_the_share_makes_likely_are_chance(
    cabling: Cabling, share: float, missed: int, chance: bool
) -> None:
    assert silences(loss(share), silent(missed, sessions_over(cabling, crossing=True)[:2]), cabling) is chance


def test_silence_beside_the_link_or_of_other_kinds_is_not(cabling: Cabling) -> None:
    over, beside = sessions_over(cabling, crossing=True), sessions_over(cabling, crossing=False)
    assert not silences(loss(0.1), silent(4, beside[:1]), cabling)
    assert not silences(loss(0.1), silent(4, (*over[:1], *beside[:1])), cabling)
    assert not silences(loss(0.1), silent(4, ()), cabling)
    assert not silences(loss(0.1), replace(silent(4, over[:1]), kind="loss"), cabling)
    assert not silences(replace(loss(0.1), evidence=()), silent(4, over[:1]), cabling)


def test_where_packets_are_sprayed_a_few_that_may_cross_it_are_chance_whatever_they_are_laid_to(
    cabling: Cabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = sessions_over(cabling, crossing=True)
    leaf = replace(silent(6, over[:1]), kind="link-down", subject=Subject("switch", "l1"))
    assert not silences(loss(0.4), leaf, cabling)
    monkeypatch.setattr(cabling.traced, "is_sprayed", lambda dscp: True)
    assert silences(loss(0.4), leaf, cabling)
    assert not silences(loss(0.4), replace(leaf, sessions=over[:6]), cabling), "so many at once are no chance"
    slots = np.arange(cabling.sessions.count)
    never = slots[~np.isin(cabling.element[slots], cabling.numbers([LINK])).any(axis=(1, 2))]
    assert not silences(loss(0.4), replace(leaf, sessions=(int(never[0]),)), cabling)
    core = replace(loss(0.4), subject=Subject("switch", "~core"), directions=("~core",))
    assert silences(core, leaf, cabling), "whatever goes from leaf to leaf crosses the spines"


def test_where_one_of_those_it_is_sprayed_over_is_dead_chance_goes_by_what_is_lost_over_all(
    cabling: Cabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = sessions_over(cabling, crossing=True)
    monkeypatch.setattr(cabling.traced, "is_sprayed", lambda dscp: True)
    leaf = replace(silent(40, over[:1]), kind="link-down", subject=Subject("switch", "l1"))
    dead = loss(1.0)
    assert silences(dead, leaf, cabling)
    assert not silences(
        replace(dead, evidence=(*dead.evidence, Evidence(f"{SPRAYED}-high", 0.3, "1", "l0"))), leaf, cabling
    )
