"""Agents that say themselves that they are in trouble: a full disk, a thread that ended, sessions left out.

Each liveness event of an agent lists its troubles of that moment; one without any ends them. An agent that says nothing
more is ``agent-stale``, which this does not repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sdfstream.detect.detections import Detection
from sdfstream.detect.instant import Instant
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_FRESH_NS: Final = 15 * NS_PER_S
"""A statement this old is not repeated: heartbeats come every second."""
_MOST_HOSTS: Final = 10_000
_MOST_TROUBLES: Final = 8
"""Of one agent that are told."""
_LONGEST: Final = 200
"""Characters of one."""


@dataclass(slots=True)
class _Statement:
    since_ns: int
    """When the agent first said so without a break, bus time."""
    at_ns: int
    troubles: list[str]


class DegradedAgents:
    """The last statement of every agent in trouble."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._said: dict[str, _Statement] = {}

    def take(self, host: str, data: Mapping[str, Any], at_ns: int) -> None:
        """Take the troubles of one liveness event."""
        listed = data.get("troubles")
        if not listed or not isinstance(listed, list | tuple):
            self._said.pop(host, None)
            return
        troubles = [
            f"{str(t.get('what'))[:_LONGEST]}: {str(t.get('why'))[:_LONGEST]}" for t in listed if isinstance(t, Mapping)
        ]
        known = self._said.get(host)
        if known is None and len(self._said) >= _MOST_HOSTS:
            self._counters.add("shed", "degraded-agents")
            return
        self._said[host] = _Statement(at_ns if known is None else known.since_ns, at_ns, troubles)

    def detections(self, instant: Instant) -> list[Detection]:
        """One for each agent whose last statement is fresh and lists a trouble."""
        now_ns = instant.now_ns
        self._said = {host: said for host, said in self._said.items() if now_ns - said.at_ns <= _FRESH_NS}
        return [_detection(host, said) for host, said in self._said.items()]

    def snapshot(self) -> list[list[Any]]:
        """The whole state as plain values."""
        return [[host, asdict(said)] for host, said in self._said.items()]

    def restore(self, state: list[list[Any]]) -> None:
        """Take up a state made by `snapshot`."""
        self._said = {host: _Statement(**said) for host, said in state}


def _detection(host: str, said: _Statement) -> Detection:
    more = len(said.troubles) - _MOST_TROUBLES
    detail = "; ".join(said.troubles[:_MOST_TROUBLES]) + (f"; and {more} more" if more > 0 else "")
    evidence = (Evidence("troubles", float(len(said.troubles)), "1", host, 0.0),)
    return Detection(
        "agent-degraded", Subject("host", host), said.since_ns, "software", 1.0, evidence,
        hold_ns=3 * NS_PER_S, detail=detail,
    )  # fmt: skip
