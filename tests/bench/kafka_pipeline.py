"""The pipeline over a real Kafka broker: exchanges per second and core, every process and the broker counted.

A source of simulated agents → broker → `sdfstream run` of sync, detect and the archive, each in a process of its own,
all at their defaults: live inserts, positions committed. Every agent sends at its own time and waits for its own
messages alone, all over one connection; the broker's Java runs as in production. CPU seconds are read from /proc, of
all threads and all processes, from when the clocks have converged until every row is archived.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from sdfstream.archive.engine_io import Engine
from sdfstream.records.topics import PROBE
from tests.bench.harness import Result, SkippedError, against, main, process, usage
from tests.bench.probe_load import Load
from tests.fixtures.kafka_broker import Broker, BrokerUnavailableError, jars

ROOT = Path(__file__).parents[2]
STAGES = (("sync",), ("detect",), ("archive",))
WARM_S = 20
"""Java compiles what the broker does often by then; the clocks have converged before."""
GOALS = (120_000, 300_000)
"""At the agents' own shape, 64 hosts with 72 rows a message; and at 5,120 rows."""
SETTLE_S = 4.0
"""Groups are formed and tables made."""
DRAIN_S = 90.0
"""What was sent has to be dealt with by then."""


@contextmanager
def source(address: str, warm_s: int, load: Load) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.kafka_source", f"kafka://{address}", str(warm_s)]
    with subprocess.Popen(
        [*command, json.dumps(asdict(load))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def say(running: subprocess.Popen[str], line: str = "") -> None:
    assert running.stdin is not None
    running.stdin.write(line + "\n")
    running.stdin.flush()


def hear(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    line = running.stdout.readline().strip()
    if not line:
        raise RuntimeError("the source ended before it had sent everything")
    return line


def measure(result: Result, quick: bool) -> None:
    warm_s, seconds = (2, 4) if quick else (WARM_S, 20)
    small = Load(hosts=4 if quick else 64, nics=9, ports=1, flush_s=0.05, seconds=warm_s + seconds)
    large = Load(hosts=4 if quick else 32, rate_hz=32, flush_s=0.5, seconds=warm_s + seconds)
    for load, goal in zip((small, large), GOALS, strict=True):
        _measure(result, load, warm_s, goal)


def _measure(result: Result, load: Load, warm_s: int, goal: int) -> None:
    cache = Path(os.environ.get("SDFSTREAM_KAFKA_JARS") or ROOT / ".cache" / "kafka")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sdf-bench-")))
        try:
            broker = stack.enter_context(Broker(jars(cache), folder / "broker", lasting=True))
        except BrokerUnavailableError as missing:
            raise SkippedError(f"no Kafka broker: {missing}") from missing
        agents = stack.enter_context(source(broker.address, warm_s, load))
        assert hear(agents) == "ready"
        pids = {"broker": broker.pid or 0, "agents": agents.pid}
        with ExitStack() as running:
            for names in STAGES:
                pids["+".join(names)] = running.enter_context(stage(names, broker.address, folder)).pid
            time.sleep(SETTLE_S)
            spent, sent = _measured(agents, pids, broker.address)
        with Engine.open(str(folder / "archive" / "archive")) as engine:
            ((archived, made),) = engine.rows(
                "SELECT (SELECT count() FROM raw_probe), (SELECT count() FROM derived_owd)"
            )
    if archived != sent["rows"]:
        raise RuntimeError(f"{sent['rows']:,.0f} exchanges were sent and {archived:,} archived")
    _say(result, load, goal, spent, sent, made)


@contextmanager
def stage(names: Sequence[str], address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`sdfstream run` of these stages."""
    name = "+".join(names)
    command = [sys.executable, "-m", "sdfstream", "run", *names, "--bus", f"kafka://{address}"]
    with process([*command, "--data", str(folder / name)], folder / f"{name}.log", cwd=ROOT) as running:
        yield running
        running.terminate()
        running.wait(30)  # what it has read is archived first


def _measured(
    agents: subprocess.Popen[str], pids: dict[str, int], address: str
) -> tuple[dict[str, float], dict[str, float]]:
    """CPU seconds by process over the counted part of what the agents send, and what they sent."""
    say(agents)
    assert hear(agents) == "warm"
    before = {name: usage(pid).cpu_s for name, pid in pids.items()}
    sent = json.loads(hear(agents))
    asyncio.run(_drained(address))
    spent = {name: usage(pid).cpu_s - before[name] for name, pid in pids.items()}
    say(agents)
    return spent, sent


async def _drained(address: str) -> None:
    """Wait until every stage has told the broker that it has dealt with all probe messages."""
    async with asyncio.timeout(DRAIN_S), AsyncExitStack() as stack:
        for names in STAGES:
            for name in names:
                reader = AIOKafkaConsumer(bootstrap_servers=address, group_id=name, enable_auto_commit=False)
                await reader.start()
                stack.push_async_callback(reader.stop)
                parts = [TopicPartition(PROBE.name, n) for n in reader.partitions_for_topic(PROBE.name) or {0}]
                ends = await reader.end_offsets(parts)
                for part, end in ends.items():
                    while (await reader.committed(part) or 0) < end:  # noqa: ASYNC110 - another process moves it
                        await asyncio.sleep(0.5)


def _say(result: Result, load: Load, goal: int, spent: dict[str, float], sent: dict[str, float], made: int) -> None:
    rows = sent["counted"]
    whole = sum(spent.values())
    pipeline_s = whole - spent["agents"]
    rate = rows / whole
    shares = ", ".join(f"{p} {used / whole:.0%} ({used / rows * 1e9:,.0f} ns)" for p, used in spent.items())
    per_message = load.paths // load.hosts * load.rate_hz * load.flush_s
    result.say(
        f"{per_message:,.0f} rows a message, {load.paths * load.rate_hz:,} exchanges/s of {load.paths:,} paths: "
        f"{rate:,.0f} exchanges/s per core, agents' sending and broker counted; {against(f'{goal:,}', rate >= goal)}"
    )
    result.say(f"  of it {shares}; without the agents {rows / pipeline_s:,.0f}/s per core")
    result.say(
        f"  all {sent['rows']:,.0f} exchanges sent are archived, and {made:,} delays made of them; the agents were at "
        f"most {sent['late_s']} s late"
    )
    result.figures[f"rows_{per_message:.0f}"] = {
        "exchanges_per_core_s": round(rate),
        "without_agents_per_core_s": round(rows / pipeline_s),
        "ns_per_exchange": {p: round(used / rows * 1e9) for p, used in spent.items()},
        "share": {p: round(used / whole, 3) for p, used in spent.items()},
        "agents_late_s": sent["late_s"],
    }


if __name__ == "__main__":
    main("kafka_pipeline", measure)
