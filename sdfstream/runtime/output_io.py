"""How verbs speak: people read stderr and tables; programs read the last line of stdout.

The only module that writes to the terminal (``python -m tests.house``): whatever it writes for people has gone through
`visible`, so that no name from the network reaches a terminal as anything but text.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Final

from sdfstream import visible

_ASCII_DEL: Final = "\x7f"
_BEYOND: Final = 1 << 63


def emit(as_json: bool, result: dict[str, Any], text: str, *, nulls: bool = False) -> None:
    """Print `text`, or with `as_json` one compact object as the last line on stdout and `text` on stderr.

    With `nulls` a figure that was not measured is null; else its key is left out.
    """
    if as_json:
        if text:
            print(visible.text(text), file=sys.stderr)
        print(compact(result, nulls=nulls))
    else:
        print(visible.text(text))


def say(line: str) -> None:
    """One line on stdout now, for whoever follows."""
    print(visible.line(line), flush=True)


def compact(result: dict[str, Any], *, nulls: bool = False) -> str:
    """`result` as one line of JSON in ASCII without nulls, control characters, and what is no figure.

    Left out as nulls are: NaN, infinities, and whole numbers beyond 64 bits, which no reader takes, ours included. With
    `nulls` nothing is left out, and NaN is an error.
    """
    shown = result if nulls else _without_nulls(result)
    text = json.dumps(shown, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return text.replace(_ASCII_DEL, "\\u007f")  # the one that ensure_ascii leaves; it can stand in a string only


def progress(text: str) -> None:
    """Say on stderr what is going on."""
    print(visible.text(text), file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """One line on stderr: why it could not be done."""
    print(visible.line(text), file=sys.stderr, flush=True)


def show_progress(line: str) -> None:
    """A line on stderr that is written over by the next; on a pipe, a line of its own."""
    terminal = sys.stderr.isatty()
    sys.stderr.write(f"\r{visible.line(line)}\033[K" if terminal else f"{visible.line(line)}\n")
    sys.stderr.flush()


def end_progress() -> None:
    """Leave the line of `show_progress` as it is."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def write_answer(raw: bytes, *, as_is: bool) -> None:
    """The engine's answer to a query on stdout; `as_is` for programs, else as a terminal may show it."""
    if not as_is:
        raw = visible.tabbed(raw.decode("utf-8", "backslashreplace")).encode()
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _without_nulls(v) for k, v in value.items() if _is_said(v)}
    if isinstance(value, list | tuple):
        return [_without_nulls(v) for v in value if _is_said(v)]
    return value


def _is_said(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -_BEYOND <= value < _BEYOND
    return value is not None
