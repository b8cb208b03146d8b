r"""Text from outside as a terminal or a log may show it: what it would obey, or not show, becomes a visible escape.

Host names, NICs, jobs and errors come from the network and from jobs. ESC in one of them could rewrite the screen of
whoever looks, a line feed could forge a line of the output, a bidirectional override could turn a text around. Every
printed line goes through `line` (``runtime/output_io.py``, ``runtime/logs_io.py``); JSON escapes for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_LINE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"  # format characters of category Cf, and below
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, marks of direction, separators, overrides, isolates
    "\u115f\u1160\u3164\uffa0\u2800"  # letters that show nothing
    "\ud800-\udfff"  # lone surrogates
    "\ufeff\ufff0-\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_TEXT: Final = re.compile(f"(?!\n){_LINE.pattern}")
_TABBED: Final = re.compile(f"(?![\n\t]){_LINE.pattern}")


def line(text: str) -> str:
    r"""`text` as one line.

    >>> line("h1\x1b[2J\nfindings 0 open \u202eevil")
    'h1\\x1b[2J\\nfindings 0 open \\u202eevil'
    """
    return _LINE.sub(_escaped, text)


def lines(of: Iterable[str]) -> str:
    """Lines of output, each of which stays one line."""
    return "\n".join(map(line, of))


def text(of: str) -> str:
    r"""`of` with its line feeds, for text whose lines were made by `lines`, and tracebacks."""
    return _TEXT.sub(_escaped, of)


def tabbed(of: str) -> str:
    """`of` with its line feeds and tabs, for tables that separate columns by tabs."""
    return _TABBED.sub(_escaped, of)


def data(of: Any) -> Any:
    """Plain data with every text in it as `line` has it, for what is drawn."""
    if isinstance(of, str):
        return line(of)
    if isinstance(of, Mapping):
        return {data(key): data(value) for key, value in of.items()}
    if isinstance(of, list | tuple):
        return [data(value) for value in of]
    return of


_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
