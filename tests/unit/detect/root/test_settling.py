"""How long blame waits: by the limits of the silent paths and of the agents, never by detect's own."""

from typing import Any, cast

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.liveness import Sightings
from sdfstream.detect.localise import Location
from sdfstream.detect.presence import Presence
from sdfstream.detect.root.settling import SEPARATE_NS, TRACED_NS, Settling
from sdfstream.detect.routes import SilentTraces
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Subject

S, MS = 1_000_000_000, 1_000_000


class Silent:
    """`Sightings` as far as settling looks: after how long each path was called silent, and since when it is."""

    def __init__(self, *limits_ms: int) -> None:
        self.limit_ns = np.array(limits_ms) * MS
        self.since_ns = np.full(len(limits_ms), S)


class Traced:
    """Cabling as far as settling asks: whether agents trace the paths."""

    def __init__(self, *, traced: bool = False, at_ms: int | None = None) -> None:
        self.traced, self.silent_traces = traced, SilentTraces()
        if at_ms is not None:
            self.silent_traces.take(0, ["10.0.0.1", None], at_ms * MS)

    def is_traced(self, slots: Any) -> bool:
        return self.traced


def settle_ms(
    *limits_ms: int,
    config: DetectConfig | None = None,
    probability: float = 1.0,
    stated: float | None = None,
    traced: bool = False,
    at_ms: int | None = None,
    now_ms: int = 5000,
) -> float:
    cabling = cast("Cabling", Traced(traced=traced, at_ms=at_ms))
    settling = Settling(config or DetectConfig(), Presence(Sessions(9)), cabling)
    found = Location(
        Subject("nic", "a/0"), ["a/0->l"], True, 1.0, np.arange(len(limits_ms)), [], probability, stated=stated
    )
    return settling.time_ns(found, cast("Sightings", Silent(*limits_ms)), now_ms * MS) / MS


@pytest.mark.parametrize(
    ("limit_ms", "time_ms"), [(5000, 300), (1000, 250), (600, 250), (200, 250), (150, 50), (100, 50), (50, 25)]
)
def test_blame_waits_a_quarter_of_the_silent_paths_limit_within_bounds(limit_ms: int, time_ms: int) -> None:
    for own_ms in (50, 600, 1000, 10_000):
        assert settle_ms(limit_ms, limit_ms, config=DetectConfig(liveness_ms=own_ms)) == time_ms


def test_fast_paths_do_not_wait_for_slow_ones_if_they_are_enough() -> None:
    assert settle_ms(150, 150, 1000, 1000) == 50
    assert settle_ms(150, 1000, 1000, 1000) == 250
    assert settle_ms(150) == 50


def test_blame_that_may_be_anothers_waits_for_rows_of_what_else_passed() -> None:
    assert settle_ms(50, 50, probability=0.75) == 250
    assert settle_ms(1000, 1000, probability=0.75) == 250


@pytest.mark.parametrize(
    ("probability", "stated", "waits"),
    [(0.75, None, True), (0.99, 0.75, True), (0.99, 0.95, False), (0.99, None, False)],
)
def test_a_place_in_doubt_waits_for_traces_of_what_is_silent(
    probability: float, stated: float | None, waits: bool
) -> None:
    """That it is blamed already makes it likely to the search, and is no evidence."""
    base_ms = settle_ms(1000, 1000, probability=probability, stated=stated)
    assert base_ms == 250
    traced_ms = settle_ms(1000, 1000, probability=probability, stated=stated, traced=True)
    assert traced_ms == base_ms + (TRACED_NS / MS if waits else 0)


@pytest.mark.parametrize(
    ("probability", "at_ms", "now_ms", "time_ms"),
    [
        (0.99, 1700, 1600, 150),  # silent since 1000, said to be after 1500
        (0.99, 1700, 1800, 0),
        (0.75, 1700, 1800, 100),
        (0.75, 1700, 1900, 0),
        (0.56, 1700, 1900, 650),  # the traces that are there have not named it
        (0.99, 900, 1800, 250),  # traced before it fell silent
        (0.75, 900, 1800, 650),
        (0.99, 1700, 2800, 250),  # so late it is what came back that tells
    ],
)
def test_once_traces_are_there_time_counts_from_when_the_silence_was_said(
    probability: float, at_ms: int, now_ms: int, time_ms: int
) -> None:
    told_ms = settle_ms(500, 500, probability=probability, traced=True, at_ms=at_ms, now_ms=now_ms)
    assert told_ms == time_ms


def test_a_time_that_is_set_is_kept() -> None:
    for probability in (0.75, 1.0):
        assert settle_ms(600, 600, config=DetectConfig(settle_ms=70), probability=probability) == 70


@pytest.mark.parametrize(("traced", "apart_ns"), [(False, SEPARATE_NS), (True, TRACED_NS)])
@pytest.mark.parametrize(("said_ms", "longest_ms"), [([600, 600], 600), ([600, 2000], 2000), ([600, None], 1000)])
def test_a_switch_of_which_one_cable_explains_all_waits_for_the_slowest_agent_and_for_traces(
    said_ms: list[int | None], longest_ms: int, traced: bool, apart_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sdfstream.detect.root.settling.over_one_cable", lambda *_: True)
    presence, config = Presence(Sessions(9)), DetectConfig()
    for number, limit_ms in enumerate(said_ms):
        presence.take_message(f"h{number}", S, "boot")
        presence.take_limit(f"h{number}", None if limit_ms is None else limit_ms * MS)
    settling = Settling(config, presence, cast("Cabling", Traced(traced=traced)))
    found = Location(Subject("switch", "l0"), [], True, 1.0, np.arange(2), [], 1.0)
    time_ns = settling.time_ns(found, cast("Sightings", Silent(50, 50)), S)
    assert time_ns == config.settle_ns(longest_ms * MS) + apart_ns
