"""From rows to pages: whose rows, which instant of the oscillator, what a moved clock does to the bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sdfstream.agent.clockpage.history import History
from sdfstream.agent.clockpage.maker import PageMaker
from sdfstream.clock.page import Page
from sdfstream.probes.config import VirtualClock
from sdfstream.probes.virtual_clock import Clock
from tests.fixtures.clock_pages import AT_NS, BOOT, RAW_NS, rows, run_clocks

S = 1_000_000_000


def maker(**clocks: Any) -> PageMaker:
    return PageMaker(clocks or {"h01": None}, BOOT, bytes(16))


def one(m: PageMaker, **row: Any) -> Page:
    [page] = m.pages(rows([{"clock": "h00"}, {"clock": "h01", "offset_ns": 5_000.0, **row}]))
    return page


def test_a_row_becomes_a_page_with_the_oscillator_at_its_instant() -> None:
    m = maker()
    run_clocks(m, 6.0, rate_ppb=-20_000.0)
    reading = AT_NS + 5_750_000_000 - round(5.75 * 20_000)
    page = one(m, at_ns=reading, skew_ppb=7.5, err_ns=80.0, n=99)
    assert (page.clock, page.reference, page.realtime) == ("h01", "h00", True)
    assert abs(page.raw_ns - (RAW_NS + 5_750_000_000)) <= 1
    assert page.raw_ppb == pytest.approx(-20_000.0, abs=1.0)
    assert (page.offset_ns, page.skew_ppb, page.n, page.status) == (5_000, 7.5, 99, "synced")
    walk = 3.3 * 100.0
    assert page.err_ns == math.ceil(80.0 + walk * math.sqrt(0.3) / 2) + 4
    assert page.grow_ppb == pytest.approx(50.0 + walk / (2 * math.sqrt(0.3)))
    assert page.written_raw_ns == RAW_NS + 6 * S


def test_only_causal_rows_of_our_own_clocks_count() -> None:
    m = maker(h01=None, h03=None)
    run_clocks(m, 2.0)
    at = AT_NS + S
    batch = rows([{"clock": f"h{i:02d}", "at_ns": at, "offset_ns": float(i)} for i in range(5)])
    assert [p.clock for p in m.pages(batch)] == ["h01", "h03"]
    assert m.pages(rows([{"clock": "h01", "at_ns": at, "kind": "smoothed"}])) == []
    assert m.pages(rows([{"clock": "h09", "at_ns": at}])) == []
    assert [p.offset_ns for p in m.pages(batch)] == [1, 3]
    assert m.counters.get("rows") == 4 and m.counters.total("refused") == 0


def test_rows_that_cannot_be_are_refused_one_by_one() -> None:
    m = maker()
    run_clocks(m, 6.0)
    at = AT_NS + 5 * S
    bad: list[tuple[dict[str, Any], str]] = [
        ({"status": "fine"}, "row-status"),
        ({"offset_ns": math.nan}, "row-number"),
        ({"err_ns": math.inf}, "row-number"),
        ({"err_ns": -1.0}, "row-number"),
        ({"skew_ppb": 2e6}, "row-number"),
        ({"at_ns": AT_NS - S}, "row-instant"),
        ({"at_ns": AT_NS + 7 * S}, "row-instant"),
    ]
    for row, reason in bad:
        before = m.counters.get("refused", reason)
        batch = rows([{"clock": "h01", "at_ns": at, **row}, {"clock": "h01", "at_ns": at}])
        assert len(m.pages(batch)) == 1, row
        assert m.counters.get("refused", reason) == before + 1, row


def test_a_batch_without_a_column_is_refused() -> None:
    m = maker()
    run_clocks(m, 2.0)
    batch = rows([{"clock": "h01", "at_ns": AT_NS + S}])
    for column in batch.schema.names:
        assert m.pages(batch.drop_columns([column])) == []
    assert m.counters.get("refused", "column-missing") == len(batch.schema.names)


def test_before_the_clocks_were_read_there_is_no_page() -> None:
    m = maker()
    assert m.pages(rows([{"clock": "h01"}])) == []
    assert m.counters.get("early") == 1


def test_the_reference_is_the_one_that_stands_still() -> None:
    m = maker()
    run_clocks(m, 2.0)
    at = AT_NS + S
    ours = {"clock": "h01", "at_ns": at, "offset_ns": 3.0}
    still = {"at_ns": at, "err_ns": 0.0}
    assert m.pages(rows([{"clock": "b", **still}, {"clock": "a", **still}, ours]))[0].reference == "a"
    new = {"clock": "a", "at_ns": at, "err_ns": 3.6e12, "status": "unsynced"}
    assert m.pages(rows([new, {"clock": "b", **still}, ours]))[0].reference == "b"
    assert m.pages(rows([ours]))[0].reference == ""


def test_a_virtual_clock_is_computed_from_the_oscillator() -> None:
    wrong = Clock(VirtualClock(offset_ns=123_456.0, skew_ppb=10_000.0, seed=3, epoch_at_ns=AT_NS))
    m = maker(h01=wrong.at)
    run_clocks(m, 6.0, rate_ppb=500.0)
    system = AT_NS + round(5.8 * S * (1 + 500e-9))
    page = one(m, at_ns=wrong.at(system))
    assert not page.realtime
    assert abs(page.raw_ns - (RAW_NS + 5_800_000_000)) <= 2
    assert page.raw_ppb == pytest.approx(10_500.0, abs=1.0)


def test_the_walk_is_learned() -> None:
    """Offsets that walk by 200 ns/√s; the page's allowance for it comes to about that."""
    m, rng, offset = maker(), np.random.default_rng(7), 0.0
    grown = []
    for k in range(1_200):
        run_clocks(m, 0.1, from_s=k / 10)
        offset += rng.normal(0.0, 200.0 * math.sqrt(0.1))
        made = m.pages(
            rows([{"clock": "h00"}, {"clock": "h01", "at_ns": AT_NS + (k + 1) * S // 10, "offset_ns": offset}])
        )
        grown += [p.grow_ppb for p in made]
    sigma = (np.mean(grown[-400:]) - 50.0) * 2 * math.sqrt(0.3) / 3.3
    assert 160.0 < sigma < 240.0


@pytest.mark.parametrize("size_ns", [40_000, -40_000, 400_000, -400_000, 300_000_000, -300_000_000])
def test_a_step_of_the_clock_is_in_the_bound_until_sync_must_know(size_ns: int) -> None:
    m = maker()
    run_clocks(m, 8.0)
    assert one(m, at_ns=AT_NS + 7_800_000_000).status == "synced"
    run_clocks(m, 0.5, from_s=8.0, jump_ns=size_ns)
    page = one(m, at_ns=AT_NS + 8_450_000_000 + size_ns)
    assert page.status == ("stepped" if abs(size_ns) > 200_000 else "synced") and page.err_ns >= abs(size_ns)
    assert abs(page.raw_ns - (RAW_NS + 8_450_000_000)) <= 1_000
    run_clocks(m, 5.5, from_s=8.5, jump_ns=size_ns)
    page = one(m, at_ns=AT_NS + 13_900_000_000 + size_ns)
    assert page.status == "synced" and page.err_ns < 1_000


def test_rows_of_before_a_large_step_are_refused() -> None:
    m = maker()
    run_clocks(m, 8.0)
    run_clocks(m, 0.5, from_s=8.0, jump_ns=S)
    assert m.pages(rows([{"clock": "h01", "at_ns": AT_NS + 7_900_000_000}])) == []
    assert m.counters.get("refused", "row-instant") == 1


def test_a_slew_that_begins_is_in_the_bound_and_a_steady_one_is_not() -> None:
    h = History()
    for k in range(80):
        h.add(AT_NS + k * S // 10, RAW_NS + k * S // 10, 100)
    assert h.unexplained_ns() == 0
    for k in range(80, 95):
        h.add(AT_NS + k * S // 10 + (k - 79) * 50_000, RAW_NS + k * S // 10, 100)  # 500 ppm
    assert h.unexplained_ns() == pytest.approx(750_000, rel=0.01)
    for k in range(95, 160):
        h.add(AT_NS + k * S // 10 + (k - 79) * 50_000, RAW_NS + k * S // 10, 100)
    assert h.unexplained_ns() == 0
    rate = h.rate()
    assert rate is not None and rate == pytest.approx(500e-6, rel=1e-3)


def test_pairs_read_far_apart_and_soon_after_one_another_are_left_out() -> None:
    h = History()
    assert h.add(AT_NS, RAW_NS, 100) == ""
    assert h.add(AT_NS + S, RAW_NS + S, 50_000) == "wide"
    assert h.add(AT_NS + 10_000_000, RAW_NS + 10_000_000, 100) == "soon"
    assert h.newest == (AT_NS, RAW_NS) and h.rate() is None and h.raw_at(AT_NS) is None


def test_noise_of_the_readings_is_no_movement() -> None:
    h, rng = History(), np.random.default_rng(1)
    worst = 0
    for k in range(600):
        noise = int(rng.normal(0.0, 100.0))
        h.add(AT_NS + k * S // 10 + noise - k * 200, RAW_NS + k * S // 10, 200)
        worst = max(worst, h.unexplained_ns())
    assert worst == 0
