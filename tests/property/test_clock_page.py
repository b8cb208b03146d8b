"""Laws of the clock page: round trip, no byte string breaks the decoder, no crash of the writer mixes two states, and
the interval holds the truth whenever the row's own bound did."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.agent.clockpage.maker import line_above
from sdfstream.clock import page as pages
from sdfstream.clock.folder_io import clock_name, file_name
from sdfstream.clock.reader_io import ClockReader
from sdfstream.clock.reading import ClockError, evaluate, prepare
from sdfstream.errors import FormatError
from tests.fixtures.clock_pages import AT_NS, BOOT, PAGE, RAW_NS

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
RATES = st.floats(-1e8, 1e8)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=30)
PAGES = st.builds(
    pages.Page,
    clock=NAMES,
    reference=st.just("") | NAMES,
    realtime=st.booleans(),
    at_ns=INT64,
    raw_ns=INT64,
    offset_ns=INT64,
    err_ns=st.integers(0, (1 << 63) - 1),
    skew_ppb=RATES,
    raw_ppb=RATES,
    grow_ppb=st.floats(0, 1e8),
    hold_ppb=st.floats(0, 1e8),
    fresh_ns=st.integers(1, 1 << 40),
    void_ns=st.integers(1 << 40, 1 << 50),
    written_raw_ns=INT64,
    status=st.sampled_from(pages.STATUSES[1:]),
    n=st.integers(0, (1 << 32) - 1),
    boot=st.binary(min_size=16, max_size=16),
    writer=st.binary(min_size=16, max_size=16),
)


@given(PAGES, st.integers(0, 1 << 62))
def test_a_page_comes_back_as_it_was(page: pages.Page, half: int) -> None:
    assert pages.decode(pages.encode(page, 2 * half)) == page


@given(NAMES)
def test_a_file_name_names_its_clock(clock: str) -> None:
    name = file_name(clock)
    assert "/" not in name and clock_name(name) == clock


@given(st.binary(max_size=600))
def test_no_bytes_break_the_decoder(raw: bytes) -> None:
    with pytest.raises(FormatError):
        pages.decode(raw)


@settings(max_examples=300)
@given(st.integers(0, pages.SIZE - 1), st.integers(1, 255), st.integers(0, 60))
def test_a_changed_byte_is_refused(offset: int, by: int, more: int) -> None:
    raw = bytearray(pages.encode(PAGE, 42) + bytes(more))
    raw[offset] ^= by
    try:
        assert pages.decode(bytes(raw)) == PAGE and 8 <= offset < 16  # another even sequence is no damage
    except FormatError as error:
        assert error.reason in ("magic", "version", "torn", "checksum")


@settings(max_examples=200, deadline=None)
@given(PAGES, PAGES, st.integers(0, 3), st.integers(0, pages.SIZE), st.booleans())
def test_a_writer_that_stops_anywhere_never_mixes_two_states(
    old: pages.Page, new: pages.Page, whole: int, cut: int, scattered: bool
) -> None:
    """Cut after `whole` writes and `cut` bytes of the next, in order or with its bytes stored from the far end."""
    memory = bytearray(pages.encode(old, 42))
    for number, (at, piece) in enumerate(pages.updates(pages.encode(new, 0), 42)):
        if number == whole:
            n = min(cut, len(piece))
            if scattered:
                memory[at + len(piece) - n : at + len(piece)] = piece[len(piece) - n :]
            else:
                memory[at : at + n] = piece[:n]
        elif number < whole:
            memory[at : at + len(piece)] = piece
    try:
        assert pages.decode(bytes(memory)) in (old, new)
    except FormatError as error:
        assert error.reason in ("torn", "checksum")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 3), st.integers(0, pages.SIZE))
def test_an_open_reader_keeps_the_last_whole_state(whole: int, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "h00.page"
        old, new = replace(PAGE, clock="h00", n=1), replace(PAGE, clock="h00", n=2)
        file.write_bytes(pages.encode(old, 42))
        with ClockReader("h00", folder) as reader, file.open("rb+") as memory:
            for number, (at, piece) in enumerate(pages.updates(pages.encode(new, 0), 42)):
                memory.seek(at)
                memory.write(piece if number < whole else piece[:cut] if number == whole else b"")
            memory.flush()
            assert reader.page in (old, new)
            assert (reader.page == new) == _is_whole(file, new)


def _is_whole(file: Path, new: pages.Page) -> bool:
    try:
        return pages.decode(file.read_bytes()) == new
    except FormatError:
        return False


@given(
    age_ns=st.integers(-900_000_000, 59_000_000_000),
    off_ns=st.integers(-250, 250),
    drift_ppb=st.floats(-99.0, 99.0),
    slew_ppb=st.floats(-200.0, 200.0),
    realtime=st.booleans(),
)
def test_the_interval_holds_the_truth(
    age_ns: int, off_ns: int, drift_ppb: float, slew_ppb: float, realtime: bool
) -> None:
    """Truth: the row was wrong by at most its bound, the reference drifts by less than the page allows against the
    oscillator, and a daemon has slewed the clock since."""
    page = replace(PAGE, realtime=realtime)
    by_oscillator = age_ns + int(age_ns * page.raw_ppb * 1e-9)
    true_ns = AT_NS + by_oscillator - page.offset_ns - int(by_oscillator * page.skew_ppb * 1e-9)
    true_ns += off_ns + int(age_ns * drift_ppb * 1e-9)
    reading_ns = AT_NS + by_oscillator + int(age_ns * slew_ppb * 1e-9)
    found = evaluate(prepare(page, 2, BOOT), reading_ns, RAW_NS + age_ns, BOOT)
    assert found.earliest_ns - 4 <= true_ns <= found.latest_ns + 4
    assert found.status == ("synced" if age_ns <= page.fresh_ns else "stale")
    assert found.earliest_ns <= found.corrected_ns <= found.latest_ns


@given(PAGES, INT64, INT64, st.sampled_from([BOOT, bytes(16)]))
def test_any_page_gives_an_ordered_interval_or_a_reason(
    page: pages.Page, realtime_ns: int, raw_ns: int, boot: bytes
) -> None:
    try:
        found = evaluate(prepare(page, 2, boot), realtime_ns, raw_ns, boot)
    except ClockError as error:
        assert error.reason in ("void", "unsynced", "faulty", "stepped", "other-boot")
    else:
        assert found.earliest_ns <= found.corrected_ns <= found.latest_ns
        assert page.boot == boot and page.status in ("synced", "holdover") and found.age_ns <= page.void_ns


@given(st.floats(0.1, 1e4), st.floats(1e-3, 100.0), st.floats(0.0, 60.0))
def test_the_straight_line_lies_above_the_walk_and_touches_it(walk: float, touch_s: float, age_s: float) -> None:
    base_ns, grow_ppb = line_above(walk, touch_s)
    assert base_ns + grow_ppb * age_s >= walk * age_s**0.5 * (1 - 1e-12)
    assert base_ns + grow_ppb * touch_s <= walk * touch_s**0.5 * (1 + 1e-12)
