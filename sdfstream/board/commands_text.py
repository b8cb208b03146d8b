"""Commands as people read them: chosen by age, one on a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sdfstream.board.humanize import bitrate, clock_time, duration
from sdfstream.records.units import NS_PER_S

Data = Mapping[str, Any]


def select(commands: Sequence[Data], now_ns: int, since_s: float | None) -> list[dict[str, Any]]:
    """Those that began or changed within `since_s`, in their order."""
    return [dict(c) for c in commands if since_s is None or now_ns - _changed_ns(c) <= since_s * NS_PER_S]


def line_of(command: Data) -> str:
    """One line: time, action, target, mode, state, lease left, gain, why, id."""
    target = command["target"]
    words = [
        clock_time(_changed_ns(command)),
        f"{command['action'] or '?':<9}",
        f"{target.get('type', '?')} {target.get('id', '?')}",
    ]
    if command.get("job"):
        words.append(f"of {command['job']}")
    words.append(f"[{command.get('mode') or 'proposal'}]")
    words.append(str(command.get("state") or command.get("waits")) + (_change(command) or ""))
    if command.get("lease_left_ns") is not None:
        words.append(f"lease {duration(command['lease_left_ns'])}")
    if command.get("gain") is not None:
        words.append(f"gain ×{command['gain']:.2f} ({bitrate(command['after'].get('throughput_bps'))})")
    if command.get("why"):
        words.append(f"– {command['why']}")
    return "  ".join(words) + f"  ({command['id']})"


def _change(command: Data) -> str:
    before, after = command.get("before") or {}, command.get("after") or {}
    if before.get("path") and after.get("path") and before["path"] != after["path"]:
        return f" {before['path']}→{after['path']}"
    return f" {bitrate(after['rate_bps'])}" if after.get("rate_bps") else ""


def _changed_ns(command: Data) -> int:
    return max(int(command.get("began_at_ns") or 0), int(command.get("said_at_ns") or 0))
