"""How often the archive inserts: one costs as much as thousands of rows, so few rows wait for company, not for long."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sdfstream.archive.config import LIVE, ArchiveConfig, BatchLimits
from sdfstream.archive.queues import InsertQueues
from sdfstream.records.message import Message
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

LIMITS = BatchLimits(age_ms=1000, few_rows=100, few_age_ms=5000)
A, B = "sdf.a.a.v1", "sdf.b.b.v1"


def _queues(limits: BatchLimits = LIMITS) -> InsertQueues:
    return InsertQueues(ArchiveConfig("unused", "bus", limits), {}, Counters("archive"))


def _add(queues: InsertQueues, topic: str, number: int, rows: int, now_ns: int) -> None:
    queues.add([Message(topic, "k", pa.record_batch({"x": np.arange(rows)}), now_ns, number)], {}, now_ns)


def _ready(queues: InsertQueues, now_ns: int) -> dict[str, int]:
    """Rows by topic of the round at `now_ns`, which is then done."""
    inserts = queues.ready(now_ns)
    for insert in inserts:
        queues.done(insert)
    return {i.intent.topic: i.intent.rows for i in inserts}


def test_few_rows_wait_and_many_go_after_a_second() -> None:
    queues = _queues()
    _add(queues, A, 0, 99, 0)
    assert queues.wait_ns(0) == 5 * NS_PER_S
    assert _ready(queues, 5 * NS_PER_S - 1) == {}
    assert _ready(queues, 5 * NS_PER_S) == {A: 99}
    _add(queues, A, 1, 100, 6 * NS_PER_S)
    assert _ready(queues, 7 * NS_PER_S - 1) == {}
    assert _ready(queues, 7 * NS_PER_S) == {A: 100}


def test_rows_that_become_many_are_due_by_the_second() -> None:
    queues = _queues()
    _add(queues, A, 0, 60, 0)
    assert _ready(queues, 3 * NS_PER_S) == {}
    _add(queues, A, 1, 60, 3 * NS_PER_S)
    assert _ready(queues, 3 * NS_PER_S) == {A: 120}


def test_a_round_takes_along_what_waited_half_its_time() -> None:
    queues = _queues()
    _add(queues, A, 0, 1, 0)
    _add(queues, B, 0, 1, 2500 * NS_PER_MS)
    assert _ready(queues, 5 * NS_PER_S) == {A: 1, B: 1}
    _add(queues, A, 1, 1, 5 * NS_PER_S)
    _add(queues, B, 1, 1, 7501 * NS_PER_MS)
    assert _ready(queues, 10 * NS_PER_S) == {A: 1}


def test_small_tables_get_few_inserts_and_none_waits_beyond_the_bound() -> None:
    """Ten tables, each with some rows ten times a second and a phase of its own, for a minute."""
    queues, topics = _queues(), [f"sdf.t{n}.t.v1" for n in range(10)]
    oldest: dict[str, int] = {}
    inserts = rounds = 0
    for step in range(6000):
        now_ns = step * 10 * NS_PER_MS
        for n, topic in enumerate(topics):
            if step % 10 == n and step >= 37 * n:
                _add(queues, topic, step, 2, now_ns)
                oldest.setdefault(topic, now_ns)
        made = _ready(queues, now_ns)
        inserts, rounds = inserts + len(made), rounds + bool(made)
        for topic in made:
            assert now_ns - oldest.pop(topic) <= 5 * NS_PER_S
    assert inserts <= 10 * 15, "every five seconds, and at first twice"
    assert rounds <= 15, "in rounds of all tables"


def test_live_archives_wait_for_company_and_say_how_long() -> None:
    assert LIVE.few_rows > 0
    assert LIVE.few_age_ms <= 5000, "docs/archive.md: SQL sees a row within five seconds"
