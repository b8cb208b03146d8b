"""Bus time: ticks, the order of stages in a replay, and what a wrong time may not do."""

from __future__ import annotations

from collections.abc import Sequence

from sdfstream.records.message import Event, Message, Output
from sdfstream.records.units import NS_PER_MS, TICK_NS
from sdfstream.runtime.driver import Driver, Ticker
from sdfstream.runtime.replay import Chain, replay
from sdfstream.stats import Counters

T0 = 1_800_000_000_000_000_000


class Echo:
    """Says on `writes` what it was stepped with."""

    def __init__(self, name: str, reads: str, writes: str) -> None:
        self.name, self.reads, self.writes = name, (reads,), (writes,)
        self.counters = Counters(name)
        self.calls: list[tuple[int, int]] = []

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        self.calls.append((now_ns, len(messages)))
        return [Output(self.writes[0], m.key, m.body) for m in messages]

    def finish(self, now_ns: int) -> list[Output]:
        return [Output(self.writes[0], "end", event("end"))]

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


def event(name: str) -> Event:
    return Event(type="t", source="s", id=name, time_ns=0, data={})


def message(topic: str, after_ms: int, seq: int = 0) -> Message:
    return Message(topic, "k", event(str(seq)), T0 + after_ms * NS_PER_MS, seq)


def test_ticker_gives_each_boundary_once() -> None:
    ticker = Ticker()
    assert list(ticker.upto(T0 + 1)) == []
    assert list(ticker.upto(T0 + TICK_NS * 3)) == [T0 + TICK_NS * i for i in (1, 2, 3)]
    assert list(ticker.upto(T0)) == []


def test_driver_ticks_before_each_message_and_never_goes_back() -> None:
    stage = Echo("a", "x", "y")
    driver = Driver(stage)
    outputs = driver.take([message("x", 10), message("x", 250), message("x", 120)])
    assert len(outputs) == 3
    after_ms = [((now - T0) // NS_PER_MS, n) for now, n in stage.calls]
    assert after_ms == [(10, 1), (100, 0), (200, 0), (250, 1), (250, 1)]


def test_replay_passes_outputs_down_the_chain_at_the_same_now() -> None:
    first, second = Echo("a", "x", "y"), Echo("b", "y", "z")
    out = list(replay([message("x", 10), message("x", 110, 1)], [first, second], T0, T0 + 300 * NS_PER_MS))
    assert [(m.topic, (m.bus_at_ns - T0) // NS_PER_MS, m.bus_seq) for m in out[:4]] == [
        ("y", 10, 0),
        ("z", 10, 0),
        ("y", 110, 1),
        ("z", 110, 1),
    ]
    assert second.calls[-1][0] == T0 + 300 * NS_PER_MS
    assert [m.key for m in out[4:]] == ["end", "end", "end"], "what the first held back passes the second"


def test_replay_ignores_what_a_stage_writes_itself() -> None:
    stage = Echo("sync", "sdf.raw.probe.v1", "sdf.state.clock.v1")
    out = list(replay([message("sdf.state.clock.v1", 1)], [stage], None, None))
    assert out == []


def test_a_message_from_the_far_future_is_refused_and_counted() -> None:
    chain = Chain([Echo("a", "x", "y")])
    chain.start(T0)
    assert list(chain.take([message("x", 10**12)])) == []
    assert chain.counters.get("refused", "time-jump") == 1
    assert len(list(chain.take([message("x", 10)]))) == 1
