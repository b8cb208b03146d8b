"""Which values of a topic are instants, as its columns and shapes declare it, and how they are moved.

A recording can be played again as if it happened now: then every instant in it moves, and nothing else does. What is
an instant is not guessed from names: a column says so by its unit, a property of an event by its description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from sdfstream.records import arrow
from sdfstream.records.schema import INSTANT
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import TOPICS
from sdfstream.records.units import Int64s

_UNIT: Final = "ns since epoch"

InstantTree: TypeAlias = bool | dict[str, Any]
"""Where instants lie in plain JSON: True at an instant, a mapping of properties (``[]``: of each item) above it."""


@cache
def columns_of(topic: str) -> tuple[str, ...]:
    """The columns of a bulk topic that hold instants, in the topic's order."""
    schema = TOPICS[topic].columns
    assert schema is not None
    return tuple(f.name for f in schema if f.type == pa.int64() and _unit(f).startswith(_UNIT))


def moved_rows(topic: str, rows: pa.RecordBatch, move: Callable[[Int64s], Int64s]) -> pa.RecordBatch:
    """`rows` with every instant moved; nulls stay.

    Only the first instant of a row is given to `move`: the others keep their distance from it, so that delays stay
    what they were, also when `move` stretches time.
    """
    first, *others = columns_of(topic)
    before = arrow.plain(rows.column(first))
    after = move(before)
    rows = _with(rows, first, after)
    for name in others:
        rows = _with(rows, name, arrow.plain(rows.column(name)) + (after - before))
    return rows


def moved_event(topic: str, type_: str, data: Mapping[str, Any], move: Callable[[int], int]) -> dict[str, Any]:
    """`data` of an event with every instant moved; a type that is not known stays as it is."""
    tree = _tree_of(topic, type_)
    moved: dict[str, Any] = _moved(data, tree, move) if isinstance(tree, dict) else dict(data)
    return moved


@cache
def _tree_of(topic: str, type_: str) -> InstantTree:
    shape = SHAPES.get(topic, {}).get(type_)
    return _tree(shape) if shape is not None else False


def _tree(shape: Mapping[str, Any]) -> InstantTree:
    if str(shape.get("description", "")).endswith(INSTANT):
        return True
    inside = dict(shape.get("properties", {}))
    if "items" in shape:
        inside["[]"] = shape["items"]
    found = {name: tree for name, inner in inside.items() if (tree := _tree(inner))}
    return found or False


def _moved(value: Any, tree: InstantTree, move: Callable[[int], int]) -> Any:
    """`value` moved where `tree` says; what is not of the shape that it should have stays as it is."""
    if tree is True:
        return move(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(tree, dict) and isinstance(value, list) and "[]" in tree:
        return [_moved(item, tree["[]"], move) for item in value]
    if isinstance(tree, dict) and isinstance(value, Mapping):
        return {k: _moved(v, tree[k], move) if k in tree else v for k, v in value.items()}
    return value


def _with(rows: pa.RecordBatch, name: str, values: Int64s) -> pa.RecordBatch:
    index = rows.schema.get_field_index(name)
    present = ~arrow.nulls(rows.column(index))
    column = arrow.column(values.astype(np.int64, copy=False), pa.int64(), present)
    return rows.set_column(index, rows.schema.field(index), column)


def _unit(field: pa.Field) -> str:
    return bytes((field.metadata or {}).get(b"unit", b"")).decode()
