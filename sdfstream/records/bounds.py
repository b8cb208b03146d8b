"""Whether the data of an event have the shape of their type, within bounds that no stage can stumble over.

The shapes are those that ``schemas/`` publishes (`shapes.SHAPES`). Where a shape states no bound these hold, so that
sums of instants and durations stay int64, squares stay finite and ids can be printed:

==================  ===========================================================================
instant             0 to 2^62 ns: 1970 to 2116; the sum of any two is an int64
other whole number  −2^62 to 2^62
number              finite, at most 1e30 either way; one written as a whole number: as those
id, name            printable, at most 256 characters, or 4096 where it is made of several
text for people     no control characters but tab, LF, CR; at most 65,536 characters
list, object        at most `MOST_ITEMS` items
==================  ===========================================================================

A field that the shape does not know may be anything that `strict_json.check` passes, at most `_EXTRA_DEPTH` deep (a
later version may write it). A value out of a list of values may be another printable name, for the same reason: every
reader decides by itself what it does about a kind that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records.schema import EARLIEST_NS, LATEST_NS, MOST_NAME, MOST_SENTENCE, Shape
from sdfstream.records.shapes import SHAPES

MOST_ITEMS: Final = 65_536
_MOST_WHOLE: Final = LATEST_NS
_MOST_NUMBER: Final = 1e30
_EXTRA_DEPTH: Final = 16

Check: TypeAlias = Callable[[Any], None]


class _MisfitError(Exception):
    """A value does not fit; the names above it are put in front on the way up."""

    def __init__(self, why: str, *names: str) -> None:
        super().__init__(why)
        self.why = why
        self.names = list(names)


def is_known(topic: str, type_: str) -> bool:
    """Whether an event's type is one of its topic's; of a topic without shapes every type is.

    A type of a later version passes a bus, bounded but without a shape, so no stage of this version may read it: its
    NIC ids, for one, need not be printable.

    >>> is_known("sdf.raw.liveness.v1", "sdf.raw.liveness.v1"), is_known("sdf.raw.liveness.v1", "another.v1")
    (True, False)
    """
    return topic not in SHAPES or type_ in SHAPES[topic]


def check_data(topic: str, type_: str, data: Mapping[str, Any], *, whole: bool = True) -> None:
    """Refuse `data` of an event that do not fit; a type that the topic does not know is bounded, no more.

    Unless `whole`, a field that the shape asks for may be absent: recordings also hold what programs of long ago wrote.

    Raises
    ------
    FormatError
        ``shape``, with the field and what is wrong with it; ``json`` for a field that no shape knows.
    """
    check = (_WHOLE if whole else _PARTIAL).get((topic, type_))
    if check is None:
        strict_json.check(data, _EXTRA_DEPTH)
        return
    try:
        check(data)
    except _MisfitError as misfit:
        where = ".".join(reversed(misfit.names)).replace(".[", "[")
        raise FormatError("shape", f"{where or 'data'} {misfit.why}"[:300]) from None


def check_instant(at_ns: int) -> None:
    """Refuse an instant that no clock shows; FormatError ``time``."""
    if not EARLIEST_NS <= at_ns <= LATEST_NS:
        raise FormatError("time", f"{at_ns} ns is not within 1970 and 2116")


def check_name(what: str, text: str) -> None:
    """Refuse an id that cannot be printed or is longer than any; FormatError ``name``."""
    if len(text) > MOST_NAME or not text.isprintable():
        raise FormatError("name", f"{what} has {len(text)} characters, or one that cannot be printed")


def _check_of(shape: Shape, whole: bool) -> Check:
    """The check that `shape` asks for."""
    kind = shape.get("type", "string")  # a list of values: names
    if isinstance(kind, list):
        return _nullable(_check_of({**shape, "type": kind[0]}, whole))
    match kind:
        case "object":
            return _object(shape, whole)
        case "array":
            return _array(_check_of(shape["items"], whole), shape.get("maxItems", MOST_ITEMS))
        case "integer":
            return _whole(shape.get("minimum", -_MOST_WHOLE), shape.get("maximum", _MOST_WHOLE))
        case "number":
            return _number(shape)
        case "boolean":
            return _boolean
        case _:
            most = shape.get("maxLength", MOST_NAME)
            return _sentence if most == MOST_SENTENCE else _name(most)


def _object(shape: Shape, whole: bool) -> Check:
    known = {name: _check_of(inner, whole) for name, inner in shape.get("properties", {}).items()}
    required = frozenset(shape.get("required", ()) if whole else ())
    others = shape.get("additionalProperties")
    other = _check_of(others, whole) if others is not None else _extra

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise _MisfitError("is not an object")
        if len(value) > MOST_ITEMS:
            raise _MisfitError(f"has more than {MOST_ITEMS} fields")
        name = ""
        try:
            for name, inner in value.items():
                one = known.get(name)
                if one is not None:
                    one(inner)
                else:
                    check_name("a field", name)
                    other(inner)
        except _MisfitError as misfit:
            misfit.names.append(name[:MOST_NAME])
            raise
        if not required <= value.keys():
            raise _MisfitError("is missing", min(required - value.keys()))

    return check


def _array(item: Check, most: int) -> Check:
    def check(value: Any) -> None:
        if type(value) is not list:
            raise _MisfitError("is not a list")
        if len(value) > most:
            raise _MisfitError(f"has more than {most} items")
        at = 0
        try:
            for at, inner in enumerate(value):  # noqa: B007
                item(inner)
        except _MisfitError as misfit:
            misfit.names.append(f"[{at}]")
            raise

    return check


def _nullable(inner: Check) -> Check:
    def check(value: Any) -> None:
        if value is not None:
            inner(value)

    return check


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> None:
        if type(value) is not int or not least <= value <= most:
            raise _MisfitError(f"is not a whole number from {least} to {most}")

    return check


def _number(shape: Shape) -> Check:
    least, most = shape.get("minimum", -_MOST_NUMBER), shape.get("maximum", _MOST_NUMBER)
    above = shape.get("exclusiveMinimum", -2 * _MOST_NUMBER)

    def check(value: Any) -> None:  # a NaN passes no comparison
        if type(value) not in (int, float) or not least <= value <= most or not value > above or _is_too_large(value):
            raise _MisfitError(f"is not a number from {max(least, above):g} to {most:g}")

    return check


def _is_too_large(value: float) -> bool:
    """Whether it is a whole number without a fraction of which readers would make an integer that holds no 64 bits."""
    return type(value) is int and not -_MOST_WHOLE <= value <= _MOST_WHOLE


def _boolean(value: Any) -> None:
    if type(value) is not bool:
        raise _MisfitError("is not true or false")


def _name(most: int) -> Check:
    def check(value: Any) -> None:
        if type(value) is not str or len(value) > most or not value.isprintable():
            raise _MisfitError(f"is not a printable name of at most {most} characters")

    return check


def _sentence(value: Any) -> None:
    if type(value) is not str or len(value) > MOST_SENTENCE:
        raise _MisfitError(f"is not a text of at most {MOST_SENTENCE} characters")
    if not value.isprintable():
        strict_json.check_text(value)


def _extra(value: Any) -> None:
    strict_json.check(value, _EXTRA_DEPTH)


def _checks(whole: bool) -> dict[tuple[str, str], Check]:
    return {
        (topic, type_): _check_of(shape, whole) for topic, types in SHAPES.items() for type_, shape in types.items()
    }


_WHOLE: Final = _checks(True)
_PARTIAL: Final = _checks(False)
