"""The page in a real Chromium: what it shows is what the boards say, now and after a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sdfstream.serve.api import tokens_io
from tests.fixtures import board_messages as bm
from tests.fixtures.job_messages import World
from tests.fixtures.pages import Served, Tab

Make = Callable[..., Any]


@pytest.fixture
def fabric(served: Make) -> Served:
    """Eight hosts: h03/r1 is down, h05 is silent, h06/r0 was taken out; and a job that is held up."""
    made: Served = served(bm.small_fabric() + World().running("train-7"), bm.NOW_NS)
    return made


def test_the_fleet_is_what_the_boards_say(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("fleet")
    page.wait_for_selector("text=12 healthy")
    page.wait_for_selector(".clos text:has-text('s1')")
    legend = page.locator(".legend").first.inner_text()
    for said in ("1 unhealthy", "2 unknown", "1 absent", "12 healthy"):
        assert said in legend
    figures = page.locator(".figures").inner_text()
    assert "12 of 16" in figures
    page.wait_for_selector(".figure:has-text('Clocks synced'):has-text('7 of 8')")
    assert page.locator(".age").inner_text().startswith("● live; data")
    assert page.locator(".clos line.healthy").count() == 0, "no measured path is known to cross one: none is healthy"


def test_the_map_is_used_with_the_keyboard(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("fleet")
    nics = page.get_by_role("application", name="NICs by host and rail")
    nics.focus()
    said = page.locator(".map .said")
    assert "h00/r0" in said.inner_text()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert said.inner_text().startswith("h03/r1: unhealthy, sends unhealthy")
    assert "no probe passes" in said.inner_text()


def test_findings_with_evidence_and_remedy(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("findings")
    page.wait_for_selector("td:has-text('nic-down')")
    assert page.locator("tbody tr").count() == 2
    page.get_by_role("combobox", name="Show").select_option("resolved")
    page.wait_for_selector("td:has-text('loss')")
    assert page.locator("tbody tr").count() == 1
    page.goto(f"{fabric.url}/#/finding/f1")
    page.wait_for_selector("text=Look at the cable of h03/r1.")
    assert page.locator("table[aria-label], [aria-label=Evidence] tbody tr").count() == 2
    assert "silent paths" in page.locator("[aria-label=Evidence]").inner_text()


def test_a_change_is_shown_within_a_second(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("fleet")
    page.wait_for_selector("text=12 healthy")
    page.wait_for_function("document.querySelector('.age').innerText.includes('live')")
    fabric.take([bm.nic_state("h00/r0", "tx", "unhealthy", why="gone")])
    page.wait_for_selector("text=2 unhealthy", timeout=2_000)


def test_of_a_change_the_changed_nics_alone_are_asked_for(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("fleet")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v1/nics?" in request.url else None)
    page.wait_for_selector("text=12 healthy")
    page.wait_for_function("document.querySelector('.age').innerText.includes('live')")
    fabric.take([bm.nic_state(nic, "tx", "unhealthy", why="gone") for nic in ("h00/r0", "h01/r1")])
    page.wait_for_selector("text=3 unhealthy", timeout=2_000)
    assert any("nic=h00%2Fr0%2Ch01%2Fr1" in url for url in asked), asked
    figures = page.locator(".figures").inner_text()
    assert "10 of 16" in figures, "nothing came or went"


def test_a_list_takes_up_single_items(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("nothing")
    made = page.evaluate(
        """async () => {
            const { patched } = await import('/page/patch.js');
            const before = { items: ['a', 'c', 'd'].map((nic) => ({ nic, state: 'old' })), total: 3, head: 1 };
            const answer = { head: 2, items: ['b', 'c'].map((nic) => ({ nic, state: 'new' })) };
            return patched(before, ['b', 'c', 'd'], answer, 'nic');
        }"""
    )
    assert [(one["nic"], one["state"]) for one in made["items"]] == [("a", "old"), ("b", "new"), ("c", "new")]
    assert made["total"] == 3 and made["head"] == 2


def test_without_news_nothing_is_healthy_and_news_come_back(fabric: Served, tab: Make) -> None:
    one = tab(fabric)
    one.page.clock.install()
    page = one.open("fleet")
    page.wait_for_selector("text=12 healthy")
    fabric.stop()
    page.wait_for_selector(".age.lost", timeout=8_000)
    page.clock.fast_forward(11_000)
    page.wait_for_selector("text=0 healthy", timeout=8_000)
    assert "16 unknown" in page.locator(".legend").first.inner_text()
    fabric.start()
    page.wait_for_selector("text=12 healthy", timeout=12_000)
    page.wait_for_selector(".age.fresh", timeout=8_000)


def test_a_stranger_gives_a_token(fabric: Served, tab: Make) -> None:
    one: Tab = tab(fabric, extra_http_headers={"X-Forwarded-For": "192.0.2.1"})  # as a proxy of the owner's would
    page = one.open("fleet")
    page.wait_for_selector("text=a token is needed")
    page.get_by_label("Token").fill(tokens_io.add(fabric.data, "ann", "view"))
    page.keyboard.press("Enter")
    page.wait_for_selector("text=12 healthy")
    page.wait_for_selector(".age.fresh")


def test_a_sentence_leads_to_what_it_speaks_of_and_to_nothing_else(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("findings")
    cases = [
        ("queue pair h00/r0#1 is slow", "h00", False),
        ("the agent of h00 is silent", "h00", True),
        ("h00/r0 and then h00.", "h00", True),
        ("l0--s1 (from l0 to s1)", "l0--s1", True),
        ("h00/r0#17 moved", "h00/r0#1", False),
    ]
    for sentence, name, expected in cases:
        found = page.evaluate("([s, n]) => import('/page/why.js').then(m => m.speaksOf(s, n))", [sentence, name])
        assert found is expected, (sentence, name)


def test_near_ones_stand_together(fabric: Served, tab: Make) -> None:
    page = tab(fabric).open("findings")
    rows = [
        {"src": "a", "dst": ["b", "c", "d"], "floor_ns": [9, 2, 9]},
        {"src": "c", "dst": ["b", "d"], "floor_ns": [8, None]},
        {"src": "d", "dst": ["b"], "floor_ns": [1]},
    ]
    call = "rows => import('/page/order.js').then(m => m.byNearness(rows, ['a', 'b', 'c', 'd']))"
    assert page.evaluate(call, rows) == ["a", "c", "b", "d"]
