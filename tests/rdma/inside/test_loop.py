"""The whole loop on a real queue pair: quick probes find a black hole, and the agent's packet engine orders what the
controller, outside of this guest, has armed. No command is made up here, and the job's chunks are rows on the bus.

Trials, the probes' rate and the controller's key come from ``tests/rdma/loop.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import sdfstream
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig
from sdfstream.verbs import rows
from sdfstream.verbs.chunks import CarriedMessage
from sdfstream.verbs.endpoint_io import Completion, ConnectionSettings
from sdfstream.verbs.library_io import Verbs
from tests.rdma.inside import fabric
from tests.rdma.inside.agents import ENDS, UDP_PORT, udp_session, until
from tests.rdma.inside.offered import Offered, offer
from tests.rdma.inside.pairs import SLOT_BYTES, Pair, figure
from tests.rdma.inside.running import agents, leads_out

LIMIT_S = 400
"""Of processor time."""
KEY, TRIALS, RATE_HZ = "SDFSTREAM_CONTROLLER_KEY", "SDFSTREAM_TRIALS", "SDFSTREAM_RATE_HZ"
PORT = 0xC010
SLOTS, CHUNK_BYTES, MTU_BYTES = 2, 1024, 4096
PACE_S = 0.01
LOOK_S, PATIENCE_S = 0.002, 30.0
ROWS_S = 2.0


def config(folder: Path, key: Path) -> AgentConfig:
    """Both hosts; two quick paths each way, one by each of the fabric's."""
    hosts = tuple(
        HostConfig(
            host,
            (NicConfig(f"{host}/r0", device, fabric.ADDRESSES[device]),),
            (udp_session(host, (50_000, 50_001), 2.0),),
        )
        for host, device in ENDS.items()
    )
    ways = [fabric.predicted(port, UDP_PORT) for port in range(49_600, 49_632)]
    first = 49_600 + next(n for n in range(31) if ways[n] != ways[n + 1])
    watch = {"watch_ports": 2, "watch_first_port": first, "watch_spare_ports": 0}
    rate = {"watch_rate_hz": float(os.environ[RATE_HZ])}
    slow = {"flush_ms": 500, "port_interval_ms": 5000, "trace_interval_s": 20.0}
    plain = {"clock_pages": "off", "spill_bytes": 0, "jobs_dir": str(folder / "jobs")}
    control = {"control": True, "trusted_keys": (str(key),), "control_state": str(folder / "leases.json")}
    return AgentConfig(hosts, reflector_port=UDP_PORT, **watch, **rate, **slow, **plain, **control)  # type: ignore[arg-type]


@dataclass
class Work:
    """What the job does all the while: a chunk every ten milliseconds, as long as a few at most are unacknowledged."""

    offered: Offered
    publisher: LinkPublisher
    wanted: bool = True
    failed: int = 0
    acknowledged_at_ns: list[int] = field(default_factory=list)
    _free: list[int] = field(default_factory=lambda: list(range(SLOTS)))
    _sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Slot to chunk and when it was posted."""
    _carried: list[CarriedMessage] = field(default_factory=list)
    _chunks: int = 0

    async def run(self) -> None:
        said_s = time.monotonic()
        while self.wanted:
            if self._free:
                self._post(self._free.pop())
            self._take()
            if time.monotonic() > said_s + ROWS_S:
                said_s = time.monotonic()
                await self._say()
            await asyncio.sleep(PACE_S)

    def _post(self, slot: int) -> None:
        pair, at = self.offered.pair, slot * SLOT_BYTES
        assert pair.b.receive(slot, at, SLOT_BYTES) == 0
        assert pair.a.send(slot, at, CHUNK_BYTES) == 0
        self._sent[slot] = (self._chunks, time.time_ns())
        self._chunks += 1

    def _take(self) -> None:
        self.offered.pair.b.completions()
        self._free += [self._took(completion) for completion in self.offered.pair.a.completions()]

    def _took(self, completion: Completion) -> int:
        """Note that a chunk has ended; its slot."""
        now_ns = time.time_ns()
        chunk, sent_at_ns = self._sent[completion.id]
        self.failed += completion.status != 0
        if completion.status == 0:
            self.acknowledged_at_ns.append(now_ns)
            path = self.offered.live.path
            self._carried.append(CarriedMessage(chunk, CHUNK_BYTES, sent_at_ns, now_ns, 1, path))
        return completion.id

    async def until_flowing(self, since_ns: int) -> None:
        """Until it has moved and a chunk is acknowledged after that, looked for more often than the job itself does."""
        ends_s = time.monotonic() + PATIENCE_S
        moved_at_ns = since_ns
        while moved_at_ns <= since_ns or self.acknowledged_at_ns[-1] <= moved_at_ns:
            assert time.monotonic() < ends_s, "nothing flows"
            await asyncio.sleep(LOOK_S)
            moved_at_ns = int(self.offered.live.moved_at_ns)
            if moved_at_ns > since_ns:
                self._take()

    async def _say(self) -> None:
        """Rows of what was carried meanwhile."""
        carried, self._carried = self._carried, []
        if carried:
            await self.publisher.publish([rows.output("train", self.offered.about, carried, MTU_BYTES)])


class BlackHole:
    """Takes the packets of one of r1's paths away, at once: ``tc`` has started beforehand."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tc = subprocess.Popen(["tc", "-n", "r1", "-batch", "-"], stdin=subprocess.PIPE, text=True)

    def open(self) -> int:
        """Begin; the time of day, ns, before."""
        at_ns = time.time_ns()
        self._do(f"qdisc replace dev {self._path} root netem loss 100%")
        return at_ns

    def close(self) -> None:
        self._do(f"qdisc del dev {self._path} root")

    def end(self) -> None:
        assert self._tc.stdin is not None
        self._tc.stdin.close()
        assert self._tc.wait(10) == 0

    def _do(self, line: str) -> None:
        assert self._tc.stdin is not None
        self._tc.stdin.write(line + "\n")
        self._tc.stdin.flush()


def armed(leases: Path) -> set[int]:
    """Paths from which a failover of h00's queue pair is armed, by its agent's own record."""
    if not leases.exists():
        return set()
    known = json.loads(leases.read_text())["hosts"].get("h00", {}).get("leases", ())
    return {
        lease["data"]["expected"]["path"]
        for lease in known
        if lease["data"]["action"] == "failover" and lease["state"] == "armed"
    }


async def trials(offered: Offered, work: Work, leases: Path, hole: BlackHole) -> tuple[list[float], list[float]]:
    """Milliseconds from each black hole to the move, and to the first chunk acknowledged after it."""
    moved_ms, flowing_ms = [], []
    while len(flowing_ms) < int(os.environ[TRIALS]):
        await until(lambda: offered.live.path == PORT and PORT in armed(leases), "armed")
        await asyncio.sleep(1)
        if offered.live.path != PORT:
            continue  # a needless move: a starved guest's probes came late; `loop` counts them
        hole_at_ns = hole.open()
        await work.until_flowing(hole_at_ns)
        moved_at_ns = offered.live.moved_at_ns
        first_at_ns = next(at_ns for at_ns in work.acknowledged_at_ns if at_ns > moved_at_ns)
        moved_ms.append((moved_at_ns - hole_at_ns) / 1e6)
        flowing_ms.append((first_at_ns - hole_at_ns) / 1e6)
        print(
            f"trial {len(flowing_ms)}: hole at {hole_at_ns}, moved {moved_ms[-1]:.1f}, flowing {flowing_ms[-1]:.1f} ms",
            flush=True,
        )
        assert fabric.predicted(offered.live.path) != fabric.predicted(PORT)
        await asyncio.sleep(0.5)
        hole.close()
    await until(lambda: offered.live.path == PORT, "back")
    return moved_ms, flowing_ms


async def tell(offered: Offered, leases: Path, link: Path, hole: BlackHole) -> tuple[Work, list[float], list[float]]:
    async with LinkPublisher(link) as publisher:
        work = Work(offered, publisher)
        working = asyncio.create_task(work.run())
        try:
            moved_ms, flowing_ms = await trials(offered, work, leases, hole)
        finally:
            work.wanted = False
            await asyncio.wait_for(working, 30)
        return work, moved_ms, flowing_ms


def test_probes_find_a_black_hole_and_the_queue_pair_leaves_it(
    devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)  # where the packet engine lies that the host compiled
    os.setpriority(os.PRIO_PROCESS, 0, -10)  # on a host a job has cores of its own
    (tmp_path / "jobs").mkdir()
    key, link, rows_link = Path(os.environ[KEY]), tmp_path / "agents.sock", tmp_path / "rows.sock"
    with leads_out("agents", link), leads_out("rows", rows_link), agents(config(tmp_path, key), link):
        # 8 ms a retry, of which Soft-RoCE makes as many as it takes
        pair = Pair(Verbs(), "rxa0", "rxb0", ConnectionSettings(PORT, dscp=26, timeout=11, retries=7))
        hole = BlackHole(fabric.predicted(PORT))
        far = {"job": "train", "src": "h04/r0", "dst": "h00/r0", "keys": [str(key)], "jobs_dir": tmp_path / "jobs"}
        with (
            offer(pair, "h00/r0", "h04/r0", tmp_path, key) as offered,
            sdfstream.steerable(pair.b.qp, pair.b.context, **far),
        ):
            work, moved_ms, flowing_ms = asyncio.run(tell(offered, tmp_path / "leases.json", rows_link, hole))
        hole.end()
        pair.close()
    every = f"probes every {1e3 / float(os.environ[RATE_HZ]):.0f} ms"
    figure(f"{every}: black hole to the move", moved_ms)
    figure(f"{every}: black hole to the first chunk acknowledged after it", flowing_ms)
    print(f"figure chunks: {len(work.acknowledged_at_ns)} acknowledged, {work.failed} failed")
    assert not work.failed
