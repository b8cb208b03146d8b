"""A message at which a stage raises is set aside: the state is as before it, and everything else goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sdfstream.bus import codec
from sdfstream.errors import BusError, FormatError
from sdfstream.records.fabric import PATH_TYPE
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import FINDING, TOPOLOGY
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.runtime import aside, raised
from sdfstream.runtime.aside import AsideStage
from sdfstream.runtime.driver import Driver
from sdfstream.runtime.replay import replay
from sdfstream.stats import Counters

T0 = 1_800_000_000 * NS_PER_S


class Summing:
    """Says the sum of what it was given; raises where it is told to, with its state changed already."""

    name, reads, writes = "sum", (TOPOLOGY.name,), (FINDING.name,)

    def __init__(self) -> None:
        self.counters = Counters(self.name)
        self.sum = self.ticks = 0
        self.bad_ticks: tuple[int, ...] = ()
        self.restored = 0
        self.stuck = self.poisoned = False

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        if not messages:
            self.ticks += 1
            self.sum += 1_000_000
            if self.stuck or self.ticks in self.bad_ticks:
                raise ValueError("tick")
            return self.told_always()
        out = self.told_always()
        for message in messages:
            data = message.body.data
            self.counters.add("received")
            self.counters.add("ignored", "in-step", int(bool(data.get("ignore"))))
            self.sum += data.get("add", 0)
            if data.get("stuck"):
                self.stuck = True
            if error := data.get("raise"):
                raise ERRORS[error]
            if data.get("raise-if-stuck") and self.sum % 10:
                raise KeyError("stuck")
            self.poisoned |= bool(data.get("poison"))
            text = "\ud800" if data.get("surrogate") else "ok"
            out.append(Output(FINDING.name, "k", event(FINDING.name, sum=self.sum, text=text)))
        return out

    def told_always(self) -> list[Output]:
        return [Output(FINDING.name, "\n", event(FINDING.name, sum=0))] if self.poisoned else []

    def finish(self, now_ns: int) -> list[Output]:
        return self.told_always()

    def snapshot(self) -> bytes:
        counted = [[*key, n] for key, n in self.counters.values.items()]
        return json.dumps([self.sum, self.ticks, self.stuck, self.poisoned, counted]).encode()

    def restore(self, state: bytes) -> None:
        self.restored += 1
        self.sum, self.ticks, self.stuck, self.poisoned, counted = json.loads(state)
        self.counters.values = {(what, reason): n for what, reason, n in counted}


ERRORS: dict[str, Exception] = {
    "overflow": OverflowError("int too big to convert at 0x7f00deadbeef"),
    "format": FormatError("bad", "x"),
    "bus": BusError("away"),
    "memory": MemoryError(),
}


def event(kind: str, **data: Any) -> Event:
    return Event(type=kind, source="s", id="i", time_ns=T0, data=data)


def message(n: int, key: str = "k", **data: Any) -> Message:
    return Message(TOPOLOGY.name, key, event(PATH_TYPE, **data), T0 + n * NS_PER_S // 50, n)


def run(stage: AsideStage, messages: Sequence[Message]) -> list[Output]:
    return Driver(stage).take(messages)


def sums(outputs: Sequence[Output]) -> list[int]:
    return [o.body.data["sum"] for o in outputs if o.topic == FINDING.name and isinstance(o.body, Event)]


def letters(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    return [dict(o.body.data) for o in outputs if o.topic == f"{TOPOLOGY.name}.dlq" and isinstance(o.body, Event)]


@pytest.mark.parametrize("at", [0, 1, 57, 1400])
def test_a_message_that_raises_leaves_nothing_behind(at: int) -> None:
    good = [message(n, add=1) for n in range(1500)]
    bad = replace(good[at], key="bad", body=event(PATH_TYPE, add=5, **{"raise": "overflow"}))
    without = AsideStage(Summing())
    expected = sums(run(without, [*good[:at], *good[at + 1 :]]))
    stage = AsideStage(Summing())
    outputs = run(stage, [*good[:at], bad, *good[at + 1 :]])
    assert sums(outputs) == expected
    (letter,) = letters(outputs)
    assert (letter["topic"], letter["bus_seq"], letter["stage"]) == (TOPOLOGY.name, at, "sum")
    assert letter["reason"] == "step-raised"
    assert letter["error"] == "OverflowError"
    assert letter["detail"] == "int too big to convert at 0x.."
    assert letter["traceback"] == ["tests.unit.runtime.test_aside:step"], "no line: it is not our package"
    assert '"add": 5' in letter["value"]
    assert stage.counters.get("set-aside", "OverflowError") == 1
    assert stage.counters.get("received") == 1499, "what was repeated is counted once"


def test_it_goes_on_from_a_snapshot_as_if_nothing_had_happened() -> None:
    told = [message(n, f"k{n % 10}", add=n, **({"raise": "overflow"} if n % 7 == 3 else {})) for n in range(1000)]
    whole = run(AsideStage(Summing()), told)
    stage = AsideStage(Summing())
    driver, outputs = Driver(stage), []
    for n, one in enumerate(told):
        if n in (31, 32, 500, 666):
            again = AsideStage(Summing())
            again.restore(stage.snapshot())
            driver = Driver(again, driver.ticker, driver.now_ns)
            stage = again
        outputs += driver.take([one])
    assert outputs == whole
    assert stage.counters.get("set-aside", "key-banned") > 0, "some keys did it too often"


def test_a_key_that_does_it_again_and_again_is_not_tried_for_a_minute() -> None:
    stage = AsideStage(Summing())
    bad = [message(n, "bad", **{"raise": "overflow"}) for n in range(50)]
    outputs = run(stage, bad)
    reasons = [letter["reason"] for letter in letters(outputs)]
    assert reasons == ["step-raised"] * aside.MOST_OF_KEY + ["key-banned"] * (50 - aside.MOST_OF_KEY)
    assert sums(run(stage, [message(60, "other", add=1)])), "others are heard"
    later = message(60 * 50 + 5 * 50, "bad", add=1)
    assert sums(run(stage, [later])), "a minute later it is tried again"


def test_a_tick_that_raises_is_left_out() -> None:
    inner = Summing()
    inner.bad_ticks = (3,)
    stage = AsideStage(inner)
    outputs = run(stage, [message(n, add=1) for n in range(20)])
    assert sums(outputs)[-1] % 1_000_000 == 20
    assert stage.counters.total("tick-raised") >= 1
    assert stage.counters.total("begun-anew") <= 1


def test_a_state_at_which_every_tick_raises_is_begun_anew() -> None:
    stage = AsideStage(Summing())
    outputs = run(stage, [message(0, add=7), message(1, stuck=True), *[message(n, add=1) for n in range(2, 200)]])
    assert stage.counters.get("tick-raised", "ValueError") == aside.MOST_TICKS
    assert stage.counters.get("begun-anew") == 1
    assert sums(outputs)[-1] % 1_000_000 < 198, "it knows nothing of before"
    assert stage.counters.get("received") == 200, "counters never go down"


def test_a_state_at_which_every_message_raises_is_begun_anew() -> None:
    stage = AsideStage(Summing())
    told = [message(0, add=7), *[message(n, f"k{n}", **{"raise-if-stuck": True}) for n in range(1, 150)]]
    outputs = run(stage, told)
    assert stage.counters.get("begun-anew") == 1
    assert len(letters(outputs)) == aside.MOST_IN_A_ROW
    guilty = AsideStage(Summing())
    run(guilty, [message(n, f"k{n}", **{"raise": "overflow"}) for n in range(150)])
    assert guilty.counters.get("begun-anew") == 0, "no number of bad messages empties a good state"


def test_an_output_that_no_bus_takes_is_its_messages_fault() -> None:
    stage = AsideStage(Summing())
    outputs = run(stage, [message(0, add=1), message(1, "b", add=5, surrogate=True), message(2, add=1)])
    assert sums(outputs) == [1, 2]
    (letter,) = letters(outputs)
    assert letter["reason"] == "output"


def test_an_output_that_no_bus_takes_whoever_speaks_is_dropped_alone() -> None:
    inner = Summing()
    stage = AsideStage(inner)
    told = [message(0, add=1), message(1, "b", poison=True), *[message(n, f"k{n}", add=1) for n in range(2, 100)]]
    outputs = run(stage, told) + stage.finish(T0 + 10 * NS_PER_S)
    assert [n % 1_000_000 for n in sums(outputs)] == [1, 1, *range(2, 100)], "what was good is published"
    assert not letters(outputs), "nobody else is to blame"
    dropped = stage.counters.total("output-dropped")
    assert dropped == 40 + 19 + 1, "of 39 calls (of the first message by message, two), of each tick, and at the end"
    assert stage.counters.total("begun-anew") == stage.counters.total("tick-raised") == 0
    assert inner.restored <= 4, "calls are repeated until it is known, not with every message"
    outputs = run(stage, [message(600, "c", **{"raise": "overflow"})])
    assert len(letters(outputs)) == 1
    assert stage.counters.total("output-dropped") >= dropped, "counted once, and kept when a state is made again"


def test_what_a_stage_itself_counts_as_ignored_is_counted_once() -> None:
    stage = AsideStage(Summing())
    run(stage, [message(0, add=1), message(1, ignore=True), message(2, "b", **{"raise": "overflow"})])
    assert stage.counters.get("ignored", "in-step") == 1


@pytest.mark.parametrize("error", ["bus", "memory"])
def test_what_is_no_messages_fault_passes(error: str) -> None:
    with pytest.raises(type(ERRORS[error])):
        run(AsideStage(Summing()), [message(0, **{"raise": error})])


def test_memory_that_a_message_asked_for_is_its_fault() -> None:
    with pytest.raises(MemoryError) as caught:
        np.zeros(1 << 55, np.uint8)
    assert raised.is_of_message(caught.value)
    assert not raised.is_of_message(MemoryError())


def test_letters_are_readable_whatever_the_message_says() -> None:
    nested: Any = 1
    for _ in range(5000):
        nested = [nested]
    odd = [float("inf"), "\udc80", "x" * 100_000, nested, {1: 2}]
    for n, value in enumerate(odd):
        bad = message(n, f"\ud800{n}", v=value, **{"raise": "format"})
        (output,) = run(AsideStage(Summing()), [bad])
        codec.check(output)
        assert len(codec.encode_body(output.topic, output.body, output.key)) < 10_000


def test_a_stage_stands_still_some_seconds_behind_its_last_message() -> None:
    stage = AsideStage(Summing())
    assert isinstance(stage.stage, Summing)
    driver = Driver(stage)
    driver.take([message(0, add=1)])
    driver.advance(T0 + 3600 * NS_PER_S)
    assert stage.stage.ticks == aside.IDLE_NS // TICK_NS
    assert driver.now_ns == T0 + 3600 * NS_PER_S
    driver.advance(T0 + 40 * 365 * 86400 * NS_PER_S)
    assert stage.stage.ticks == aside.IDLE_NS // TICK_NS


def test_a_replay_sets_the_same_message_aside() -> None:
    told = [message(n, f"k{n % 3}", add=n, **({"raise": "overflow"} if n == 33 else {})) for n in range(100)]
    first = list(replay(told, [Summing()], None, None))
    second = list(replay(told, [Summing()], None, None))
    assert first == second
    (letter,) = [m for m in first if m.topic.endswith(".dlq")]
    live = run(AsideStage(Summing()), told)
    assert [o.body for o in live] == [m.body for m in first], "what a live run says is what its replay says"
    assert isinstance(letter.body, Event)
    assert letter.body.time_ns == told[33].bus_at_ns


@pytest.mark.parametrize(("state_bytes", "calls"), [(10, 3), (4 * 4096, 17)])
def test_a_large_state_is_saved_less_often(monkeypatch: pytest.MonkeyPatch, state_bytes: int, calls: int) -> None:
    class Large(Summing):
        saved = 0

        def snapshot(self) -> bytes:
            self.saved += 1
            return b"0" * state_bytes

    monkeypatch.setattr(aside, "_BASE_BYTES", 2 * 4096)
    stage = AsideStage(Large())
    for k in range(calls):
        stage.step([message(k, add=1)], T0 + k)
    assert stage.stage.saved == 1  # the fresh state
    stage.step([message(calls, add=1)], T0 + calls)
    assert stage.stage.saved == 2


def test_a_foreign_state_is_refused() -> None:
    with pytest.raises(FormatError):
        AsideStage(Summing()).restore(b"x\ny")
    with pytest.raises(FormatError):
        AsideStage(Summing()).restore(b"sdf-aside-1 7\nrubbish")


def test_an_event_of_a_type_that_its_topic_does_not_know_is_not_given_to_the_stage_and_is_counted() -> None:
    """Its fields have no shape: a NIC called "\\n" made every output of detect one that no bus takes."""
    stage = AsideStage(Summing())
    foreign = replace(message(1, add=7), body=event("sdf.state.topology.later.v9", add=7))
    stage.step([message(0, add=1), foreign, message(2, add=2)], T0 + NS_PER_S)
    stage.step([foreign], T0 + NS_PER_S)
    assert stage.stage.sum == 3  # type: ignore[attr-defined]
    assert stage.counters.get("ignored", "type-unknown") == 2


def test_what_was_ignored_stays_counted_when_a_message_raises() -> None:
    stage = AsideStage(Summing())
    foreign = replace(message(1), body=event("sdf.state.topology.later.v9"))
    stage.step([foreign, message(2, **{"raise": "overflow"})], T0 + NS_PER_S)
    assert stage.counters.get("ignored", "type-unknown") == 1
    assert stage.counters.total("set-aside") == 1
