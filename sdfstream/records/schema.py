"""Words of JSON Schema (draft 2020-12) from which the shapes of events are built.

Every object may carry more than is listed: a reader ignores what it does not know, and a later version adds fields.
"""

from __future__ import annotations

from typing import Any, Final

Shape = dict[str, Any]


INSTANT: Final = "; ns since the Unix epoch"
"""How the description of every instant ends; `instants` knows them by it."""
EARLIEST_NS, LATEST_NS = 0, 1 << 62
"""Instants lie within 1970 (a hardware clock that was never set) and 2116: the sum of any two is an int64."""
LONGEST_NS: Final = 10**18
"""31 years: no duration is longer, and an instant and some of them are an int64."""
MOST_ID, MOST_NAME, MOST_SENTENCE = 256, 4096, 65_536
"""Characters of an id of one thing, of a name made of several, and of text for people."""


def instant(doc: str) -> Shape:
    """An integer that counts ns since the Unix epoch."""
    return {"type": "integer", "minimum": EARLIEST_NS, "maximum": LATEST_NS, "description": f"{doc}{INSTANT}"}


def duration(doc: str) -> Shape:
    """An integer that counts ns."""
    return {"type": "integer", "minimum": 0, "maximum": LONGEST_NS, "description": doc}


def ident(doc: str = "") -> Shape:
    """An id of one thing (host, NIC, job, queue pair): printable."""
    return _string(MOST_ID, doc)


def text(doc: str = "") -> Shape:
    """A name that may be made of several ids: printable."""
    return _string(MOST_NAME, doc)


def sentence(doc: str = "") -> Shape:
    """Text for people, which may have lines."""
    return _string(MOST_SENTENCE, doc)


def _string(most: int, doc: str) -> Shape:
    return {"type": "string", "maxLength": most, **({"description": doc} if doc else {})}


def one_of(values: dict[str, str]) -> Shape:
    """A string out of a list whose members are explained."""
    return {"oneOf": [{"const": value, "description": doc} for value, doc in values.items()]}


def among(*values: str, doc: str = "") -> Shape:
    """One of `values`."""
    return {"enum": list(values), **({"description": doc} if doc else {})}


def array(items: Shape, doc: str = "") -> Shape:
    """A list of `items`."""
    return {"type": "array", "items": items, **({"description": doc} if doc else {})}


def nullable(shape: Shape) -> Shape:
    """`shape` or null."""
    rest = {key: value for key, value in shape.items() if key != "type"}
    return {"type": [shape["type"], "null"], **rest}


def record(doc: str, properties: dict[str, Shape], *, optional: tuple[str, ...] = ()) -> Shape:
    """An object all of whose properties but `optional` must be there."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "description": doc, "properties": properties, "required": required}


PORT_NUMBER: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
NATURAL: Final = {"type": "integer", "minimum": 0}
NON_NEGATIVE: Final = {"type": "number", "minimum": 0}

PATH: Final = {
    "src": ident("NIC id of the Session-Sender"),
    "dst": ident("NIC id of the Session-Reflector"),
    "transport": among("udp", "rocev2", "ib"),
    "path": {
        "type": "integer",
        "minimum": 0,
        "maximum": 4_294_967_295,
        "description": "path selector (UDP source port)",
    },
    "dscp": {"type": "integer", "minimum": 0, "maximum": 63, "description": "class, DSCP as sent"},
}
