"""``sdfstream up``: the pipeline in one process; agents join by a socket, or a lab is built for it."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sdfstream.cli.options import add_metrics, add_reference, with_reference
from sdfstream.cli.output import emit, progress
from sdfstream.errors import ConfigError
from sdfstream.records.command import MODES

if TYPE_CHECKING:
    from sdfstream.cli.service import Service
    from sdfstream.lab.client_io import RunningLab
    from sdfstream.lab.fabric_io import Fabric
    from sdfstream.probes.config import VirtualClock
    from sdfstream.settings import Settings

HELP = "run the pipeline in one process: sync, workload, detect, archive, SQL, live board"
EXAMPLE = "sdfstream up --lab"
OWN_LAB: Final = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--config, --data, --lab, --mode, --reference, --record, --metrics, --seconds."""
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--data", type=Path, help="data folder (default: ./sdfstream-data)")
    parser.add_argument(
        "--lab",
        nargs="?",
        const=OWN_LAB,
        metavar="NAME",
        help="measure the lab of that name that `sdfstream lab up` started; without NAME one of its own",
    )
    parser.add_argument("--mode", choices=("off", *MODES), help="of the guarded loop (default: settings, dry-run)")
    add_reference(parser)
    parser.add_argument("--record", type=Path, metavar="DIR", help="also keep everything on the bus as a recording")
    add_metrics(parser)
    parser.add_argument(
        "--wrong-clocks",
        type=int,
        metavar="SEED",
        help="with --lab: every host's clock off by another ±ns, ±10 ppm, and walking; the truth of it in DATA/truth",
    )
    parser.add_argument("--seconds", type=float, help="end after this long (default: at SIGINT or SIGTERM)")


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    from sdfstream import settings
    from sdfstream.cli import loop

    chosen = with_reference(settings.load(args.config), args)
    if args.data is not None:
        chosen = chosen.model_copy(update={"data": args.data})
    if args.mode is not None:
        chosen = chosen.model_copy(update={"actuate": replace(chosen.actuate, mode=args.mode)})
    if args.wrong_clocks is not None and args.lab is None:
        raise ConfigError("--wrong-clocks needs --lab: only a lab's clocks may be wrong on purpose")
    counters = loop.run(
        _up(
            chosen,
            lab=args.lab,
            record=args.record,
            seconds=args.seconds,
            wrong_clocks=args.wrong_clocks,
            metrics=args.metrics,
        )
    )
    emit(args.json, {"counters": counters, "data": str(chosen.data)}, "")
    return 0


async def _up(
    chosen: Settings,
    *,
    lab: str | None,
    record: Path | None,
    seconds: float | None,
    wrong_clocks: int | None,
    metrics: str | None,
) -> dict[str, int]:
    from sdfstream.cli.loop import stop_on_signals
    from sdfstream.cli.service import service

    stop = asyncio.Event()
    stop_on_signals(stop.set)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(service(chosen, record=record, metrics=metrics))
        if lab is not None:
            await _measure_lab(stack, running, lab, chosen.data / "truth", wrong_clocks)
        progress(
            f"running; look: sdfstream top --data {chosen.data}\n"
            f"agents on this machine join with: sdfstream agent --config FILE --bus link:{running.link}"
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        return running.counters()


async def _measure_lab(
    stack: AsyncExitStack, running: Service, name: str, truth: Path, wrong_clocks: int | None
) -> None:
    """An agent over every host of a lab: the one called `name`, or one of our own that writes its truth."""
    from sdfstream.cli.lab_source import lab_source
    from sdfstream.lab.client_io import RunningLab
    from sdfstream.lab.fabric_io import Fabric
    from sdfstream.lab.mesh import MeshSpec

    fabric = stack.enter_context(Fabric.up(truth_dir=truth)) if name == OWN_LAB else RunningLab(name)
    mesh = MeshSpec(peers_per_nic=3, ports_per_peer=8)
    if wrong_clocks is not None:
        mesh = replace(mesh, virtual_clocks=_made_wrong(stack, fabric, truth, wrong_clocks))
    await stack.enter_async_context(lab_source(fabric, running, mesh))


def _made_wrong(stack: AsyncExitStack, fabric: Fabric | RunningLab, truth: Path, seed: int) -> dict[str, VirtualClock]:
    """A wrong clock for each lab host; when the block ends, what they were goes to ``clock.jsonl``."""
    from sdfstream.lab.wrong_clocks import true_offsets, wrong_clocks

    began_ns = time.time_ns()
    hosts = [host.host for host in fabric.agent_config().hosts]
    clocks = wrong_clocks(hosts, seed, began_ns)

    def write() -> None:
        truth.mkdir(parents=True, exist_ok=True)
        with (truth / "clock.jsonl").open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in true_offsets(clocks, began_ns, time.time_ns()))

    stack.callback(write)
    return clocks
