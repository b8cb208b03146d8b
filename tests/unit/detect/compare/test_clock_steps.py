"""Steps of clocks: found by size and clock, whoever is the reference; none where no clock stepped."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.compare.clock_steps import ClockStepDetector
from sdfstream.detect.detections import Detection
from sdfstream.numeric import codec
from sdfstream.records import columns
from sdfstream.records.topics import CLOCK
from tests.unit.detect.instants import at

S = 1_000_000_000
T0 = 1_800_000_000 * S
NAMES = ["h0", "h1", "h2", "h3", "h4"]


class Clocks:
    """Clocks with offsets and skews of their own against the first; each settles for 0.4 s after its step."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.offset_ns = self.rng.uniform(-1e9, 1e9, len(NAMES))
        self.skew_ppb = self.rng.uniform(-2e4, 2e4, len(NAMES))
        self.steps: dict[int, tuple[float, float]] = {}
        """Clock to (when, s; by how much, µs)."""
        self.reference: list[tuple[float, int]] = [(0.0, 0)]
        self.first_s: dict[int, float] = {}
        """Clock to when it is first synced."""
        self.doubted: dict[int, tuple[float, float, float]] = {}
        """Clock to (from, until, s: synced, with a bar of; µs)."""
        self.away: dict[int, tuple[float, float, float]] = {}
        """Clock to (from, until, s: holdover; by how much its line is wrong, ppb), its bound growing by twice that."""

    def batch(self, tick: int):
        t, n = tick / 10, len(NAMES)
        true = self.offset_ns + self.skew_ppb * t
        status = ["synced"] * n
        reference = [clock for from_s, clock in self.reference if t >= from_s][-1]
        for clock, (at_s, us) in self.steps.items():
            true[clock] += us * 1e3 * (t >= at_s)
            if at_s <= t < at_s + 0.4:  # all that is measured against a reference that stepped is unsure
                status = ["unsynced" if k == clock or clock == reference else s for k, s in enumerate(status)]
        status[reference] = "synced"
        status = ["unsynced" if t < self.first_s.get(k, 0.0) else s for k, s in enumerate(status)]
        skew_ppb, err_ns = self.skew_ppb - self.skew_ppb[reference], np.full(n, 3e3)
        strayed_ns = np.zeros(n)
        for clock, (from_s, until_s, ppb) in self.away.items():
            if t < until_s:
                skew_ppb[clock] += ppb
            if from_s <= t < until_s:
                status[clock], strayed_ns[clock] = "holdover", ppb * (t - from_s)
                err_ns[clock] += 2.0 * abs(strayed_ns[clock])
        for clock, (from_s, until_s, us) in self.doubted.items():
            err_ns[clock] = us * 1e3 if from_s <= t < until_s else err_ns[clock]
        rows = {
            "clock": NAMES,
            "at_ns": T0 + int(t * S) + true.astype(np.int64),
            "offset_ns": true - true[reference] + strayed_ns + self.rng.normal(0, 500, n) * (np.arange(n) != reference),
            "skew_ppb": skew_ppb,
            "err_ns": err_ns,
            "n": np.full(n, 100, np.uint32),
            "status": status,
            "kind": ["causal"] * n,
        }
        return columns.build(CLOCK.columns, rows)

    def told(self, seconds: float, restore_at: int = -1) -> dict[str, Detection]:
        """The first detection about each clock."""
        detector, found = ClockStepDetector(), {}
        for tick in range(int(seconds * 10)):
            detector.take(self.batch(tick), T0 + tick * S // 10)
            if tick == restore_at:
                saved, detector = codec.dump(detector.snapshot()), ClockStepDetector()
                detector.restore(codec.load(saved))
            for detection in detector.detections(at(T0 + tick * S // 10)):
                found.setdefault(detection.subject.id, detection)
        return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("us", "severity"), [(250.0, "warning"), (-40.0, "info"), (3e6, "urgent")])
def test_a_step_is_told_with_its_size_and_a_severity_by_it(seed: int, us: float, severity: str) -> None:
    clocks = Clocks(seed)
    clocks.steps[1 + seed % 4] = (8.0, us)
    found = clocks.told(12, restore_at=83)
    assert list(found) == [NAMES[1 + seed % 4]]
    (told,) = found.values()
    assert (told.kind, told.cause, told.severity) == ("clock-step", "clock", severity)
    assert told.evidence[0].value == pytest.approx(us, abs=8) and abs(told.since_ns - T0 - 8 * S) < 0.2 * S


@pytest.mark.parametrize("seed", range(5))
def test_a_step_of_the_reference_is_its_own_and_nobody_elses(seed: int) -> None:
    clocks = Clocks(seed)
    clocks.steps[0] = (8.0, 250.0)
    found = clocks.told(12)
    assert list(found) == ["h0"] and found["h0"].evidence[0].value == pytest.approx(250, abs=8)


@pytest.mark.parametrize("seed", range(5))
def test_another_reference_and_noise_are_no_steps(seed: int) -> None:
    clocks = Clocks(seed)
    clocks.reference.append((8.0, 3))
    assert clocks.told(14) == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_is_the_reference_once_it_is_synced_did_not_step(seed: int) -> None:
    clocks = Clocks(seed)
    clocks.reference = [(0.0, 1), (0.3, 0)]
    clocks.first_s[0] = 0.3
    assert clocks.told(14) == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_reference_that_is_away_and_comes_back_did_not_step(seed: int) -> None:
    """In holdover for 13 s; ten seconds into it another clock becomes the reference, for as long as it is away."""
    clocks = Clocks(seed)
    clocks.reference = [(0.0, 0), (18.0, 1), (21.2, 0)]
    clocks.away[0] = (8.0, 21.0, 0.0)
    assert clocks.told(35) == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_line_that_strayed_in_holdover_within_its_bound_is_no_step(seed: int) -> None:
    """Probes of a second, then none for 38 s: the skew was wrong by 2 ppm, and the bound said so."""
    clocks = Clocks(seed)
    clocks.away[2] = (1.0, 39.0, 2000.0)
    assert not clocks.told(45)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_in_holdover_is_told_where_it_is_larger_than_the_bound(seed: int) -> None:
    clocks = Clocks(seed)
    clocks.away[2], clocks.steps[2] = (1.0, 39.0, 2000.0), (39.0, 700.0)
    assert list(clocks.told(45)) == ["h2"]


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_told_though_sync_doubts_the_clock_first(seed: int) -> None:
    """Three states with a bar four times the step, as sync widens it before it gives the clock up."""
    clocks = Clocks(seed)
    clocks.steps[3], clocks.doubted[3] = (8.3, 250.0), (8.0, 8.3, 960.0)
    assert list(clocks.told(12)) == ["h3"]


@pytest.mark.parametrize("seed", range(5))
def test_a_bar_that_widens_and_narrows_is_no_step(seed: int) -> None:
    clocks = Clocks(seed)
    clocks.doubted[3] = (8.0, 30.0, 960.0)
    assert not clocks.told(35)


@pytest.mark.parametrize("seed", range(3))
def test_of_a_mesh_that_begins_the_first_reference_did_not_step(seed: int) -> None:
    """It was the reference of an island for a moment; the others are synced for the first time against another."""
    clocks = Clocks(seed)
    clocks.reference, clocks.first_s = [(0.0, 1), (0.2, 0)], {0: 0.2, 2: 0.2, 3: 0.3, 4: 0.3}
    assert clocks.told(6.0) == {}
