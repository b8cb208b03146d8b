"""Files, rows and the control socket of a job, without a fabric."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from sdfstream.emulator import process_io
from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.engine.plane_io import EnginePlane
from sdfstream.emulator.plane_io import PythonPlane
from sdfstream.emulator.process_files_io import JobFiles, free_block, is_running, remove_leftovers, shards
from sdfstream.emulator.process_rows import outputs
from sdfstream.emulator.qp_chunk import CarriedChunk
from sdfstream.emulator.rank_plan import JobSpec, NicEndpoint, plan
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.qpcontrol.rules import QpControl
from sdfstream.qpcontrol.server_io import ControlServer
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
    report = wire.ChunkReport(5, 2, AT_NS + 10, AT_NS + 20)
    seen = CarriedChunk(5, 7, 3000, 50_003, 3, 1, AT_NS, AT_NS + 30, report)
    unseen = CarriedChunk(6, 7, 3000, 50_003, 3, 0, AT_NS, AT_NS + 30, None)
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


def test_without_a_compiler_python_carries_the_packets_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_library() -> None:
        raise UnavailableError("no engine in C: there is no C compiler (cc) on this machine")

    job = plan(JobSpec("a", ("h00", "h01")), [NicEndpoint(f"{host}/r0", "r0", "10.0.0.1") for host in ("h00", "h01")])
    monkeypatch.setattr(process_io, "library", no_library)
    monkeypatch.setattr(process_io, "PythonPlane", lambda *_: "Python")
    monkeypatch.setattr(process_io, "EnginePlane", lambda *_: "C")
    assert process_io._open_plane(job, 1, lambda _, work: work()) == "Python"
    assert "no C compiler (cc)" in caplog.text and "in Python" in caplog.text
    monkeypatch.setattr(process_io, "library", lambda: None)
    assert process_io._open_plane(job, 1, lambda _, work: work()) == "C"


def test_a_data_plane_that_finds_no_nic_leaves_nothing_open() -> None:
    job = plan(JobSpec("a", ("h00", "h01")), [NicEndpoint(f"{host}/r0", "r0", "10.0.0.1") for host in ("h00", "h01")])

    def away(_: object, __: object) -> None:
        raise OSError(19, "No such device")

    before = len(list(Path("/proc/self/fd").iterdir()))
    for made in (EnginePlane, PythonPlane):
        with pytest.raises(UnavailableError, match="h00/r0: No such device"):
            made(job, 1, away)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_data_plane_in_c_that_was_closed_still_says_its_last_figures() -> None:
    """The agent's connection to the control socket outlives the job's sockets by a moment."""
    job = plan(JobSpec("a", ("h00", "h01")), [NicEndpoint(f"{host}/r0", "r0", "10.0.0.1") for host in ("h00", "h01")])
    made = EnginePlane(job, 1, lambda *_: [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)])
    sender = made.sender(0)
    sender.rate_bps = 1_000_000
    figures = made.stats()
    made.stop()
    made.close()
    sender.rate_bps = 2_000_000
    sender.steer(job.qps[0].ports[1], 0)
    made.check()
    assert (sender.path, sender.rate_bps) == (job.qps[0].ports[0], 1_000_000)
    assert made.stats() == figures and made.qps() == figures["qps"]
    assert (made.is_done, made.take_rows()) == (False, [])
    made.close()
