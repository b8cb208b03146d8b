"""Laws: time stamps survive the wire, and how a stream of datagrams is cut into batches changes nothing."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.stamp import packet
from sdfstream.probes.stamp.datagrams import Received, TxStamps
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_S
from tests.wire import EPOCH, SOCKET_B, A, Wire, arriving, host_a, host_b, reflector_of, sender_of, tx_stamps_of

PORTS = tuple(range(50_001, 50_009))
END = NS_PER_S // 4
KEYS = st.sampled_from([None, b"a key"])


@given(st.lists(st.integers(0, 2**32 * NS_PER_S - 1), min_size=1, max_size=50))
def test_ptp_round_trip(ns: list[int]) -> None:
    at = np.array(ns, dtype=np.int64)
    assert np.array_equal(packet.ns_of_ptp(packet.ptp_of(at)), at)


@given(st.lists(st.integers(-60_000_000 * NS_PER_S, (2**32 - 90_000_000) * NS_PER_S), min_size=1, max_size=50))
def test_ntp_round_trip_from_1968_to_2103(ns: list[int]) -> None:
    at = np.array(ns, dtype=np.int64)
    assert np.array_equal(packet.ns_of_ntp(packet.ntp_of(at)), at)


@given(st.floats(0, 1e18))
def test_error_estimate_covers_and_is_tight(error_ns: float) -> None:
    bound = packet.error_ns_of(packet.error_estimate(error_ns))
    assert bound >= error_ns
    assert bound <= error_ns * (1 + 1 / 127) + 0.24


def pick(batch: object, rows: np.ndarray) -> object:
    changes = {
        f.name: getattr(batch, f.name)[rows]
        for f in dataclasses.fields(batch)  # type: ignore[arg-type]
        if isinstance(getattr(batch, f.name), np.ndarray)
    }
    return dataclasses.replace(batch, **changes)  # type: ignore[type-var]


def cut(rows: list[int], cuts: list[int]) -> list[np.ndarray]:
    return [p for p in np.split(np.array(rows, dtype=np.int64), sorted(c % (len(rows) + 1) for c in cuts)) if len(p)]


def fresh(key: bytes | None) -> SessionSender:
    return sender_of(host_a(ports=PORTS, dscp=46), hmac_key=key)


@cache
def scene(key: bytes | None) -> tuple[Received, TxStamps]:
    """All answers and all sending times of a quarter of a second on eight paths."""
    wire = Wire(fresh(key), reflector_of(host_b(), hmac_key=key))
    batches: list[TxStamps] = []
    wire.sender.take_tx_stamps = batches.append  # type: ignore[method-assign]
    wire.run(END)
    names = [f.name for f in dataclasses.fields(Received) if f.name != "user_at_ns"]
    joined = {n: np.concatenate([getattr(b, n) for b in wire.answers]) for n in names}
    tx_stamps = TxStamps(
        **{f.name: np.concatenate([getattr(b, f.name) for b in batches]) for f in dataclasses.fields(TxStamps)}
    )
    assert len(tx_stamps.token) >= 24
    return Received(**joined, user_at_ns=EPOCH + END), tx_stamps


def replay(key: bytes | None, answers: list[np.ndarray], stamps: list[np.ndarray]) -> tuple[pa.Table, dict[str, int]]:
    """The rows of a fresh sender that sent the same probes and is given these answers and stamps."""
    sender = fresh(key)
    now = 0
    while now < END:
        sender.due(now, EPOCH + now)
        now = max(now + 1_000_000, sender.next_due_ns())
    pool, tx_stamps = scene(key)
    for rows in stamps:
        sender.take_tx_stamps(pick(tx_stamps, rows))  # type: ignore[arg-type]
    for rows in answers:
        sender.take_answers(pick(pool, rows), END)  # type: ignore[arg-type]
    batches = [b for b in [sender.rows(n * END) for n in (1, 2, 20, 21)] if b is not None]
    return pa.Table.from_batches(batches), sender.counters.as_dict()


indices = st.lists(st.integers(0, 10_000), max_size=60)
cuts = st.lists(st.integers(0, 1_000), max_size=8)


@given(indices, cuts, cuts, KEYS)
@settings(max_examples=60, deadline=None)
def test_any_cut_gives_the_same_rows(order: list[int], some: list[int], others: list[int], key: bytes | None) -> None:
    """Answers lost, doubled and out of order: whatever arrives, batches do not matter."""
    pool, tx_stamps = scene(key)
    n = len(pool.length)
    rows = [i % n for i in order]
    stamps = list(range(len(tx_stamps.token)))
    whole, counted = replay(key, cut(rows, []), [np.array(stamps)])
    cuts, counted_cuts = replay(key, cut(rows, some), cut(stamps, others))
    assert whole.equals(cuts)
    assert counted == counted_cuts
    assert whole.num_rows == len(tx_stamps.token)
    answered = whole.num_rows - whole["t4_ns"].null_count
    assert answered == len(set(rows)) == counted.get("sender.answered", 0)
    assert counted.get("sender.refused.duplicate", 0) == len(rows) - len(set(rows))


@given(st.lists(st.integers(0, 15), min_size=1, max_size=40), cuts, KEYS)
@settings(max_examples=60, deadline=None)
def test_any_cut_gives_the_same_answers(order: list[int], some: list[int], key: bytes | None) -> None:
    sent = fresh(key).due(NS_PER_S, EPOCH)
    rows = np.array([i % len(sent.token) for i in order])
    n = len(rows)
    probes = arriving(
        sent, rows, EPOCH + np.arange(n), socket=np.full(n, SOCKET_B), address=A, port=50_001 + rows
    )  # fmt: skip
    whole, split = reflector_of(host_b(), hmac_key=key), reflector_of(host_b(), hmac_key=key)
    for reflector in (whole, split):  # a follow-up to tell in each session
        reflector.take_tx_stamps(tx_stamps_of(reflector.answer(probes, 0), EPOCH))
    expected = whole.answer(probes, 1)
    whole.seal(expected, EPOCH + 1)
    got = []
    for batch in cut(list(range(n)), some):
        answers = split.answer(pick(probes, batch), 1)  # type: ignore[arg-type]
        split.seal(answers, EPOCH + 1)
        got.append(answers)
    for name in ("length", "socket", "address", "port", "tos", "token"):
        assert np.array_equal(getattr(expected, name), np.concatenate([getattr(g, name) for g in got]))
    payloads = [bytes(g.data[i, : g.length[i]]) for g in got for i in range(len(g.length))]
    assert payloads == [bytes(expected.data[i, : expected.length[i]]) for i in range(n)]
