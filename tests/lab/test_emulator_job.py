"""Emulated jobs on real packets: collectives come out right, orders are obeyed when signed, faults are survived."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.emulator.qp_header import PORT
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.errors import ConfigError
from sdfstream.lab import Fabric
from sdfstream.lab.job_io import Job
from sdfstream.records.command import Command
from sdfstream.records.job import job_shard
from sdfstream.records.signature import Signer
from sdfstream.records.topics import QP
from tests.fixtures.lab import fabric, up_or_skip

__all__ = ["fabric"]
pytestmark = pytest.mark.lab

SIGNER, STRANGER = Signer(bytes(range(32))), Signer(bytes(range(1, 33)))
A, B = "h00/r0", "h02/r0"


def both_directions_via(fabric: Fabric, spine: str, a: str = A, b: str = B, n: int = 4) -> list[int]:
    """Source ports whose data from `a` to `b`, and whose answers, cross `spine`."""
    found = []
    for port in range(50_000, 65_536):
        if all(f"->{spine}" in " ".join(fabric.path(x, y, port, PORT)) for x, y in ((a, b), (b, a))):
            found.append(port)
            if len(found) == n:
                return found
    raise AssertionError("no such ports")


def command(qp: dict[str, Any], action: str, set_: dict[str, Any], *, id_: str = "c1", signer: Signer = SIGNER) -> Any:
    """A signed order for a listed queue pair."""
    now_ns = time.time_ns()
    return signer.sign(
        Command(
            id=id_,
            epoch=1,
            issued_at_ns=now_ns,
            expires_at_ns=now_ns + 10 * 10**9,
            mode="enforce",
            action=action,
            target={"type": "qp", "id": qp["qp"], "host": qp["src"].partition("/")[0]},
            expected={"path": qp["path"]},
            set=set_,
            undo={"path": qp["path"]} if action != "throttle" else {"rate_bps": None},
        ).as_data()
    )


def goodput_bps(job: Job, seconds: float, rank: int | None = None) -> float:
    """Payload acknowledged per second, of all ranks or of one's queue pairs."""
    ends = []
    for _ in range(2):
        stats = job.stats()
        acked = sum(q["acknowledged_bytes"] for q in stats["qps"] if rank is None or q["rank"] == rank)
        ends.append((stats["at_ns"], acked))
        if len(ends) == 1:
            time.sleep(seconds)
    (begin_ns, before), (end_ns, after) = ends
    return (after - before) * 8e9 / (end_ns - begin_ns)


def wait_for(what: Any, seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
    return result


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("collective", ["all-reduce", "all-to-all"])
def test_collectives_complete_with_checksums_intact_and_nothing_is_left(
    fabric: Fabric, tmp_path: Path, collective: str, engine: bool
) -> None:
    hosts = ("h00", "h02", "h01", "h03")
    spec = JobSpec("train-a", hosts, collective=collective, collectives=3, message_mb=0.5, engine=engine)
    with Job.start(fabric, spec, tmp_path) as job:
        folder = next(iter(job.controls.values())).parent
        last = job.wait(60)
    assert (last["collectives"], last["checked_right"], last["checked_wrong"]) == (3, 12, 0)
    assert last["doubled_chunks"] == last["refused"] == 0
    assert last["data_plane"] == ("C" if engine else "Python")
    per_rank = 1.5 if collective == "all-reduce" else 0.75
    assert last["payload_bytes"] == 3 * 4 * per_rank * (1 << 20) / 2
    assert [p.name for p in tmp_path.iterdir()] == ["train-a.log"]
    assert (tmp_path / "train-a.log").read_text() == ""
    assert not folder.exists()


def test_what_the_drop_directory_and_the_control_socket_say(fabric: Fabric, tmp_path: Path) -> None:
    with Job.start(fabric, JobSpec("train-a", ("h00", "h02")), tmp_path) as job:
        shard = json.loads((tmp_path / "train-a@h00.json").read_text())
        assert shard["version"] == 1
        read = job_shard(shard)
        assert (read.job, read.host, read.source) == ("train-a", "h00", "process")
        assert [r.nics for r in read.ranks] == [(A,)]
        assert {(q.src, q.dst, q.dst_port, q.dscp, q.steering) for q in read.qps} == {(A, B, 4791, 26, "socket")}
        assert {(q.src, q.dst) for q in read.receives} == {(B, A)}
        assert read.qps[0].dst_address == fabric.plan.nic(B).a.address
        control = Path(read.control)
        assert stat.S_IMODE(control.stat().st_mode) == 0o600
        assert stat.S_IMODE(control.parent.stat().st_mode) == 0o700
        listed = job.ask("h00", {"do": "list"})
        assert [q["qp"] for q in listed["qps"]] == [q.qp for q in read.qps]
        assert [q["qp"] for q in listed["receives"]] == [q.qp for q in read.receives]
        assert listed["ranks"] == [{"rank": 0, "nics": [A], "pid": job.pid}]
        assert {q["moved_at_ns"] for q in listed["qps"]} == {None}
        assert "malformed" in job.ask("h00", {"do": "dance"})["error"]
        with pytest.raises(ConfigError, match="is running"):
            Job.start(fabric, JobSpec("train-a", ("h00", "h02")), tmp_path)


@pytest.mark.parametrize("engine", [True, False])
def test_a_signed_order_moves_the_next_packet_and_nobody_elses_does(
    fabric: Fabric, tmp_path: Path, engine: bool
) -> None:
    s0, s1 = both_directions_via(fabric, "s0", n=1), both_directions_via(fabric, "s1", n=1)
    spec = JobSpec("train-a", ("h00", "h02"), qps=1, ports=(s0[0],), message_mb=4, engine=engine)
    with Job.start(fabric, spec, tmp_path, [SIGNER.public]) as job:
        [qp] = job.queue_pairs("h00")
        to = next(p for p in qp["alternates"] if "l0->s1" in fabric.path(A, B, p, PORT))
        time.sleep(0.3)
        before = fabric.counters("l0->s1")[0]
        forged = command(qp, "steer", {"path": to}, signer=STRANGER)
        assert job.ask("h00", {"do": "set", "command": forged})["error"].startswith("unknown-key: ")
        wrong = {**command(qp, "steer", {"path": to}), "epoch": 2}
        assert job.ask("h00", {"do": "set", "command": wrong})["error"].startswith("forged: ")
        other = command(qp, "steer", {"path": to})
        assert job.ask("h02", {"do": "set", "command": other})["error"].startswith("wrong-host: ")
        assert job.queue_pairs("h00")[0]["path"] == qp["path"]
        assert fabric.counters("l0->s1")[0] - before < 20  # answers of the other direction may cross it: none do

        asked_ns = time.time_ns()
        answer = job.ask("h00", {"do": "set", "command": command(qp, "steer", {"path": to}, id_="c2")})
        assert answer["ok"] and answer["before"]["path"] == qp["path"] and answer["after"]["path"] == to
        moved_ns = wait_for(lambda: job.queue_pairs("h00")[0]["moved_at_ns"])
        assert asked_ns <= moved_ns <= asked_ns + 2 * 10**9
        left = fabric.counters("l0->s0")[0]
        time.sleep(0.5)
        assert fabric.counters("l0->s1")[0] - before > 300
        # what still leaves by l0->s0 are answers to the queue pair of h02, which was not moved: one per pass at most
        assert fabric.counters("l0->s0")[0] - left < 300
        assert [q["path"] for q in job.queue_pairs("h02")] == [s0[0]]
        assert s1
        assert job.stop()["checked_wrong"] == 0


def test_a_limit_holds_for_its_time(fabric: Fabric, tmp_path: Path) -> None:
    spec = JobSpec("train-a", ("h00", "h02"), qps=1, message_mb=4)
    with Job.start(fabric, spec, tmp_path, [SIGNER.public]) as job:
        time.sleep(0.5)
        [qp] = job.queue_pairs("h00")
        limit = command(qp, "throttle", {"rate_bps": 4_000_000})
        assert job.ask("h00", {"do": "set", "command": limit, "ttl_ms": 2500})["ok"]
        time.sleep(0.3)
        assert goodput_bps(job, 1.5, rank=0) < 4.6e6
        wait_for(lambda: job.queue_pairs("h00")[0]["rate_bps"] is None)
        wait_for(lambda: goodput_bps(job, 1.0, rank=0) > 8e6, 40)


def test_with_one_of_two_paths_dead_half_the_throughput_stays(fabric: Fabric, tmp_path: Path) -> None:
    if not fabric.features.drops:
        pytest.skip("nothing here drops packets")
    ports = (both_directions_via(fabric, "s0", n=1)[0], both_directions_via(fabric, "s1", n=1)[0])
    # far below the links' rate, so that a starved machine keeps up
    spec = JobSpec("train-a", ("h00", "h02"), qps=2, ports=ports, message_mb=1, chunk_kb=32, rate_bps=4_000_000)
    with Job.start(fabric, spec, tmp_path) as job:
        full = 4 * 4_000_000 * 1408 / 1510  # four queue pairs' limits, without headers
        wait_for(lambda: goodput_bps(job, 1.0) > 0.8 * full, 40)
        fault = fabric.inject("l0--s0", "black-hole")
        time.sleep(0.5)
        shares: list[float] = []
        wait_for(lambda: shares.append(goodput_bps(job, 2.0) / full) or shares[-1] > 0.4, 40)
        assert max(shares) < 0.6
        fabric.heal(fault.id)
        wait_for(lambda: goodput_bps(job, 1.0) > 0.8 * full, 40)
        assert job.stop()["checked_wrong"] == 0


def test_two_jobs_share_a_nic(fabric: Fabric, tmp_path: Path) -> None:
    first = JobSpec("a", ("h00", "h02"), message_mb=0.5)
    second = JobSpec("b", ("h00", "h02"), message_mb=0.5, collective="all-to-all")
    with Job.start(fabric, first, tmp_path) as a, Job.start(fabric, second, tmp_path) as b:
        blocks = {json.loads(p.read_text())["block"] for p in tmp_path.glob("*@h00.json")}
        assert blocks == {0, 1}
        wait_for(lambda: all(job.stats()["collectives"] >= 4 for job in (a, b)), 60)
        for job in (a, b):
            last = job.stop()
            assert (last["checked_wrong"], last["refused"]) == (0, 0)


@pytest.mark.parametrize("engine", [True, False])
def test_a_nic_goes_away_and_comes_back(fabric: Fabric, tmp_path: Path, engine: bool) -> None:
    with Job.start(fabric, JobSpec("train-a", ("h00", "h02"), message_mb=0.5, engine=engine), tmp_path) as job:
        time.sleep(0.5)
        for end in (None, A):
            fault = fabric.inject(A, "link-down", end=end)
            time.sleep(0.7)
            done = job.stats()["collectives"]
            time.sleep(0.3)
            assert job.stats()["collectives"] - done <= 1
            fabric.heal(fault.id)
            wait_for(lambda done=done: job.stats()["collectives"] > done + 1, 20)
        assert job.stop()["checked_wrong"] == 0


def test_a_job_that_was_killed_leaves_nothing_to_the_next_start(fabric: Fabric, tmp_path: Path) -> None:
    spec = JobSpec("train-a", ("h00", "h02"), collectives=2, message_mb=0.2)
    job = Job.start(fabric, JobSpec("train-a", ("h00", "h02")), tmp_path)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    assert job.wait(10) == {"job": "train-a", "returncode": -signal.SIGKILL}
    folder = next(iter(job.controls.values())).parent
    assert folder.exists() and (tmp_path / "train-a@h00.json").exists()
    with Job.start(fabric, spec, tmp_path) as again:
        assert not folder.exists()
        assert again.wait(30)["checked_right"] == 4


def test_a_job_ends_with_its_starter(fabric: Fabric, tmp_path: Path) -> None:
    job = Job.start(fabric, JobSpec("train-a", ("h00", "h02")), tmp_path)
    process = job._process
    assert process is not None and process.stdin is not None
    process.stdin.close()  # as the kernel does for a starter that dies
    assert job.wait(10)["checked_wrong"] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["train-a.log"]


def test_a_job_that_cannot_be_says_why(fabric: Fabric, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such NIC in the lab: h09/r0"):
        Job.start(fabric, JobSpec("train-a", ("h00", "h09")), tmp_path)
    assert list(tmp_path.glob("*.json")) == []


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Path]:
    yield Path(f"/tmp/sdf-emu-{os.getpid()}.sock")
    Path(f"/tmp/sdf-emu-{os.getpid()}.sock").unlink(missing_ok=True)


async def test_every_chunk_has_its_row_on_the_bus(tmp_path: Path, link: Path) -> None:
    spec = JobSpec("train-a", ("h00", "h02"), collectives=2, message_mb=0.5, chunk_kb=32)
    with up_or_skip_small() as running:
        bus = MemoryBus(time.time_ns)
        got = await bus.subscribe("test", [QP.name])
        server = LinkServer(bus, link)
        await server.start()
        job = await asyncio.to_thread(Job.start, running, spec, tmp_path, (), link)
        last = await asyncio.to_thread(job.wait, 30)
        rows: list[dict[str, Any]] = []
        while batch := await got.read(timeout_s=0.5):
            for message in batch:
                assert isinstance(message.body, pa.RecordBatch)
                assert {r["src"].partition("/")[0] for r in message.body.to_pylist()} == {message.key}
                rows += message.body.to_pylist()
        await server.close()
        await bus.close()
    assert last["checked_right"] == 4
    assert sum(r["bytes"] for r in rows) == last["payload_bytes"]
    assert {(r["job"], r["collective"], r["dst_port"], r["dscp"]) for r in rows} == {
        ("train-a", "all-reduce", 4791, 26)
    }
    assert len({(r["qp"], r["chunk"]) for r in rows}) == len(rows)
    for r in rows:
        assert r["packets"] == -(-r["bytes"] // 1408)
        assert r["clock_src"] == r["src"].partition("/")[0] and r["clock_dst"] == r["dst"].partition("/")[0]
        if r["arrived_at_ns"] is not None:
            assert r["sent_at_ns"] <= r["arrived_at_ns"] <= r["completed_at_ns"] <= r["acknowledged_at_ns"]
    assert sum(r["arrived_at_ns"] is not None for r in rows) > len(rows) * 0.95


def up_or_skip_small() -> Fabric:
    from tests.fixtures.lab import SMALL

    return up_or_skip(SMALL)
