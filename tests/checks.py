"""One battery for every stage: what the `Stage` protocol promises and a type checker cannot see.

``check_stage(make, messages)`` drives fresh stages over the same messages in several ways and compares every output,
down to the bytes. Use it from a unit test of each stage, with messages that make the stage do its work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import TOPICS
from sdfstream.records.units import TICK_NS

Timed = tuple[int, Output]


def check_stage(
    make: Callable[[], Any],
    messages: Sequence[Message],
    *,
    seed: int = 1,
    cut_rows: bool = True,
    end_ns: int | None = None,
) -> list[Timed]:
    """Run the whole battery; returns the outputs of the plain run, with their bus times, for further checks.

    Parameters
    ----------
    make : callable
        A fresh stage each time; every one built alike.
    messages : sequence of Message
        In bus order, over some seconds of bus time; the stage must publish something from them.
    seed : int
        Of the random cuts.
    cut_rows : bool
        Whether record batches are cut into several messages too (same bus time, headers repeated). Turn off for a
        stage whose output may depend on how rows are spread over messages.
    end_ns : int, optional
        Bus time up to which ticks go on after the last message; by default one second more.
    """
    rng = np.random.default_rng(seed)
    end = end_ns if end_ns is not None else messages[-1].bus_at_ns + 10 * TICK_NS
    check_shape(make())
    before = [fingerprint(m.body) for m in messages]
    plain = run(make(), messages, end)
    assert [fingerprint(m.body) for m in messages] == before, "the stage changed its input"
    assert plain, "the stage published nothing from these messages: the battery would prove nothing"
    for _, output in plain:
        check_output(output)
    prints = [(at, _print(o)) for at, o in plain]
    _same(run(make(), messages, end, join=rng), plain, "joining messages of one tick into one call changed something")
    if cut_rows:
        pieces = [p for m in messages for p in cut(m, rng)]
        _same(run(make(), pieces, end), plain, "cutting batches into smaller messages changed something")
        empty = [m for m in messages for m in (_emptied(m), m) if m is not None]
        _same(run(make(), empty, end), plain, "empty batches changed something")
    check_snapshots(make, messages, end, prints, rng)
    return plain


def run(stage: Any, messages: Sequence[Message], end_ns: int, join: np.random.Generator | None = None) -> list[Timed]:
    """Step a stage as the driver does: at every 100 ms boundary, and at each message; then `finish`, where it has one.

    With `join`, messages between two boundaries are now and then handed over in one call.
    """
    out: list[Timed] = []
    for now, batch in _calls(messages, end_ns, join):
        out += [(now, o) for o in stage.step(batch, now)]
    return out + [(end_ns, o) for o in _finish(stage, end_ns)]


def check_snapshots(
    make: Callable[[], Any], messages: Sequence[Message], end: int, expected: list[Any], rng: np.random.Generator
) -> None:
    """A second run is equal to the first, and so is going on in a fresh stage from what the second saved on its way.

    The second run goes on undisturbed from where it was saved, so each stop costs only the calls after it.
    """
    calls = list(_calls(messages, end, None))
    stops = sorted(int(i) for i in rng.integers(0, len(calls), 3))
    second, got = make(), []
    saved: list[tuple[int, int, bytes]] = []
    for i, (now, batch) in enumerate(calls):
        got += [(now, _print(o)) for o in second.step(batch, now)]
        saved += [(i, len(got), second.snapshot()) for stop in stops if stop == i]
    counters = second.counters.as_dict()
    got += [(end, _print(o)) for o in _finish(second, end)]
    assert got == expected, "two equal runs differ, or saving the state of the second left a trace"
    for stop, done, state in saved:
        assert isinstance(state, bytes)
        stage = make()
        stage.restore(state)
        assert stage.snapshot() == state, "restore then snapshot gives other bytes"
        rest = [(now, _print(o)) for now, batch in calls[stop + 1 :] for o in stage.step(batch, now)]
        assert stage.counters.as_dict() == counters, f"counters differ after call {stop}"
        rest += [(end, _print(o)) for o in _finish(stage, end)]
        assert rest == expected[done:], f"a snapshot and restore after call {stop} of {len(calls)} was visible"


def check_shape(stage: Any) -> None:
    """Attributes, docstrings, an idle tick, an empty batch of everything it reads."""
    assert isinstance(stage.name, str) and stage.name
    assert isinstance(stage.reads, tuple) and all(isinstance(t, str) for t in stage.reads)
    assert stage.counters.stage == stage.name
    for thing in (type(stage), type(stage).step, type(stage).snapshot, type(stage).restore, inspect.getmodule(stage)):
        assert inspect.getdoc(thing), f"{thing} has no docstring"
    stage.step([], 1_000 * TICK_NS)
    at = 1_000 * TICK_NS + 1
    for topic in stage.reads:
        columns = TOPICS[topic].columns if topic in TOPICS else None
        if columns is not None:
            empty = pa.RecordBatch.from_pylist([], schema=columns)
            stage.step([Message(topic, "", empty, at, 0)], at)


def check_output(output: Output) -> None:
    """Schema as declared, no NaN, no null where none is allowed; events plain JSON with what an envelope needs."""
    topic = TOPICS.get(output.topic)
    if isinstance(output.body, Event):
        assert topic is None or topic.form == "event", f"{output.topic} carries batches"
        assert output.body.type and output.body.source and output.body.id
        _plain_json(output.body.data, output.topic)
        return
    assert topic is not None and topic.columns is not None, f"no columns are declared for {output.topic}"
    assert output.body.schema.equals(topic.columns), f"{output.topic}: {output.body.schema} is not as declared"
    output.body.validate(full=True)
    assert output.body.num_rows, f"{output.topic}: an empty batch was published"
    for field, column in zip(topic.columns, output.body.columns, strict=True):
        assert field.nullable or not column.null_count, f"{output.topic}.{field.name} holds a null"
        if pa.types.is_floating(field.type):
            values = np.array([v for v in column.to_pylist() if v is not None], dtype=np.float64)
            assert np.isfinite(values).all(), f"{output.topic}.{field.name} holds NaN or infinity"


def cut(message: Message, rng: np.random.Generator) -> Iterator[Message]:
    """The message's rows as one to four messages of the same bus time."""
    body = message.body
    if isinstance(body, Event) or body.num_rows < 2:
        yield message
        return
    cuts = np.unique(rng.integers(1, body.num_rows, 3))
    for low, high in zip([0, *cuts], [*cuts, body.num_rows], strict=True):
        yield replace(message, body=body.slice(int(low), int(high - low)))


def fingerprint(body: pa.RecordBatch | Event) -> bytes:
    """Bytes that change when anything in the body does."""
    if isinstance(body, Event):
        return repr((body.type, body.source, body.id, body.time_ns, body.data)).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, body.schema) as writer:
        writer.write_batch(body)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def _calls(
    messages: Sequence[Message], end_ns: int, join: np.random.Generator | None
) -> Iterator[tuple[int, list[Message]]]:
    boundary = messages[0].bus_at_ns // TICK_NS * TICK_NS
    waiting: list[Message] = []
    for message in messages:
        while boundary <= message.bus_at_ns:
            if waiting:
                yield waiting[-1].bus_at_ns, waiting
                waiting = []
            yield boundary, []
            boundary += TICK_NS
        waiting.append(message)
        if join is None or join.random() < 0.3:
            yield message.bus_at_ns, waiting
            waiting = []
    if waiting:
        yield waiting[-1].bus_at_ns, waiting
    while boundary <= end_ns:
        yield boundary, []
        boundary += TICK_NS


def _finish(stage: Any, end_ns: int) -> list[Output]:
    return list(stage.finish(end_ns)) if hasattr(stage, "finish") else []


def _same(got: list[Timed], wanted: list[Timed], what: str) -> None:
    """Equal outputs in order; bus times may differ where calls were joined."""
    assert [_print(o) for _, o in got] == [_print(o) for _, o in wanted], what


def _print(output: Output) -> tuple[str, str, bytes]:
    return output.topic, output.key, fingerprint(output.body)


def _emptied(message: Message) -> Message | None:
    if isinstance(message.body, Event):
        return None
    return replace(message, body=message.body.slice(0, 0))


def _plain_json(value: Any, where: str) -> None:
    if isinstance(value, dict):
        assert all(isinstance(k, str) for k in value), f"{where}: a key is not a string"
        for k, v in value.items():
            _plain_json(v, f"{where}.{k}")
    elif isinstance(value, (list, tuple)):
        for v in value:
            _plain_json(v, f"{where}[]")
    else:
        assert value is None or type(value) in (str, int, float, bool), f"{where}: {type(value)} is not plain JSON"
        assert not isinstance(value, float) or np.isfinite(value), f"{where}: NaN or infinity is not JSON"
