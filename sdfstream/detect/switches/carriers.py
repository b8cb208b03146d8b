"""Carriers that switches call lost, beside what probes say of the same cables.

A port of a switch that was up and is down, disabled or absent now is evidence (``carrier``) of the ``link-down`` or
``nic-down`` that silence is laid to. Where probes find nothing for `_later_ns`, it is such a finding by itself, a
warning: routing went around a dead link before anything was missed.

A port that was never seen up is none that fell; one whose cable is not declared says nothing. Nothing is said of a NIC
whose agent is silent or was never heard: its host is down, or gone for good. A reading older than `_FRESH_NS` proves
nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.presence import Presence
from sdfstream.detect.root.settling import SEPARATE_NS, Settling
from sdfstream.detect.switches.cables import cable_of
from sdfstream.records import columns
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S

_MOST_PORTS: Final = 65_536
_FRESH_NS: Final = 90 * NS_PER_S
"""Switches are sampled every few seconds, at most every half minute."""
_DOWN: Final = frozenset({"down", "disabled", "absent"})


@dataclass(slots=True)
class _PortCarrier:
    state: str
    at_ns: int
    """Bus time of the last reading."""
    fell_ns: int = 0
    """Bus time of the first reading that was down after one that was up; 0: it is not down, or was never up."""


class SwitchCarriers:
    """States of switches' ports, by port id."""

    def __init__(self, config: DetectConfig, cabling: Cabling, presence: Presence) -> None:
        self.config, self.cabling = config, cabling
        self._settling = Settling(config, presence, cabling)
        self._states: dict[str, _PortCarrier] = {}
        self._fallen: dict[str, None] = {}
        """Ports that are down after they were up."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.raw.port.v1`` message of a switch that speaks of `at_ns`, bus time."""
        port, names = columns.names(batch, "port")
        state, states = columns.names(batch, "state")
        for p, s in zip(port.tolist(), state.tolist(), strict=True):
            if p >= 0 and s >= 0:
                self._take_state(names[p], states[s], at_ns)

    def _take_state(self, port: str, state: str, at_ns: int) -> None:
        known = self._states.get(port)
        if known is None:
            if len(self._states) < _MOST_PORTS:
                self._states[port] = _PortCarrier(state, at_ns)
            return
        if state not in _DOWN:
            known.fell_ns = 0
            self._fallen.pop(port, None)
        elif known.state == "up":
            known.fell_ns = at_ns
            self._fallen[port] = None
        known.state, known.at_ns = state, at_ns

    def attest(self, detections: list[Detection], stale: Collection[str], now_ns: int) -> list[Detection]:
        """What silence was laid to, with switches' evidence, and cables that only switches call down.

        `stale`: hosts whose agents are silent.
        """
        if not self._fallen:
            return detections
        down: dict[Subject, list[str]] = {}
        for port in self._fallen:
            cable = cable_of(self.cabling.topology, port)
            if cable is not None and now_ns - self._states[port].at_ns <= _FRESH_NS:
                down.setdefault(cable, []).append(port)
        attested = [
            replace(d, evidence=(*d.evidence, *_carriers(down[d.subject])))
            if d.kind in ("nic-down", "link-down") and d.subject in down
            else d
            for d in detections
        ]
        said = {d.subject for d in detections}
        lost = [self._lost(cable, ports) for cable, ports in down.items() if cable not in said]
        return attested + [d for d in lost if d.subject.type == "link" or self._is_watched(d.subject.id, stale)]

    def _is_watched(self, nic: str, stale: Collection[str]) -> bool:
        return self.cabling.sessions.nics.find(nic) >= 0 and host_of(nic) not in stale

    def _lost(self, cable: Subject, ports: list[str]) -> Detection:
        disabled = any(self._states[port].state == "disabled" for port in ports)
        what = "port disabled" if disabled else "carrier lost"
        return Detection(
            "nic-down" if cable.type == "nic" else "link-down",
            cable,
            min(self._states[port].fell_ns for port in ports),
            "port-disabled" if disabled else "link-failure",
            0.9,
            _carriers(ports),
            suspects=tuple((port, 1.0) for port in ports),
            confirm_ns=self._later_ns,
            hold_ns=2 * int(self.config.hold_s * NS_PER_S),
            detail=f"{what} at {' and '.join(ports[:2])}, by the switch's word",
        )

    @property
    def _later_ns(self) -> int:
        """Probes have shown by then what is wrong and what that is a symptom of, and agents that theirs is silent."""
        limit_ns = self._settling.longest_ns()
        probes_ns = limit_ns + self.config.settle_ns(limit_ns) + SEPARATE_NS
        return max(probes_ns, int(self.config.agent_stale_s * NS_PER_S)) + NS_PER_S

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        states = [[port, asdict(known)] for port, known in self._states.items()]
        return {"states": states, "fallen": list(self._fallen)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._states = {port: _PortCarrier(**known) for port, known in state["states"]}
        self._fallen = dict.fromkeys(state["fallen"])


def _carriers(ports: list[str]) -> tuple[Evidence, ...]:
    return tuple(Evidence("carrier", 0.0, "1", port, 1.0) for port in ports)
