"""No text from outside can do more to a terminal than stand in a line."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from sdfstream import visible

OBEYED = ("Cc", "Cf", "Zl", "Zp", "Cs")
"""Categories of characters that a terminal obeys or does not show."""


def test_no_character_that_a_terminal_obeys_is_left() -> None:
    obeyed = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) in OBEYED]
    assert [c for c in obeyed if visible.line(c) == c] == []
    assert all(visible.line(c).isascii() for c in obeyed)


def test_what_people_write_stays() -> None:
    for text in ("h00/r0#17", "Größe 東京 né ✓ ● ✖ ≥ 3 µs", "a b", ""):
        assert visible.line(text) is text or visible.line(text) == text


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_lines_stay_as_many_as_they_were(texts: list[str]) -> None:
    shown = visible.lines(texts)
    assert len(shown.split("\n")) == len(texts)
    assert visible.text(shown) == shown
    shown.encode()


def test_nested_data() -> None:
    assert visible.data({"a\x1b": ["b\n", {"c": ("\u202e", 1, None)}]}) == {
        "a\\x1b": ["b\\n", {"c": ["\\u202e", 1, None]}]
    }
