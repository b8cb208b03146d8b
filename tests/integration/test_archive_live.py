"""The archive while it runs: readers beside the writer, ``sdfstream sql``, a failing server, and kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.http.endpoint_io import FILE, read_endpoint, remove_endpoint, write_endpoint
from sdfstream.archive.http.server_io import SqlFront
from sdfstream.archive.writer_io import Archive
from sdfstream.cli import main
from sdfstream.errors import UnavailableError
from sdfstream.records.topics import PROBE
from tests.fixtures.archive import bulk, message
from tests.fixtures.archive_story import archive_story

ROOT = Path(__file__).parents[2]


def _ask(port: int, sql: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", sql.encode(), {"X-ClickHouse-Key": "t"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode().strip()


async def test_writer_and_readers_side_by_side(archive_folder: Path) -> None:
    rng = np.random.default_rng(0)
    target = str(archive_folder)
    archive = Archive.open(ArchiveConfig(target, "run", limits=BatchLimits(rows=2000)))
    front = SqlFront.start(target, read_token="t")
    counts: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            counts.append(int(_ask(front.port, "SELECT count() FROM raw_probe")))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(20):
        await archive.add([message(PROBE, bulk(PROBE, 1000, rng), i)])
        await archive.flush()
    done.set()
    for reader in readers:
        reader.join()
    assert int(_ask(front.port, "SELECT count() FROM raw_probe")) == 20_000
    assert len(counts) > 10
    assert set(counts) <= set(range(0, 20_001, 1000)), "a reader saw part of an insert"
    front.close()
    await archive.close()


async def test_a_server_that_goes_away_and_comes_back_loses_nothing(tmp_path: Path, archive_folder: Path) -> None:
    folder = str(archive_folder)
    front = SqlFront.start(folder, token="t")
    port = front.port
    config = ArchiveConfig(
        f"http://x:t@127.0.0.1:{port}/sdf", "run", kept_dir=str(tmp_path / "kept"), spill_dir=str(tmp_path / "spill")
    )
    archive = Archive.open(config)
    rng = np.random.default_rng(0)
    await archive.add([message(PROBE, bulk(PROBE, 100, rng), 0)])
    await archive.flush()
    front.close()
    await archive.add([message(PROBE, bulk(PROBE, 100, rng), 1)])
    timer = threading.Timer(0.5, lambda: starts.append(SqlFront.start(folder, token="t", port=port)))
    starts: list[SqlFront] = []
    timer.start()
    await archive.flush()
    timer.join()
    await archive.close()
    assert _ask(port, "SELECT count(), uniqExact(bus_seq) FROM raw_probe") == "200\t2"
    assert archive.counters.get("retries", "unreachable") >= 1
    assert archive.counters.total("kept") == 0
    starts[0].close()


async def test_a_server_that_stays_away_costs_nothing_but_disk(tmp_path: Path, archive_folder: Path) -> None:
    folder = str(archive_folder)
    front = SqlFront.start(folder, token="t")
    port = front.port
    config = ArchiveConfig(
        f"http://x:t@127.0.0.1:{port}/sdf", "run", kept_dir=str(tmp_path / "kept"), spill_dir=str(tmp_path / "spill")
    )
    archive = Archive.open(config)
    front.close()
    await archive.add([message(PROBE, bulk(PROBE, 100, np.random.default_rng(0)), 0)])
    await archive.flush()
    assert archive.counters.get("spilled", PROBE.name) == 100
    assert archive.figures()["spill_files"] == 1
    await archive.close()
    with pytest.raises(UnavailableError, match="no ClickHouse answers"):
        Archive.open(config)
    front = SqlFront.start(folder, token="t", port=port)
    archive = Archive.open(config)
    await archive.close()
    assert archive.counters.get("caught-up", PROBE.name) == 100
    assert archive.figures()["spill_bytes"] == 0
    assert _ask(port, "SELECT count() FROM raw_probe") == "100"
    front.close()


# -- the verb ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Path:
    """An archive with a story in it, to be copied."""
    folder = Path(shutil.copytree(migrated, tmp_path_factory.mktemp("story") / "archive", symlinks=True))
    archive_story(str(folder))
    return folder


@pytest.fixture
def data(tmp_path: Path, story: Path) -> Path:
    shutil.copytree(story, tmp_path / "archive", symlinks=True)
    return tmp_path


def _sql(data: Path, *args: str) -> int:
    return main(["sql", "--data", str(data), *args])


def test_the_verb_asks_a_folder_that_nobody_runs_on(data: Path, capfdbinary) -> None:
    assert _sql(data, "SELECT id, status FROM v_findings ORDER BY id;") == 0
    assert capfdbinary.readouterr().out == b"f1\tresolved\nf2\topen\n"
    assert _sql(data, "SELECT 1 AS a", "--format", "JSONEachRow") == 0
    assert capfdbinary.readouterr().out == b'{"a":1}\n'
    assert _sql(data, "SELECT 1 AS a FORMAT CSVWithNames") == 0
    assert capfdbinary.readouterr().out == b'"a"\n1\n'


def test_the_verb_gives_one_object_with_json(data: Path, capfd) -> None:
    assert _sql(data, "--json", "SELECT t1, t4_ns, src FROM raw_probe WHERE transport != 'host' ORDER BY t1") == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert found["columns"] == ["t1", "t4_ns", "src"]
    assert found["n"] == 2
    assert isinstance(found["rows"][0]["t4_ns"], int)
    assert "t4_ns" not in found["rows"][1], "null is absent"


def test_the_verb_lists_what_there_is(data: Path, capfd) -> None:
    assert _sql(data) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("v_clock ")
    assert any(line.startswith("raw_probe ") for line in lines)
    assert all(len(line.split(None, 1)) == 2 for line in lines)
    assert _sql(data, "--json") == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["n"] == len(lines)


def test_the_verb_says_in_a_sentence_what_is_wrong(data: Path, tmp_path, capfd) -> None:
    for args, words in (
        (["SELECT * FROM nowhere"], "There are: v_clock, "),
        (["DROP TABLE raw_probe"], "readonly"),
        (["SELECT (("], "Syntax error"),
        ([" ; "], "empty"),
        (["--json", "SELECT 1 FORMAT CSV"], "exclude each other"),
        (["--url", "http://127.0.0.1:1/x", "SELECT 1"], "no ClickHouse answers at http://127.0.0.1:1/x"),
        (["--url", "gopher://x", "SELECT 1"], "scheme gopher"),
    ):
        assert _sql(data, *args) == 2
        assert words in capfd.readouterr().err, args
    assert _sql(tmp_path / "empty", "SELECT 1") == 2
    assert "nothing has been archived" in capfd.readouterr().err


def test_the_verb_asks_the_pipeline_that_runs(data: Path, capfdbinary) -> None:
    front = SqlFront.start(str(data / "archive"), data=data)
    write_endpoint(data, front.port)
    try:
        assert _sql(data, "SELECT count() FROM v_findings") == 0
        assert capfdbinary.readouterr().out == b"2\n"
        assert _sql(data, "DROP TABLE raw_probe") == 2
        assert b"only reads" in capfdbinary.readouterr().err
        assert _sql(data, "SELECT * FROM nowhere") == 2
        assert b"There are: v_clock" in capfdbinary.readouterr().err
        program = [sys.executable, "-m", "sdfstream", "sql", "--data", str(data), "--json", "SELECT 2 AS two"]
        done = subprocess.run(program, capture_output=True, check=True, cwd=ROOT, timeout=60)
        assert json.loads(done.stdout) == {"columns": ["two"], "n": 1, "rows": [{"two": 2}]}
    finally:
        front.close()
        remove_endpoint(data)
    assert not (data / FILE).exists()


def test_a_folder_that_another_process_has_open_is_said_so(data: Path) -> None:
    front = SqlFront.start(str(data / "archive"))
    program = [sys.executable, "-m", "sdfstream", "sql", "--data", str(data), "SELECT 1"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, timeout=60)
    front.close()
    assert done.returncode == 2
    assert f"process {os.getpid()} has it open" in done.stderr
    assert "damaged" not in done.stderr


def test_a_folder_that_cannot_be_read_is_called_damaged(data: Path) -> None:
    (data / "archive" / "metadata" / "sdf.sql").write_text("what?")
    program = [sys.executable, "-m", "sdfstream", "sql", "--data", str(data), "SELECT 1"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 2
    assert "it is damaged" in done.stderr


def test_run_json_of_a_dead_or_later_process_is_no_endpoint(tmp_path) -> None:
    assert read_endpoint(tmp_path) is None
    path = write_endpoint(tmp_path, 4711)
    found = read_endpoint(tmp_path)
    assert found is not None
    assert (found.pid, found.url) == (os.getpid(), "http://127.0.0.1:4711/sdf")
    stale = json.loads(path.read_text())
    for change in ({"started": "1"}, {"pid": 2**22 + 1}, {"http_port": "x"}, {"pid": None}):
        path.write_text(json.dumps(stale | change))
        assert read_endpoint(tmp_path) is None, change
    for junk in ("", "[]", "{", "null", "\xff"):
        path.write_text(junk, encoding="latin-1")
        assert read_endpoint(tmp_path) is None, junk
    path.write_text(json.dumps(stale | {"pid": 1}))
    remove_endpoint(tmp_path)
    assert path.exists(), "another process's announcement stays"


# -- kill -9 ----------------------------------------------------------------------------------------------------

CHILD = """
import asyncio
import sys
import numpy as np
from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.writer_io import Archive
from sdfstream.records.topics import PROBE
from tests.fixtures.archive import bulk, message

target, first = sys.argv[1], int(sys.argv[2])
archive = Archive.open(ArchiveConfig(target, "run", limits=BatchLimits(rows=1, age_ms=0)))
for seq in range(first, first + 1000):
    archive.add_blocking([message(PROBE, bulk(PROBE, 2000, np.random.default_rng(seq)), seq)])
    asyncio.run(archive.flush())
    print(seq, flush=True)
"""


def test_acknowledged_inserts_survive_kill_9_and_a_retry_does_not_double(tmp_path) -> None:
    """Three kills at random moments on one folder; after each the batch in flight is given again, same token."""
    rng = np.random.default_rng(20261121)
    target = str(tmp_path / "archive")
    acknowledged = -1
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, target, str(acknowledged + 1)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(2)]  # it is under way
        time.sleep(rng.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines()
        child.wait(timeout=30)
        child.stdout.close()
        whole = [int(line) for line in lines if line.strip()]
        assert whole == list(range(acknowledged + 1, acknowledged + 1 + len(whole)))
        acknowledged = whole[-1]

        archive = Archive.open(ArchiveConfig(target, "run", limits=BatchLimits(rows=1, age_ms=0)))
        in_flight = acknowledged + 1
        again = message(PROBE, bulk(PROBE, 2000, np.random.default_rng(in_flight)), in_flight)
        archive.add_blocking([again])
        archive.close_blocking()
        acknowledged = in_flight
        with Engine.open(target) as engine:
            got = dict(engine.rows("SELECT bus_seq, count() FROM raw_probe GROUP BY bus_seq"))
            engine.command("CHECK TABLE raw_probe")
        assert got == dict.fromkeys(range(acknowledged + 1), 2000)
    leftovers = [p.name for p in tmp_path.iterdir() if p.name != "archive"]
    assert leftovers == []
