"""Port counters and clock states: what is told, what is excused, what is reset-safe."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from sdfstream.detect.clocks import ClockDetector
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.engines import Engines
from sdfstream.detect.ports import PortDetector
from sdfstream.records import columns
from sdfstream.records.message import Event
from sdfstream.records.topics import CLOCK, PORT
from sdfstream.stats import Counters
from tests.unit.detect.instants import at

S = 1_000_000_000
T0 = 1_800_000_000 * S


def reading(at_s: float, **counters: int | None) -> pa.RecordBatch:
    names = {"host": ["h"], "nic": ["h/n"], "port": ["h/n:1"], "state": ["up"]}
    given = {k: pa.array([v], pa.uint64()) for k, v in counters.items()}
    return columns.build(PORT.columns, {"at_ns": [round(at_s * S)], **names, **given})


def feed(ports: PortDetector, counter: str, values: list[int | None]) -> list:
    for i, value in enumerate(values):
        ports.take(reading(i, **{counter: value}), T0 + i * S)
    return ports.detections(at(T0 + len(values) * S))


def test_errors_above_the_rate_are_detected_with_their_rate() -> None:
    (detection,) = feed(PortDetector(DetectConfig()), "rx_errors", [100, 100, 150])
    assert (detection.subject.id, detection.cause, detection.detail) == ("h/n:1", "degraded-link", "rx_errors")
    assert detection.evidence[0].value == 50.0 and detection.evidence[0].unit == "1/s"


def test_each_counter_has_its_own_limit() -> None:
    assert feed(PortDetector(DetectConfig()), "rx_errors", [0, 9, 18]) == []
    assert feed(PortDetector(DetectConfig()), "tx_discards", [0, 90, 180]) == []
    assert feed(PortDetector(DetectConfig()), "tx_discards", [0, 900])[0].cause == "queueing"
    assert feed(PortDetector(DetectConfig()), "fec_uncorrectable", [7, 8])[0].cause == "degraded-link"


def test_resets_absences_and_new_boots_are_no_rises() -> None:
    assert feed(PortDetector(DetectConfig()), "rx_errors", [10**6, 5, None, 10**7, 10**7]) == []
    ports = PortDetector(DetectConfig())
    feed(ports, "rx_errors", [5, 5])
    ports.restarted("h")
    ports.take(reading(9, rx_errors=10**9), T0 + 9 * S)
    assert ports.detections(at(T0 + 9 * S)) == []


def test_corrected_blocks_are_normal_until_they_leave_their_own_past() -> None:
    usual = [1000 * i for i in range(20)]
    assert feed(PortDetector(DetectConfig()), "fec_corrected", usual) == []
    (detection,) = feed(PortDetector(DetectConfig()), "fec_corrected", [*usual, usual[-1] + 50_000])
    assert detection.severity == "info" and detection.evidence[0].baseline == 1000.0


def test_a_report_ends_after_quiet() -> None:
    ports = PortDetector(DetectConfig(port_quiet_s=5))
    assert feed(ports, "rx_errors", [0, 500]) != []
    assert ports.detections(at(T0 + 7 * S)) == []


def state(clocks: ClockDetector, at_s: float, kind: str = "causal", **status: str) -> None:
    n = len(status)
    rows = {
        "clock": list(status),
        "at_ns": np.zeros(n, np.int64),
        "offset_ns": np.ones(n),
        "skew_ppb": np.zeros(n),
        "err_ns": np.full(n, 1e3),
        "n": np.ones(n, np.uint32),
        "status": list(status.values()),
        "kind": [kind] * n,
    }
    clocks.take(columns.build(CLOCK.columns, rows), T0 + round(at_s * S))


def kinds(clocks: ClockDetector, at_s: float, excused: set[str] | None = None) -> list[tuple[str, str]]:
    return [(c.kind, c.subject.id) for c in clocks.detections(at(T0 + round(at_s * S), frozenset(excused or ())))]


def test_a_faulty_clock_is_reported_and_a_lost_one_after_its_time() -> None:
    clocks = ClockDetector(DetectConfig())
    for i in range(100):
        state(clocks, i / 10, a="synced", b="faulty" if i > 50 else "synced", c="unsynced" if i > 20 else "synced")
    assert kinds(clocks, 9.9) == [("clock-faulty", "b"), ("clock-unsynced", "c")]
    assert kinds(clocks, 9.9, {"c"}) == [("clock-faulty", "b")]
    assert kinds(clocks, 60) == []  # nobody speaks of clocks any more


def test_clocks_get_their_grace_at_start_and_one_statement_when_none_is_synced() -> None:
    clocks = ClockDetector(DetectConfig())
    for i in range(200):
        state(clocks, i / 10, a="unsynced", b="unsynced", c="unsynced")
        assert i / 10 >= 15 or kinds(clocks, i / 10) == []
    assert kinds(clocks, 19.9) == [("clock-unsynced", "all clocks")]


def test_smoothed_rows_speak_of_the_past() -> None:
    clocks = ClockDetector(DetectConfig())
    state(clocks, 0, a="synced")
    for i in range(100):
        state(clocks, i / 10, kind="smoothed", a="faulty")
        state(clocks, i / 10, a="synced")
    assert kinds(clocks, 9.9) == []


def test_a_lost_clock_that_is_bound_for_a_moment_is_lost_still() -> None:
    clocks, engines = ClockDetector(DetectConfig()), Engines(DetectConfig(), Counters("detect"))
    said = []
    for i in range(200):
        c = "synced" if i <= 20 or 100 < i <= 107 else "unsynced"
        state(clocks, i / 10, a="synced", b="synced", c=c)
        now_ns = T0 + i * S // 10
        instant = replace(at(now_ns), findings=engines.ledger)
        said += engines.ledger.take("clocks", clocks.detections(instant), now_ns)
    statuses = [output.body.data["status"] for output in said if isinstance(output.body, Event)]
    assert statuses[0] == "open"
    assert set(statuses[1:]) <= {"update"}
