"""The whole loop on a real queue pair: job and agents in the guest, the pipeline with its controller outside of it.

    .venv/bin/python -m tests.rdma.loop --trials 20 --rate 100

prints how long after a black hole the queue pair has left it, and its chunks are acknowledged again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from sdfstream.actuate.config import ActuateConfig
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import OUTCOME, TOPOLOGY
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.rdma.guest import group
from tests.rdma.inside import fabric

ACTUATE = ActuateConfig(
    mode="enforce", hold_down_ms=1000, steer_on=(), steer_collisions=False,
    breaker_window_s=5.0,  # else every further black hole would double the hold-down
)  # fmt: skip

PROCESSORS = 2
"""On one, job, agents and the kernel's own threads wait for each other longer than the queue pair for its probes."""


async def run(folder: Path, trials: int, rate_hz: float) -> group.GroupResult:
    """Run it with what the bus had as a recording in `folder`; errors as `boot.run`."""
    settings = Settings(data=folder / "data", cluster="guest", api="off", actuate=ACTUATE)
    async with service(settings, record=folder / "recording") as running:
        event = Event(DECLARED_TYPE, "guest", f"declared-{uuid.uuid4().hex[:8]}", time.time_ns(), fabric.declared())
        await running.bus.publish([Output(TOPOLOGY.name, "declared", event)])
        assert running.controller_key is not None
        environment = {
            "SDFSTREAM_CONTROLLER_KEY": str(running.controller_key.absolute()),
            "SDFSTREAM_TRIALS": str(trials),
            "SDFSTREAM_RATE_HZ": str(rate_hz),
        }
        channels = {name: running.link.absolute() for name in ("agents", "rows")}
        out, limit_s = folder / "out", 240 + 20 * trials
        out.mkdir()
        machine = {"channels": channels, "processors": PROCESSORS}
        return await asyncio.to_thread(group.run_group, [group.LOOP], out, limit_s, more=environment, **machine)


def figures(log: str) -> list[str]:
    """The lines of the guest's log that have figures."""
    return [line for line in log.splitlines() if line.startswith("figure ")]


def failovers(recording: Path) -> list[dict[str, Any]]:
    """What the agents said of failovers."""
    messages = open_recording(recording).messages()
    said = [m.body.data for m in messages if m.topic == OUTCOME.name and isinstance(m.body, Event)]
    return [dict(data) for data in said if data["action"] == "failover"]


def moves(recording: Path, trials: int) -> str:
    """A line of figures: how often either end was moved and went back, in how many trials."""
    count = Counter((said["host"], said["state"]) for said in failovers(recording))
    ends = (f"{host} moved {count[host, 'applied']}, back {count[host, 'undone']}" for host in ("h00", "h04"))
    return f"figure {trials} trials: {'; '.join(ends)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rate", type=float, default=100.0, help="probes a second on each quick path (default 100)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(run(Path(folder), args.trials, args.rate))
        print(*(figures(done.result.log) or [done.result.log]), sep="\n")
        print(moves(Path(folder) / "recording", args.trials))
    return done.result.status


if __name__ == "__main__":
    sys.exit(main())
