"""From edge filters to one row per directed clock pair: sums, robust weights, votes, and lasting disagreement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sdfstream.numeric.table import Table
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.reduce import ReducedEdges, TickEvidence, reduce, residuals, restored
from sdfstream.sync.sessions import UNKNOWN, session_table

CONFIG = SyncConfig()
NOW = 100e9
NOTHING = (np.empty(0, np.int64), np.empty(0))


def sessions(src: list[int], dst: list[int], **columns: Any) -> Table:
    t = session_table()
    t.grow(len(src))
    usual_ns2 = {
        "blocks": 100.0,
        "offset_var_ns2": 100.0,
        "offset_slope_cov": 0.0,
        "slope_var_ppb2": 4.0,
        "received_at_ns": NOW,
    }
    for name, value in {**usual_ns2, "clock_src": src, "clock_dst": dst, **columns}.items():
        t[name] = value
    return t


def reduced(t: Table, trust: object = 1.0, usual_ns2: float = 0.0, trips: Any = NOTHING, **more: Any) -> ReducedEdges:
    received = more.get("recent", np.arange(t.rows))
    alarm = np.broadcast_to(np.asarray(more.get("surprise_ns2", 0.0), dtype=float), t.rows)
    trust = np.broadcast_to(np.asarray(trust, dtype=float), t.rows)
    breach_ns2 = np.broadcast_to(np.asarray(more.get("breach_ns2", 0.0), dtype=float), t.rows)
    return reduce(t, trust, np.zeros(t.rows), usual_ns2, NOW, TickEvidence(received, alarm, breach_ns2), trips, CONFIG)


def test_sums_are_taken_per_directed_pair() -> None:
    t = sessions(
        [1, 0, 1, 0], [0, 1, 0, 2], offset_ns=[10.0, -10.0, 40.0, 7.0], offset_var_ns2=[100.0, 50.0, 25.0, 10.0]
    )
    e = reduced(t)
    assert list(zip(e.src.tolist(), e.dst.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0)]
    np.testing.assert_allclose(e.weight, [0.02, 0.1, 0.01 + 0.04])
    np.testing.assert_allclose(e.offset_ns, [-10.0, 7.0, (0.01 * 10.0 + 0.04 * 40.0) / 0.05])
    assert e.sessions.tolist() == [1.0, 1.0, 2.0]
    assert e.blocks.tolist() == [1.0, 1.0, 2.0]


def test_broken_blocks_are_counted_whatever_their_sessions_weigh() -> None:
    e = reduced(sessions([0, 0, 0, 1], [1, 1, 1, 2]), trust=[1.0, 0.0, 0.0, 1.0], breach_ns2=[0.0, 9e8, 4e8, 0.0])
    assert e.breached.tolist() == [2.0, 0.0]
    assert e.breach_ns2.tolist() == [13e8, 0.0]


def test_a_snapshot_of_before_breaches_were_reported_has_none() -> None:
    e = reduced(sessions([0], [1]), breach_ns2=4.0)
    old = restored(list(e)[:-2])
    assert (old.breached.tolist(), old.breach_ns2.tolist()) == ([0.0], [0.0])
    assert old.surprise_ns2.tolist() == e.surprise_ns2.tolist()
    assert restored(list(e)).breach_ns2.tolist() == [4.0]


def test_the_information_is_that_of_the_covariances_inverse() -> None:
    t = sessions(
        [0, 0],
        [1, 1],
        offset_var_ns2=[100.0, 60.0],
        offset_slope_cov=[5.0, -3.0],
        slope_var_ppb2=[4.0, 2.0],
        slope_ppb=[1.0, 4.0],
    )
    trust = np.array([1.0, 0.5])
    e = reduced(t, trust)
    wanted = sum(
        w * np.linalg.inv(np.array([[a, b], [b, c]]))
        for w, a, b, c in zip(trust, t["offset_var_ns2"], t["offset_slope_cov"], t["slope_var_ppb2"], strict=True)
    )
    np.testing.assert_allclose(
        [e.info_offset[0], e.info_cross[0], e.info_skew[0]], [wanted[0, 0], wanted[0, 1], wanted[1, 1]]
    )
    assert float(e.skew_weight[0]) == pytest.approx(1.0 / 4.0 + 0.5 / 2.0)
    assert float(e.skew_ppb[0]) == pytest.approx((0.25 * 1.0 + 0.25 * 4.0) / 0.5)


def test_weights_are_those_of_cauchys_law() -> None:
    t = sessions([0, 0, 0], [1, 1, 1], offset_ns=[0.0, 90.0, 1e5], offset_var_ns2=100.0)
    trust = residuals(t, np.zeros(3), 0.0, np.ones(3, dtype=bool), np.ones(3, dtype=bool))
    assert float(trust[0]) == 1.0
    assert float(trust[1]) == pytest.approx(1.0 / (1.0 + 8100.0 / (9.0 * 101.0)))
    assert float(trust[2]) < 1e-6
    # what sessions usually disagree by surprises nobody
    assert float(residuals(t, np.zeros(3), 8100.0, np.ones(3, dtype=bool), np.ones(3, dtype=bool))[1]) > 0.9


def test_a_session_whose_floor_is_being_broken_has_no_vote() -> None:
    t = sessions([0, 0], [1, 1], offset_ns=[5.0, 900.0], breached_blocks=[0, 1])
    trust = residuals(t, np.zeros(2), 1e9, np.ones(2, dtype=bool), np.ones(2, dtype=bool))
    assert float(trust[1]) == 0.0
    assert float(reduced(t, trust).offset_ns[0]) == pytest.approx(5.0)


def test_a_filter_that_knows_nothing_yet_has_no_weight() -> None:
    e = reduced(sessions([0, 0], [1, 2], offset_ns=[5.0, 900.0], offset_var_ns2=[100.0, UNKNOWN]))
    assert e.weight.tolist() == [0.01, 0.0]
    assert e.offset_ns.tolist() == [5.0, 0.0]
    assert all(np.isfinite(column).all() for column in e)


def test_lasting_disagreement_is_remembered_and_a_jumps_wake_is_not() -> None:
    t = sessions([0, 0], [1, 1], offset_ns=[5_000.0, 5_000.0])
    calm = np.array([True, False])
    for _ in range(60):
        residuals(t, np.zeros(2), 0.0, calm, np.ones(2, dtype=bool))
    np.testing.assert_allclose(t["bias_ns"], [5_000.0, 0.0])
    assert float(t["disagreement_ns2"][0]) > 0.4 * 5_000.0**2
    assert float(t["disagreement_ns2"][1]) == 0.0
    assert reduced(t).disagreeing.tolist() == [1.0]


def test_what_disagreed_while_it_was_unsure_accuses_nobody_once_it_is_sure() -> None:
    """A queue of 15 s in one direction: wide bounds that hold, and a bias that takes seconds to be forgotten."""
    asked = np.ones(1, dtype=bool)
    t = sessions([0], [1], offset_ns=20_000.0, offset_var_ns2=20_000.0**2)
    for _ in range(150):
        residuals(t, np.zeros(1), 0.0, asked, asked)
    t["offset_ns"][:], t["offset_var_ns2"][:] = 0.0, 100.0**2
    for _ in range(100):
        residuals(t, np.zeros(1), 0.0, asked, asked)
        assert reduced(t).disagreeing.tolist() == [0.0]
    t["offset_ns"][:] = 20_000.0
    for _ in range(60):
        residuals(t, np.zeros(1), 0.0, asked, asked)
    assert reduced(t).disagreeing.tolist() == [1.0]


@pytest.mark.parametrize(("off", "dd", "bad"), [(900.0, 1.0, 0), (2_000.0, 1.0, 1), (2_000.0, 1e6, 0)])
def test_bad_is_what_is_large_and_beyond_noise(off: float, dd: float, bad: int) -> None:
    """At least `faulty_ns` = 1 µs, and six of its own standard deviations."""
    t = sessions([0], [1], offset_ns=off, offset_var_ns2=dd)
    for _ in range(40):
        residuals(t, np.zeros(1), 0.0, np.ones(1, dtype=bool), np.ones(1, dtype=bool))
    assert reduced(t).disagreeing.tolist() == [bad]


def test_noise_of_its_own_is_no_disagreement() -> None:
    g = np.random.default_rng(1)
    t = sessions([0] * 200, [1] * 200)
    for _ in range(400):
        t["offset_ns"] = 10.0 * g.standard_normal(200)
        residuals(t, np.zeros(200), 0.0, np.ones(200, dtype=bool), np.ones(200, dtype=bool))
    # what lies beyond two standard deviations of a normal law: 0.216 of its variance
    assert float(t["disagreement_ns2"].mean()) < 0.25 * 100.0
    assert reduced(t).disagreeing.tolist() == [0.0]


def test_jumps_alarms_and_silence_are_reported() -> None:
    t = sessions([0, 0, 0], [1, 1, 2], received_at_ns=[NOW, 0.0, NOW - CONFIG.holdover_after_ns - 1.0])
    e = reduced(t, trips=(np.array([1]), np.array([250e3])), surprise_ns2=[400.0, 0.0, 0.0], recent=np.array([0]))
    assert e.jumped.tolist() == [1.0, 0.0]
    assert e.step_ns.tolist() == [250e3, 0.0]
    assert e.surprise_ns2.tolist() == [200.0, 0.0]
    assert e.recent.tolist() == [True, False]
    assert e.blocks.tolist() == [1.0, 0.0]
