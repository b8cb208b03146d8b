"""Emulated training jobs on a lab: each a process of its own, queried and stopped over its control sockets.

The process is ``sdfstream lab job run``: its configuration is one JSON line on standard input, its output ``ready``
(or why not) and at its end its figures. As long as standard input is open its starter lives; the job ends with the
starter, however that ends, unless it was started to stay.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from sdfstream.emulator.process_files_io import free_block, remove_leftovers, shards
from sdfstream.emulator.rank_plan import BLOCKS, JobSpec, NicEndpoint
from sdfstream.errors import ConfigError, LabUnavailableError, UnavailableError
from sdfstream.lab.client_io import RunningLab
from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.runtime_io import LabFolder
from sdfstream.probes.config import VirtualClock

_START_S: Final = 60.0
_STOP_S: Final = 20.0
_ANSWER_S: Final = 30.0
RUN: Final = (sys.executable, "-m", "sdfstream", "lab", "job", "run")


class Job:
    """A running job; a context manager that stops it.

    ``Job.start`` starts one; ``Job.find`` finds one that runs already.
    """

    def __init__(self, name: str, jobs_dir: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        self.name = name
        self.jobs_dir = jobs_dir
        self._process = process
        self._last: dict[str, Any] | None = None
        self.controls = {str(shard["host"]): Path(shard["control"]) for shard in shards(jobs_dir).get(name, [])}
        """Control socket of every host's share."""

    @classmethod
    def start(
        cls,
        lab: Fabric | RunningLab,
        spec: JobSpec,
        jobs_dir: Path,
        trusted_keys: Iterable[bytes] = (),
        bus_link: Path | None = None,
        *,
        virtual_clocks: Mapping[str, VirtualClock] | None = None,
        stays: bool = False,
    ) -> Job:
        """Start a job and wait until its first packets can leave; its block of ports is chosen here.

        Parameters
        ----------
        lab : Fabric or RunningLab
        spec : JobSpec
        jobs_dir : Path
            Drop directory; must be the same for all jobs of the lab.
        trusted_keys : iterable of bytes
            Public keys whose commands it obeys.
        bus_link : Path or None
            Socket of the pipeline that its rows go to.
        virtual_clocks : mapping of host to VirtualClock, optional
            As in the mesh: the rows' stamps are these clocks'.
        stays : bool
            Outlive us.

        Raises
        ------
        ConfigError, UnavailableError
            It does not start; the message says why.
        """
        jobs_dir = jobs_dir.absolute()
        spec = replace(spec, block=free_block(jobs_dir, range(BLOCKS)))
        config = {
            "spec": asdict(spec),
            "places": [asdict(nic) for nic in nics_of(lab, spec)],
            "jobs_dir": str(jobs_dir),
            "keys": [bytes(key).hex() for key in trusted_keys],
            "link": str(bus_link) if bus_link else None,
            "virtual_clocks": {host: asdict(clock) for host, clock in (virtual_clocks or {}).items()},
            "stays": stays,
        }
        jobs_dir.mkdir(parents=True, exist_ok=True)
        command = lab.inside_command(RUN) if isinstance(lab, RunningLab) else list(RUN)
        process = _spawn(command, config, jobs_dir / f"{spec.name}.log", stays=stays)
        return cls(spec.name, jobs_dir, None if stays else process)

    @classmethod
    def find(cls, name: str, jobs_dir: Path) -> Job:
        """A job that was started to stay, or by another process; ConfigError when there is none of that name."""
        job = cls(name, jobs_dir)
        if not job.controls:
            raise ConfigError(f"no job named {name!r} in {jobs_dir}")
        return job

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Its process, where it is our child."""
        return self._process.pid if self._process else None

    def ask(self, host: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Put one request to the control socket of `host` and return the answer.

        Raises
        ------
        UnavailableError
            It does not answer.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_ANSWER_S)
                client.connect(str(self.controls[host]))
                client.sendall(json.dumps(request).encode() + b"\n")
                with client.makefile("rb") as stream:
                    answer: dict[str, Any] = json.loads(stream.readline())
        except (OSError, ValueError, KeyError) as error:
            raise UnavailableError(f"job {self.name} does not answer for {host}: {error}") from error
        return answer

    def queue_pairs(self, host: str) -> list[dict[str, Any]]:
        """The queue pairs that begin on `host`, as its control socket lists them."""
        pairs: list[dict[str, Any]] = self.ask(host, {"do": "list"})["qps"]
        return pairs

    def stats(self) -> dict[str, Any]:
        """Figures since its start; the last ones when it has ended."""
        if self._last is not None:
            return self._last
        return self.ask(next(iter(self.controls)), {"do": "stats"})

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """Wait until it ends by itself; its last figures. UnavailableError when it does not, or is not our child."""
        if self._last is None:
            if self._process is None:
                raise UnavailableError(f"job {self.name} is not ours to wait for")
            out = _read_to_end(self._process, timeout_s)
            if out is None:
                raise UnavailableError(f"job {self.name} still runs after {timeout_s} s")
            self._process.wait()
            _close(self._process)
            self._last = _last_words(out) or {"job": self.name, "returncode": self._process.returncode}
        return self._last

    def stop(self) -> dict[str, Any]:
        """Stop it and wait until it is gone; its last figures. Calling it again is fine."""
        if self._process is None:
            return self._stop_foreign()
        if self._last is None:
            self._process.terminate()
            try:
                self.wait(_STOP_S)
            except UnavailableError:
                self._process.kill()
                self.wait(_STOP_S)
            remove_leftovers(self.jobs_dir, self.name)
        return self._last or {}

    def _stop_foreign(self) -> dict[str, Any]:
        if self._last is None:
            self._last = self.stats()
            self.ask(next(iter(self.controls)), {"do": "stop"})
            end_s = time.monotonic() + _STOP_S
            while shards(self.jobs_dir).get(self.name) and time.monotonic() < end_s:
                time.sleep(0.02)
        return self._last


def nics_of(lab: Fabric | RunningLab, spec: JobSpec) -> list[NicEndpoint]:
    """The ranks' NICs in a lab; ConfigError when there is no such host or rail."""
    config = lab.agent_config(MeshSpec(peers_per_nic=1, ports_per_peer=1), spec.hosts)
    nics = {nic.nic: nic for host in config.hosts for nic in host.nics}
    chosen = [f"{host}/r{spec.rail}" for host in spec.hosts]
    for name in chosen:
        if name not in nics:
            raise ConfigError(f"job {spec.name}: no such NIC in the lab: {name}")
    return [NicEndpoint(n.nic, n.device, n.address, n.netns) for n in (nics[name] for name in chosen)]


def default_jobs_dir(lab: str) -> Path:
    """The drop directory of a lab that was started from the command line; it goes with the lab."""
    return LabFolder(lab).path / "jobs"


def _spawn(command: Sequence[str], config: Mapping[str, Any], log: Path, *, stays: bool) -> subprocess.Popen[bytes]:
    """Start the process and wait until it is ready; it is killed where it does not become so."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    try:
        _send_config(process, config, stays=stays)
        _wait_until_ready(process, log)
    except BaseException:
        process.kill()
        process.wait()
        _close(process)
        raise
    if stays:
        _close(process)
    return process


def _send_config(process: subprocess.Popen[bytes], config: Mapping[str, Any], *, stays: bool) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return  # the process has ended; its output is read next
    if stays:
        process.stdin.close()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.stdout is not None
    output = b""
    end_s = time.monotonic() + _START_S
    while not output.endswith(b"\n"):
        if not _is_readable(process.stdout, end_s):
            raise LabUnavailableError(f"the job did not start within {_START_S:g} s; see {log}")
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            raise LabUnavailableError(f"the job ended at once: {log.read_text()[-400:].strip()}")
        output += piece
    word, _, rest = output.decode().strip().partition(": ")
    if word != "ready":
        raise (ConfigError if word == "ConfigError" else LabUnavailableError)(rest)


def _read_to_end(process: subprocess.Popen[bytes], timeout_s: float) -> bytes | None:
    """A process's output to its end; None when it runs longer. Its standard input stays open meanwhile."""
    assert process.stdout is not None
    output = b""
    end_s = time.monotonic() + timeout_s
    while _is_readable(process.stdout, end_s):
        piece = os.read(process.stdout.fileno(), 65_536)
        if not piece:
            return output
        output += piece
    return None


def _last_words(out: bytes) -> dict[str, Any]:
    try:
        words: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return words


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def _is_readable(stream: IO[bytes], end_s: float) -> bool:
    """Whether there is something to read, or the end, before the steady clock says `end_s`; for any descriptor."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(max(0.0, end_s - time.monotonic()) * 1e3))
