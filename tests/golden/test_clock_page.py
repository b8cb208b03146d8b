"""The clock page's bytes: other languages map them, so they never change."""

from __future__ import annotations

import re
from pathlib import Path

from sdfstream.clock import page as pages
from tests.fixtures.clock_pages import PAGE

BYTES = {"char": 1, "uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8, "int64_t": 8, "double": 8}
GOLDEN = Path(__file__).parent / "clock" / "page-v1.bin"


def test_the_page_is_the_golden_one() -> None:
    assert pages.encode(PAGE, 42) == GOLDEN.read_bytes()
    assert pages.decode(GOLDEN.read_bytes()) == PAGE


def test_the_layout_is_as_documented() -> None:
    raw = GOLDEN.read_bytes()
    at = {
        "sequence": (8, 8, 42),
        "version": (16, 4, 1),
        "size": (20, 4, 512),
        "flags": (28, 4, 1),
        "at_ns": (32, 8, PAGE.at_ns),
        "raw_ns": (40, 8, PAGE.raw_ns),
        "offset_ns": (48, 8, 123_456),
        "err_ns": (56, 8, 250),
        "fresh_ns": (96, 8, 1_000_000_000),
        "void_ns": (104, 8, 60_000_000_000),
        "written_raw_ns": (112, 8, PAGE.written_raw_ns),
        "status": (120, 4, 1),
        "n": (124, 4, 4_711),
        "clock_bytes": (160, 2, 13),
        "reference_bytes": (162, 2, 6),
    }
    assert len(raw) == 512 and raw[:8] == b"sdfclock"
    assert {name: int.from_bytes(raw[a : a + n], "little") for name, (a, n, _) in at.items()} == {
        name: value for name, (_, _, value) in at.items()
    }
    assert raw[128:144] == PAGE.boot and raw[144:160] == PAGE.writer
    assert raw[168:181] == b"gpu-17/mlx5_2" and raw[296:302] == b"gpu-00" and not any(raw[424:])


def test_the_struct_in_the_documentation_is_this_page() -> None:
    """Every field of docs/clock.md's C struct stands where its comment says, and they make up the whole page."""
    text = (Path(__file__).parents[2] / "docs" / "clock.md").read_text()
    struct = text[text.index("struct sdf_clock_page {") :].partition("};")[0]
    place, names = 0, []
    for kind, name, count, told in re.findall(r"(\w+)\s+(\w+)(?:\[(\d+)\])?;\s+/\* +(\d+)", struct):
        assert int(told) == place, name
        place += BYTES[kind] * int(count or 1)
        names.append(name)
    assert place == len(GOLDEN.read_bytes())
    assert " ".join(names) == (
        "magic sequence version size crc flags at_ns raw_ns offset_ns err_ns skew_ppb raw_ppb grow_ppb hold_ppb "
        "fresh_ns void_ns written_raw_ns status n boot writer clock_bytes reference_bytes zero clock reference reserved"
    )
