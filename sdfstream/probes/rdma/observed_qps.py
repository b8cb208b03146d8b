"""Queue pairs of all processes on a host, as the kernel lists them (``rdma -j resource show qp``).

The kernel knows state, numbers and owner; it does not know the source port, which only the owner can ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.stats import Counters

_MOST_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ObservedQp:
    """One queue pair."""

    device: str
    port: int
    number: int
    peer_number: int | None
    """None: not connected, or not connection-oriented."""
    kind: str
    """RC, UC, UD, …"""
    state: str
    """RESET, INIT, RTR, RTS, SQD, SQE, ERR; ``unknown`` where the kernel says none."""
    pid: int | None
    """Owner; None: the kernel's own."""
    program: str
    send_psn: int | None
    """Next packet number to send: standing still while the owner posts means a dead path."""


def observed_qps(text: str, refused: Counters) -> list[ObservedQp]:
    """The queue pairs in what ``rdma`` printed; rows that cannot be read are refused and counted.

    Raises
    ------
    FormatError
        It is no JSON list.
    """
    rows = _rows(text)
    found = []
    for row in rows[:_MOST_ROWS]:
        try:
            found.append(_qp(row))
        except (AttributeError, KeyError, TypeError, ValueError):
            refused.add("refused", "qp")
    if len(rows) > _MOST_ROWS:
        refused.add("refused", "too-many", len(rows) - _MOST_ROWS)
    return found


def statistics(text: str, refused: Counters) -> dict[tuple[str, int], dict[str, str]]:
    """(device, port) to its counters, as texts, from ``rdma -j statistic show``; FormatError as `observed_qps`."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for row in _rows(text):
        try:
            key = (_name(row["ifname"]), _number(row["port"]))
        except (KeyError, TypeError, ValueError):
            refused.add("refused", "statistic")
            continue
        found[key] = {str(name): str(value) for name, value in row.items() if name not in ("ifname", "port", "ifindex")}
    return found


def _rows(text: str) -> list[Any]:
    rows = strict_json.loads(text or "[]")
    if not isinstance(rows, list):
        raise FormatError("not-a-list", text[:40])
    # an rdma command that found nothing prints a list with an empty list or object
    return [row for row in rows if row != [] and row != {}]


def _qp(row: Any) -> ObservedQp:
    peer, pid, psn = (None if row.get(k) is None else _number(row[k]) for k in ("rqpn", "pid", "sq-psn"))
    return ObservedQp(
        device=_name(row["ifname"]),
        port=_number(row.get("port", 0)),
        number=_number(row["lqpn"]),
        peer_number=peer,
        kind=str(row.get("type", "unknown")),
        state=str(row.get("state", "unknown")),
        pid=pid,
        program=str(row.get("comm", "")),
        send_psn=psn,
    )


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise ValueError(f"not a number of the kernel's: {value!r}")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"not a name: {value!r}")
    return value
