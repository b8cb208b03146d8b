"""Files, rows and the control socket of a job, without a fabric."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from pathlib import Path

import pytest

from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.control import QpControl
from sdfstream.emulator.control_io import ControlServer
from sdfstream.emulator.process_files_io import JobFiles, free_block, is_running, remove_leftovers, shards
from sdfstream.emulator.process_rows import outputs
from sdfstream.emulator.qp_chunk import Finished, Piece
from sdfstream.emulator.rank_plan import JobSpec, NicEndpoint, plan
from sdfstream.errors import ConfigError
from sdfstream.records.job import JobShard
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import QP
from sdfstream.stats import Counters

AT_NS = 1_800_000_000 * 10**9


def write(files: JobFiles, job: str, host: str, block: int = 0) -> None:
    files.write(JobShard(job, host, control=str(files.socket(host))), block)


def test_files_are_there_while_the_job_runs_and_a_second_one_of_that_name_is_refused(tmp_path: Path) -> None:
    files = JobFiles(tmp_path, "a")
    write(files, "a", "h00")
    assert is_running(tmp_path, "a")
    assert not is_running(tmp_path, "b")
    with pytest.raises(ConfigError, match="is running"):
        JobFiles(tmp_path, "a")
    assert free_block(tmp_path, range(3)) == 1
    files.close()
    assert list(tmp_path.iterdir()) == []
    assert not files.folder.exists()
    assert free_block(tmp_path, range(3)) == 0


def test_all_blocks_taken_is_said(tmp_path: Path) -> None:
    files = JobFiles(tmp_path, "a")
    write(files, "a", "h00")
    with pytest.raises(ConfigError, match="too many jobs"):
        free_block(tmp_path, range(1))
    files.close()


def test_what_a_dead_run_left_is_removed_and_foreign_files_and_folders_are_not(tmp_path: Path) -> None:
    jobs, foreign = tmp_path / "jobs", tmp_path / "precious"
    foreign.mkdir()
    files = JobFiles(jobs, "a")
    write(files, "a", "h00")
    fcntl.flock(files._lock, fcntl.LOCK_UN)  # as the kernel does for a process that dies
    (jobs / "a@h01.json").write_text(json.dumps({"job": "a", "host": "h01", "block": 0, "control": f"{foreign}/x"}))
    (jobs / "slurm-7@h00.json").write_text(json.dumps({"version": 1, "job": "slurm-7", "host": "h00"}))
    (jobs / "torn.json").write_text("{")
    assert set(shards(jobs)) == {"a"}
    remove_leftovers(jobs, "a")
    assert sorted(p.name for p in jobs.iterdir()) == ["slurm-7@h00.json", "torn.json"]
    assert foreign.exists() and not files.folder.exists()
    os.close(files._lock)


def test_rows_speak_of_each_end_by_its_own_clock_and_leave_out_what_nobody_saw() -> None:
    nics = [NicEndpoint(f"{host}/r0", "r0", f"10.0.0.{n}") for n, host in enumerate(("h00", "h01"))]
    first, *_, last = plan(JobSpec("train-a", ("h00", "h01")), nics).qps
    piece = Piece(7, 0, 0, bytes(3000))
    report = wire.ChunkReport(5, 2, AT_NS + 10, AT_NS + 20)
    seen = Finished(5, piece, 50_003, 3, 1, AT_NS, AT_NS + 30, report, True, False)
    unseen = Finished(6, piece, 50_003, 3, 0, AT_NS, AT_NS + 30, None, True, False)
    wrong = {"h00": 1_000, "h01": -1_000}
    made = outputs(
        "train-a",
        "all-reduce",
        [(first, seen), (last, seen), (first, unseen)],
        lambda host: lambda at_ns: at_ns + wrong[host],
    )
    assert [(o.topic, o.key) for o in made] == [(QP.name, "h00"), (QP.name, "h01")]
    row, other = made[0].body.to_pylist()  # type: ignore[union-attr]
    assert row == {
        "sent_at_ns": AT_NS + 1_000,
        "job": "train-a",
        "rank": 0,
        "peer_rank": 1,
        "qp": "h00/r0#1",
        "src": "h00/r0",
        "dst": "h01/r0",
        "clock_src": "h00",
        "clock_dst": "h01",
        "transport": "udp",
        "path": 50_003,
        "dst_port": 4791,
        "dscp": 26,
        "collective": "all-reduce",
        "collective_id": 7,
        "chunk": 5,
        "bytes": 3000,
        "packets": 3,
        "arrived_at_ns": AT_NS - 990,
        "completed_at_ns": AT_NS - 980,
        "acknowledged_at_ns": AT_NS + 1_030,
        "ce": 2,
        "retransmits": 1,
    }
    assert (other["arrived_at_ns"], other["completed_at_ns"], other["ce"]) == (None, None, None)


async def test_the_control_socket_answers_line_by_line_and_survives_nonsense(tmp_path: Path) -> None:
    counters = Counters("job")
    server = ControlServer(
        tmp_path / "s", "h00", QpControl(KeyRing([]), "a", {}), {"list": lambda: {"qps": []}}, counters
    )
    await server.start()
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    writer.write(b'{"do":"list"}\nnot json\n[]\n{"do":"set"}\n{"do":["set"]}\n' + b'{"do":"undo","command":{}}\n')
    answers = [json.loads(await reader.readline()) for _ in range(6)]
    assert answers[0] == {"qps": []}
    assert all(a["error"].startswith("malformed: ") for a in answers[1:])
    assert counters.get("control", "malformed") == 5
    writer.write(b"[" * 100_000 + b"\n")
    assert json.loads(await reader.readline())["error"].startswith("malformed: ")
    writer.write(b"x" * (2 << 20))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""  # longer than any request: hung up
    writer.close()
    await server.close()
    assert not server.path.exists()
