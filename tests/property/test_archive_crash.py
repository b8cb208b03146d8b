"""A process killed at every step of a run, engine there or not: afterwards each table holds each row exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.run_io import Surroundings
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.errors import BusError
from sdfstream.records.message import Message
from sdfstream.records.position import PARTITION_BITS, Part
from sdfstream.records.topics import CLOCK, NIC
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.archive import EPOCH_NS, EVENTS, bulk, event, message
from tests.fixtures.archive_world import Crash, Fate, Inline, World

SMALL = BatchLimits(rows=8, bytes=1 << 20, age_ms=40, most_rows=12)
CONFIG = ArchiveConfig("unused", "bus-1", SMALL, pending_bytes=1 << 20, spill_dir="spill", kept_dir="kept")
Log = dict[Part, list[Message | None]]


def make_log(messages: int, seed: int) -> Log:
    """Clock rows in two partitions, events in one: with the bus's own marks, repeats, and events to be refused."""
    rng = np.random.default_rng(seed)
    log: Log = {(CLOCK.name, 0): [], (CLOCK.name, 1): [], (NIC.name, 0): []}
    numbers: Counter[str] = Counter()
    at_ns = EPOCH_NS
    for _ in range(messages):
        topic, partition = list(log)[int(rng.integers(0, 3))]
        entries = log[topic, partition]
        last = next((m for m in reversed(entries) if m is not None), None)
        if rng.random() < 0.15:
            entries.append(None)
        key = f"{topic}-{partition}"
        at_ns += int(rng.integers(0, 30)) * NS_PER_MS
        place = {"bus_at_ns": at_ns, "key": key}
        if last is not None and rng.random() < 0.15:
            entries.append(replace(last, bus_seq=partition << PARTITION_BITS | len(entries), bus_at_ns=at_ns))
            continue
        number = numbers[key]
        numbers[key] += 1
        seq = partition << PARTITION_BITS | len(entries)
        if topic == CLOCK.name:
            made = message(CLOCK, bulk(CLOCK, int(rng.integers(1, 5)), rng), seq, batch_seq=number, **place)
        else:
            data = EVENTS[NIC.name] if rng.random() < 0.8 else {"nic": "h00/r0"}
            made = event(NIC, data, seq, batch_seq=number, **place)
        entries.append(made)
    return log


def expected(log: Log) -> dict[str, Counter[tuple]]:
    """Rows by table and place on the bus: each message once, at its first offset."""
    tables: dict[str, Counter[tuple]] = {"state_clock": Counter(), "state_nic": Counter(), "reject": Counter()}
    for (topic, _), entries in log.items():
        seen = set()
        for m in entries:
            if m is None or m.batch_seq in seen:
                continue
            seen.add(m.batch_seq)
            good = topic == CLOCK.name or len(m.body.data) > 1
            table = ("state_clock" if topic == CLOCK.name else "state_nic") if good else "reject"
            tables[table][m.bus_seq] += m.rows
    return tables


@dataclass(slots=True)
class Until:
    """Stop once the bus has nothing left and everything is committed; or after so much time, to show that it hangs."""

    world: World
    begin_ns: int

    def is_set(self) -> bool:
        assert self.world.clock_ns - self.begin_ns < 3600 * NS_PER_S, "it hangs"
        return self.world.bus.all_committed()


def live(world: World, config: ArchiveConfig = CONFIG, stop: Callable[[], bool] | None = None) -> ArchiveWork:
    """One process: archives until everything is committed, or dies at its fate."""
    around = Surroundings(world.clock, world.pause, Inline())
    work = ArchiveWork(config, world.engine, disk=world.disk, around=around)
    until = Until(world, world.clock_ns)
    if stop is not None:
        until.is_set = stop
    asyncio.run(work.run(world.bus.task(), until))
    return work


def die_at(world: World, at: int, config: ArchiveConfig = CONFIG) -> bool:
    """One process killed at its step `at`; whether it lived that long."""
    world.fate = Fate(at)
    try:
        live(world, config)
    except Crash:
        world.crash()
        return True
    world.crash()
    return False


def check(world: World, log: Log) -> None:
    found = {table: Counter() for table in expected(log)}
    for table, rows in world.engine.tables.items():
        found[table].update(row[0] for row in rows)
    assert found == expected(log)
    assert not [n for n in world.bus.saved.notes if n.startswith("intent/")]
    assert world.bus.all_committed()
    assert not [p for p in world.disk.files if p.suffix == ".arrows" and "spill" in p.parts]


Trouble = Callable[[World], Callable[[str], str | None]]


def none(world: World) -> Callable[[str], str | None]:
    return lambda table: None


def away_for_a_while(world: World) -> Callable[[str], str | None]:
    """The engine goes away after 60 ms for a second; what it was asked first did land."""
    begin_ns, asked = world.clock_ns, [0]

    def trouble(table: str) -> str | None:
        passed_ns = world.clock_ns - begin_ns
        if not 60 * NS_PER_MS < passed_ns < NS_PER_S:
            return None
        asked[0] += 1
        return "after" if asked[0] == 1 else "away"

    return trouble


def unreliable(world: World) -> Callable[[str], str | None]:
    return lambda table: str(world.rng.choice(["", "away", "after"], p=[0.5, 0.25, 0.25])) or None


def one_table_away(world: World) -> Callable[[str], str | None]:
    begin_ns = world.clock_ns
    return lambda t: "away" if t == "state_clock" and world.clock_ns - begin_ns < NS_PER_S else None


TIGHT = replace(CONFIG, pending_bytes=4096)
SPILL_FULL = replace(TIGHT, spill_bytes=8_000)
CASES = {
    "engine there": (none, CONFIG),
    "away for a while": (away_for_a_while, CONFIG),
    "away, little memory": (away_for_a_while, TIGHT),
    "away, spill full": (away_for_a_while, SPILL_FULL),
    "one table away": (one_table_away, TIGHT),
    "unreliable": (unreliable, TIGHT),
}


def new_world(log: Log, trouble: Trouble, seed: int) -> World:
    world = World(log, seed)
    world.engine.trouble = trouble(world)
    return world


@pytest.mark.parametrize("case", CASES)
def test_killed_at_every_step_once(case: str) -> None:
    trouble, config = CASES[case]
    log = make_log(40 if config is CONFIG else 24, seed=7)
    whole = new_world(log, trouble, 1)
    work = live(whole, config)
    check(whole, log)
    names = set(whole.fate.names)
    assert {"commit: before", "commit: after", "insert reject: after", "read"} <= names
    if config is TIGHT and trouble is away_for_a_while:
        assert {"write: after", "sync: before", "rename: before", "remove: after"} <= names
        assert work.counters.total("caught-up") > 0
    if config is SPILL_FULL:
        assert work.counters.get("spill-full") > 0
    for at in range(1, whole.fate.steps + 1):
        world = new_world(log, trouble, 1)
        assert die_at(world, at, config), at
        live(world, config)
        check(world, log)
    print(f"{case}: {whole.fate.steps} placements")


calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)


@calm
@given(
    st.integers(0, 10_000),
    st.sampled_from(sorted(CASES)),
    st.lists(st.integers(1, 120), max_size=6),
)
def test_killed_again_and_again(seed: int, case: str, deaths: list[int]) -> None:
    """Any log, any trouble, several kills, some of them while the one before is being made good; reads cut anyhow."""
    trouble, config = CASES[case]
    log = make_log(16, seed)
    world = new_world(log, trouble, seed)
    for at in deaths:
        die_at(world, at, config)
    live(world, config)
    check(world, log)
