"""How much goes to the bus at once, and what is left out when it cannot keep up."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from sdfstream.agent.pressure import LATE_NS, Pressure, thin_out
from sdfstream.agent.queues import QueuedOutput
from sdfstream.records.message import Output
from sdfstream.records.topics import PORT, PROBE
from sdfstream.records.units import NS_PER_S

LEAST, MOST = 64 << 10, 1 << 20


def pressure() -> Pressure:
    return Pressure(LEAST, MOST)


def item(number: int, host: str = "h0", topic: str = PROBE.name) -> QueuedOutput:
    body = pa.RecordBatch.from_pydict({"n": [number]})
    return QueuedOutput(Output(topic, host, body, "boot", number), 100)


def numbers(items: list[QueuedOutput] | deque[QueuedOutput]) -> list[int]:
    return [one.output.batch_seq for one in items]


def test_the_first_chunk_is_the_largest() -> None:
    assert pressure().chunk_bytes == MOST


def test_chunks_become_so_small_that_each_takes_a_fifth_of_a_second() -> None:
    slow, rate = pressure(), 1_000_000
    for _ in range(30):
        size = slow.chunk_bytes
        slow.took(size, size / rate, 0)
    assert 0.9 * 200_000 <= slow.chunk_bytes <= 1.1 * 200_000


def test_a_bus_that_hardly_answers_still_gets_the_least() -> None:
    slow = pressure()
    for _ in range(30):
        slow.took(slow.chunk_bytes, 5.0, 0)
    assert slow.chunk_bytes == LEAST


def test_a_bus_that_recovers_gets_large_chunks_again() -> None:
    slow = pressure()
    slow.took(MOST, 10.0, 0)
    for _ in range(40):
        slow.took(slow.chunk_bytes, 0.001, 0)
    assert slow.chunk_bytes == MOST


def test_small_chunks_that_go_at_once_do_not_make_chunks_smaller() -> None:
    idle = pressure()
    idle.took(MOST, 0.05, 0)
    for _ in range(100):
        idle.took(1_000, 0.01, 0)
    assert idle.chunk_bytes == MOST


def test_rows_are_late_when_others_went_while_they_waited() -> None:
    one = pressure()
    since_ns, now_ns = 10 * NS_PER_S, 13 * NS_PER_S
    for n in range(7):
        one.took(1_000, 0.2, since_ns + (n + 1) * NS_PER_S // 4)
    assert not one.is_late(since_ns, now_ns), "a few chunks may have been slow"
    one.took(1_000, 0.2, since_ns + 2 * NS_PER_S)
    assert one.is_late(since_ns, now_ns)
    assert not one.is_late(now_ns - LATE_NS, now_ns)
    assert not one.is_late(since_ns + NS_PER_S // 4, now_ns), "only seven went since"


def test_a_bus_that_stood_still_makes_nothing_late() -> None:
    """An outage is another matter: all is kept for it."""
    one = pressure()
    for at_s in range(1, 9):
        one.took(1_000, 0.1, at_s * NS_PER_S)
    assert not one.is_late(9 * NS_PER_S, 60 * NS_PER_S)
    one.lost()
    assert one.chunk_bytes == MOST


def test_what_waited_through_a_stall_is_not_late_but_what_comes_behind_it_may_be() -> None:
    one = pressure()
    back_ns = 20 * NS_PER_S
    one.took(1_000, 4.0, back_ns)
    for n in range(8):
        one.took(1_000, 0.2, back_ns + (n + 1) * NS_PER_S // 2)
    now_ns = back_ns + 5 * NS_PER_S
    assert not one.is_late(back_ns - NS_PER_S, now_ns)
    assert one.is_late(back_ns + 1, now_ns)


def test_what_waited_for_a_bus_that_was_away_is_not_late() -> None:
    """Also when each of its refusals came at once, and its backlog makes many chunks."""
    one = pressure()
    one.lost()
    back_ns = 20 * NS_PER_S
    one.back(back_ns)
    for n in range(20):
        one.took(1_000, 0.1, back_ns + (n + 1) * NS_PER_S // 4)
    assert not one.is_late(back_ns - NS_PER_S, back_ns + 5 * NS_PER_S)


def test_every_second_batch_of_each_host_is_left_out_and_the_newest_stays() -> None:
    held = deque([item(n, host) for n in range(5) for host in ("h0", "h1")])
    left_out = thin_out(held)
    assert numbers(held) == [0, 0, 2, 2, 4, 4]
    assert numbers(left_out) == [1, 1, 3, 3]


def test_other_rows_than_probes_stay() -> None:
    held = deque([item(0), item(1, topic=PORT.name), item(2), item(3, topic=PORT.name), item(4)])
    left_out = thin_out(held)
    assert numbers(held) == [0, 1, 3, 4]
    assert numbers(left_out) == [2]
