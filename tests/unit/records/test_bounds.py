"""What the data of an event may be: every published shape takes its sample, and refuses a value of another kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.errors import FormatError
from sdfstream.records.bounds import check_data
from sdfstream.records.shapes import SHAPES
from tests.fixtures.shapes import sample

TYPES = [(topic, type_) for topic, types in SHAPES.items() for type_ in types]
STRANGE: list[Any] = [None, True, 7, 1 << 63, float("nan"), "x" * 70_000, "\x1b", "\ud800", [[[[]]]], {"a": {"b": {}}}]


def leaves(value: Any, *path: Any) -> list[tuple[Any, ...]]:
    """The path of everything inside `value`."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(*path, key) for key, _ in inside] + [p for key, one in inside for p in leaves(one, *path, key)]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@pytest.mark.parametrize(("topic", "type_"), TYPES)
def test_a_sample_fits_and_strange_values_are_refused_with_the_fields_name(topic: str, type_: str) -> None:
    data = sample(SHAPES[topic][type_])
    check_data(topic, type_, data)
    refused = 0
    for path in leaves(data):
        for strange in STRANGE:
            try:
                check_data(topic, type_, replaced(data, path, strange))
            except FormatError as error:
                assert error.reason in ("shape", "json")
                assert str(path[0]) in error.detail or error.reason == "json"
                refused += 1
    assert refused > 5 * len(leaves(data))


@pytest.mark.parametrize(("topic", "type_"), TYPES)
def test_no_field_takes_a_whole_number_beyond_64_bits(topic: str, type_: str) -> None:
    """Of a figure as well: readers of `status` refuse such, so that one finding's evidence silenced it."""
    data = sample(SHAPES[topic][type_])
    for path in leaves(data):
        for beyond in (1 << 63, -(1 << 64), 10**25):
            with pytest.raises(FormatError):
                check_data(topic, type_, replaced(data, path, beyond))


def test_what_a_shape_asks_for_may_be_absent_in_a_recording_only() -> None:
    topic, type_ = "sdf.state.nic.v1", "sdf.state.nic.v1"
    check_data(topic, type_, {}, whole=False)
    with pytest.raises(FormatError, match="shape: direction is missing"):
        check_data(topic, type_, {})


def test_a_type_or_field_of_a_later_version_is_bounded_and_passed_on() -> None:
    check_data("sdf.state.nic.v1", "sdf.state.nic.v1.next", {"a": [1, {"b": None}]})
    with pytest.raises(FormatError, match="json"):
        check_data("sdf.state.nic.v1", "sdf.state.nic.v1.next", {"a": 1 << 64})


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.sampled_from(TYPES), st.data())
def test_any_values_are_refused_or_bounded(topic_and_type: tuple[str, str], data: st.DataObject) -> None:
    topic, type_ = topic_and_type
    value = sample(SHAPES[topic][type_])
    for path in data.draw(st.lists(st.sampled_from(leaves(value)), max_size=3, unique=True)):
        try:
            value = replaced(value, path, data.draw(_ANY))
        except (KeyError, IndexError, TypeError):
            continue  # what an earlier replacement took away
    try:
        check_data(topic, type_, value)
    except FormatError as error:
        assert error.reason in ("shape", "json", "name")
