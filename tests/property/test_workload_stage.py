"""Laws of the workload stage: bytes are conserved, cuts are invisible, and a slow reference gives the same rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.records.message import Message
from sdfstream.records.topics import QP
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.workload.stage import WorkloadStage
from tests.checks import cut, run
from tests.fixtures.qp_world import WINDOW_NS, World, busy

SEEDS = st.integers(0, 10_000)


def _rows(messages: list[Message], stage: WorkloadStage | None = None) -> list[dict]:
    out = run(stage or WorkloadStage(), messages, messages[0].bus_at_ns + 9 * NS_PER_S)
    return [row for _, output in out for row in output.body.to_pylist()]


def _reference(world: World) -> dict[tuple[str, int], dict]:
    """By queue pair and window, from the truth alone, one chunk at a time."""
    found: dict[tuple[str, int], list] = defaultdict(list)
    for chunk in world.chunks:
        found[world.name(chunk.qp), chunk.acknowledged_ns // WINDOW_NS].append(chunk)
    rows = {}
    for (qp, window), chunks in found.items():
        owd = sorted(c.arrived_ns - c.sent_ns for c in chunks if c.arrived_ns is not None)
        ce = [c.ce for c in chunks if c.ce is not None]
        again = [c.retransmits for c in chunks if c.retransmits is not None]
        rows[qp, window] = {
            "n": len(chunks),
            "bytes": sum(c.bytes for c in chunks),
            "packets": sum(-(-c.bytes // 1000) for c in chunks),
            "ce": sum(ce) if ce else None,
            "retransmits": sum(again) if again else None,
            "owd": (owd[0], float(np.median(owd)), owd[-1]) if owd else None,
            "duration_max_ns": max(c.acknowledged_ns - c.sent_ns for c in chunks),
            "path": {c.path for c in chunks},
        }
    reported: dict[str, int] = {}
    for (qp, window), chunks in sorted(found.items(), key=lambda item: item[0][1]):
        since = min(c.sent_ns for c in chunks) // WINDOW_NS
        for waiting in range(max(since, reported.get(qp, 0) + 1), window):
            rows[qp, waiting] = {"n": 0, "bytes": 0, "packets": 0, "ce": None, "retransmits": None, "owd": None}
        reported[qp] = window
    return rows


@given(SEEDS)
@settings(max_examples=12, deadline=None)
def test_against_a_slow_reference(seed: int) -> None:
    world = busy(seed, seconds=2.0)
    wanted = _reference(world)
    got = {(row["qp"], row["at_ns"] // WINDOW_NS): row for row in _rows(world.messages(4.0))}
    assert got.keys() == wanted.keys()
    for key, want in wanted.items():
        row = got[key]
        for name in ("n", "bytes", "packets", "ce", "retransmits"):
            assert row[name] == want[name], (key, name)
        owd = (row["owd_min_ns"], row["owd_p50_ns"], row["owd_max_ns"])
        if want["owd"] is None:
            assert owd == (None, None, None)
        else:
            np.testing.assert_allclose(owd, want["owd"], atol=20)
            assert row["err_ns"] == 1000.0
        if want["n"]:
            np.testing.assert_allclose(row["duration_max_ns"], want["duration_max_ns"], rtol=1e-4)
            assert row["path"] in want["path"]


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_cutting_messages_anywhere_changes_nothing(seed: int, cuts: int) -> None:
    messages = busy(seed, seconds=1.5).messages(2.5)
    rng = np.random.default_rng(seed)
    pieces = messages
    for _ in range(cuts):
        pieces = [piece for m in pieces for piece in cut(m, rng)]
    assert _rows(pieces) == _rows(messages)


@given(SEEDS, st.lists(st.integers(0, 8000), min_size=1, max_size=10), st.booleans())
@settings(max_examples=20, deadline=None)
def test_every_byte_is_in_a_window_or_counted_however_late_it_comes(
    seed: int, late_ms: list[int], clocks: bool
) -> None:
    world = busy(seed, seconds=1.5, lead_ns=(seed % 3 - 1) * 3600 * NS_PER_S)
    messages = world.messages(2.5, clocks=clocks)
    moved = [
        replace(m, bus_at_ns=m.bus_at_ns + late_ms[i % len(late_ms)] * NS_PER_MS, boot_id="")
        if m.topic == QP.name
        else m
        for i, m in enumerate(messages)
    ]
    stage = WorkloadStage()
    got = _rows(sorted(moved, key=lambda m: m.bus_at_ns), stage)
    reported = sum(row["bytes"] for row in got) + stage.counters.get("stale-bytes")
    assert reported == sum(c.bytes for c in world.chunks)
    assert stage.counters.total("refused") == 0
    counted = sum(row["n"] for row in got) + stage.counters.get("stale")
    assert counted == len(world.chunks) == stage.counters.get("received")


@given(SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_queue_pairs_windows_rise(seed: int) -> None:
    last: dict[str, int] = {}
    for row in _rows(busy(seed, seconds=2.0).messages(4.0)):
        assert row["at_ns"] > last.get(row["qp"], -1)
        last[row["qp"]] = row["at_ns"]
