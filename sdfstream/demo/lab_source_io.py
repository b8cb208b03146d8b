"""A lab as the source of a running pipeline: one agent process over all lab hosts, and the declared cabling."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sdfstream import settings
from sdfstream.errors import UnavailableError
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import TOPOLOGY
from sdfstream.serve.data_folder import CLOCK_PAGES

if TYPE_CHECKING:
    from sdfstream.lab.client_io import RunningLab
    from sdfstream.lab.fabric_io import Fabric
    from sdfstream.lab.mesh import MeshSpec
    from sdfstream.probes.config import AgentConfig
    from sdfstream.serve.service_io import Service

STOP_S: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1


@asynccontextmanager
async def lab_source(
    fabric: Fabric | RunningLab, service: Service, mesh: MeshSpec
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Declare the cabling and run the agent process while the block runs; it dies with this process, come what may.

    The agent looks for jobs in `service_io.jobs_dir` and, where the service has a controller, obeys its commands.
    """
    await service.bus.publish([declared(fabric)])
    folder = service.link.parent
    config = folder / "agent.yaml"
    config.write_text(settings.dump(_with_control(fabric.agent_config(mesh), service), with_secrets=True))
    log = folder / "agent.log"
    with log.open("wb") as out:
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sdfstream", "agent", "--config", str(config), "--bus", f"link:{service.link}",
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with(os.getpid()),
            start_new_session=True,  # an interrupt at the terminal is for us alone
        )  # fmt: skip
    try:
        await asyncio.sleep(0.5)
        if agent.returncode is not None:
            raise UnavailableError(f"the agent ended at once: {log.read_text()[-400:].strip()}")
        yield agent
    finally:
        if agent.returncode is None:
            agent.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(agent.wait(), STOP_S)
            except TimeoutError:
                agent.kill()
                await agent.wait()


def _with_control(config: AgentConfig, service: Service) -> AgentConfig:
    pages = service.link.parent / CLOCK_PAGES
    config = replace(config, jobs_dir=str(service.jobs_dir.absolute()), clock_pages=str(pages.absolute()))
    if service.controller_key is None:
        return config
    state = service.link.parent / "agent-control.json"
    keys = (str(service.controller_key.absolute()),)
    return replace(config, control=service.commands, trusted_keys=keys, control_state=str(state))


def declared(fabric: Fabric | RunningLab) -> Output:
    """The event that declares a lab's cabling."""
    event = Event(
        type=DECLARED_TYPE,
        source="lab",
        id=f"declared-{uuid.uuid4().hex[:8]}",
        time_ns=time.time_ns(),
        data=fabric.topology(),
    )
    return Output(TOPOLOGY.name, "declared", event)


def die_with(parent: int) -> Callable[[], None]:
    """What a child does first so that it never outlives `parent`; the signal comes when the forking *thread* ends."""
    libc = ctypes.CDLL(None)

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return in_child
