"""The whole stage under every reference, and with UTC beside it: what the mesh knows of itself depends on neither."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from sdfstream.records.topics import CLOCK, OWD
from sdfstream.sync import SyncConfig, SyncStage
from tests.checks import check_stage, fingerprint
from tests.fixtures.sync_sim import START_NS, SimulatedClock, World, drive, mesh

SECONDS = 10.0


def world(seed: int = 3) -> World:
    return mesh(6, 4, "A", 16.0, seed)


def run(config: SyncConfig, made: World | None = None, seconds: float = SECONDS) -> list[tuple[int, Any]]:
    return drive(SyncStage(config), (made or world()).messages(seconds))


@cache
def by_default() -> list[tuple[int, Any]]:
    """What a stage with nothing set says."""
    return run(SyncConfig())


def clock_rows(outputs: list[tuple[int, Any]], kind: str = "causal") -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for _, output in outputs:
        if output.topic == CLOCK.name:
            for row in output.body.to_pylist():
                if row["kind"] == kind:
                    rows.setdefault(row["clock"], []).append(row)
    return rows


@pytest.mark.parametrize("setting", ["", "h03", "zz,h04", "mean"])
def test_the_battery_holds_under_every_reference(setting: str) -> None:
    config = SyncConfig(reference=setting, utc_clocks=("h01", "h02", "h05"))
    plain = check_stage(
        lambda: SyncStage(config), mesh(4 if "h04" not in setting else 6, 3, "A", 16.0, 2).messages(5.0)
    )
    assert {o.topic for _, o in plain} == {CLOCK.name, OWD.name}


@pytest.mark.parametrize("setting", ["h03", "nobody,h04"])
def test_a_chosen_clock_has_offset_0_and_the_differences_are_the_same(setting: str) -> None:
    name = setting.rpartition(",")[2]
    default, chosen = clock_rows(by_default()), clock_rows(run(SyncConfig(reference=setting)))
    assert {(r["offset_ns"], r["err_ns"], r["skew_ppb"]) for r in chosen[name][10:]} == {(0.0, 0.0, 0.0)}
    for clock, rows in chosen.items():
        for a, b, base in zip(rows[-50:], default[clock][-50:], default[name][-50:], strict=True):
            assert abs(a["offset_ns"] - (b["offset_ns"] - base["offset_ns"])) < 1e-3
            assert a["at_ns"] == b["at_ns"]


def test_the_mean_is_the_mean_and_errors_stay_inside_their_bounds() -> None:
    made = world()
    outputs = run(SyncConfig(reference="mean"), made)
    for kind in ("causal", "smoothed"):
        rows = clock_rows(outputs, kind)
        table = {n: np.array([(r["at_ns"], r["offset_ns"], r["err_ns"]) for r in v[-50:]]) for n, v in rows.items()}
        offsets = np.array([t[:, 1] for t in table.values()])
        assert np.abs(offsets.mean(axis=0)).max() < 200.0
        true = np.array(
            [
                made.clocks[n].offset(made.clocks[n].true_time(np.array([r["at_ns"] for r in rows[n][-50:]])))
                for n in table
            ]
        )
        error = offsets - true
        error -= error.mean(axis=0)  # a common part is the scale's own
        bound = np.array([t[:, 2] for t in table.values()])
        assert (np.abs(error) <= bound).all() and bound.max() < 500.0


def test_with_utc_beside_it_not_a_bit_of_the_rest_changes() -> None:
    def without_utc(outputs: list[tuple[int, Any]]) -> list[tuple[int, str, str, bytes]]:
        rest = []
        for at, o in outputs:
            rows = o.body.to_pylist()
            if o.topic == CLOCK.name:
                rows = [r for r in rows if r["clock"] != "utc"]
                rest.append((at, o.topic, o.key, repr(rows).encode()))
            else:
                rest.append((at, o.topic, o.key, fingerprint(o.body)))
        return rest

    plain, tied = by_default(), run(SyncConfig(utc_clocks=("h01", "h02", "h05")))
    assert without_utc(plain) == without_utc(tied)
    assert "utc" in clock_rows(tied) and "utc" not in clock_rows(plain) and "utc" not in clock_rows(tied, "smoothed")


def disciplined(seed: int) -> World:
    """Hosts h00, h01, h02 are kept within some 50 µs of UTC (true time); the others run free."""
    made = world(seed)
    for name in ("h00", "h01", "h02"):
        g = made.rng
        made.clocks[name] = SimulatedClock(name, g.uniform(-3e4, 3e4), 0.0, 0.3, phase_ns=2_000.0, seconds=300, rng=g)
    return made


@pytest.mark.parametrize("setting", ["h05", "mean", ""])
def test_utc_is_found_inside_its_bound_whatever_the_reference(setting: str) -> None:
    made = disciplined(4)
    outputs = run(SyncConfig(reference=setting, utc_clocks=("h00", "h01", "h02"), utc_err_ns=1e5), made, 20.0)
    rows = clock_rows(outputs)
    late = rows["utc"][-100:]
    assert {r["status"] for r in late} == {"synced"} and {r["n"] for r in late} == {3}
    free = {r["at_ns"] - round(r["offset_ns"]): r for r in rows["h04"]}  # by the reference's reading
    for utc in late:
        # h04's reading, corrected to the reference, then to UTC; its truth is its reading less its true offset
        corrected = utc["at_ns"] - round(utc["offset_ns"])
        nearest = free[min(free, key=lambda c: abs(c - corrected))]
        reading = nearest["at_ns"]
        on_reference = reading - nearest["offset_ns"]
        shown = on_reference - corrected  # small, so that a float holds it
        reported = corrected + shown + utc["offset_ns"] + utc["skew_ppb"] * 1e-9 * shown
        truth = reading - made.clocks["h04"].offset(made.clocks["h04"].true_time(np.array([reading])))[0]
        assert abs(reported - truth) <= utc["err_ns"] + nearest["err_ns"] + 600.0  # floats at the epoch: 256 ns
        assert utc["err_ns"] < 2.5e5


def test_utc_is_unsynced_when_no_disciplined_host_lives() -> None:
    rows = clock_rows(run(SyncConfig(utc_clocks=("elsewhere",)), seconds=3.0))["utc"]
    assert {(r["status"], r["n"], r["err_ns"], r["offset_ns"]) for r in rows} == {("unsynced", 0, 3.6e12, 0.0)}


def test_an_island_that_was_there_first_is_unsynced_once_the_reference_is_in_a_larger_one() -> None:
    """No exchange ties the two: what was known of the first one's clocks was known against one of its own."""
    made = world()
    first = {"h04", "h05"}
    made.sessions = [s for s in made.sessions if (s.src in first) == (s.dst in first)]
    since_ns = START_NS + 3_000_000_000
    messages = [m for m in made.messages(SECONDS) if m.key in first or m.bus_at_ns > since_ns]
    rows = clock_rows(drive(SyncStage(SyncConfig()), messages))
    assert rows["h04"][10]["status"] == rows["h05"][20]["status"] == "synced"
    assert {r["status"] for name in first for r in rows[name][-30:]} == {"unsynced"}
    assert {r["status"] for name in ("h00", "h01", "h02", "h03") for r in rows[name][-30:]} == {"synced"}
