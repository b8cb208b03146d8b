"""JSON that others wrote, read into bounded values or refused.

The one reader of JSON in the package (``python -m tests.house`` refuses another): messages of the bus, frames of a
link, files and answers of jobs, journals, requests on sockets. What it returns can be stored, compared, sent on and
written again without a surprise:

=================  ==============================================================================
size               at most `most_bytes`
depth              lists and objects at most `most_depth` deep, however deep the caller's stack is
whole numbers      int64
other numbers      finite: no NaN, no Infinity, no ``1e400``
texts, names       UTF-8 without half a surrogate pair and without control characters but tab, LF, CR
names              none twice in an object (RFC 8259, section 4, leaves open which one counts)
=================  ==============================================================================

`parse` and `check` are the two halves, for a reader that checks the values by its own schema (`bus.cloudevents`).

References
----------
RFC 8259 (JSON), RFC 7493 (I-JSON: what readers agree on).
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final

from sdfstream.errors import FormatError

MOST_BYTES: Final = 16 << 20
MOST_DEPTH: Final = 32
"""Findings with their symptoms, the deepest of our own, need eight."""
LEAST, MOST = -(1 << 63), (1 << 63) - 1
_NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def loads(raw: bytes | str, *, most_bytes: int = MOST_BYTES, most_depth: int = MOST_DEPTH) -> Any:
    """The value that `raw` spells, bounded as the module says.

    Raises
    ------
    FormatError
        ``json``; the detail says what was met.

    Examples
    --------
    >>> loads(b'{"path": 49152}')
    {'path': 49152}
    >>> loads(b'{"path": 9223372036854775808}')
    Traceback (most recent call last):
    sdfstream.errors.FormatError: json: a whole number beyond 64 bits
    """
    value = parse(raw, most_bytes)
    check(value, most_depth)
    return value


def parse(raw: bytes | str, most_bytes: int = MOST_BYTES) -> Any:
    """The value of JSON of bounded size without a name twice in an object and without NaN; the rest is for `check`.

    FormatError as `loads`. The C scanner ends at the stack's limit with RecursionError, so depth costs nothing here.
    """
    if len(raw) > most_bytes:
        raise FormatError("json", f"{len(raw)} bytes, at most {most_bytes}")
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("json", _shown(error)) from error


def check(value: Any, most_depth: int = MOST_DEPTH) -> None:
    """Refuse a parsed `value` that is out of bounds; FormatError as `loads`. Level by level, so never recursive."""
    level: list[Any] = [(value,)]
    for _ in range(most_depth + 1):
        below: list[Any] = []
        for container in level:
            if type(container) is dict:
                for name in container:
                    if not name.isprintable():
                        check_text(name)
                container = container.values()
            for leaf in container:
                kind = type(leaf)
                if kind is str:
                    if not leaf.isprintable():
                        check_text(leaf)
                elif kind is dict or kind is list:
                    below.append(leaf)
                elif kind is int:
                    if not LEAST <= leaf <= MOST:
                        raise FormatError("json", "a whole number beyond 64 bits")
                elif kind is float and not isfinite(leaf):
                    raise FormatError("json", "a number that is not finite")
        if not below:
            return
        level = below
    raise FormatError("json", f"nested more than {most_depth} deep")


def check_text(text: str) -> None:
    """Refuse a text that no UTF-8 can carry on, or that a terminal may obey; FormatError as `loads`."""
    if found := _NOT_TEXT.search(text):
        raise FormatError("json", f"a text with the character U+{ord(found[0]):04X}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)


def _shown(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:300]
