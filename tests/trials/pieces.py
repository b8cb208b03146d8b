"""The same as `world`, but pipeline and agent are processes of their own that can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sdfstream import settings
from sdfstream.actuate import keys_io
from sdfstream.actuate.config import ActuateConfig
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.demo.lab_source_io import die_with
from sdfstream.errors import LabUnavailableError
from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.lab.job_io import Job
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import Signer
from sdfstream.records.topics import COMMAND, OUTCOME, TOPOLOGY
from sdfstream.serve.data_folder import JOBS, LINK_SOCKET
from sdfstream.settings import Settings
from tests.bench.harness import SkippedError
from tests.trials.world import HOLD_DOWN_MS, MESH, SPEC

STARTED_S: Final = 20.0


@dataclass
class Pieces:
    """A lab that this process owns, and pipeline and agent as children."""

    fabric: Fabric
    data: Path
    mesh: MeshSpec
    signer: Signer
    """The controller's own key: what is signed by it is obeyed."""
    children: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    said: list[dict[str, Any]] = field(default_factory=list)
    """Data of every outcome that came over the link."""
    _link: LinkPublisher | None = None
    _listener: asyncio.Task[None] | None = None

    @property
    def jobs_dir(self) -> Path:
        return self.data / JOBS

    async def start(self, name: str) -> None:
        """Start ``pipeline`` or ``agent``; returns when the pipeline can be talked to."""
        with (self.data / f"{name}.log").open("ab") as log:
            self.children[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sdfstream", *self._arguments(name),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with(os.getpid()),
            )  # fmt: skip
        if name == "pipeline":
            await self._connect()

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        child = self.children.pop(name)
        child.send_signal(signal.SIGKILL)
        await child.wait()

    async def publish(self, *outputs: Output) -> None:
        """Put something on the bus as an agent does."""
        assert self._link is not None
        await self._link.publish(outputs)

    async def command(self, data: dict[str, Any], signer: Signer | None = None) -> dict[str, Any]:
        """Sign a command (None: by the controller's key), publish it and return it as signed."""
        signed = (signer or self.signer).sign(data)
        await self.send(signed)
        return signed

    async def send(self, signed: dict[str, Any]) -> None:
        """Publish a command as it stands."""
        number = f"{signed['id']}-{time.time_ns()}"
        event = Event(COMMAND.name, "trial", number, time.time_ns(), signed)
        await self.publish(Output(COMMAND.name, str(signed["target"]["host"]), event))

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        if self._link is not None:
            await self._link.close()
        for name in list(self.children):
            await self.kill(name)

    def _arguments(self, name: str) -> list[str]:
        if name == "pipeline":
            return ["up", "--config", str(self.data / "settings.yaml")]
        return ["agent", "--config", str(self.data / "agent.yaml"), "--bus", f"link:{self.data / LINK_SOCKET}"]

    async def _connect(self) -> None:
        if self._link is None:
            self._link = LinkPublisher(self.data / LINK_SOCKET)
            self._link.subscribe([OUTCOME.name])
            self._link.start()
            self._listener = asyncio.create_task(self._listen(self._link))
        for _ in range(int(STARTED_S / 0.1)):
            if (self.data / LINK_SOCKET).is_socket() and (self.data / "keys" / "controller.pub").exists():
                break
            await asyncio.sleep(0.1)
        declared = Event("sdf.state.topology.declared.v1", "trial", "declared", time.time_ns(), self.fabric.topology())
        await self.publish(Output(TOPOLOGY.name, "declared", declared))

    async def _listen(self, link: LinkPublisher) -> None:
        while True:
            for message in await link.read(1.0):
                if isinstance(message.body, Event):
                    self.said.append({**message.body.data, "bus_at_ns": message.bus_at_ns})


@asynccontextmanager
async def pieces(
    spec: FabricSpec = SPEC, mesh: MeshSpec = MESH, actuate: ActuateConfig | None = None
) -> AsyncIterator[Pieces]:
    """Lab, pipeline and agent, started; all of it is gone afterwards."""
    try:
        fabric = Fabric.up(replace(spec, name=f"trial-{os.getpid()}"))
    except LabUnavailableError as error:
        raise SkippedError(f"no lab on this machine: {error}") from error
    config = actuate or ActuateConfig(mode="enforce", hold_down_ms=HOLD_DOWN_MS)
    async with AsyncExitStack() as stack:
        stack.enter_context(fabric)
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sdf-trial-")))
        keys = keys_io.load(data)
        here = Pieces(fabric, data, mesh, keys.signer)
        here.jobs_dir.mkdir()
        (data / "settings.yaml").write_text(settings.dump(Settings(data=data, actuate=config)))
        agent = replace(
            fabric.agent_config(mesh),
            jobs_dir=str(here.jobs_dir),
            control=True,
            trusted_keys=(str(keys.public),),
            control_state=str(data / "agent-control.json"),
        )
        (data / "agent.yaml").write_text(settings.dump(agent))
        stack.push_async_callback(here.close)
        await here.start("pipeline")
        await here.start("agent")
        yield here


def throttle(qp: dict[str, Any], job: Job, number: str, lease_s: float, rate_bps: int, epoch: int) -> dict[str, Any]:
    """An unsigned command that limits a queue pair for `lease_s`."""
    now_ns = time.time_ns()
    return {
        "id": number,
        "epoch": epoch,
        "issued_at_ns": now_ns,
        "expires_at_ns": now_ns + int(lease_s * 1e9),
        "mode": "enforce",
        "action": "throttle",
        "target": {"type": "qp", "id": qp["qp"], "host": qp["src"].partition("/")[0], "job": job.name},
        "expected": {"path": qp["path"]},
        "set": {"rate_bps": rate_bps},
        "undo": {"rate_bps": None},
        "reason": ["trial"],
    }
