"""Laws: rows of an engine become the same batches whether its hosts are taken together or one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.engine.rows import EngineRows, RowBatches
from sdfstream.probes.stamp import packet, paths
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import ABSENT_NS, NS_PER_S

EPOCH = 1_790_000_000 * NS_PER_S
FIRST = (0, 10, 11, 40)
"""The engine's first path of each host; the ranges have gaps, where sessions may come to be."""
CLOCKS = (None, VirtualClock(offset_ns=7_000_003, skew_ppb=-250.5, epoch_at_ns=EPOCH), None, VirtualClock(offset_ns=-5))


def _host(number: int) -> EngineRows:
    name = f"h{number}"
    nics = tuple(NicConfig(f"{name}/r{i}", f"r{i}", f"10.0.{number}.{i}", plane="ab"[i]) for i in range(2))
    sessions = tuple(
        SessionConfig(
            f"{name}/r{i}", f"far/r{i}", f"10.9.0.{i}", source_ports=(50_000,), dscp=i, size_bytes=100 + number
        )
        for i in range(1 if number == 1 else 2)
    )
    host = HostConfig(name, nics, sessions, virtual_clock=CLOCKS[number])
    table = paths.build(sessions, {(nic.nic, 50_000): i for i, nic in enumerate(nics)}, packet.mode_of(None))
    return EngineRows(host, table, Clock(host.virtual_clock), FIRST[number])


HOSTS = [_host(i) for i in range(4)]
PATHS = [host.first + i for host in HOSTS for i in range(len(host.paths))]


def _rows(picked: list[int], seed: int) -> Records:
    """Rows with any content, of the paths picked."""
    rng = np.random.default_rng(seed)
    rows = np.frombuffer(rng.bytes(len(picked) * layouts.ROW.itemsize), dtype=layouts.ROW).copy()
    rows["path"] = picked
    answered = rows["flags"] & layouts.ROW_ANSWERED != 0
    for name in ("t1_ns", "t2_ns", "t3_ns", "t4_ns"):
        rows[name] = EPOCH + rows[name] % (3_600 * NS_PER_S)
    for name in ("t2_ns", "t3_ns", "t4_ns"):
        rows[name][~answered] = ABSENT_NS
    for name in ("t1_kind", "t2_kind", "t3_kind", "t4_kind"):
        rows[name] %= 3
    return rows


@given(st.lists(st.sampled_from(PATHS), max_size=40), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=150, deadline=None)
def test_all_hosts_at_once_or_each_alone(picked: list[int], seed: int, settled: bool) -> None:
    rows = _rows(sorted(picked) if settled else picked, seed)
    before = rows.copy()
    host_of = np.searchsorted(FIRST, rows["path"], side="right") - 1
    expected = [(h.host, h.batch(rows[host_of == i])) for i, h in enumerate(HOSTS) if np.any(host_of == i)]
    found = RowBatches(HOSTS).batches(rows)
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, one), (_, other) in zip(expected, found, strict=True):
        one.validate(full=True)
        other.validate(full=True)
        assert one.equals(other)
        assert len(_message(other)) <= len(_message(one)) + 64 * one.num_columns  # a bitmap where none is needed
    assert rows.tobytes() == before.tobytes()


def _message(batch: pa.RecordBatch) -> bytes:
    """As it is published: a slice takes nothing of its neighbours along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


@given(st.sampled_from(PATHS), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_batch_keeps_nothing_of_the_ring(path: int, seed: int) -> None:
    ring = _rows([path], seed)
    [(_, batch)] = RowBatches(HOSTS).batches(ring[:1])
    before = batch.to_pylist()
    ring.view(np.uint8)[:] = 0xFF
    assert batch.to_pylist() == before


def test_a_host_s_dictionaries_hold_its_own_names_only() -> None:
    for host, batch in RowBatches(HOSTS).batches(_rows(PATHS, 1)):
        assert {name.split("/")[0] for name in batch.column("src").dictionary.to_pylist()} == {host}
