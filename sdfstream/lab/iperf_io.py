"""iperf3, unmodified, as a workload of the lab: its flows are a job like any other, steered from outside.

Every flow has a server of its own on the receiving host and a fixed source port, so that a hash can be made to put
several on one spine. The job's files in the drop directory say ``steering: kernel``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from sdfstream.errors import LabUnavailableError
from sdfstream.lab.network_io import LabNetwork
from sdfstream.records.fabric import QueuePair, host_of
from sdfstream.records.job import FILE_VERSION, JobShard, Rank

FIRST_SERVER_PORT: Final = 5201
_START_S: Final = 5.0
_PAYLOAD_BYTES: Final = 1400


@dataclass(frozen=True, slots=True)
class IperfFlow:
    """One flow: from NIC, to NIC, with this source port; `rate_bps` is UDP payload, None: TCP, as fast as it gets."""

    src: str
    dst: str
    source_port: int
    rate_bps: int | None = None
    alternates: tuple[int, ...] = ()
    """Source ports that a switch may be shown instead."""


class IperfJob:
    """iperf3 flows that run until `stop` or for `seconds`; a context manager.

    Raises
    ------
    LabUnavailableError
        There is no iperf3, or a server or client did not start.
    """

    def __init__(self, lab: LabNetwork, job: str, flows: Sequence[IperfFlow], jobs_dir: Path, seconds: float) -> None:
        program = shutil.which("iperf3")
        if program is None:
            raise LabUnavailableError("iperf3 is not installed")
        self.job = job
        self.flows = tuple(flows)
        self._lab = lab
        with ExitStack() as undo:
            servers = [self._serve(undo, program, number) for number in range(len(flows))]
            self._wait_until_listening(servers)
            self.clients = [self._send(undo, program, number, seconds) for number in range(len(flows))]
            for path in self._declare(jobs_dir):
                undo.callback(path.unlink, missing_ok=True)
            self._open = undo.pop_all()

    def __enter__(self) -> IperfJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all flows and take the job's files away; calling it again is fine."""
        self._open.close()

    @property
    def running(self) -> bool:
        """Whether every client still sends: none was restarted, none has ended."""
        return all(client.poll() is None for client in self.clients)

    def received_bytes(self) -> list[int]:
        """Per flow, bytes that the receiving NIC took since it was built (flows that share a NIC see the sum)."""
        return [self._lab.counters(f"{self._leaf(flow.dst)}->{flow.dst}")[1] for flow in self.flows]

    def queue_pair(self, number: int) -> QueuePair:
        """A flow as the job map names it."""
        flow = self.flows[number]
        tcp = flow.rate_bps is None
        port = FIRST_SERVER_PORT + number
        return QueuePair(
            qp=f"{flow.src}#{flow.source_port}",
            rank=number,
            peer_rank=number,
            src=flow.src,
            dst=flow.dst,
            dst_address=self._address(flow.dst),
            path=flow.source_port,
            dst_port=port,
            protocol="tcp" if tcp else "udp",
            answer_path=port,
            answer_port=flow.source_port,
            steering="kernel",
            alternates=flow.alternates,
            src_address=self._address(flow.src),
            counted="sent" if tcp else "received",
        )

    def _declare(self, jobs_dir: Path) -> list[Path]:
        """One file per host that a flow begins or ends on."""
        jobs_dir.mkdir(parents=True, exist_ok=True)
        pairs = [self.queue_pair(number) for number in range(len(self.flows))]
        made = []
        for host in sorted({host_of(nic) for flow in self.flows for nic in (flow.src, flow.dst)}):
            shard = JobShard(
                job=self.job,
                host=host,
                name=f"iperf3 {self.job}",
                since_at_ns=time.time_ns(),
                ranks=tuple(Rank(q.rank, (q.src,)) for q in pairs if host_of(q.src) == host),
                qps=tuple(q for q in pairs if host_of(q.src) == host),
                receives=tuple(q for q in pairs if host_of(q.dst) == host),
            )
            path = jobs_dir / f"{self.job}@{host}.json"
            new = path.with_suffix(".new")
            new.write_text(json.dumps({"version": FILE_VERSION, **shard.as_data()}))
            new.replace(path)
            made.append(path)
        return made

    def _serve(self, undo: ExitStack, program: str, number: int) -> tuple[str, int]:
        flow, port = self.flows[number], FIRST_SERVER_PORT + number
        # -1: a server serves one client and ends, so that nothing outlives the last client, come what may
        self._run(undo, flow.dst, [program, "-s", "-1", "-p", str(port), "-B", self._address(flow.dst)])
        return flow.dst, port

    def _send(self, undo: ExitStack, program: str, number: int, seconds: float) -> subprocess.Popen[bytes]:
        flow, port = self.flows[number], FIRST_SERVER_PORT + number
        command = [
            program, "-c", self._address(flow.dst), "-B", self._address(flow.src), "-p", str(port),
            "--cport", str(flow.source_port), "-t", str(max(1, round(seconds))),
        ]  # fmt: skip
        if flow.rate_bps is not None:
            command += ["-u", "-b", str(flow.rate_bps), "-l", str(_PAYLOAD_BYTES)]
        return self._run(undo, flow.src, command)

    def _run(self, undo: ExitStack, nic: str, command: list[str]) -> subprocess.Popen[bytes]:
        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

        child = self._lab.namespaces.run(host_of(nic), start)
        undo.callback(_end, child)
        return child

    def _wait_until_listening(self, servers: Sequence[tuple[str, int]]) -> None:
        end_s = time.monotonic() + _START_S
        for nic, port in servers:
            while port not in self._lab.namespaces.run(host_of(nic), _listening_ports):
                if time.monotonic() > end_s:
                    raise LabUnavailableError(f"iperf3 does not listen on {nic} port {port}")
                time.sleep(0.02)

    def _address(self, nic: str) -> str:
        address: str = self._lab.plan.nic(nic).a.address
        return address

    def _leaf(self, nic: str) -> str:
        return str(self._lab.plan.nic(nic).b.node)


def _listening_ports() -> set[int]:
    """TCP ports with a listener in this thread's network namespace."""
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            rows = Path(f"/proc/thread-self/net/{name}").read_text().splitlines()[1:]
            found |= {int(row.split()[1].rpartition(":")[2], 16) for row in rows if row.split()[3] == "0A"}
    return found


def _end(child: subprocess.Popen[Any]) -> None:
    child.terminate()
    try:
        child.wait(2.0)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
