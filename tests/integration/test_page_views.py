"""Every other view of the page in a real Chromium, over boards and an archive of one story."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.writer_io import Archive
from sdfstream.records.units import NS_PER_S
from sdfstream.serve import history_io, past_io
from tests.fixtures import board_messages as bm
from tests.fixtures.job_messages import World
from tests.fixtures.pages import AXE, Served

Make = Callable[..., Any]
SLOW = {"h00/r0#16": 3e8, "h00/r0#17": 1e8, "h02/r0#16": 3e8, "h02/r0#17": 3e8}
EARLY_NS = bm.NOW_NS - 30 * NS_PER_S


def story() -> list[Any]:
    """A job that a link holds up since 12 s; before, nothing was wrong."""
    world = World()
    said = [*world.shards("train-7", at_ns=EARLY_NS - 5 * NS_PER_S), *world.running("train-7", "train-8")]
    said += [*world.windows("train-7", -60, -12, 1e9)]
    said += [*world.windows("train-7", -12, 0, SLOW), *world.windows("train-8", -60, 0, 1e9)]
    said += [world.finding("j1", age_s=12), world.command(age_s=11, reason=("j1",)), world.outcome(age_s=10.5)]
    for second in range(40, 0, -1):
        at_ns = bm.NOW_NS - second * NS_PER_S
        pair = {
            "src": "h00/r0",
            "dst": "h02/r0",
            "owd_p50_ns": 10_000.0 if second > 12 else 90_000.0,
            "ce": int(second <= 12),
        }
        said.append(bm.owd([pair, pair | {"dir": "rev", "owd_p50_ns": 11_000.0}], at_ns))
        said.append(bm.nic_state("h00/r0", "tx", "healthy", at_ns))
        said.append(bm.nic_state("h00/r0", "rx", "healthy", at_ns))
    return sorted([*said, *bm.small_fabric()], key=lambda m: m.bus_at_ns)


@pytest.fixture(scope="module")
def world(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The story on the boards and in an archive; tests of this module change nothing of it."""
    data = tmp_path_factory.mktemp("page")
    shutil.copytree(migrated, data / "archive", symlinks=True)
    target = str(data / "archive")
    messages = story()
    archive = Archive.open(ArchiveConfig(target=target, bus_id="replay", limits=REPLAY, replay=True))
    for message in messages:
        archive.add_blocking([message])
    archive.close_blocking()
    past = partial(past_io.past, str(data), None)
    history = partial(history_io.history, str(data), None)
    one = Served(data, bm.NOW_NS, past=past, history=history, lag={"board": 3})
    one.take(messages)
    one.start()
    yield one
    one.stop()


def test_every_view_says_what_the_boards_say(world: Served, tab: Make) -> None:
    page = tab(world).open("jobs")
    page.wait_for_selector("text=▲ slow")
    page.goto(f"{world.url}/#/job/train-7")
    page.wait_for_selector("text=Yes, the network holds up job train-7")
    page.wait_for_selector(".figure:has-text('rank 0'):has-text('400 Mbit/s')")
    page.wait_for_selector(".why li:nth-child(1) a[href='#/finding/j1']")  # sentences lead to their evidence
    page.wait_for_selector("figure.chart .u-over")
    page.wait_for_selector("figcaption:has-text('congestion l0--s1')")

    page.goto(f"{world.url}/#/pair/h00%2Fr0/h02%2Fr0")
    page.wait_for_selector("figure.chart .u-over")
    assert page.locator("figure.chart").count() == 2
    page.wait_for_selector("figcaption:has-text('steer h00/r0#17')")
    assert page.locator(".u-legend").count() == 2
    page.wait_for_selector("[aria-label=Paths] tbody tr:nth-child(4)")

    page.goto(f"{world.url}/#/nic/h03%2Fr1")
    page.wait_for_selector("td:has-text('no probe passes')")
    page.wait_for_selector("td:has-text('nic-down')")

    page.goto(f"{world.url}/#/loop")
    page.wait_for_selector("td:has-text('steer')")
    page.wait_for_selector("text=as in the settings")
    assert "sdfstream approve" in page.locator("main").inner_text()

    page.goto(f"{world.url}/#/clocks")
    page.wait_for_selector("text=holdover")
    page.wait_for_selector(".figures:has-text('7 of 8')")

    page.goto(f"{world.url}/#/pipeline")
    page.wait_for_selector("td:has-text('sdf.derived.owd.v1')")
    assert page.locator("tr", has_text="board").locator("td").nth(1).inner_text() == "3"

    page.goto(f"{world.url}/#/nothing")
    page.wait_for_selector("text=There is no such page")


def test_a_window_of_the_map_is_read_from_the_archive(world: Served, tab: Make) -> None:
    page = tab(world).open("fleet?order=name")
    page.wait_for_selector("text=12 healthy")
    page.get_by_role("combobox", name="Window").select_option("60")
    page.wait_for_selector("text=over the last minute up to 2027-01-15 08:00:00Z")
    said = page.locator("section[aria-labelledby=heat] .said")
    page.get_by_role("application", name="one-way delay from row to column").focus()
    page.keyboard.press("ArrowRight")  # from h00 > h01 to h00 > h02
    assert said.inner_text().startswith("h00 to h02: "), said.inner_text()
    # there: 28 s of 10 µs and 12 s of 90 µs, back: 11 µs; and both at 10 µs in the last second
    cells = page.evaluate("fetch('/v1/history?cells=owd&span_s=60&percentile=100').then(r => r.json())")["items"]
    means = {(c["src"], c["dst"]): c["value"] for c in cells}
    assert means["h00", "h02"] == pytest.approx((28 * 10_000 + 12 * 90_000 + 10_000) / 41, rel=0.01)
    assert means["h02", "h00"] == pytest.approx((40 * 11_000 + 10_000) / 41, rel=0.01)


def test_from_the_map_to_the_job_in_four_clicks(world: Served, tab: Make) -> None:
    page = tab(world).open("fleet")
    page.wait_for_selector("text=12 healthy")
    canvas = page.locator(".map canvas")
    canvas.click(position={"x": 44 + 9, "y": 18 + 9})  # the first host's NIC on the first rail
    page.wait_for_selector("h1:has-text('Rack at l0')")
    page.get_by_role("link", name="h00/r0#17").click()
    page.wait_for_selector("h1:has-text('Pair')")
    page.locator("[aria-label^='Queue pairs'] a", has_text="train-7").first.click()
    page.wait_for_selector("text=Yes, the network holds up job train-7")


def test_an_instant_of_the_past_on_every_view(world: Served, tab: Make) -> None:
    page = tab(world).open("fleet?at=2027-01-15T07:59:30Z")
    page.wait_for_selector(".age.past:has-text('as of 2027-01-15 07:59:30Z, from the archive')")
    assert EARLY_NS == bm.NOW_NS - 30 * NS_PER_S
    page.wait_for_selector(".legend:has-text('1 healthy')")
    page.get_by_role("link", name="Jobs").click()
    page.wait_for_selector("td:has-text('train-7')")
    assert "at=2027-01-15T07%3A59%3A30Z" in page.url, "the instant goes with every link"
    assert page.locator("td:has-text('slow')").count() == 0, "then it was not"
    page.get_by_role("link", name="Findings").click()
    page.wait_for_selector("text=No finding is open.")
    said = page.evaluate(
        """async () => {
            const head = await fetch('/v1/nics?limit=1').then(r => r.json());
            (await import('/page/freshness.js')).note(head);
            await new Promise(done => setTimeout(done, 700));
            return document.querySelector('.age').innerText;
        }"""
    )
    assert "from the archive" in said, "what the server says of now is nothing about the past that is shown"
    page.get_by_role("button", name="Now").click()
    page.wait_for_selector("td:has-text('nic-down')")
    assert "at=" not in page.url


VIEWS = (
    "fleet", "findings", "finding/j1", "rack/l0", "rack/h03", "nic/h03%2Fr1", "pair/h00%2Fr0/h02%2Fr0", "jobs",
    "job/train-7", "loop", "clocks", "pipeline", "nothing", "fleet?at=2027-01-15T07:59:30Z",
)  # fmt: skip
PHONE = ("fleet", "findings", "rack/l0", "pair/h00%2Fr0/h02%2Fr0", "job/train-7", "loop", "clocks")


def test_nobody_is_shut_out(world: Served, tab: Make) -> None:
    """axe-core finds nothing serious, in light and dark and on a phone, and no view is wider than the phone."""
    axe = AXE.read_text()
    found = []
    for scheme, width, views in (("light", 1280, VIEWS), ("dark", 390, PHONE)):
        one = tab(world, color_scheme=scheme, viewport={"width": width, "height": 844}, bypass_csp=True)
        one.open("fleet").wait_for_selector("text=12 healthy")
        one.page.evaluate(axe)
        for view in views:
            one.page.evaluate(f"location.hash = '#/{view}'")
            one.page.wait_for_function(
                "![...document.querySelectorAll('.notice')].some(n => n.innerText === 'Asking …')"
            )
            one.page.wait_for_selector("h1")
            rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}"
            for violation in one.page.evaluate(f"axe.run(document, {rules}).then(r => r.violations)"):
                if violation["impact"] in ("serious", "critical"):
                    nodes = [node["html"][:120] for node in violation["nodes"][:2]]
                    found.append((scheme, view, violation["id"], nodes))
            if one.page.evaluate("document.documentElement.scrollWidth") > width:
                found.append((scheme, view, "wider than the window", []))
    assert found == []


def test_the_slider_goes_back_from_the_buss_own_time(world: Served, tab: Make) -> None:
    page = tab(world).open("findings")
    page.wait_for_selector("td:has-text('congestion')")
    page.get_by_label("Back").select_option("300")
    page.wait_for_timeout(1200)  # the slider's end follows every second
    slider = page.get_by_role("slider", name="Instant")
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    page.wait_for_selector("text=No finding is open.")  # 20 s ago: the job was not held up yet
    assert "at=2027-01-15T07%3A59%3A4" in page.url
