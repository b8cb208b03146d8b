"""Classes that faults and findings are counted by, and the share of what was stated that was true."""

from __future__ import annotations

from sdfstream.records.finding import CAUSES
from sdfstream.score.detect.confusion import (
    CLASS_OF_CAUSE,
    CLASS_OF_FAULT,
    CLASSES,
    Stated,
    calibration,
    matrix,
    reported_class,
)
from sdfstream.twin.fault_kinds import KINDS


def test_every_fault_of_the_twin_and_every_cause_has_a_class() -> None:
    assert set(CLASS_OF_FAULT) == {kind for kind, fault in KINDS.items() if not fault.benign}
    assert set(CLASS_OF_CAUSE) == set(CAUSES) - {"unknown"}
    assert set(CLASS_OF_FAULT.values()) | set(CLASS_OF_CAUSE.values()) == set(CLASSES)


def test_a_stopped_agent_is_telemetry_whatever_its_cause_says() -> None:
    assert reported_class("agent-stale", "host-gone") == "telemetry"
    assert reported_class("host-silent", "host-gone") == "host"
    assert reported_class("path-down", "unknown") == "unknown"


def test_rows_and_columns_that_nothing_fell_in_are_left_out() -> None:
    assert matrix([]) == {}
    assert matrix([("rocev1", "congestion")] * 3) == {"configuration": {"congestion": 3}}


def test_ranges_hold_their_lower_edge_and_the_last_its_upper_one() -> None:
    said = calibration([Stated(0.95, True), Stated(1.0, True), Stated(0.94, False), Stated(0.0, False)])
    assert [(r["from"], r["to"], r["findings"], r["true"]) for r in said] == [
        (0.0, 0.5, 1, 0.0),
        (0.85, 0.95, 1, 0.0),
        (0.95, 1.0, 2, 1.0),
    ]
    assert calibration([]) == []
