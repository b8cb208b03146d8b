"""The quick way to canonical JSON gives the bytes of the slow one."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sdfstream.errors import FormatError
from sdfstream.records.command import canonical

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
LEAVES = st.none() | st.booleans() | SAFE | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=6), x, max_size=4), max_leaves=20
)

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


@calm
@given(VALUES)
def test_canonical_is_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@calm
@given(st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=6), st.text(max_size=8) | SAFE, max_size=6))
def test_so_it_is_on_the_quick_way(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@calm
@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e17, 1e17) | st.floats(-1e-3, 1e-3))
@example(-0.0)
@example(2.0**53)
@example(1e-4)
@example(9e15 + 0.5)
def test_doubles_of_every_size(value: float) -> None:
    assert canonical([value]) == rfc8785.dumps([value])


@pytest.mark.parametrize("value", ["\ud800", ["\udfff"], {"a": "\ud800"}, {"a": float("nan")}, {1: 2}, {"a": {2}}])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(FormatError):
        canonical(value)
