"""The reader: every line of its table, and what it does when files come and go."""

from __future__ import annotations

import doctest
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sdfstream.clock
from sdfstream.agent.clockpage import maker
from sdfstream.agent.clockpage.writer_io import PageFile, read_pair
from sdfstream.clock import ClockError, ClockReader, Now, clocks, folder_io, now, reader_io
from sdfstream.clock import page as pages
from sdfstream.clock.reading import GAP_NS, SENTENCES, evaluate, prepare
from sdfstream.lab import wrong_clocks
from tests.fixtures.clock_pages import AT_NS, BOOT, RAW_NS, page

S = 1_000_000_000


def answer(age_ns: int, moved_ns: int = 0, **changes: Any) -> Now:
    p = page(raw_ppb=0.0, skew_ppb=0.0, offset_ns=1_000, **changes)
    return evaluate(prepare(p, 2, BOOT), AT_NS + age_ns + moved_ns, RAW_NS + age_ns, BOOT)


def test_a_fresh_synced_page() -> None:
    found = answer(S // 2)
    assert found == Now(AT_NS + S // 2 - 1_000, AT_NS + S // 2 - 1_300, AT_NS + S // 2 - 700, "synced", S // 2)
    assert found.err_ns == 300


def test_sync_s_own_holdover_says_so() -> None:
    assert answer(S // 2, status="holdover").status == "holdover"


def test_a_stale_page_grows_fast() -> None:
    found = answer(11 * S)
    assert (found.status, found.err_ns) == ("stale", 250 + 100 + 10 * 5_000)


def test_a_moved_clock_is_in_the_bound_and_then_refused() -> None:
    found = answer(S // 2, -2_000)
    assert found.err_ns == 2_300 and found.corrected_ns == AT_NS + S // 2 - 3_000
    assert answer(S // 2, GAP_NS + 300).status == "synced"
    for moved_ns in (GAP_NS + 301, -GAP_NS - 301, S, -S):
        with pytest.raises(ClockError) as refused:
            answer(S // 2, moved_ns)
        assert refused.value.reason == "stepped"


@pytest.mark.parametrize(
    ("age_ns", "changes", "reason"),
    [
        (S, {"status": "unsynced"}, "unsynced"),
        (S, {"status": "faulty"}, "faulty"),
        (S, {"status": "stepped"}, "stepped"),
        (61 * S, {}, "void"),
        (S, {"boot": bytes(16)}, "other-boot"),
        (-2 * S, {}, "other-boot"),
    ],
)
def test_refusals(age_ns: int, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClockError) as refused:
        answer(age_ns, **changes)
    assert refused.value.reason == reason
    assert SENTENCES[reason] in str(refused.value)


def test_a_page_that_is_not_realtime_does_not_look_at_it() -> None:
    assert answer(S // 2, 7 * S, realtime=False).corrected_ns == AT_NS + S // 2 - 1_000


def live(clock: str = "h00", **changes: Any) -> pages.Page:
    """A page of right now on this machine."""
    system_ns, raw_ns, _ = read_pair()
    here = {"boot": folder_io.boot_id(), "at_ns": system_ns, "raw_ns": raw_ns, "raw_ppb": 0.0, "skew_ppb": 0.0}
    return page(**({"clock": clock, "reference": "ref", "offset_ns": 1_000} | here | changes))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[PageFile]:
    file = PageFile(tmp_path, live())
    yield file
    file.close()


def test_now_on_this_machine(one: PageFile) -> None:
    before_ns = time.time_ns()
    found = now(page_dir=one.path.parent)
    after_ns = time.time_ns()
    assert found.earliest_ns <= after_ns - 1_000 and before_ns - 1_000 <= found.latest_ns
    assert found.status == "synced" and 0 <= found.age_ns < S
    assert oct(one.path.stat().st_mode & 0o777) == "0o644"


def test_a_change_is_seen_at_once(one: PageFile) -> None:
    with ClockReader("h00", one.path.parent) as reader:
        first = reader.now()
        one.write(live(offset_ns=1_000_000_000))
        assert first.corrected_ns - reader.now().corrected_ns > 900_000_000
        one.write(live(status="unsynced"))
        with pytest.raises(ClockError, match="unsynced"):
            reader.now()
        one.write(live())
        assert reader.now().status == "synced"


def test_a_stamp_of_a_moment_ago(one: PageFile) -> None:
    with ClockReader(page_dir=one.path.parent) as reader:
        stamp_ns = time.time_ns() - S // 4
        found = reader.at(stamp_ns)
        assert abs(found.corrected_ns - (stamp_ns - 1_000)) < 1_000
        with pytest.raises(ClockError):
            reader.at(stamp_ns - 10 * S)


def test_a_restarted_agent_s_page_is_taken_when_the_old_one_is_stale(one: PageFile) -> None:
    system_ns, raw_ns, _ = read_pair()
    one.write(live(at_ns=system_ns - 2 * S, raw_ns=raw_ns - 2 * S))
    with ClockReader("h00", one.path.parent) as reader:
        assert reader.now().status == "stale"
        new = PageFile(one.path.parent, live())
        reader._reopened_at_ns = 0
        assert reader.now().status == "synced"
        one.close()
        assert new.path.exists()  # it is not the old agent's any more
        new.close()
        assert not new.path.exists()
        assert reader.now().status == "synced"


def test_a_process_interrupted_between_two_clocks_takes_the_new_page_all_the_same(
    one: PageFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_ns, raw_ns, _ = read_pair()
    one.write(live(at_ns=system_ns - 2 * S, raw_ns=raw_ns - 2 * S))
    with ClockReader("h00", one.path.parent) as reader:
        new = PageFile(one.path.parent, live())
        reader._reopened_at_ns = 0
        pauses_s = [0.0, 0.002]

        def interrupted() -> int:
            read_ns = time.time_ns()
            if pauses_s and (pause_s := pauses_s.pop(0)):
                time.sleep(pause_s)
            return read_ns

        monkeypatch.setattr("sdfstream.clock.reader_io._realtime_ns", interrupted)
        assert reader.now().status == "synced"
        assert not pauses_s
        new.close()


def test_a_half_written_page_makes_the_last_one_grow_old_and_says_torn_to_newcomers(one: PageFile) -> None:
    with ClockReader("h00", one.path.parent) as reader:
        first = reader.now()
        one._map[8:16] = (one._sequence + 1).to_bytes(8, "little")
        one._map[32:40] = bytes(8)
        began_s = time.monotonic()
        answers = [reader.now() for _ in range(100)]
        assert time.monotonic() - began_s < 1.0  # waited for once, not a hundred times
        assert all(found.status == "synced" and found.corrected_ns > first.corrected_ns for found in answers)
        with pytest.raises(ClockError, match="torn"):
            ClockReader("h00", one.path.parent)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"x" * 600, bytes(512)])
def test_what_is_no_page_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "h00.page").write_bytes(content)
    with pytest.raises(ClockError, match="unreadable"):
        ClockReader("h00", tmp_path)


def test_which_page(tmp_path: Path, one: PageFile) -> None:
    assert list(clocks(tmp_path)) == ["h00"]
    other = PageFile(tmp_path, live("h01/r0", realtime=False))
    assert list(clocks(tmp_path)) == ["h00", "h01/r0"]
    assert ClockReader(page_dir=tmp_path).page.clock == "h00"  # the one that CLOCK_REALTIME is
    third = PageFile(tmp_path, live("h02"))
    with pytest.raises(ClockError, match="which-clock, h00, h02"):
        ClockReader(page_dir=tmp_path)
    assert ClockReader("h01/r0", tmp_path).page.clock == "h01/r0"
    with pytest.raises(ClockError, match="no-page"):
        ClockReader("h07", tmp_path)
    for file in (other, third):
        file.close()


def test_a_folder_of_a_stranger_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tmp_path / "usual"
    usual.mkdir(mode=0o755)
    monkeypatch.setattr(folder_io, "readable_folders", lambda: [usual])
    file = PageFile(usual, live())
    assert list(clocks()) == ["h00"]
    usual.chmod(0o777)
    assert not clocks()
    with pytest.raises(ClockError, match="no-page"):
        ClockReader("h00")
    usual.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(usual, 65_534, 65_534)
        assert not clocks()
    file.close()


def test_a_call_is_quick(one: PageFile) -> None:
    """About a microsecond; the bound is generous, since tests run on busy machines."""
    with ClockReader("h00", one.path.parent) as reader:
        best_s = min(_timed(reader) for _ in range(20))
        assert best_s / 500 < 20e-6


def _timed(reader: ClockReader) -> float:
    began_s = time.perf_counter()
    for _ in range(500):
        reader.now()
    return time.perf_counter() - began_s


def test_an_application_loads_the_standard_library_only() -> None:
    import subprocess
    import sys

    script = "import sys, sdfstream.clock; print([m for m in ('numpy', 'pyarrow', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert sdfstream.clock.__all__


@pytest.mark.parametrize("module", [maker, folder_io, reader_io, wrong_clocks])
def test_the_examples_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
