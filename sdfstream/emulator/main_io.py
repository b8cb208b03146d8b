"""The process of one emulated job: its configuration on standard input, its figures on standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from sdfstream.agent.bus_io import open_publisher
from sdfstream.emulator.process_io import run_job
from sdfstream.emulator.rank_plan import JobSpec, NicEndpoint, plan
from sdfstream.errors import SdfError
from sdfstream.probes.config import VirtualClock
from sdfstream.probes.net.netns_io import inside
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.signature import KeyRing
from sdfstream.runtime import loop_io


def main() -> int:
    """Read the configuration from standard input (`lab.job_io` writes it), run the job, print its figures."""
    config = json.loads(_first_line())
    try:
        last = loop_io.run(_serve(config))
    except SdfError as error:
        _say(f"{type(error).__name__}: {error}")
        return 2
    _say(json.dumps(last))
    return 0


async def _serve(config: dict[str, Any]) -> dict[str, Any]:
    stop = asyncio.Event()
    loop_io.stop_on_signals(stop.set)
    if not config["stays"]:
        _stop_with_starter(stop)
    spec = JobSpec(
        **{**config["spec"], "hosts": tuple(config["spec"]["hosts"]), "ports": tuple(config["spec"]["ports"])}
    )
    clocks = {host: Clock(VirtualClock(**wrong)).at for host, wrong in config["virtual_clocks"].items()}
    keys = KeyRing(bytes.fromhex(key) for key in config["keys"])
    async with contextlib.AsyncExitStack() as stack:
        publisher = None
        if config["link"]:
            link = open_publisher(f"link:{config['link']}", secrets.token_hex(8), hold=False)  # nothing is held here
            publisher = await stack.enter_async_context(link)
        return await run_job(
            plan(spec, [NicEndpoint(**nic) for nic in config["places"]]),
            Path(config["jobs_dir"]),
            keys,
            stop,
            enter=inside,
            clock_of=lambda host: clocks.get(host, _true),
            run=secrets.randbits(32),
            publisher=publisher,
            ready=lambda: _say("ready"),
        )


def _true(at_ns: int) -> int:
    return at_ns


def _first_line() -> bytes:
    """Read to the end of the line and no further: what follows is the end of standard input."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65_536)
        if not piece:
            break
        line += piece
    return line


def _stop_with_starter(stop: asyncio.Event) -> None:
    """End when standard input does: our starter stopped us, or died."""
    running = asyncio.get_running_loop()

    def ended() -> None:
        if not os.read(0, 4096):
            running.remove_reader(0)
            stop.set()

    running.add_reader(0, ended)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, text.encode() + b"\n")
