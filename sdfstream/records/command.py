"""Commands, their outcomes and the operator's overrides: the `data` of the ``sdf.control.*`` topics.

Every command has a lease (`expires_at_ns`), an undo and a signature. It is renewed by the same command (same id) with
later times and a new signature. What a signature covers is the RFC 8785 canonical JSON of the data without
``signature``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import rfc8785

from sdfstream.errors import FormatError

_EXACT: Final = 2.0**53
_SMALL: Final = 1e-4
"""Below, Python writes an exponent earlier than ECMAScript does."""

MODES: Final = ("observe", "dry-run", "approve", "enforce")
"""observe: findings only; dry-run: say what would be done; approve: a person agrees to each; enforce."""

ACTIONS: Final[dict[str, str]] = {
    "steer": "move a queue pair to another source port",
    "failover": "armed beforehand: when the agent's own probes find the queue pair's path dead, move it at once",
    "failback": "go back to the path that a failover left, now that it is clean",
    "throttle": "limit a queue pair's rate",
    "slice": "limit the rate of a group of queue pairs",
    "undo": "end a command before its lease does",
}

OVERRIDES: Final = ("approve", "refuse", "undo", "mode", "hold", "silence", "label", "lift")
"""What an override may do, see `Override`."""

CONTROLLER: Final = "controller"
"""Host of the controller's own outcomes."""

STATES: Final[dict[str, str]] = {
    "accepted": "read, signed by whom we trust, in force; a failover is armed from here on",
    "refused": "not done, for the reason in why",
    "applied": "done; applied_at_ns says when",
    "held": "the lease is over or the command was undone, but its former path is not clean: left where it is",
    "expired": "the lease is over and nothing is left of it",
    "undone": "taken back",
    "failed": "tried, and the actuator said no",
}


@dataclass(frozen=True, slots=True)
class Command:
    """One command; see `ACTIONS`.

    ``target``: {"type": "qp", "id": QP id, "host": where it is done, "job": job id}.
    ``expected``: {"path": source port} that must be in force, else the command is refused.
    ``set``: steer {"path", "watch", "former_watch"}; throttle {"rate_bps"}; failover {"watch", "alternates":
    [{"path", "watch"}, …], "hold_down_ms", "clean_probes"}; undo {"command": id}.
    ``undo``: {"path"} or {"rate_bps": null}.
    A *watch* is a list of segments, each {"segment": name, "paths": [[dst NIC, source port, dscp], …]}: the probe
    paths of the target's own host that cross the segment. A segment is dead when all of them (at least one) are
    silent, clean when one is alive; a path is dead when a segment is, clean when all are.
    """

    id: str
    epoch: int
    """Fencing: a controller's run; agents refuse any epoch lower than the highest they have seen."""
    issued_at_ns: int
    """Bus time; of two statements of one command the later counts, an earlier or equal one is a replay."""
    expires_at_ns: int
    """End of the lease, bus time."""
    mode: str
    action: str
    target: Mapping[str, Any]
    expected: Mapping[str, Any]
    set: Mapping[str, Any]
    undo: Mapping[str, Any]
    reason: tuple[str, ...] = ()
    """Finding ids."""
    key_id: str = ""
    signature: str = ""
    """Ed25519 over `signed_bytes`, base64."""

    def as_data(self) -> dict[str, Any]:
        """The `data` object of ``sdf.control.command.v1``."""
        data: dict[str, Any] = asdict(self)
        data["reason"] = list(self.reason)
        return data


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command (or, from the controller, of a proposal that its guard refused)."""

    command: str
    """Command id."""
    state: str
    """One of `STATES`."""
    why: str
    """A sentence."""
    host: str
    """Who says so: an agent's host, or ``controller``."""
    at_ns: int
    """When it was said: the agent's clock, or bus time from the controller."""
    action: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)
    applied_at_ns: int | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    """Measurements or settings before: {"path"}, {"throughput_bps", "excess_ns", "n"}…"""
    after: Mapping[str, Any] = field(default_factory=dict)
    reason: tuple[str, ...] = ()
    """Finding ids, where the controller says it."""

    def as_data(self) -> dict[str, Any]:
        """The `data` object of ``sdf.control.outcome.v1``."""
        data: dict[str, Any] = asdict(self)
        data["reason"] = list(self.reason)
        return data


@dataclass(frozen=True, slots=True)
class Override:
    """An operator's hand, signed with the operator's key.

    ``what``: ``approve`` or ``refuse`` (a command that waits for it), ``undo`` (a command), ``mode`` (set {"mode"}),
    ``hold`` (no command for `target` until `expires_at_ns`), ``silence`` (of findings about `target`, set {"reason",
    "kinds", "from_at_ns", "maintenance"}), ``label`` (a finding, set {"cause", "note"}), ``lift`` (ends the hold or
    silence that `target` {"type": "override", "id"} names); the last three in ``records/silences.py``.
    """

    id: str
    issued_at_ns: int
    expires_at_ns: int
    what: str
    operator: str
    command: str = ""
    target: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    key_id: str = ""
    signature: str = ""

    def as_data(self) -> dict[str, Any]:
        """The `data` object of ``sdf.control.override.v1``."""
        return asdict(self)


def signed_bytes(data: Mapping[str, Any]) -> bytes:
    """What the signature of a command's or override's data covers.

    Raises
    ------
    FormatError
        ``canonical``: the data cannot be written as canonical JSON (NaN, an infinity, a key that is no text).
    """
    return canonical({k: v for k, v in data.items() if k != "signature"})


def canonical(value: Any) -> bytes:
    r"""RFC 8785 canonical JSON, with integers of any size as their digits.

    RFC 8785 knows only doubles, which cannot hold an instant in ns; up to 2^53 the two are the same bytes.

    >>> canonical({"b": [1, 2.5, None], "a": 1_790_000_000_000_000_001})
    b'{"a":1790000000000000001,"b":[1,2.5,null]}'
    """
    try:
        return _canonical(value)
    except RecursionError as error:
        raise FormatError("canonical", "nested too deeply") from error


def _canonical(value: Any) -> bytes:
    with contextlib.suppress(_NotPlainError):  # ten times as fast, and the same bytes
        plain = _plain(value)
        try:
            return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        except UnicodeEncodeError as error:
            raise FormatError("canonical", str(error)) from error
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise FormatError("canonical", "a key is no text")
        members = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
        return b"{" + b",".join(_canonical(k) + b":" + _canonical(v) for k, v in members) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_canonical(v) for v in value) + b"]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise FormatError("canonical", str(error)) from error


class _NotPlainError(Exception):
    """Python's own JSON would not be canonical."""


def _plain(value: Any) -> Any:
    """`value` in a form of which Python's own JSON is canonical; else raises.

    Keys must be ASCII: their order is the same in UTF-16 as in Unicode. Whole numbers that a double holds exactly are
    written without a fraction. Other doubles from 1e-4 up to 2^53 Python writes as ECMAScript does: the fewest digits
    that give the same double, and no exponent.
    """
    if isinstance(value, dict):
        if not all(isinstance(k, str) and k.isascii() for k in value):
            raise _NotPlainError
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        if not abs(value) < _EXACT:
            raise _NotPlainError
        if value.is_integer():
            return int(value)
        if abs(value) < _SMALL:
            raise _NotPlainError
        return value
    if value is None or isinstance(value, str | int):
        return value
    raise _NotPlainError


def command(data: Mapping[str, Any]) -> Command:
    """Read a command's data; fields it does not know are covered by the signature but ignored.

    Raises
    ------
    FormatError
        ``command``: a field is absent or has the wrong type.
    """
    _need(data, "command", _COMMAND_FIELDS)
    if data["mode"] not in MODES or data["action"] not in ACTIONS:
        raise FormatError("command", f"no such mode or action: {data['mode']!r}, {data['action']!r}")
    return Command(
        **{k: data[k] for k in _COMMAND_FIELDS if k != "reason"}, reason=tuple(str(r) for r in data["reason"])
    )


def outcome(data: Mapping[str, Any]) -> Outcome:
    """Read an outcome's data; FormatError ``outcome`` as `command`."""
    _need(data, "outcome", _OUTCOME_FIELDS)
    if data["state"] not in STATES:
        raise FormatError("outcome", f"no such state: {data['state']!r}")
    applied = data.get("applied_at_ns")
    return Outcome(
        **{k: data[k] for k in _OUTCOME_FIELDS},
        action=str(data.get("action", "")),
        target=dict(data.get("target") or {}),
        applied_at_ns=applied if isinstance(applied, int) else None,
        before=dict(data.get("before") or {}),
        after=dict(data.get("after") or {}),
        reason=tuple(str(r) for r in data.get("reason") or ()),
    )


def override(data: Mapping[str, Any]) -> Override:
    """Read an override's data; FormatError ``override`` as `command`."""
    _need(data, "override", _OVERRIDE_FIELDS)
    return Override(
        **{k: data[k] for k in _OVERRIDE_FIELDS},
        command=str(data.get("command", "")),
        target=dict(data.get("target") or {}),
        set=dict(data.get("set") or {}),
    )


_COMMAND_FIELDS: Final[dict[str, type]] = {
    "id": str,
    "epoch": int,
    "issued_at_ns": int,
    "expires_at_ns": int,
    "mode": str,
    "action": str,
    "target": dict,
    "expected": dict,
    "set": dict,
    "undo": dict,
    "reason": list,
    "key_id": str,
    "signature": str,
}
_OUTCOME_FIELDS: Final[dict[str, type]] = {"command": str, "state": str, "why": str, "host": str, "at_ns": int}
_OVERRIDE_FIELDS: Final[dict[str, type]] = {
    "id": str,
    "issued_at_ns": int,
    "expires_at_ns": int,
    "what": str,
    "operator": str,
    "key_id": str,
    "signature": str,
}


def _need(data: Mapping[str, Any], what: str, fields: Mapping[str, type]) -> None:
    if not isinstance(data, Mapping):
        raise FormatError(what, "not a JSON object")
    for name, kind in fields.items():
        value = data.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise FormatError(what, f"{name} must be {kind.__name__}, not {value!r}")
