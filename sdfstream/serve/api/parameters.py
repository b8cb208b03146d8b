"""Query parameters of the API: what each may be, read once and strictly. Pure.

A parameter that nobody knows, that stands twice, or that cannot be what its kind says is refused with a sentence: a
misspelt filter must not answer as if there were none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sdfstream.records.units import NS_PER_S
from sdfstream.serve.api.problem import ProblemError

MOST_CHARACTERS: Final = 512
"""Of one value."""
MOST_ITEMS: Final = 1000
"""Of one page."""
USUAL_ITEMS: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter."""

    name: str
    doc: str
    kind: str = "text"
    """``text``, ``whole``, ``number``, ``truth``, ``instant`` or ``choice``."""
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = math.inf
    usual: int | None = None
    """What holds where it is absent, for OpenAPI."""

    def read(self, text: str) -> Any:
        """The value; ProblemError 400 when it is none of the kind."""
        if len(text) > MOST_CHARACTERS:
            raise ProblemError(400, f"{self.name} has more than {MOST_CHARACTERS} characters")
        if self.kind == "text":
            return text
        value = _READERS[self.kind](self, text)
        if value is None:
            raise ProblemError(400, f"{self.name} must be {self.wanted}")
        return value

    @property
    def wanted(self) -> str:
        """What the value must be, in words."""
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        limits = f" from {self.least:g}" + (f" to {self.most:g}" if math.isfinite(self.most) else " on")
        return {
            "whole": f"a whole number{limits}",
            "number": f"a number{limits}",
            "truth": "true or false",
            "instant": "an instant: 2027-01-15T08:00:00Z, or nanoseconds since the Unix epoch",
        }.get(self.kind, "a text")

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        if self.kind == "choice":
            return {"type": "string", "enum": list(self.choices)}
        if self.kind == "truth":
            return {"type": "boolean"}
        if self.kind in ("whole", "number"):
            said: dict[str, Any] = {"type": "integer" if self.kind == "whole" else "number", "minimum": self.least}
            if math.isfinite(self.most):
                said["maximum"] = self.most
            return said if self.usual is None else said | {"default": self.usual}
        if self.kind == "instant":
            return {"type": "string", "examples": ["2027-01-15T08:00:00Z", "1800000000000000000"]}
        return {"type": "string", "maxLength": MOST_CHARACTERS}


AT: Final = Parameter("at", "as of this instant of the past, from the archive; absent: now", "instant")
LIMIT: Final = Parameter("limit", "most items of a page", "whole", least=1, most=MOST_ITEMS, usual=USUAL_ITEMS)
CURSOR: Final = Parameter("cursor", "`next` of the page before; the other parameters must be the same")
PAGED: Final = (AT, LIMIT, CURSOR)


def read(known: Sequence[Parameter], given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values of `given` (name and text, in the request's order) by name; absent parameters are absent.

    Raises
    ------
    ProblemError
        400: a parameter is unknown, stands twice, or cannot be read.
    """
    by_name = {parameter.name: parameter for parameter in known}
    found: dict[str, Any] = {}
    for name, text in given:
        parameter = by_name.get(name)
        if parameter is None:
            names = ", ".join(by_name) or "none"
            raise ProblemError(400, f"there is no parameter {name[:64]!r} here; there are: {names}")
        if name in found:
            raise ProblemError(400, f"{name} stands twice")
        found[name] = parameter.read(text)
    return found


def _choice(parameter: Parameter, text: str) -> str | None:
    return text if text in parameter.choices else None


def _whole(parameter: Parameter, text: str) -> int | None:
    if not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if parameter.least <= value <= parameter.most else None


def _number(parameter: Parameter, text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and parameter.least <= value <= parameter.most else None


def _truth(_: Parameter, text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _instant(_: Parameter, text: str) -> int | None:
    """Nanoseconds since the epoch of ISO 8601 (UTC where it says no zone), or of a whole number of them."""
    if _WHOLE.fullmatch(text):
        at_ns = int(text)
        return at_ns if 0 <= at_ns < 1 << 62 else None
    try:
        at = datetime.fromisoformat(text)
        since: timedelta = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    at_ns = (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000
    return at_ns if 0 <= at_ns < 1 << 62 else None


_READERS: Final[Mapping[str, Any]] = {
    "choice": _choice, "whole": _whole, "number": _number, "truth": _truth, "instant": _instant,
}  # fmt: skip
