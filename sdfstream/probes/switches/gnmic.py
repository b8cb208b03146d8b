"""Messages of gnmic in its format ``event`` into updates of ports: what is odd is counted and costs nothing else.

A message is a list of events, or one event (``split-events: true``)::

    {"name": "ports", "timestamp": 1710890476202665500,
     "tags": {"source": "l0", "interface_name": "Ethernet1/1", "subscription-name": "ports"},
     "values": {"/interfaces/interface/state/counters/in-octets": "35284165"}}

An event has one value per leaf, so a sample of a port comes in one event or in dozens. ``source`` is the target's name
in gnmic's configuration (its address where it has no other), here the switch's name in the topology; a port number
behind it is left out. Of a list in which one event cannot be read the others are taken; of an event in which one value
cannot be read the others are.

=======================  ==========================================================================================
counter                  when
=======================  ==========================================================================================
``refused.json``         the message is no JSON within bounds (`sdfstream.strict_json`)
``refused.event``        neither an event nor a list of events: gnmic's output needs ``format: event``
``refused.timestamp``    absent, or no instant in ns
``refused.switch``       no ``source``, or none that can be a name (too long, a slash, no printable text)
``refused.port``         ``interface_name`` likewise
``refused.value``        a counter that is no whole number ≥ 0 of 63 bits, a state that is no text
``ignored.other``        an event of no interface: of another subscription, or a deletion
``ignored.leaf``         a leaf of an interface that no column has
=======================  ==========================================================================================

References
----------
openconfig/gnmic, ``pkg/formatters/event.go`` and ``docs/user_guide/event_processors/intro.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.probes.switches import leaves
from sdfstream.stats import Counters

MOST_BYTES: Final = 8 << 20
MOST_NAME: Final = 100
"""Characters of a switch's and of an interface's name: both in one port id stay within the bus's bound."""
MOST_EVENTS: Final = 65_536
_MOST: Final = (1 << 63) - 1
_EARLIEST_NS: Final = 1_000_000_000_000_000_000
"""September 2001: what is smaller counts in other units."""
_LATEST_NS: Final = 1 << 62
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_PORT: Final = re.compile(r"(.+?):[0-9]{1,5}")
_TAG: Final = "interface_name"


class Update(NamedTuple):
    """What one event says of one port."""

    switch: str
    interface: str
    at_ns: int
    """When the switch made it, its own clock."""
    counters: dict[str, int]
    """Leaf (`leaves.COUNTERS`) to its value."""
    words: dict[str, str]
    """Leaf (`leaves.WORDS`) to its value."""


def updates(raw: bytes, counters: Counters) -> list[Update]:
    """What a message says of ports; never raises, whatever `raw` is.

    Parameters
    ----------
    raw : bytes
        A message's value.
    counters : Counters
        Takes ``events``, and what the module's table names.
    """
    try:
        said = strict_json.parse(raw, MOST_BYTES)
    except FormatError:
        counters.add("refused", "json")
        return []
    events = said if isinstance(said, list) else [said]
    if len(events) > MOST_EVENTS:
        counters.add("refused", "event", len(events) - MOST_EVENTS)
    found = (_update(event, counters) for event in events[:MOST_EVENTS])
    return [update for update in found if update is not None]


def _update(event: Any, counters: Counters) -> Update | None:
    if not isinstance(event, dict) or "updates" in event or not event.keys() & {"values", "deletes", "tags"}:
        counters.add("refused", "event")
        return None
    counters.add("events")
    tags, values = event.get("tags"), event.get("values")
    if not isinstance(tags, dict) or not isinstance(values, dict) or _TAG not in tags:
        counters.add("ignored", "other")
        return None
    at_ns, switch, interface = _instant(event.get("timestamp")), _name(tags.get("source")), _name(tags[_TAG])
    switch = switch if (numbered := _PORT.fullmatch(switch)) is None else numbered[1]
    for reason, sound in (
        ("timestamp", at_ns > 0),
        ("switch", bool(switch) and "/" not in switch),
        ("port", bool(interface)),
    ):
        if not sound:
            counters.add("refused", reason)
            return None
    numbers, words = _values(values, counters)
    return Update(switch, interface, at_ns, numbers, words) if numbers or words else None


def _values(values: Mapping[str, Any], counters: Counters) -> tuple[dict[str, int], dict[str, str]]:
    """The leaves that are taken: counters, and words of enumerations."""
    numbers: dict[str, int] = {}
    words: dict[str, str] = {}
    for path, value in values.items():
        leaf = leaves.leaf_of(path)
        if leaf is None:
            counters.add("ignored", "leaf")
        elif leaf in leaves.WORDS:
            if word := _name(value):
                words[leaf] = word.rpartition(":")[2]
            else:
                counters.add("refused", "value")
        elif (number := _number(value)) is None:
            counters.add("refused", "value")
        else:
            numbers[leaf] = number
    return numbers, words


def _instant(value: Any) -> int:
    """An instant in ns; 0: it is none."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_whole and _EARLIEST_NS <= value < _LATEST_NS else 0


def _name(value: Any) -> str:
    """A name within bounds; empty where it is none."""
    sound = isinstance(value, str) and 0 < len(value) <= MOST_NAME and value.isprintable() and value == value.strip()
    return value if sound else ""


def _number(value: Any) -> int | None:
    """A counter: a number, its digits (RFC 7951 spells 64 bits so), or a float that is whole; None: none."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_whole and 0 <= value <= _MOST else None
