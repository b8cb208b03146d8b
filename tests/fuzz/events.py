"""Events that fit their topic's schema, drawn from the schema: what it allows, with a bias to its edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sdfstream.records.message import Event
from sdfstream.records.schema import INSTANT, Shape
from sdfstream.records.shapes import SHAPES
from tests.fuzz.values import NOW_NS, Draw, pool_of

Drawer = Callable[[Draw], Any]

MOST_ITEMS: Final = 6


def drawer(shape: Shape, name: str = "") -> Drawer:
    """What draws a value of `shape`; `name` is the field's."""
    for many in ("oneOf", "anyOf"):
        if many in shape:
            several = [drawer(one, name) for one in shape[many]]
            return lambda draw: draw.rng.choice(several)(draw)
    if "const" in shape:
        return lambda _: shape["const"]
    if "enum" in shape:
        return lambda draw: draw.rng.choice(shape["enum"])
    kinds = shape.get("type", "object")
    if not isinstance(kinds, str):
        several = [drawer(shape | {"type": kind}, name) for kind in kinds]
        return lambda draw: several[0](draw) if draw.chance(0.8) else draw.rng.choice(several)(draw)
    return _KINDS[kinds](shape, name)


def _object(shape: Shape, name: str) -> Drawer:
    fields = {key: drawer(part, key) for key, part in shape.get("properties", {}).items()}
    required = frozenset(shape.get("required", ()))
    extra = shape.get("additionalProperties")
    values = drawer(extra, name) if isinstance(extra, dict) else None
    if not fields:
        return lambda draw: _open(draw, values)

    def draw_object(draw: Draw) -> dict[str, Any]:
        return {key: part(draw) for key, part in fields.items() if key in required or draw.chance(0.7)}

    return draw_object


def _open(draw: Draw, values: Drawer | None) -> dict[str, Any]:
    value = values or (lambda drawn: drawn.anything(2))
    return {draw.key(): value(draw) for _ in range(draw.rng.randrange(4))}


def _array(shape: Shape, name: str) -> Drawer:
    item = drawer(shape.get("items", {"type": "string"}), name)

    def draw_array(draw: Draw) -> list[Any]:
        count = draw.rng.randrange(MOST_ITEMS) if draw.chance(0.98) else draw.rng.choice((70, 300))
        if count > MOST_ITEMS or draw.chance(0.1):
            return [item(draw)] * count  # the same thing again and again
        return [item(draw) for _ in range(count)]

    return draw_array


def _integer(shape: Shape, name: str) -> Drawer:
    if str(shape.get("description", "")).endswith(INSTANT):
        return lambda draw: draw.instant()
    low, high = shape.get("minimum"), shape.get("maximum")
    return lambda draw: _within(draw.integer(low, high), low, high)


def _number(shape: Shape, name: str) -> Drawer:
    low, high = shape.get("minimum", shape.get("exclusiveMinimum")), shape.get("maximum")
    return lambda draw: _within(draw.number(low, high), low, high)


def _within(value: Any, low: Any, high: Any) -> Any:
    if low is not None and value < low:
        return low
    return high if high is not None and value > high else value


def _string(shape: Shape, name: str) -> Drawer:
    pool = pool_of(name, str(shape.get("description", "")))
    return lambda draw: draw.text(pool)


_KINDS: Final[dict[str, Callable[[Shape, str], Drawer]]] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": _number,
    "string": _string,
    "boolean": lambda shape, name: lambda draw: draw.chance(0.5),
    "null": lambda shape, name: lambda draw: None,
}

DRAWERS: Final[dict[str, dict[str, Drawer]]] = {
    topic: {kind: drawer(shape) for kind, shape in shapes.items()} for topic, shapes in SHAPES.items()
}


def event(draw: Draw, topic: str, kind: str = "") -> Event:
    """An event of `topic`, of type `kind` or of any."""
    chosen = kind or draw.rng.choice(list(DRAWERS[topic]))
    source = draw.text("host")
    id_ = draw.text("id")
    return Event(chosen, source or "x", id_ or "x", NOW_NS, DRAWERS[topic][chosen](draw))
