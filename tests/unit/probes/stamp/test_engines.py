"""Sender and reflector back to back: what a row says when nothing goes wrong, and when something does."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from sdfstream.probes.config import VirtualClock
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_S
from tests.fixtures.engine_sender import EngineSender
from tests.wire import EPOCH, Wire, host_a, host_b, reflector_of, sender_of, sockets_of

KEY = bytes(range(32))


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
def test_rows_hold_all_four_true_stamps(key: bytes | None) -> None:
    wire = Wire(sender_of(host_a(dscp=46), hmac_key=key), reflector_of(host_b(), hmac_key=key))
    sent = wire.run(2 * NS_PER_S)
    batch = wire.sender.rows(2 * NS_PER_S + 200_000_000)
    assert batch is not None
    batch.validate(full=True)
    assert batch.schema == PROBE.columns
    assert batch.num_rows == sent >= 50
    rows = batch.to_pylist()
    for row in rows:
        assert (row["src"], row["dst"], row["clock_src"], row["clock_dst"]) == ("ha/r0", "hb/r0", "ha", "hb")
        assert row["t2_ns"] - row["t1_ns"] == 10_000
        assert row["t4_ns"] - row["t1_ns"] == 65_000
        assert (row["t1_kind"], row["t2_kind"], row["t4_kind"]) == (1, 1, 1)
        assert (row["dscp_sent"], row["dscp_fwd"], row["dscp_rev"]) == (46, 46, 46)
        assert (row["ecn_sent"], row["ecn_fwd"], row["ecn_rev"]) == (2, 2, 2)
        assert (row["ttl_fwd"], row["ttl_rev"]) == (62, 62)
        assert (row["tx_host_ns"], row["rx_host_ns"]) == (5_000, 20_000)
        assert row["size_bytes"] == (128 if key is None else 196)
        assert row["plane"] == "backend"
    followed = [r for r in rows if r["t3_kind"] == 1]
    assert all(r["t4_ns"] - r["t3_ns"] == 15_000 for r in followed)
    # only the last exchange of each path has no later answer that could tell its true t3
    assert len(rows) - len(followed) == 2
    for row in rows:
        if row["t3_kind"] == 0:
            assert row["t4_ns"] - row["t3_ns"] == 24_000
    for path in (50_001, 50_002):
        numbers = list(range(sum(r["path"] == path for r in rows)))
        assert [r["seq"] for r in rows if r["path"] == path] == numbers
        assert [r["seq_rev"] for r in rows if r["path"] == path] == numbers
    assert wire.sender.counters.total("refused") == wire.reflector.counters.total("refused") == 0
    assert wire.sender.rows(3 * NS_PER_S) is None


def test_a_lost_probe_is_a_row_without_t4() -> None:
    wire = Wire(sender_of(host_a()), reflector_of(host_b()))
    wire.drop_forward = lambda s: np.ones(len(s.token), dtype=bool)
    sent = wire.run(NS_PER_S // 2)
    batch = wire.sender.rows(NS_PER_S)
    assert batch is not None
    assert batch.num_rows == sent
    row = batch.to_pylist()[0]
    assert (
        row["t4_ns"] is row["t2_ns"] is row["t3_ns"] is row["dscp_fwd"] is row["ttl_rev"] is row["rx_host_ns"] is None
    )
    assert row["seq_rev"] is None
    assert (row["t1_kind"], row["t2_kind"], row["t3_kind"], row["t4_kind"]) == (1, 255, 255, 255)


@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("engine", ["numpy", "packet engine"])
def test_a_row_says_how_the_reflector_numbered_its_answer(engine: str, stateful: bool) -> None:
    """Of two lost probes one never reached the reflector, which numbered the other's answer."""
    host = host_a(ports=(50_001,))
    one = sender_of(host) if engine == "numpy" else EngineSender(host, sockets_of(host), 1, 0)
    wire = Wire(one, reflector_of(host_b(), stateful=stateful))  # type: ignore[arg-type]
    steps = count()
    wire.drop_forward = lambda s: np.full(len(s.token), next(steps) == 2)
    wire.drop_reverse = lambda s: np.full(len(s.token), next(steps) == 9)
    wire.run(NS_PER_S // 2)
    batches = [batch for at_ns in (NS_PER_S, 2 * NS_PER_S, 3 * NS_PER_S) if (batch := one.rows(at_ns)) is not None]
    found = [(row["seq"], row["t4_ns"] is None, row["seq_rev"]) for b in batches for row in b.to_pylist()]
    assert len(found) >= 7
    lost = {1: "there", 4: "back"}
    numbers = count()
    expected = [None if seq == 1 else next(numbers) for seq in range(len(found))]
    for seq, is_lost, number in sorted(found):
        assert is_lost == (seq in lost)
        assert number == (None if is_lost else expected[seq] if stateful else seq)


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("engine", ["numpy", "packet engine"])
def test_a_prompt_row_waits_for_no_follow_up(engine: str, prompt: bool) -> None:
    """At one probe a second a row is over a second old when its true t3 comes."""
    host = host_a(ports=(50_001,), rate_hz=1.0, prompt=prompt)
    one = sender_of(host) if engine == "numpy" else EngineSender(host, sockets_of(host), 1, 0)
    wire = Wire(one, reflector_of(host_b()))  # type: ignore[arg-type]
    ages_ns, kinds, start_ns = [], [], 0
    for end_ns in range(50_000_000, 5 * NS_PER_S, 50_000_000):
        wire.run(end_ns, start_ns)
        start_ns, batch = end_ns, one.rows(end_ns)
        for row in batch.to_pylist() if batch is not None else []:
            ages_ns.append(EPOCH + end_ns - row["t1_ns"])
            kinds.append((row["t1_kind"], row["t2_kind"], row["t3_kind"], row["t4_kind"]))
    assert len(ages_ns) >= 2
    if prompt:
        assert max(ages_ns) <= 110_000_000
        assert set(kinds) == {(1, 1, 0, 1)}
    else:
        assert min(ages_ns) >= 700_000_000
        assert set(kinds) == {(1, 1, 1, 1)}


def test_the_virtual_clock_of_the_reflector_shows_in_t2_and_t3() -> None:
    clock = VirtualClock(offset_ns=123_456.0, skew_ppb=10_000.0, epoch_at_ns=EPOCH)
    wire = Wire(sender_of(host_a()), reflector_of(host_b(clock)))
    wire.run(2 * NS_PER_S)
    batch = wire.sender.rows(3 * NS_PER_S)
    assert batch is not None
    for row in batch.to_pylist():
        true_ns = row["t1_ns"] + 10_000
        assert row["t2_ns"] - true_ns == 123_456 + (true_ns - EPOCH) // 100_000


def test_remarking_in_transit_shows_in_the_row() -> None:
    wire = Wire(sender_of(host_a(dscp=46)), reflector_of(host_b()))
    wire.remark = lambda tos: (tos & 0) + np.uint8(8 << 2 | 3)
    wire.run(NS_PER_S)
    batch = wire.sender.rows(2 * NS_PER_S)
    assert batch is not None
    row = batch.to_pylist()[0]
    assert (row["dscp_sent"], row["dscp_fwd"], row["ecn_fwd"], row["dscp_rev"]) == (46, 8, 3, 46)


def test_silence_and_return() -> None:
    wire = Wire(sender_of(host_a(ports=(50_001,)), liveness_ms=200), reflector_of(host_b(), liveness_ms=200))
    wire.run(NS_PER_S)
    entries = wire.sender.liveness(NS_PER_S, EPOCH + NS_PER_S)
    assert [(t["state"], t["role"], t["path"]) for t in entries] == [("alive", "sender", 50_001)]
    far = wire.reflector.liveness(NS_PER_S, EPOCH + NS_PER_S)
    assert [(t["state"], t["role"], t["src"], t["dst"], t["path"]) for t in far] == [
        ("alive", "reflector", "ha/r0", "hb/r0", 50_001)
    ]
    wire.drop_forward = lambda s: np.ones(len(s.token), dtype=bool)
    wire.run(2 * NS_PER_S, NS_PER_S)
    # judged for the first time in a second: it may have slept, and says nothing before the fourth time
    for at_ns in (2_000_000_000, 2_050_000_000, 2_100_000_000):
        assert wire.sender.liveness(at_ns, EPOCH + at_ns) == []
        assert wire.reflector.liveness(at_ns, EPOCH + at_ns) == []
    (entries,) = wire.sender.liveness(2_150_000_000, EPOCH + 2_150_000_000)
    assert entries["state"] == "silent"
    assert EPOCH + 900_000_000 < entries["since_at_ns"] <= EPOCH + 1_010_000_000
    assert entries["missed"] >= 10
    (far,) = wire.reflector.liveness(2_150_000_000, EPOCH + 2_150_000_000)
    assert far["state"] == "silent"
    wire.drop_forward = lambda s: np.zeros(len(s.token), dtype=bool)
    wire.run(2_200_000_000, 2 * NS_PER_S)
    (entries,) = wire.sender.liveness(2_200_000_000, EPOCH + 2_200_000_000)
    assert entries["state"] == "alive"
    assert wire.sender.liveness(2_200_000_000, EPOCH + 2_200_000_000) == []
