"""Load that grows everywhere is told from a queue at one link by the paths that have nothing to do with it."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.localise import Location
from sdfstream.detect.queues.surges import Surges, load_has_grown
from sdfstream.detect.root.port_rates import PortRates
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters
from tests.unit.detect.instants import at

T0 = 1_800_000_000 * NS_PER_S

PATHS, QUEUE = 60, np.arange(6)
SPREAD_NS = 1_000.0


def baselines(excess_ns: float, seed: int, windows: int = 300) -> DelayBaselines:
    """Paths with this mean excess over the last two seconds, beside what noise makes of it; six stand in a queue."""
    delays = DelayBaselines(DetectConfig(), Sessions(PATHS), Counters("detect"))
    for table in (delays.moments.table, delays.shifts.table, delays.table):
        table.ensure(PATHS)
    delays.moments.table["n"][:PATHS] = windows
    delays.moments.table["variance"][:PATHS] = SPREAD_NS**2
    noise = np.random.default_rng(seed).normal(0.0, 0.16 * SPREAD_NS, PATHS)
    delays.shifts.table["mean_ns"][:PATHS] = excess_ns + noise
    delays.shifts.table["mean_ns"][QUEUE] = 50e3
    return delays


@pytest.mark.parametrize("seed", range(5))
def test_half_of_the_other_paths_are_longer_in_a_surge_and_none_beside_a_full_link(seed: int) -> None:
    fresh = np.ones(PATHS, np.bool_)
    assert load_has_grown(baselines(1_500.0, seed), QUEUE, fresh)
    assert not load_has_grown(baselines(0.0, seed), QUEUE, fresh)


def test_few_or_young_or_stale_paths_say_nothing() -> None:
    surge, fresh = baselines(1_500.0, 1), np.ones(PATHS, np.bool_)
    assert not load_has_grown(surge, np.arange(PATHS - 10), fresh)
    assert not load_has_grown(surge, QUEUE, np.zeros(PATHS, np.bool_))
    assert not load_has_grown(baselines(1_500.0, 1, windows=50), QUEUE, fresh), "by means that are not settled"
    unknown = baselines(1_500.0, 1, windows=20)
    unknown.table["delay"][:PATHS] = unknown.moments.mean[:PATHS] + 5 * SPREAD_NS
    assert not load_has_grown(unknown, QUEUE, fresh)
    assert load_has_grown(surge, np.append(QUEUE, PATHS + 5), fresh), "a path that nothing was received of yet"


@pytest.mark.parametrize("seed", range(5))
def test_paths_that_are_probed_once_a_second_show_a_surge_by_their_last_windows(seed: int) -> None:
    """Their means need ten seconds to follow."""
    young, fresh = baselines(250.0, seed), np.ones(PATHS, np.bool_)
    assert not load_has_grown(young, QUEUE, fresh)
    rng = np.random.default_rng(seed)
    for excess_ns, grown in ((2 * SPREAD_NS, True), (0.0, False)):
        young.table["delay"][:PATHS] = young.moments.mean[:PATHS] + rng.normal(excess_ns, SPREAD_NS, PATHS)
        assert load_has_grown(young, QUEUE, fresh) == grown


class Busier(PortRates):
    """Half of all ports send 1.3 times what they usually do."""

    def grown(self, now_ns: int) -> float | None:
        return 1.3


@pytest.mark.parametrize(("kind", "name", "surge"), [("link", "l0--s0", True), ("nic", "h0/r0", False)])
def test_what_nics_send_shows_a_surge_at_links_and_not_at_the_port_that_they_send_to(
    kind: Literal["link", "nic"], name: str, surge: bool
) -> None:
    delays = baselines(0.0, 1)
    surges = Surges(delays, Cabling(delays.sessions), Busier())
    place = Location(Subject(kind, name), [], True, 1.0, np.arange(6), [(name, 1.0)], 1.0, ["fwd"] * 6)
    seen = [surges.stands_in_one(place, at(T0 + tick * TICK_NS)) for tick in range(12)]
    assert seen == [surge] * 12
    surges.rates = PortRates()
    later = [surges.stands_in_one(place, at(T0 + after_s * NS_PER_S)) for after_s in (10, 20)]
    assert later == [surge, False], "it stood in one for fifteen seconds"
