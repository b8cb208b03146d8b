"""A process killed at every step of a run, engine there or not: afterwards each table holds each row exactly once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.intent import Intent
from sdfstream.archive.queues import InsertQueues, PendingInsert
from sdfstream.archive.run_io import Environment
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.archive.writer_io import _Drained, _QueueTask
from sdfstream.errors import ArchiveError, BusError
from sdfstream.records.message import Message
from sdfstream.records.position import PARTITION_BITS, Partition
from sdfstream.records.topics import CLOCK, NIC
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters
from tests.fixtures.archive import EPOCH_NS, EVENTS, bulk, event, message
from tests.fixtures.archive_world import Crash, Fate, Inline, World

SMALL = BatchLimits(rows=8, bytes=1 << 20, age_ms=40, most_rows=12)
CONFIG = ArchiveConfig("unused", "bus-1", SMALL, pending_bytes=1 << 20, spill_dir="spill", kept_dir="kept")
Log = dict[Partition, list[Message | None]]


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
        bus = {"bus_at_ns": at_ns, "key": key}
        if last is not None and rng.random() < 0.15:
            entries.append(replace(last, bus_seq=partition << PARTITION_BITS | len(entries), bus_at_ns=at_ns))
            continue
        number = numbers[key]
        numbers[key] += 1
        seq = partition << PARTITION_BITS | len(entries)
        if topic == CLOCK.name:
            made = message(CLOCK, bulk(CLOCK, int(rng.integers(1, 5)), rng), seq, batch_seq=number, **bus)
        else:
            data = EVENTS[NIC.name] if rng.random() < 0.8 else {"nic": "h00/r0"}
            made = event(NIC, data, seq, batch_seq=number, **bus)
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
    seconds: float | None = None
    """Stop after so much time instead, whatever is left."""

    def is_set(self) -> bool:
        if self.seconds is not None:
            return self.world.clock_ns - self.begin_ns > self.seconds * NS_PER_S
        assert self.world.clock_ns - self.begin_ns < 3600 * NS_PER_S, "it hangs"
        return self.world.bus.all_committed()


def live(world: World, config: ArchiveConfig = CONFIG, seconds: float | None = None) -> ArchiveWork:
    """One process: archives until everything is committed, or dies at its fate."""
    environment = Environment(world.clock, world.pause, Inline())
    work = ArchiveWork(config, world.engine, disk=world.disk, environment=environment)
    asyncio.run(work.run(world.bus.task(), Until(world, world.clock_ns, seconds)))
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
    log = make_log(40 if config is CONFIG else 18, seed=7)
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


def test_killed_at_every_step_while_a_table_refuses_for_good() -> None:
    """What is refused is kept with the reason, its position moves, and the next run that is accepted restores it."""
    log = make_log(16, seed=3)
    refused: Trouble = lambda world: lambda table: "poison" if table in ("state_nic", "reject") else None  # noqa: E731
    whole = new_world(log, refused, 1)
    work = live(whole)
    assert whole.bus.all_committed()
    wanted = expected(log)
    assert work.counters.get("kept", "state_nic") == wanted["state_nic"].total()
    assert work.counters.get("kept", "reject") == wanted["reject"].total() > 0
    for at in range(1, whole.fate.steps + 1):
        world = new_world(log, refused, 1)
        assert die_at(world, at)
        live(world)
        world.engine.trouble = none(world)
        die_at(world, 1 + at % 9)
        live(world)
        check(world, log)
        assert not world.disk.files


def test_a_process_that_stood_still_while_another_took_its_task() -> None:
    """The insert it then makes is dropped, and it may commit no more; nor does it insert what it read meanwhile."""
    log = make_log(40, seed=5)
    for turn in range(1, 8):
        world = new_world(log, none, turn)
        inserts, insert = [0], world.engine.insert

        def held_up(table: str, rows: pa.Table, token: str) -> None:
            inserts[0] += 1  # noqa: B023 - used in this turn only
            if inserts[0] == turn:  # noqa: B023
                other = threading.Thread(target=live, args=(world,))  # noqa: B023
                other.start()
                other.join()
            insert(table, rows, token)  # noqa: B023

        world.engine.insert = held_up
        with pytest.raises(BusError, match="another process"):
            live(world)
        check(world, log)


def test_what_the_bus_has_dropped_meanwhile_is_lost_and_counted() -> None:
    log = make_log(24, seed=7)
    world = new_world(log, none, 1)
    assert die_at(world, 4)
    (note, *_) = [n for n in world.bus.saved.notes if n.endswith("clock.v1")]
    intent = Intent.from_bytes(world.bus.saved.notes[note])
    rows = intent.rows
    for partition, span in intent.spans.items():
        world.bus.first[CLOCK.name, partition] = span.end
    work = live(world)
    assert work.counters.get("lost", CLOCK.name) == rows
    assert work.counters.get("redone", CLOCK.name) == 1
    assert world.bus.all_committed()
    wanted = expected(log)["state_clock"]
    found = Counter(row[0] for row in world.engine.tables["state_clock"])
    assert found.total() == wanted.total() - rows
    assert not found - wanted


def test_a_bus_that_lost_its_end_does_not_hold_up_the_archive() -> None:
    """Restored from an old copy, the bus ends before an intent does: once it says so for a while, the rest goes on."""
    log = make_log(24, seed=7)
    world = new_world(log, none, 1)
    assert die_at(world, 4)
    for partition in (0, 1):
        world.bus.published[CLOCK.name, partition] = 1
    work = live(world, seconds=60)
    assert work.counters.get("lost", CLOCK.name) > 0
    assert not [n for n in world.bus.saved.notes if n.startswith("intent/")]


def test_an_intent_takes_the_same_messages_again_whatever_the_reader_remembers() -> None:
    """A repeat inside a range is left out again by the intent's own list, not by the reader's memory."""
    counters = Counters("archive")
    sent = [message(CLOCK, bulk(CLOCK, 2, np.random.default_rng(i)), i) for i in range(6)]
    first = InsertQueues(CONFIG, {}, counters)
    first.add([sent[0], sent[1], sent[4]], {(CLOCK.name, 0): 5}, 0)
    (insert,) = first.ready(0, force=True)
    again = InsertQueues(CONFIG, {}, counters)
    again.adopt([PendingInsert(Intent.from_bytes(insert.intent.to_bytes()), 0)], 0)
    again.add(sent[:3], {(CLOCK.name, 0): 3}, 0)
    assert again.recovering
    assert again.ready(0, force=True) == []
    again.add(sent[3:], {(CLOCK.name, 0): 6}, 0)
    (same,) = again.ready(0, force=True)
    assert (same.messages, same.intent) == (insert.messages, insert.intent)
    assert counters.get("repeats") == 2
    again.done(same)
    (rest,) = again.ready(0, force=True)
    assert rest.messages == (sent[5],)


def test_a_spilled_file_that_was_damaged_is_read_from_the_bus_again() -> None:
    log = make_log(24, seed=7)
    world = new_world(log, away_for_a_while, 1)
    steps = 0
    while not [p for p in world.disk.files if p.suffix == ".arrows"]:
        steps += 20
        world = new_world(log, away_for_a_while, 1)
        die_at(world, steps, TIGHT)
    for file in world.disk.files.values():
        file.data = file.data[:-200]
    with suppress(ArchiveError):
        live(world, TIGHT)
    live(world, TIGHT)
    check(world, log)


# -- one process's own bus: what is in the spill is nowhere else ------------------------------------------------


def hand_in(world: World, sent: list[Message]) -> ArchiveWork:
    """One process that is handed `sent` and closed."""
    queue, environment = _QueueTask(), Environment(world.clock, world.pause)
    work = ArchiveWork(CONFIG, world.engine, only_copy=True, disk=world.disk, environment=environment)
    closing = threading.Event()
    closing.set()
    with queue.changed:
        queue.put(sent)
    asyncio.run(work.run(queue, _Drained(closing, queue), queue.stepped))
    return work


def test_the_only_copy_outlives_kills_at_every_step() -> None:
    sent = [message(CLOCK, bulk(CLOCK, 3, np.random.default_rng(i)), i) for i in range(8)]
    sent += [event(NIC, {"nic": "h00/r0"}, 0)]

    def counts(world: World) -> tuple[Counter[int], int]:
        clock = Counter(row[0] for row in world.engine.tables.get("state_clock", []))
        return clock, len(world.engine.tables.get("reject", []))

    world = World({}, 1)
    world.engine.trouble = lambda table: "after"
    work = hand_in(world, sent)
    assert work.counters.total("spilled") == 25
    steps = world.fate.steps
    for at in range(1, steps + 20):
        world = World({}, at)
        world.engine.trouble = lambda table: "after"
        world.fate = Fate(at)
        whole = False
        with suppress(Crash):
            hand_in(world, sent)
            whole = True
        world.crash()
        world.engine.trouble = lambda table: None
        for again in (1 + at % 13, None):
            world.fate = Fate(again)
            with suppress(Crash):
                hand_in(world, [])
            world.crash()
        hand_in(world, [])
        clock, refused = counts(world)
        assert not clock - Counter({m.bus_seq: 3 for m in sent[:8]})
        assert refused <= 1
        if whole:
            assert (clock.total(), refused) == (24, 1)
        assert not [p for p in world.disk.files if p.suffix == ".arrows"]


def test_any_cutting_of_reads_gives_the_same_rows() -> None:
    """Whatever a read gives at once and whatever an insert takes at once, the tables' content is the same."""
    log = make_log(30, seed=11)
    contents = []
    for seed, most_rows in ((1, 12), (2, 1), (3, 5), (4, 1000), (5, 12)):
        world = new_world(log, unreliable if seed == 5 else none, seed)
        live(world, replace(CONFIG, limits=replace(SMALL, rows=most_rows, most_rows=most_rows)))
        check(world, log)
        contents.append({table: sorted(rows, key=repr) for table, rows in world.engine.tables.items()})
    assert all(found == contents[0] for found in contents)


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
