"""Late rows: clocks stay inside their bounds, tell of the present, and are synced again within five seconds.

Mesh of 5 clocks of degree 4, law B, 16 exchanges/s a session, seeds 1-10: each trouble with two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import NS_PER_S
from sdfstream.score.clock.tracks import Track, figures, tracks
from sdfstream.sync import SyncStage
from tests.checks import check_stage
from tests.fixtures.sync_sim import START_NS, World, drive, mesh
from tests.fixtures.sync_split import run_late

Late = Callable[[str, float], float]
"""(host, when a message would enter the bus, s) → when it does."""


class Trouble(NamedTuple):
    """Rows are late, or few, between two instants of bus time, s."""

    low_s: float
    high_s: float
    late: Late
    end_s: float
    share: float = 1.0
    """Of the rows that get through at all."""
    delay_ns: float = 0.0
    """Mean of the delay that each packet has more, both ways, while hosts starve."""


def stalled(low_s: float, high_s: float) -> Late:
    return lambda host, t: high_s if low_s <= t < high_s else t


def backlog(low_s: float, high_s: float) -> Late:
    """Of a second of rows a fifth gets through; at the end all that waits comes at once."""
    return lambda host, t: min(t + 4.0 * (t - low_s), high_s) if low_s <= t < high_s else t


def behind(by_s: float, low_s: float, high_s: float) -> Late:
    """Late by so much, and nothing overtakes what is late."""
    return lambda host, t: t if t < low_s else t + by_s if t < high_s else max(t, high_s + by_s)


TROUBLES = {
    "starved for a second": Trouble(9.0, 10.0, stalled(9.0, 10.0), 17.0, share=0.1, delay_ns=5e6),
    "no row for a second": Trouble(9.0, 10.0, stalled(9.0, 10.0), 17.0, share=0.0),
    "five seconds late": Trouble(9.0, 17.0, behind(5.0, 9.0, 12.0), 24.0),
    "a backlog of thirteen seconds": Trouble(8.0, 24.0, backlog(8.0, 24.0), 31.0),
    "a tenth of the rows": Trouble(9.0, 14.0, lambda host, t: t, 20.0, share=0.1),
}


def world(seed: int) -> World:
    return mesh(5, 4, "B", 16.0, seed)


def moved(messages: list[Message], late: Late) -> list[Message]:
    """The messages as they enter the bus."""
    made = [
        replace(m, bus_at_ns=START_NS + round(late(m.key, (m.bus_at_ns - START_NS) / NS_PER_S) * NS_PER_S))
        for m in messages
    ]
    made.sort(key=lambda m: (m.bus_at_ns, m.batch_seq))
    return [replace(m, bus_seq=k) for k, m in enumerate(made)]


def troubled(w: World, trouble: Trouble, seed: int) -> list[Message]:
    def starving(t: np.ndarray, g: np.random.Generator) -> np.ndarray:
        during = (t >= trouble.low_s * 1e9) & (t < trouble.high_s * 1e9)
        return np.where(during, trouble.delay_ns * g.exponential(size=t.size), 0.0)

    if trouble.delay_ns:
        for s in w.sessions:
            s.extra_forward = s.extra_reverse = starving
    g, made = np.random.default_rng(seed), []
    for m in w.messages(trouble.end_s):
        during = trouble.low_s <= (m.bus_at_ns - START_NS) / NS_PER_S < trouble.high_s
        through = np.flatnonzero(g.uniform(size=m.rows) < trouble.share) if during else np.arange(m.rows)
        if through.size:
            made.append(replace(m, body=m.body.take(pa.array(through))))
    return moved(made, trouble.late)


def published_s(t: Track) -> np.ndarray:
    return t.at_s + t.age / 1e9


@pytest.mark.parametrize("seed", range(1, 11))
def test_clocks_stay_bounded_and_are_synced_again_within_five_seconds(seed: int) -> None:
    what = list(TROUBLES)[seed % len(TROUBLES)]
    trouble, w = TROUBLES[what], world(seed)
    rows = tracks(w, drive(SyncStage(), troubled(w, trouble, seed), START_NS + int(trouble.end_s * NS_PER_S)))
    found = figures(rows, 3.0)
    again, widest = [], []
    for t in rows.values():
        bus_s = published_s(t)
        later = bus_s >= trouble.high_s
        wrong = bus_s[later & ((t.status != "synced") | (np.abs(t.error) > t.bound))]
        again.append(wrong.max() - trouble.high_s if wrong.size else 0.0)
        widest.append(t.bound[(bus_s >= trouble.low_s)].max())
        assert set(t.status[bus_s > 3.0].tolist()) <= {"synced", "holdover"}
        assert np.diff(bus_s[bus_s > 1.0]).max() < 0.15, "a row for every 100 ms"
        assert t.age[bus_s > 1.0].max() <= 250e6, "rows tell of the present"
    print(f"{what}, seed {seed}: synced again after {max(again):.1f} s, bound at most {max(widest):.0f} ns; {found}")
    assert found["covered"] >= 0.999
    assert max(again) <= 5.0
    assert max(widest) <= 4_000.0


@pytest.mark.parametrize("late_s", [0.5, 5.0, 11.0])
def test_late_rows_of_one_host_hurt_no_other(late_s: float) -> None:
    """As good as on time; too late to prove anything, as good as without those rows."""
    w = world(1)
    messages = w.messages(18.0)
    late = moved(messages, lambda host, t: t + late_s if host == "h03" and t >= 5.0 else t)
    late = [m for m in late if m.bus_at_ns <= messages[-1].bus_at_ns]
    if late_s > 10.0:
        messages = [m for m in messages if m.key != "h03" or m.bus_at_ns < START_NS + 5 * NS_PER_S]
    both = [tracks(w, drive(SyncStage(), given, START_NS + 18 * NS_PER_S)) for given in (messages, late)]
    others = set(w.clocks) - {w.reference, "h03"}
    before, found = (figures(rows, 8.0, names=others) for rows in both)
    print(f"h03 {late_s} s late: others {before} before, {found}")
    assert found["rms"] <= 1.3 * before["rms"]
    assert found["covered"] >= 0.999
    assert all((both[1][name].between(8.0).status == "synced").all() for name in others)


def test_the_battery_holds_while_a_backlog_comes_and_goes() -> None:
    w = mesh(3, 2, "B", 8.0, 1)
    check_stage(SyncStage, moved(w.messages(22.0), backlog(4.0, 20.0)))


@pytest.mark.parametrize(("late_s", "seed"), [(0.2, 1), (0.2, 2), (2.5, 3)])
def test_split_sync_works_as_far_behind_as_its_reports_come(late_s: float, seed: int) -> None:
    """Edges and estimates are a tenth to nearly twice of `late_s` on their way: no clock was known beyond 2 s."""
    w = world(seed)
    g = np.random.default_rng(seed)
    rows = tracks(w, run_late(w.messages(24.0), 2, lambda topic, share: late_s * (0.1 + 1.8 * g.random())))
    found = figures(rows, 16.0)
    print(f"reports {late_s} s late, seed {seed}: {found}")
    for t in rows.values():
        assert set(t.status[published_s(t) > 16.0].tolist()) == {"synced"}
        assert t.age[published_s(t) > 16.0].max() <= 250e6
    assert found["covered"] >= 0.999
    assert found["rms"] <= (150.0 if late_s < 1.0 else 1_000.0)


def test_a_share_that_is_late_for_long_hurts_no_clock() -> None:
    w = world(4)
    late_s = {"share1": 5.0}
    rows = tracks(w, run_late(w.messages(18.0), 2, lambda topic, share: late_s.get(share, 0.02)))
    found = figures(rows, 12.0)
    print(f"one of two shares 5 s late: {found}")
    assert found["covered"] >= 0.99
    assert not any((t.status == "faulty").any() for t in rows.values())


@pytest.mark.parametrize("late_s", [0.0, 0.7, 2.0])
def test_reports_that_come_late_make_no_more_rows(late_s: float) -> None:
    """A causal and a smoothed row of each clock for every 100 ms, and none again: time alone makes their number."""
    sim = mesh(4, 3, "A", 16.0, seed=1)
    messages = sim.messages(12.0)
    out = run_late(messages, 2, lambda topic, key: late_s)
    rows = Counter(
        (row["clock"], row["kind"], row["at_ns"]) for _, o in out if o.topic == CLOCK.name for row in o.body.to_pylist()
    )
    assert set(rows.values()) == {1}
    of_each = Counter((clock, kind) for clock, kind, _ in rows)
    for clock in sim.clocks:
        assert 120 - 10 * (2 * late_s + 1) <= of_each[clock, "causal"] <= 120
        assert 60 <= of_each[clock, "smoothed"] <= of_each[clock, "causal"]


def test_when_rows_come_later_no_instant_is_smoothed_twice() -> None:
    """Two seconds after all rows have come a second later, the present of sync stands still for as long."""
    sim = mesh(4, 3, "A", 16.0, seed=1)
    messages = sim.messages(16.0)
    begin_ns = messages[0].bus_at_ns
    late = [replace(m, bus_at_ns=m.bus_at_ns + NS_PER_S * (m.bus_at_ns > begin_ns + 6 * NS_PER_S)) for m in messages]
    out = drive(SyncStage(), late)
    rows = Counter(
        (row["clock"], row["kind"], row["at_ns"]) for _, o in out if o.topic == CLOCK.name for row in o.body.to_pylist()
    )
    assert set(rows.values()) == {1}


@pytest.mark.parametrize("seed", range(1, 11))
def test_hosts_that_fall_silent_by_and_by_leave_each_other_where_they_were(seed: int) -> None:
    """Eight hosts of two neighbours each: for nine seconds rows come from two hosts alone, from others by turns.

    Clocks that were not heard together lately are islands for a while, joined by what sessions remember; when the sums
    over an island took those pairs for its own, clocks went astray by up to seconds.
    """
    w = mesh(8, 2, "B", 16.0, seed)
    g = np.random.default_rng(seed)
    hosts = sorted({m.key for m in w.messages(1.0)})
    heard = [set(g.choice(hosts, size=2, replace=False).tolist()) for _ in range(6)]
    messages = [
        m
        for m in w.messages(30.0)
        if not 12.0 <= (t_s := (m.bus_at_ns - START_NS) / NS_PER_S) < 21.0 or m.key in heard[int((t_s - 12.0) // 1.5)]
    ]
    rows = tracks(w, drive(SyncStage(), messages, START_NS + 30 * NS_PER_S))
    found = figures(rows, 3.0)
    print(f"seed {seed}: {found}")
    assert found["covered"] >= 0.98, "eight clocks of a ring: own variances suppose a mesh"
    for t in rows.values():
        bus_s = published_s(t)
        assert set(t.status[bus_s > 3.0].tolist()) <= {"synced", "holdover"}
        assert np.abs(t.error[bus_s > 3.0]).max() <= 4_000.0
