"""What a command wants, read out of its open fields once and for all: `Terms`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sdfstream.agent.commands.watch import Segment, read_watch
from sdfstream.errors import FormatError
from sdfstream.records.command import Command
from sdfstream.records.units import NS_PER_MS

Kind = Literal["arm", "move", "limit", "peer"]
"""arm: move when the path dies; move: at once; limit: a rate; peer: the receiving end of a kernel flow's moves."""

PORTS: Final = range(1, 65_536)
DEFAULT_HOLD_DOWN_MS: Final = 2_000
_MOST_ALTERNATES: Final = 64
_MOST_HOLD_DOWN_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a command wants done to one queue pair."""

    kind: Kind
    qp: str
    former: int | None = None
    """Source port that it leaves, and goes back to."""
    paths: tuple[int, ...] = ()
    """Source ports that it may be put on, best first (peer: that are translated back)."""
    watches: Mapping[int, tuple[Segment, ...]] | None = None
    """By source port; the former path's is among them where the command tells it."""
    hold_down_ns: int = 0
    rate_bps: int | None = None
    expected_rate: tuple[int | None] | None = None
    """The limit that must be in force; None: any."""


def terms(command: Command) -> Terms:
    """Read what `command` wants.

    Raises
    ------
    FormatError
        ``command``: a field that its action needs is absent or of the wrong kind; the detail names it.
    """
    if command.target.get("type") != "qp" or not isinstance(command.target.get("id"), str):
        raise FormatError("command", "target must be a queue pair")
    qp = str(command.target["id"])
    if command.action == "throttle":
        expected = command.expected
        rate = (_rate_or_none(expected["rate_bps"]),) if "rate_bps" in expected else None
        path = _port(expected, "path") if "path" in expected else None
        return Terms("limit", qp, path, rate_bps=_rate(command.set), expected_rate=rate)
    if command.set.get("part") == "peer":
        return Terms("peer", qp, _port(command.expected, "path"), _ports(command.set))
    former = _port(command.expected, "path")
    if command.undo.get("path") != former:
        raise FormatError("command", "undo.path must be expected.path: a queue pair goes back to where it came from")
    if command.action == "steer":
        return _steer(command, qp, former)
    return _failover(command, qp, former)


def _steer(command: Command, qp: str, former: int) -> Terms:
    path = _port(command.set, "path")
    if path == former:
        raise FormatError("command", "set.path is where it is expected to be already")
    watches = {path: read_watch(command.set.get("watch")), former: read_watch(command.set.get("former_watch"))}
    return Terms("move", qp, former, (path,), watches, _hold_down_ns(command.set))


def _failover(command: Command, qp: str, former: int) -> Terms:
    raw = command.set.get("alternates")
    if not isinstance(raw, list) or len(raw) > _MOST_ALTERNATES or not all(isinstance(a, Mapping) for a in raw):
        raise FormatError("command", f"set.alternates must be a list of at most {_MOST_ALTERNATES} objects")
    watches = {_port(a, "path"): read_watch(a.get("watch")) for a in raw}
    paths = tuple(p for p in watches if p != former)
    watches[former] = read_watch(command.set.get("watch"))
    return Terms("arm", qp, former, paths, watches, _hold_down_ns(command.set))


def _port(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value not in PORTS:
        raise FormatError("command", f"{name} must be a port, not {value!r}")
    return value


def _ports(fields: Mapping[str, Any]) -> tuple[int, ...]:
    raw = fields.get("paths")
    if not isinstance(raw, list) or not 0 < len(raw) <= _MOST_ALTERNATES:
        raise FormatError("command", f"set.paths must be a list of 1 to {_MOST_ALTERNATES} ports")
    return tuple(_port({"paths": value}, "paths") for value in raw)


def _rate(fields: Mapping[str, Any]) -> int:
    value = _rate_or_none(fields.get("rate_bps"))
    if value is None:
        raise FormatError("command", "set.rate_bps must be a rate")
    return value


def _rate_or_none(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise FormatError("command", f"rate_bps must be a positive whole number, not {value!r}")
    return value


def _hold_down_ns(fields: Mapping[str, Any]) -> int:
    value = fields.get("hold_down_ms", DEFAULT_HOLD_DOWN_MS)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_HOLD_DOWN_MS:
        raise FormatError("command", f"hold_down_ms must lie within 0 and {_MOST_HOLD_DOWN_MS}, not {value!r}")
    return value * NS_PER_MS
