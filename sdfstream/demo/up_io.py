"""The pipeline in one process, on a lab or waiting for agents: what ``sdfstream up`` runs."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from sdfstream.demo.lab_source_io import lab_source
from sdfstream.lab.client_io import RunningLab
from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.wrong_clocks import true_offsets, wrong_clocks
from sdfstream.probes.config import VirtualClock
from sdfstream.runtime.loop_io import stop_on_signals
from sdfstream.runtime.output_io import progress
from sdfstream.runtime.priority_io import ask_for_more
from sdfstream.serve.service_io import Service, service
from sdfstream.settings import Settings

OWN_LAB: Final = ""


async def run(
    chosen: Settings,
    *,
    lab: str | None,
    record: Path | None,
    seconds: float | None,
    wrong_clocks: int | None,
    metrics: str | None,
) -> dict[str, int]:
    """Run the pipeline until SIGINT, SIGTERM or `seconds` have passed; its counters.

    Parameters
    ----------
    lab : str or None
        Name of a running lab that is to be measured, `OWN_LAB` for one of its own; None: agents join by themselves.
    wrong_clocks : int or None
        Seed of the lab hosts' wrong clocks.
    """
    stop = asyncio.Event()
    stop_on_signals(stop.set)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(service(chosen, record=record, metrics=metrics))
        ask_for_more()
        gc.freeze()  # modules and what was started stay: the collector need not visit them
        if lab is not None:
            await _measure_lab(stack, running, lab, chosen.data / "truth", wrong_clocks)
        progress(
            f"running; look: sdfstream top --data {chosen.data}\n"
            f"page and API: {running.api_url or 'off'}\n"
            f"agents on this machine join with: sdfstream agent --config FILE --bus link:{running.link}"
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        return running.counters()


async def _measure_lab(
    stack: AsyncExitStack, running: Service, name: str, truth: Path, wrong_clocks: int | None
) -> None:
    """An agent over every host of a lab: the one called `name`, or one of our own that writes its truth."""
    fabric = stack.enter_context(Fabric.up(truth_dir=truth)) if name == OWN_LAB else RunningLab(name)
    mesh = MeshSpec(peers_per_nic=3, cross_rail_peers=1, ports_per_peer=6)
    if wrong_clocks is not None:
        mesh = replace(mesh, virtual_clocks=_made_wrong(stack, fabric, truth, wrong_clocks))
    await stack.enter_async_context(lab_source(fabric, running, mesh))


def _made_wrong(stack: AsyncExitStack, fabric: Fabric | RunningLab, truth: Path, seed: int) -> dict[str, VirtualClock]:
    """A wrong clock for each lab host; when the block ends, what they were goes to ``clock.jsonl``."""
    began_ns = time.time_ns()
    hosts = [host.host for host in fabric.agent_config().hosts]
    clocks = wrong_clocks(hosts, seed, began_ns)

    def write() -> None:
        truth.mkdir(parents=True, exist_ok=True)
        with (truth / "clock.jsonl").open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in true_offsets(clocks, began_ns, time.time_ns()))

    stack.callback(write)
    return clocks
