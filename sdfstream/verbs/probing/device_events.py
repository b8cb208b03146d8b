"""What a device says by itself (``ibv_get_async_event``), as changes of its ports.

An event names its kind; which port it is about, the interface does not always say. So each event is a reason to look
at all ports, and what differs is the change, keyed by (device, port).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ACTIVE: Final = 4
"""``IBV_PORT_ACTIVE``; any other state carries nothing."""
_STATES: Final = {1: "down", 2: "init", 3: "armed", 4: "active", 5: "active-defer"}
_PORT_KINDS: Final = frozenset(
    {"PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "GID_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER"}
)


@dataclass(frozen=True, slots=True)
class PortFacts:
    """What matters of a port."""

    state: int
    """``ibv_port_state``; 0: the port could not be asked."""
    gid: str
    """At the index that is used; empty: none."""
    lid: int = 0


@dataclass(frozen=True, slots=True)
class PortChange:
    """A port that is not what it was."""

    device: str
    port: int
    usable: bool
    """It can send and receive now."""
    why: str
    """The event, and what became different."""


def changes(device: str, kind: str, before: Mapping[int, PortFacts], now: Mapping[int, PortFacts]) -> list[PortChange]:
    """The ports that an event changed, in order; a GID that came or went is a change too.

    Parameters
    ----------
    device : str
    kind : str
        ``PORT_ERR`` and so on: the event's name without ``IBV_EVENT_``.
    before, now : port number to PortFacts
        A port that is missing in `now` is gone, with its device.

    >>> up, down = PortFacts(4, "::1"), PortFacts(1, "::1")
    >>> [(c.port, c.usable, c.why) for c in changes("rxa0", "PORT_ERR", {1: up}, {1: down})]
    [(1, False, 'PORT_ERR: active to down')]
    """
    found = []
    for port in sorted(before):
        was, is_ = before[port], now.get(port, PortFacts(0, ""))
        differences = []
        if was.state != is_.state:
            differences.append(f"{_name(was.state)} to {_name(is_.state)}")
        if was.gid != is_.gid:
            differences.append(f"GID {was.gid or 'none'} to {is_.gid or 'none'}")
        if was.lid != is_.lid:
            differences.append(f"LID {was.lid} to {is_.lid}")
        if differences:
            found.append(PortChange(device, port, is_usable(is_), f"{kind}: {', '.join(differences)}"))
    return found


def is_usable(facts: PortFacts) -> bool:
    """Whether the port can send and receive: it is active and still has its address."""
    return facts.state == ACTIVE and bool(facts.gid)


def is_about_ports(kind: str) -> bool:
    """Whether an event may have changed a port; others are of queue pairs and completion queues."""
    return kind in _PORT_KINDS or kind == "DEVICE_FATAL"


def _name(state: int) -> str:
    return _STATES.get(state, "gone" if state == 0 else f"state {state}")
