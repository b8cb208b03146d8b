"""Rows that are repeated, late, absurd or simply wrong, and a host that starts anew: nothing else is lost for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import CLOCK, PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from sdfstream.score.clock.tracks import figures, tracks
from sdfstream.sync import SyncStage
from tests.checks import fingerprint
from tests.fixtures.sync_sim import World, drive, mesh

SECONDS = 14.0
Timed = list[tuple[int, Output]]


def world() -> World:
    return mesh(4, 3, "B", 32.0, 1)


def driven(messages: list[Message]) -> tuple[SyncStage, Timed]:
    stage = SyncStage()
    return stage, drive(stage, messages)


@pytest.fixture(scope="module")
def sound() -> tuple[list[Message], Timed]:
    """Messages of six seconds, and what comes of them."""
    messages = world().messages(6.0)
    return messages, driven(messages)[1]


def clock_rows(timed: Timed) -> list[tuple[int, bytes]]:
    return [(at, fingerprint(o.body)) for at, o in timed if o.topic == CLOCK.name]


def with_stamps(m: Message, **stamps: Any) -> Message:
    """The message with these columns of stamps instead of its own."""
    batch = m.body
    for name, values in stamps.items():
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), pa.array(values, batch.schema.field(at).type))
    return replace(m, body=batch)


def stamps_of(m: Message, name: str) -> np.ndarray:
    return np.asarray(m.body.column(name).cast(pa.int64()).fill_null(ABSENT_NS))


def test_what_comes_twice_counts_once(sound: tuple[list[Message], Timed]) -> None:
    messages, once = sound
    stage, twice = driven([m for message in messages for m in (message, message)])
    assert clock_rows(twice) == clock_rows(once)
    assert stage.counters.values["repeated", ""] == sum(m.rows for m in messages)


@pytest.mark.parametrize(
    ("what", "spoil"),
    [
        ("before 1970", lambda t: {"t2_ns": np.full_like(t, -5)}),
        ("beyond all time", lambda t: {"t1_ns": np.full_like(t, (1 << 62) + 1)}),
        ("back before it was sent", lambda t: {"t4_ns": t - 1_000_000}),
        ("a round trip of an hour", lambda t: {"t4_ns": t + 3600 * NS_PER_S}),
        ("sent back before it came", lambda t: {"t3_ns": t - NS_PER_S, "t2_ns": t}),
    ],
)
def test_absurd_rows_are_refused_and_nothing_else_is_lost(
    what: str, spoil: Callable[..., dict[str, Any]], sound: tuple[list[Message], Timed]
) -> None:
    messages, clean = sound
    spoilt = []
    for k, m in enumerate(messages):
        if k % 5 == 2:
            spoilt.append(with_stamps(m, **spoil(stamps_of(m, "t1_ns"))))
        spoilt.append(m)
    bad = sum(m.rows for k, m in enumerate(messages) if k % 5 == 2)
    stage, timed = driven(spoilt)
    refused = {reason: n for (kind, reason), n in stage.counters.values.items() if kind == "refused"}
    print(f"{what}: {refused}")
    assert sum(refused.values()) == bad
    assert clock_rows(timed) == clock_rows(clean)
    letters = [o.body for _, o in timed if o.topic == PROBE.dead_letters]
    assert letters and all(isinstance(letter, Event) for letter in letters)


@pytest.mark.parametrize("by_ns", [-3e9, 2e5])
def test_a_wrong_stamp_in_a_hundred_misleads_nobody(by_ns: float) -> None:
    """Of the reflector's two alike, so that the round trip is as it was; every session has its share. Seed 1."""
    w = world()
    messages = w.messages(SECONDS)
    g = np.random.default_rng(1)
    clean_stage, clean_rows = driven(messages)
    spoilt = []
    for m in messages:
        off = np.where(g.random(m.rows) < 0.01, np.int64(by_ns), np.int64(0))
        spoilt.append(with_stamps(m, **{name: stamps_of(m, name) + off for name in ("t2_ns", "t3_ns")}))
    stage, rows = driven(spoilt)
    clean, found = (figures(tracks(w, timed), 7.0) for timed in (clean_rows, rows))
    print(f"1 % off by {by_ns:g} ns: p99 {clean['p99']:.1f} clean, {found['p99']:.1f}; covered {found['covered']:.4f}")
    assert found["p99"] <= 1.6 * clean["p99"]
    assert found["covered"] >= 0.99
    for name in ("clock-steps", "floors-broken"):
        assert stage.counters.values.get((name, ""), 0) == clean_stage.counters.values.get((name, ""), 0) == 0


def test_a_host_whose_messages_are_always_late_is_on_the_time_line_as_well() -> None:
    w = world()
    moved = [replace(m, bus_at_ns=m.bus_at_ns + NS_PER_S // 2) if m.key == "h01" else m for m in w.messages(SECONDS)]
    _, rows = driven(sorted(moved, key=lambda m: m.bus_at_ns))
    found = figures(tracks(w, rows), 8.0)
    print(f"h01 half a second late: {found}")
    assert found["rms"] <= 150.0
    assert found["covered"] >= 0.999


def test_a_backlog_that_comes_at_once_teaches_nothing_and_does_no_harm() -> None:
    """h01's messages of three seconds come twelve seconds late, all together."""
    w = world()
    messages = w.messages(20.0)
    first = messages[0].bus_at_ns
    late = [
        replace(m, bus_at_ns=first + 17 * NS_PER_S)
        if m.key == "h01" and 2 * NS_PER_S < m.bus_at_ns - first < 5 * NS_PER_S
        else m
        for m in messages
    ]
    stage, rows = driven(sorted(late, key=lambda m: m.bus_at_ns))
    found = figures(tracks(w, rows), 10.0)
    print(f"backlog: {found}")
    assert stage.counters.values["not-learned", "stale"] > 0
    assert found["rms"] <= 100.0
    assert found["covered"] >= 0.999


@pytest.mark.parametrize("by_ns", [1e6, 1e8, -1e9])
def test_a_clock_that_is_set_is_published_at_once_and_never_outside_its_bound(by_ns: float) -> None:
    w = mesh(5, 4, "B", 32.0, 1)
    w.clocks["h03"].step_at_s, w.clocks["h03"].step_ns = 8.0, by_ns
    stage, timed = driven(w.messages(24.0))
    rows = tracks(w, timed)
    t = rows["h03"]
    reported = t.at_s[(t.at_s > 8.0) & ((t.status == "unsynced") | (t.status == "faulty"))].min() - 8.0
    outside = t.at_s[(t.at_s > 8.0) & (np.abs(t.error) > t.bound)] - 8.0
    others = figures(rows, 8.0, names={"h01", "h02", "h04"})
    before = figures(rows, 4.0, 8.0, names={"h01", "h02", "h04"})
    print(f"set by {by_ns:g} ns: told after {reported:.1f} s, outside at {outside}; others {before}, {others}")
    # a step by a second is found in more than one stride
    assert stage.counters.values["clock-steps", ""] == 1 or abs(by_ns) >= 1e9
    assert reported <= 2.0
    assert not outside.size
    assert np.abs(t.between(20.0).error).max() <= 2_000.0
    assert others["max"] <= 4.0 * before["max"]
    assert others["covered"] >= 0.999
    for _, o in timed:
        if o.topic == CLOCK.name:
            o.body.validate(full=True)
            assert np.isfinite(np.asarray(o.body.column("offset_ns"), dtype=float)).all()
