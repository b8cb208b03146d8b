"""Probe rows into chDB: rows per second and core, each part's share, bytes per row after the merge.

``pytest tests/bench/test_archive_bench.py --benchmark-enable -s``; without it a small run checks that it works.
A core second is a CPU second of all threads of this process, merges in the background included until none is left.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time

import pytest

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.writer_io import Archive
from sdfstream.records.topics import PROBE
from tests.fixtures.archive_load import probe_messages


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _merges_done(target: str) -> None:
    """Wait until the engine has no merge left to do, so that their cost is counted."""
    quiet = 0
    with Engine.open(target) as engine:
        while quiet < 3:
            quiet = quiet + 1 if engine.rows("SELECT count() FROM system.merges") == [(0,)] else 0
            time.sleep(0.1)


@pytest.mark.parametrize("per_insert", [10_000, 200_000, 1_000_000])
def test_probe_rows_into_chdb(benchmark, tmp_path, per_insert: int) -> None:
    rows = 10 * per_insert if per_insert < 1_000_000 else 4_000_000
    rows = min(rows, 4_000_000) if benchmark.enabled else 20_000
    messages = list(probe_messages(rows))
    rows = sum(m.rows for m in messages)
    target = str(tmp_path / "archive")
    limits = BatchLimits(rows=per_insert, bytes=1 << 30, age_ms=60_000, most_rows=per_insert, most_bytes=1 << 30)
    archive = Archive.open(ArchiveConfig(target, "bench", limits=limits, pending_bytes=1 << 30))
    spent: list[float] = []

    def run() -> None:
        begin = _cpu_s()
        archive.add_blocking(messages)
        asyncio.run(archive.flush())
        _merges_done(target)
        spent.append(_cpu_s() - begin)

    benchmark.pedantic(run, rounds=1)
    begin = time.thread_time()
    some = messages[: max(1, per_insert // messages[0].rows)]
    built = bulk_rows(PROBE, some, "bench").table.num_rows
    build_ns = (time.thread_time() - begin) / built * 1e9
    with Engine.open(target) as engine:
        assert engine.rows("SELECT count() FROM raw_probe") == [(rows,)]
        engine.command("OPTIMIZE TABLE raw_probe FINAL")
        sql = "SELECT sum(bytes_on_disk) / sum(rows) FROM system.parts WHERE active AND table = 'raw_probe'"
        ((bytes_per_row,),) = engine.rows(sql)
    archive.close_blocking()
    figures = {
        "rows": rows,
        "rows_per_insert": per_insert,
        "inserts": archive.counters.get("inserts", "raw_probe"),
        "mrows_per_core_s": round(rows / spent[0] / 1e6, 2),
        "cpu_ns_per_row": round(spent[0] / rows * 1e9),
        "of_it_build_ns_per_row": round(build_ns),
        "bytes_per_row_merged": round(bytes_per_row, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    benchmark.extra_info.update(figures)
    if benchmark.enabled:
        print("\n", figures)
    assert archive.counters.total("kept") == 0
