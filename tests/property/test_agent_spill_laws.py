"""The spill's laws: every byte may be the last one, nothing overtakes, nothing disappears without being counted."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.agent.spill import segment as spill
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output

BULK, EVENTS = "sdf.raw.probe.v1", "sdf.raw.liveness.v1"


def rows(number: int, n: int = 5) -> Output:
    names = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([f"h{number}"]))
    body = pa.record_batch({"src": names, "x": pa.array(range(n), pa.int64())})
    return Output(BULK, "h", body, "boot", number)


def event(number: int) -> Output:
    return Output(
        EVENTS, "h", Event("t", "s", f"e{number}", 10**18 + 7, {"n": number, "ü": [1.5, None]}), "boot", number
    )


def outputs(*, most: int = 12) -> st.SearchStrategy[list[Output]]:
    one = st.tuples(st.booleans(), st.integers(1, 400))
    made = st.lists(one, min_size=1, max_size=most)
    return made.map(lambda xs: [rows(i, n) if bulk else event(i) for i, (bulk, n) in enumerate(xs)])


def same(a: Output, b: Output) -> bool:
    bodies = a.body.equals(b.body) if isinstance(a.body, pa.RecordBatch) else a.body == b.body
    return bool(bodies) and (a.topic, a.key, a.boot_id, a.batch_seq) == (b.topic, b.key, b.boot_id, b.batch_seq)


@given(outputs())
def test_what_is_written_is_read(made: list[Output]) -> None:
    for output in made:
        assert same(spill.decode(spill.encode(output)), output)


@settings(max_examples=30, deadline=None)
@given(outputs(most=4))
def test_a_segment_cut_at_any_byte_keeps_its_whole_records(made: list[Output]) -> None:
    records = [spill.encode(o) for o in made]
    segment = spill.MAGIC + b"".join(records)
    ends = [len(spill.MAGIC)]
    for record in records:
        ends.append(ends[-1] + len(record))
    for cut in range(len(segment) + 1):
        positions, end = spill.scan(segment[:cut])
        whole = sum(e <= cut for e in ends) - 1
        assert len(positions) == max(0, whole)
        assert end == (ends[whole] if whole >= 0 else 0)
        assert [p.offset for p in positions] == ends[: max(0, whole)]


@settings(max_examples=200, deadline=None)
@given(outputs(most=3), st.data())
def test_a_changed_byte_costs_nothing_before_it_and_raises_nothing_else(
    made: list[Output], data: st.DataObject
) -> None:
    segment = bytearray(spill.MAGIC + b"".join(spill.encode(o) for o in made))
    at = data.draw(st.integers(0, len(segment) - 1))
    segment[at] ^= data.draw(st.integers(1, 255))
    positions, _ = spill.scan(bytes(segment))
    for i, position in enumerate(positions):
        if position.offset + position.length <= at:
            assert same(spill.decode(bytes(segment[position.offset : position.offset + position.length])), made[i])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_one_error(raw: bytes) -> None:
    spill.scan(spill.MAGIC + raw)
    with pytest.raises(FormatError):
        spill.decode(raw)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("load"), st.integers(1, 4000)),
        st.tuples(st.just("done"), st.integers(1, 5)),
        st.tuples(st.just("again"), st.integers(0, 0)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1_000, 60_000), st.booleans())
def test_bounded_in_order_and_every_row_accounted_for(steps: list[tuple[str, int]], bound: int, events: bool) -> None:
    """Killed and started again wherever "again" stands: loaded and not acknowledged comes again, and only that."""
    with tempfile.TemporaryDirectory() as name:
        folder = SpillFolder(Path(name) / "s", bound)
        folder.open()
        queue = "event" if events else "bulk"
        put = shed = lost = number = 0
        held: list[tuple[int, Output]] = []  # loaded, not acknowledged
        sent: list[int] = []
        for what, n in [*steps, *([("load", 10**9), ("done", 10**9)] * 3)]:
            if what == "append":
                made = [event(number + i) if events else rows(number + i, 20 * (number + i) + 1) for i in range(n)]
                number += n
                put += sum(spill.rows_of(o.body) for o in made)
                wrote = folder.append(queue, made)
                assert wrote.taken == n
                assert wrote.error is None
                shed += wrote.shed.total()
            elif what == "load":
                found, unreadable = folder.load(queue, n)
                held += found
                lost += unreadable.total()
            elif what == "done":
                taken, held = held[:n], held[n:]
                folder.acknowledge(queue, Counter(segment for segment, _ in taken))
                sent += [o.batch_seq for _, o in taken]
            else:
                folder.close()
                folder = SpillFolder(Path(name) / "s", bound)
                folder.open()
                held = []
            on_disk = sum(f.stat().st_size for f in (Path(name) / "s").glob("*.spill"))
            assert on_disk == folder.bytes <= bound
        folder.close()
        assert not list((Path(name) / "s").glob("*.spill")), "what was acknowledged is deleted"
    first = list(dict.fromkeys(sent))
    assert first == sorted(first), "in order, repeats aside"
    assert lost == 0
    weights = [1 if events else 20 * i + 1 for i in range(number)]
    arrived = sum(weights[i] for i in first)
    assert arrived <= put
    if "again" not in [what for what, _ in steps]:  # a killed agent no longer knows which of the last had arrived
        assert arrived + shed == put
        assert first == sent
