"""What is known of inbound paths between two reports of the packet engine."""

from __future__ import annotations

import numpy as np

from sdfstream.agent.engine.inbound_mirror import InboundMirror
from sdfstream.probes.config import VirtualClock
from sdfstream.probes.engine import shell_layouts
from sdfstream.probes.stamp.liveness import ALIVE, FORGET_NS, SILENT, UNKNOWN
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import NS_PER_MS, NS_PER_S

NICS = ["h/0", "far/0", "far/1"]
AT = 1_790_000_000 * NS_PER_S


def event(sender: int, state: int, since_ns: int = AT, *, complete: bool = False, interval_ms: int = 10) -> np.void:
    record = np.zeros(1, dtype=shell_layouts.INBOUND)[0]
    record["nic"], record["sender"], record["port"], record["dscp"] = 0, sender, 50_000, 46
    record["state"], record["complete"] = state, complete
    record["since_ns"], record["interval_ns"] = since_ns, interval_ms * NS_PER_MS
    record["address"] = sender
    return record


def mirror(clock: VirtualClock | None = None) -> InboundMirror:
    return InboundMirror(Clock(clock), NICS.__getitem__)


def test_a_change_is_reported_once_and_as_the_host_s_clock_shows_it() -> None:
    held = mirror(VirtualClock(offset_ns=7))
    held.take(event(1, ALIVE))
    [entry] = held.changes()
    assert entry == {
        "observer": "h/0",
        "src": "far/0",
        "dst": "h/0",
        "transport": "udp",
        "path": 50_000,
        "dscp": 46,
        "role": "reflector",
        "state": "alive",
        "since_at_ns": AT + 7,
        "interval_ns": 10 * NS_PER_MS,
        "missed": 0,
    }
    assert held.changes() == []


def test_a_complete_report_is_no_change_but_renews_intervals() -> None:
    held = mirror()
    held.take(event(1, ALIVE))
    held.changes()
    held.take(event(1, ALIVE, complete=True, interval_ms=20))
    assert held.changes() == []
    assert held.arriving_pps(range(50_000, 50_001)) == 50.0
    assert held.arriving_pps(range(50_001, 50_002)) == 0.0


def test_a_path_keeps_its_number() -> None:
    held = mirror()
    held.take(event(2, ALIVE))
    held.take(event(1, ALIVE))
    held.take(event(2, SILENT))
    names, senders, states = held.paths()
    assert [name.src for name in names] == ["far/1", "far/0"]
    assert senders == [bytes([2]) * 16, bytes([1]) * 16]
    assert states.tolist() == [SILENT, ALIVE]


def test_the_complete_list_leaves_out_what_ended_and_what_is_forgotten() -> None:
    held = mirror()
    held.take(event(1, SILENT, AT))
    held.take(event(2, UNKNOWN, AT))
    assert [entry["src"] for entry in held.complete(AT + NS_PER_S)] == ["far/0"]
    assert held.complete(AT + FORGET_NS) == []
