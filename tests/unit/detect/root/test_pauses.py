"""Pause frames sent: what is a storm, what is a port's own normal, what is reset-safe."""

import pyarrow as pa

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.root.pauses import PauseRates
from sdfstream.records import columns
from sdfstream.records.fabric import Topology
from sdfstream.records.topics import PORT

S = 1_000_000_000
T0 = 1_800_000_000 * S


def feed(values: list[int | None], rates: PauseRates | None = None) -> PauseRates:
    rates = rates or PauseRates(DetectConfig())
    for i, value in enumerate(values):
        names = {"host": ["h"], "nic": ["h/n"], "port": ["h/n:1"], "state": ["up"]}
        sent = {"tx_pause": pa.array([value], pa.uint64())}
        rates.take(columns.build(PORT.columns, {"at_ns": [i * S], **names, **sent}), T0 + i * S)
    return rates


def test_a_port_that_pauses_without_end_storms_since_the_reading_before() -> None:
    rates = feed([0, 0, 5000])
    assert rates.storming(T0 + 2 * S) == {"h/n": (T0 + S, 5000.0, 0.0)}
    assert rates.storming(T0 + 8 * S) == {}, "an old reading says nothing of now"
    assert feed([0, 5000, 5000]).storming(T0 + 2 * S) == {}, "it has stopped"


def test_its_own_usual_rate_is_no_storm() -> None:
    assert feed([80 * i for i in range(20)]).storming(T0 + 19 * S) == {}
    assert feed([*(80 * i for i in range(20)), 80 * 19 + 700]).storming(T0 + 20 * S) == {}
    assert feed([*(80 * i for i in range(20)), 80 * 19 + 900]).storming(T0 + 20 * S) != {}


def test_resets_and_absent_counters_are_no_storm() -> None:
    assert feed([10**6, 5, None, 5]).storming(T0 + 3 * S) == {}
    rates = feed([5, 5])
    rates.restarted("h")
    assert feed([10**9], rates).storming(T0 + S) == {}


def test_the_state_survives_a_snapshot() -> None:
    rates, again = feed([0, 0, 5000]), PauseRates(DetectConfig())
    again.restore(rates.snapshot())
    assert again.storming(T0 + 2 * S) == rates.storming(T0 + 2 * S) != {}


def test_what_a_switch_receives_its_far_nic_has_sent() -> None:
    ends = ({"node": "l0", "port": "e1"}, {"node": "h/n", "port": "n"}), ({"node": "l0", "port": "e2"}, {"node": "s0"})
    topology = Topology({"nics": [{"id": "h/n"}], "links": [{"id": "", "a": a, "b": b} for a, b in ends]})
    rates = PauseRates(DetectConfig())
    for i, value in enumerate((0, 0, 5000)):
        ports = ["e1", "e2", "e3"]
        names = {"host": ["l0"] * 3, "nic": [f"l0/{p}" for p in ports], "port": [f"l0/{p}:1" for p in ports]}
        received = {"rx_pause": pa.array([value] * 3, pa.uint64()), "state": ["up"] * 3}
        rates.take_far(columns.build(PORT.columns, {"at_ns": [i * S] * 3, **names, **received}), T0 + i * S, topology)
    assert rates.storming(T0 + 2 * S) == {"h/n": (T0 + S, 5000.0, 0.0)}
