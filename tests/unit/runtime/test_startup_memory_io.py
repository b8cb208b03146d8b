"""What only starting took is given back, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from sdfstream.runtime import startup_memory_io
from sdfstream.runtime.startup_memory_io import unchanged, unmap_unchanged

TEXT = "7f00a0000000-7f00a0400000 r-xp 00100000 fe:00 77 {}"
PATH = "/usr/lib/libarrow.so.2600"


def smaps(first: str, resident_kb: int = 4000, own_kb: int = 0) -> list[str]:
    """A mapping as proc(5) shows it, with others around."""
    return [
        "55d000000000-55d000100000 rw-p 00000000 00:00 0                          [heap]",
        "Rss:                 900 kB",
        "Anonymous:           900 kB",
        first,
        "Size:               4096 kB",
        f"Rss:                {resident_kb} kB",
        f"Anonymous:             {own_kb} kB",
        "VmFlags: rd ex mr mw me",
    ]


def test_a_library_that_is_as_in_its_file_is_unmapped() -> None:
    found = list(unchanged(smaps(TEXT.format(PATH))))
    assert found == [(0x7F00A0000000, 0x7F00A0400000, 4000 << 10)]


@pytest.mark.parametrize(
    "lines",
    [
        smaps(TEXT.format(PATH), own_kb=4),  # relocated, or with a breakpoint
        smaps(TEXT.format(PATH), resident_kb=100),
        smaps(TEXT.format(f"{PATH} (deleted)")),
        smaps(TEXT.format(PATH).replace("r-xp", "rw-p")),
        smaps(TEXT.format(PATH).replace("r-xp", "r-xs")),
        smaps(TEXT.format("/data/recording.arrows")),
        smaps("7f00a0000000-7f00a0400000 r--p 00000000 00:00 0"),
        [],
    ],
)
def test_what_is_the_processs_own_or_no_library_stays(lines: list[str]) -> None:
    assert not list(unchanged(lines))


def test_a_process_without_smaps_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(startup_memory_io, "_SMAPS", tmp_path / "none")
    assert unmap_unchanged() == 0
    monkeypatch.setattr(startup_memory_io, "STARTED_S", 0.0)
    asyncio.run(startup_memory_io.give_back())


SMALLER = """
import re
from pathlib import Path
import numpy as np, pyarrow as pa
from sdfstream.runtime import startup_memory_io

def kilobytes():
    return {k: int(n) for k, n in re.findall(r"(Rss\\w+):\\s+(\\d+) kB", Path("/proc/self/status").read_text())}

def work():
    batch = pa.record_batch({"x": pa.array(np.arange(1000))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue()), np.linalg.inv(np.eye(3) * 2).sum(), re.sub("a+", "b", "caat")

expected, before = work(), kilobytes()
given = startup_memory_io.unmap_unchanged()
after = kilobytes()
assert work() == expected
assert given > 8 << 20, given
assert after["RssFile"] < 0.6 * before["RssFile"], (before, after)
assert after["RssAnon"] <= before["RssAnon"] + 4000, (before, after)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="a kernel without /proc/PID/smaps")
def test_a_process_is_smaller_afterwards_and_works_as_before() -> None:
    subprocess.run([sys.executable, "-c", SMALLER], check=True, timeout=60)
