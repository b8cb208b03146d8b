"""JSON from outside: every bound is kept, and nothing but FormatError comes out."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream import strict_json
from sdfstream.errors import FormatError

REFUSED = {
    "not JSON": b"{",
    "not UTF-8": b'"\xff"',
    "NaN": b"[NaN]",
    "Infinity": b"[-Infinity]",
    "1e400": b'{"a": 1e400}',
    "-1e400": b'{"a": [-1e400]}',
    "beyond int64": b'{"path": 9223372036854775808}',
    "below int64": b'{"path": -9223372036854775809}',
    "5000 digits": b"1" * 5000,
    "a lone surrogate": b'{"nic": "h00/\\ud800"}',
    "a lone surrogate as a name": b'{"\\udfff": 1}',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "NUL": b'"h\\u0000"',
    "an escape": b'"\\u001b[2J"',
    "an 8-bit escape": '"\u009b2J"'.encode(),
    "DEL": b'"\x7f"',
    "a name twice": b'{"a": 1, "a": 2}',
    "a name twice, deeper": b'[{"b": {"a": 1, "a": 2}}]',
    "600 lists": b"[" * 600 + b"]" * 600,
    "33 lists": b"[" * 33 + b"]" * 33,
    "100,000 lists": b"[" * 100_000,
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
def test_refused(raw: bytes) -> None:
    with pytest.raises(FormatError) as refused:
        strict_json.loads(raw)
    assert refused.value.reason == "json" and refused.value.detail


def test_taken() -> None:
    plain = {"a": [1, -1.5, "é\t\n", None, True, 2**63 - 1, -(2**63)], "\U0001f600": {}}
    assert strict_json.loads(json.dumps(plain)) == plain  # with a surrogate pair as escapes
    assert strict_json.loads(json.dumps(plain, ensure_ascii=False).encode()) == plain
    assert strict_json.loads(b"[" * 32 + b"]" * 32)


def test_size_is_bounded() -> None:
    with pytest.raises(FormatError, match="at most 10"):
        strict_json.loads(b'"' + b"a" * 10 + b'"', most_bytes=10)


def test_depth_does_not_depend_on_the_callers_stack() -> None:
    """A deep caller gets the same answer as a shallow one, and never a RecursionError."""

    def deep(levels: int) -> str:
        if levels:
            return deep(levels - 1)
        with pytest.raises(FormatError) as refused:
            strict_json.loads(b"[" * 600 + b"]" * 600)
        return refused.value.detail

    assert deep(0) == "nested more than 32 deep"
    assert deep(sys.getrecursionlimit() // 2) == "nested too deeply"


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def bounded(value: object, depth: int = 0) -> bool:
    """The bounds in their plainest form."""
    if isinstance(value, dict):
        return depth < 32 and all(bounded(k, depth) and bounded(v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return depth < 32 and all(bounded(v, depth + 1) for v in value)
    if isinstance(value, str):
        value.encode()
        return not any((ord(c) < 32 and c not in "\t\n\r") or 127 <= ord(c) < 160 for c in value)
    if isinstance(value, float):
        return abs(value) < float("inf")
    return not isinstance(value, int) or -(2**63) <= value < 2**63


@given(_VALUES.map(json.dumps) | st.text(alphabet='[]{}",:\\u0d8e19-.aN \t') | st.text())
def test_any_text_is_refused_or_bounded(text: str) -> None:
    try:
        value = strict_json.loads(text)
    except FormatError as error:
        assert error.reason == "json"
        return
    assert bounded(value)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@given(st.binary())
def test_any_bytes_are_refused_or_bounded(raw: bytes) -> None:
    try:
        assert bounded(strict_json.loads(raw))
    except FormatError as error:
        assert error.reason == "json"
