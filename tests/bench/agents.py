"""Agent processes of a measurement, and the bus that takes what they publish."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from sdfstream import settings
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.memory.reader_io import MemorySubscription
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.engine.build_io import compiled
from sdfstream.records.topics import PROBE
from tests.bench.harness import SkippedError, process

NOBODY = 65_534
HOME = "home"
"""Of agents that run as another user, in the measurement's folder."""
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def taken(folder: Path, user: int | None = None) -> AsyncIterator[tuple[Path, MemorySubscription]]:
    """A link that agents of `user` may publish to, and the probe rows that come by it."""
    bus = MemoryBus(time.time_ns, boot_id="bench")
    rows = await bus.subscribe("bench", [PROBE.name])
    link = LinkServer(bus, folder / "s")
    await link.start()
    if user is not None:
        os.chown(folder / "s", user, user)
        _home(folder / HOME, user)
    try:
        yield folder / "s", rows
    finally:
        await link.close()
        await bus.close()


@contextlib.contextmanager
def agent(config: AgentConfig, folder: Path, name: str, link: Path, user: int | None = None) -> Iterator[int]:
    """An agent process on `config` while the block runs; its process id."""
    file = folder / f"{name}.yaml"
    file.write_text(settings.dump(config))
    command = [sys.executable, "-m", "sdfstream", "agent", "--config", str(file), "--bus", f"link:{link}"]
    environment = dict(os.environ)
    if user is not None:
        command = [*as_user(user), *command]
        environment["HOME"] = str(folder / HOME)
    with process(command, folder / f"{name}.log", cwd=ROOT, env=environment) as running:
        yield running.pid


def _home(home: Path, user: int) -> None:
    """A home for `user` with the packet engine in it, as an installed package has it: nobody's own holds none."""
    home.mkdir()
    with contextlib.suppress(UnavailableError):  # without a compiler agents run on numpy, and say so
        compiled(cache=home / ".cache" / "sdfstream" / "engine")
    for path in (home, *home.rglob("*")):
        os.chown(path, user, user)


def as_user(user: int) -> list[str]:
    """What makes a command run as an ordinary user without any capability."""
    if shutil.which("setpriv") is None:
        raise SkippedError("no setpriv (util-linux) here to become an ordinary user")
    drop = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    return ["setpriv", *drop, "--no-new-privs"]
