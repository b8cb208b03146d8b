"""What every stage promises: the stream alone decides, whatever the cuts, the restarts, the order of columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus.conform import conform
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.intake.delay_rows import DelayIntake
from sdfstream.detect.intake.probe_rows import ProbeIntake
from sdfstream.detect.stage import DetectStage
from sdfstream.errors import FormatError
from sdfstream.numeric.codec import VERSION, dump, load
from sdfstream.records.message import Event, Message
from sdfstream.records.probe_columns import PROBE_COLUMNS
from sdfstream.records.topics import LIVENESS, OWD, PORT, PROBE, TOPICS, TOPOLOGY
from sdfstream.records.units import NS_PER_MS, TICK_NS
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape

SHAPE = Shape(hosts=4, leaves=4, ports=2, peers=2)
END_NS = EPOCH + 12_000_000_000
AT_ONCE_NS = 100 * NS_PER_MS
Said = tuple[str, str, str]


@lru_cache(maxsize=1)
def stream() -> list[Message]:
    """Eleven seconds with one of nearly everything."""
    faults = [
        Fault(("h03/r1->l3", "l3->h03/r1"), 4, 7, drop=1, nic="h03/r1", port="down"),
        Fault(("l0->s1",), 5, 9, delay_us=3000, ce=0.5),
        Fault(("l0->s2",), 2, 9, rewrite_dscp=7),
        Fault(("h01/r0->l0",), 3, 10, drop=0.2),
        *(Fault(("h00/r1->l1", "l1->h00/r1"), 2 + i, 2.5 + i, drop=1) for i in range(6)),
    ]
    return list(Fabric(5, faults, SHAPE).messages(11))


def said(stage: DetectStage, calls: list[tuple[list[Message], int]]) -> list[Said]:
    return [(o.topic, o.key, repr(o.body)) for messages, now in calls for o in stage.step(messages, now)]


def calls(messages: list[Message], joined: np.random.Generator | None = None) -> list[tuple[list[Message], int]]:
    """A call per boundary and message, or boundaries alone with all messages since the last one, at random."""
    out, held, tick = [], [], EPOCH // TICK_NS
    for m in messages:
        while (tick + 1) * TICK_NS <= m.bus_at_ns:
            tick += 1
            if held:
                out.append((held, held[-1].bus_at_ns))
                held = []
            out.append(([], tick * TICK_NS))
        held.append(m)
        if joined is None or joined.random() < 0.3:
            out.append((held, m.bus_at_ns))
            held = []
    return [*out, (held, END_NS)]


@lru_cache(maxsize=1)
def expected() -> list[Said]:
    return said(DetectStage(DetectConfig(flap_count=3)), calls(stream()))


def test_the_stream_makes_the_stage_talk() -> None:
    kinds = ("nic-down", "congestion", "class-rewritten", "loss", "link-flap")
    assert [k for k in kinds if f"'{k}'" not in str(expected())] == []


def test_two_runs_are_equal() -> None:
    assert said(DetectStage(DetectConfig(flap_count=3)), calls(stream())) == expected()


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_cutting_the_stream_into_calls_anywhere_changes_nothing(seed: int) -> None:
    joined = calls(stream(), np.random.default_rng(seed))
    assert said(DetectStage(DetectConfig(flap_count=3)), joined) == expected()


def test_an_absent_column_that_may_be_null_says_what_null_says() -> None:
    """Rows of agents that do not tell yet how the reflector numbered its answers."""

    def without(message: Message, *, absent: bool) -> Message:
        if message.topic != PROBE.name or not isinstance(message.body, pa.RecordBatch):
            return message
        body = message.body.drop_columns(["seq_rev"])
        nulls = pa.nulls(body.num_rows, pa.uint32())
        return replace(message, body=body if absent else body.append_column(PROBE_COLUMNS.field("seq_rev"), nulls))

    told = [said(DetectStage(), calls([without(m, absent=a) for m in stream()])) for a in (False, True)]
    assert told[0] == told[1] != []


def test_one_call_for_everything_changes_nothing() -> None:
    assert said(DetectStage(DetectConfig(flap_count=3)), [(stream(), END_NS)]) == expected()


def by_nics_clocks(message: Message) -> Message:
    """A probe message stamped by the NICs: each has a clock of its own, hours from the others."""
    if message.topic != PROBE.name:
        return message
    body = message.body
    assert isinstance(body, pa.RecordBatch)
    for end, stamps in (("src", ("t1_ns", "t4_ns")), ("dst", ("t2_ns", "t3_ns"))):
        nics = body.column(end)
        off = pa.array([crc32(nic.encode()) * 1000 for nic in nics.to_pylist()], pa.int64())
        body = body.set_column(body.schema.get_field_index(f"clock_{end}"), body.schema.field(f"clock_{end}"), nics)
        for name in stamps:
            at = body.schema.get_field_index(name)
            body = body.set_column(at, body.schema.field(name), pc.add(body.column(name), off))
    return replace(message, body=body)


@pytest.mark.parametrize("clocked", ["by hosts", "by NICs"])
def test_what_comes_within_a_slice_is_taken_together_and_says_what_one_by_one_says(
    clocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hosts flush at once here: the faults, one message of many, must show through."""
    at_once = [replace(m, bus_at_ns=m.bus_at_ns - m.bus_at_ns % AT_ONCE_NS + NS_PER_MS) for m in stream()]
    if clocked == "by NICs":
        at_once = [by_nics_clocks(m) for m in at_once]
    at_once.sort(key=lambda m: (m.bus_at_ns, m.topic))
    alone = said(DetectStage(DetectConfig(flap_count=3)), calls(at_once))
    together: Counter[str] = Counter()
    for kind in (ProbeIntake, DelayIntake):
        taken = kind._take_together
        monkeypatch.setattr(
            kind, "_take_together", lambda self, x, of=kind, take=taken: _counted(together, of, take(self, x))
        )
    assert said(DetectStage(DetectConfig(flap_count=3)), [(at_once, END_NS)]) == alone
    assert [k for k in ("nic-down", "congestion", "class-rewritten", "loss") if f"'{k}'" not in str(alone)] == []
    ticks = (END_NS - EPOCH) // AT_ONCE_NS
    assert together[ProbeIntake.__name__] > ticks / 2 and together[DelayIntake.__name__] > 20, together


def _counted(together: Counter[str], of: type, done: bool | None) -> bool | None:
    together[of.__name__] += done is not False
    return done


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_cutting_batches_into_messages_changes_nothing(seed: int) -> None:
    rng, pieces = np.random.default_rng(seed), []
    for m in stream():
        if isinstance(m.body, Event) or m.body.num_rows < 2:
            pieces.append(m)
            continue
        at = sorted({0, m.body.num_rows, *rng.integers(1, m.body.num_rows, 2).tolist()})
        pieces += [replace(m, body=m.body.slice(a, b - a)) for a, b in pairwise(at)]
    assert said(DetectStage(DetectConfig(flap_count=3)), calls(pieces)) == expected()


@settings(max_examples=3, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=3))
def test_saving_and_going_on_elsewhere_is_invisible(stops: list[float]) -> None:
    stage, got, whole = DetectStage(DetectConfig(flap_count=3)), [], calls(stream())
    at = {int(s * len(whole)) for s in stops}
    for i, one in enumerate(whole):
        if i in at:
            saved = stage.snapshot()
            stage = DetectStage(DetectConfig(flap_count=3))
            stage.restore(saved)
            assert stage.snapshot() == saved
        got += said(stage, [one])
    assert got == expected()


def test_snapshots_of_strangers_are_refused() -> None:
    another = dump({}).replace(b'"version":%d' % VERSION, b'"version":9')
    for bad in (b"", b"[]", b"{}", b"\xff\xfe", dump({})[:-1], another):
        with pytest.raises(FormatError):
            load(bad)
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert (load(dump({"a": [array]}))["a"][0] == array).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bad_input_is_counted_and_the_rest_goes_on(seed: int) -> None:
    """Columns gone, of another type, or null, as far as a bus lets them in; payloads that make no sense: never an
    exception, never nothing at all."""
    rng, stage = np.random.default_rng(seed), DetectStage()
    batches = {m.topic: m for m in stream()[::7] if isinstance(m.body, pa.RecordBatch) and m.body.num_rows}
    for i, topic in enumerate((PROBE.name, PORT.name, OWD.name)):
        m = batches[topic]
        body, column = m.body, int(rng.integers(m.body.num_columns))
        name = body.schema.names[column]
        spoilt = [
            body.drop_columns([name]),
            body.set_column(column, name, pa.nulls(body.num_rows, body.schema.field(column).type)),
            body.set_column(column, name, pa.array(["x"] * body.num_rows)),
            body.slice(0, 0),
            body,
        ]
        for one in spoilt:
            try:
                entered, _ = conform(TOPICS[topic].columns, one)
            except FormatError:
                continue
            stage.step([replace(m, body=entered, bus_at_ns=EPOCH + i)], EPOCH + i)
    odd = [{}, {"changes": [{}, 7]}, {"changes": None}, {"links": [{}], "nics": [{}]}, {"links": 3}, {"hops": 7}]
    odd += [{"seen_at_ns": "x", "changes": [{"role": "sender", "src": "a", "state": "silent"}]}]
    for data in odd:
        for topic in (LIVENESS.name, TOPOLOGY.name):
            stage.step([Message(topic, "h00", Event(topic, "h00", "1", 0, data), EPOCH + 9, 0)], EPOCH + 9)
    assert stage.counters.total("refused") > 0
    whole = batches[PROBE.name]
    before = stage.counters.get("received", PROBE.name)
    stage.step([replace(whole, bus_at_ns=EPOCH + 10)], EPOCH + TICK_NS)
    assert stage.counters.get("received", PROBE.name) == before + 1


def test_input_is_not_changed_and_counters_show_what_came() -> None:
    messages = stream()[:400]
    before = [repr(m.body) if isinstance(m.body, Event) else m.body.to_pydict() for m in messages]
    stage = DetectStage()
    stage.step(messages, messages[-1].bus_at_ns)
    assert [repr(m.body) if isinstance(m.body, Event) else m.body.to_pydict() for m in messages] == before
    assert stage.counters.total("received") == 400


def test_sessions_that_ended_are_forgotten_and_memory_is_bounded() -> None:
    stage = DetectStage(DetectConfig(forget_s=30, max_paths=20))
    messages = stream()
    stage.step(messages, messages[-1].bus_at_ns)
    assert stage.counters.get("refused", "probe-row") > 0  # 32 sessions do not fit
    size = len(stage.snapshot())
    stage.step([], EPOCH + 130 * 1_000_000_000)
    assert stage.counters.get("forgotten", "sessions") == 20
    shifted = [replace(m, bus_at_ns=m.bus_at_ns + 140_000_000_000) for m in messages]
    stage.step(shifted, shifted[-1].bus_at_ns)
    assert len(stage.snapshot()) < 1.5 * size
