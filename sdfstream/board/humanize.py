"""Figures as people read them: durations, shares, rates, shapes for states; the same in every verb."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

SHAPES: Final = {"healthy": "●", "unhealthy": "✖", "unknown": "?", "absent": "◌"}
"""A shape for every state, since colour alone does not reach everybody (nor a log file)."""
STYLES: Final = {"healthy": "green", "unhealthy": "bold red", "unknown": "yellow", "absent": "dim"}
SEVERITY_STYLES: Final = {"urgent": "bold red", "warning": "yellow", "info": "cyan"}
_STEPS: Final = ((1_000, "ns", 1), (1_000_000, "µs", 1_000), (1_000_000_000, "ms", 1_000_000))


def duration(value_ns: Any) -> str:
    """A duration with its unit; ``–`` when it is not known.

    >>> [duration(v) for v in (None, 850, 12_345, 2_500_000, 42e9, 200e9)]
    ['–', '850 ns', '12.3 µs', '2.5 ms', '42 s', '3 min 20 s']
    """
    if not _is_number(value_ns):
        return "–"
    size = abs(value_ns)
    sign = "−" if value_ns < 0 else ""
    for limit, unit, factor in _STEPS:
        if size < limit:
            return f"{sign}{_three(size / factor)} {unit}"
    seconds = size / 1e9
    if seconds < 60:
        return f"{sign}{_three(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes} min" if hours < 48 else f"{sign}{hours // 24} d {hours % 24} h"


def share(value: Any) -> str:
    """A share of 1 in per cent; ``–`` when it is not known.

    >>> [share(v) for v in (None, 0.0, 0.0004, 0.031, 1.0)]
    ['–', '0 %', '0.04 %', '3.1 %', '100 %']
    """
    if not _is_number(value):
        return "–"
    return f"{_three(100 * value)} %"


def rate(value: Any) -> str:
    """A number per second.

    >>> [rate(v) for v in (0.5, 1234.0, 2.5e6)]
    ['0.5/s', '1 234/s', '2 500 000/s']
    """
    if not _is_number(value):
        return "–"
    return f"{value:,.0f}/s".replace(",", " ") if value >= 100 else f"{_three(value)}/s"


def bitrate(value: Any) -> str:
    """Bits per second.

    >>> [bitrate(v) for v in (None, 0, 950, 12_345_678, 9.41e9)]
    ['–', '0 bit/s', '950 bit/s', '12.3 Mbit/s', '9.41 Gbit/s']
    """
    if not _is_number(value):
        return "–"
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if abs(value) >= factor:
            return f"{_three(value / factor)} {unit}"
    return f"{_three(value)} bit/s"


def clock_time(at_ns: int) -> str:
    """The time of day.

    >>> clock_time(1_800_000_000_123_456_789)
    '08:00:00 UTC'
    """
    return f"{datetime.datetime.fromtimestamp(at_ns // 1_000_000_000, tz=datetime.UTC):%H:%M:%S} UTC"


def listed(words: Sequence[str], most: int = 6) -> str:
    """Words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdefgh"), most=3)
    ('a', 'a, b and c', 'a, b, c and 5 more')
    """
    shown, rest = list(words[:most]), len(words) - most
    if rest > 0:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def plural(n: int, word: str) -> str:
    """A count with its noun.

    >>> plural(1, "queue pair"), plural(1200, "queue pair")
    ('1 queue pair', '1 200 queue pairs')
    """
    return f"{number(n)} {word}" + ("" if n == 1 else "s")


def number(value: int) -> str:
    """A count in groups of three."""
    return f"{value:,}".replace(",", " ")


def figure(value: Any, unit: str) -> str:
    """A value with its unit, durations and shares in the unit that suits their size."""
    if unit == "ns":
        return duration(value)
    if unit in ("share", "fraction"):
        return share(value)
    unit = "" if unit == "1" else unit
    if not _is_number(value):
        return f"{'–' if value is None else value} {unit}".strip()
    return f"{number(value) if isinstance(value, int) else f'{value:.4g}'} {unit}".strip()


def subject_of(finding: Mapping[str, Any]) -> str:
    """``nic h03/r1``."""
    subject = finding.get("subject") or {}
    return f"{subject.get('type', '?')} {subject.get('id', '?')}"


def evidence_of(finding: Mapping[str, Any]) -> str:
    """The first fact behind a finding, in a few words."""
    fact = next(iter(finding.get("evidence") or ()), None)
    return f"{fact.get('what', '?')} {figure(fact.get('value'), str(fact.get('unit', '')))}" if fact else ""


def seconds(text: str) -> float:
    """A duration as people type it, in seconds.

    Raises
    ------
    ValueError
        With a sentence.

    >>> [seconds(t) for t in ("90", "5s", "10m", "2h", "1d")]
    [90.0, 5.0, 600.0, 7200.0, 86400.0]
    """
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    digits, factor = (text[:-1], factors[text[-1]]) if text and text[-1] in factors else (text, 1)
    try:
        value = float(digits) * factor
    except ValueError:
        value = -1.0
    if not (0 <= value < 1e9):
        raise ValueError(f"{text!r} is not a duration; write 90, 5s, 10m, 2h or 1d")
    return value


def _three(value: float) -> str:
    """At most three significant digits, no trailing zeros."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
