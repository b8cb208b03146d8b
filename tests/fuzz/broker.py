"""Hostile messages on a real broker, through a whole pipeline's process, with agents attached; then all is counted.

Two phases of the same story, each with a broker, a pipeline (``sdfstream up``) and two agents of its own: a small
fabric whose faults are known (`leafspine`), without strangers, and with `count` hostile messages beside it. Compared
are the findings about the fabric's hosts, what became of every refused message, processes that ended, and their memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.errors import FormatError, SdfError
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import ANOMALY, EDGE, ESTIMATE, FINDING, TOPICS
from sdfstream.serve.query_io import fetch_board
from tests.chaos.process import Child
from tests.fixtures.kafka_broker import Broker, jars
from tests.fuzz.stages import OURS
from tests.fuzz.traffic import Traffic
from tests.fuzz.values import STRANGERS, Draw

ROOT: Final = Path(__file__).resolve().parents[2]
CLEAN_S: Final = 150.0
_LAG: Final = 1_000
"""Messages that the slowest stage may be behind before the strangers pause: what is told late is told otherwise."""
_UNREAD: Final = frozenset({ANOMALY.name, EDGE.name, ESTIMATE.name})
"""Topics that no process of `sdfstream up` reads: nobody refuses what stands there."""
_DRAIN_S: Final = 600.0
_NO_ANSWER: Final = 1 << 31


@dataclass(slots=True)
class Phase:
    """What one phase came to."""

    name: str
    sent: int = 0
    took_s: float = 0.0
    refused: dict[bytes, str] = field(default_factory=dict)
    """Digest of each hostile message that the codec refuses, and its topic."""
    dead: dict[bytes, str] = field(default_factory=dict)
    """Digest of the message in each dead letter, and the reason."""
    findings: set[tuple[str, str]] = field(default_factory=set)
    """(kind, subject) about the fabric's and the agents' hosts."""
    rss_mb: dict[str, float] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    lag: int = 0
    unanswered: set[str] = field(default_factory=set)
    """Why `status` gave no answer."""

    @property
    def restarts(self) -> int:
        """Stages that began again, by their own word."""
        return sum(n for name, n in self.counters.items() if "restarted" in name)

    @property
    def aside(self) -> int:
        """Messages set aside since a stage's step raised."""
        return sum(n for name, n in self.counters.items() if "set-aside" in name and "clock" not in name)


def run(seed: int, count: int, clean_s: float = CLEAN_S, *, keep: bool = False) -> int:
    """Both phases; 0 when all is well."""
    folder = Path(tempfile.mkdtemp(prefix="sdf-fuzz-"))
    try:
        for name in ("clean", "hostile"):
            (folder / name).mkdir()
        clean = asyncio.run(_phase(folder / "clean", seed, 0, clean_s))
        hostile = asyncio.run(_phase(folder / "hostile", seed, count, clean_s))
        wrong = list(_compared(clean, hostile))
        print("\n".join(wrong) or "all is well", flush=True)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def _compared(clean: Phase, hostile: Phase) -> Iterator[str]:
    for phase in (clean, hostile):
        print(
            f"{phase.name}: {phase.sent} hostile messages in {phase.took_s:.0f} s, {len(phase.refused)} refused "
            f"(different ones), {len(phase.dead)} dead letters {dict(Counter(phase.dead.values()).most_common(8))}; "
            f"ended {phase.ended}, restarts {phase.restarts}, set aside {phase.aside}, lag {phase.lag}; findings "
            f"{sorted(phase.findings)}; RSS MB {phase.rss_mb}"
        )
        if phase.ended or phase.restarts or phase.aside:
            yield f"WRONG {phase.name}: a process or a stage ended, began again, or set a message aside"
        if phase.unanswered:
            yield f"WRONG {phase.name}: status gave no answer: {sorted(phase.unanswered)}"
        if phase.lag > 100:
            yield f"WRONG {phase.name}: {phase.lag} messages were never read"
    if not clean.findings:
        yield "WRONG the clean phase found nothing: the comparison would prove nothing"
    if clean.findings != hostile.findings:
        yield f"WRONG findings differ: {sorted(clean.findings ^ hostile.findings)}"
    if missing := hostile.refused - hostile.dead.keys():
        topics = Counter(hostile.refused[one] for one in missing)
        yield f"WRONG {len(missing)} refused messages are in no dead letter: {dict(topics)}"
    if any(not reason for reason in hostile.dead.values()):
        yield "WRONG a dead letter has no reason"
    for name, before in clean.rss_mb.items():
        if hostile.rss_mb.get(name, 0.0) > 1.1 * before:
            yield f"WRONG memory of {name}: {hostile.rss_mb[name]:.0f} MB after {before:.0f} MB"


async def _phase(folder: Path, seed: int, count: int, clean_s: float) -> Phase:
    phase = Phase("hostile" if count else "clean")
    with Broker(
        jars(Path(os.environ.get("SDFSTREAM_KAFKA_JARS") or ROOT / ".cache" / "kafka")), folder / "kafka"
    ) as at:
        bus = KafkaBus(KafkaConfig(servers=at.address, partitions=2), time.time_ns, boot_id="fuzz")
        await bus.start()
        children = _children(folder, at.address)
        try:
            await children[0].start()
            await _until(lambda: children[0].said("running;"), 120.0, children[0])
            for other in children[1:]:
                await other.start()
            readers = [asyncio.create_task(_findings(bus, phase)), asyncio.create_task(_dead(bus, phase))]
            await asyncio.sleep(3.0)
            await _story(bus, phase, folder / "data", seed, count, clean_s)
            await _drained(phase, folder / "data")
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            _weigh(phase, children)
        finally:
            for child in children:
                await child.stop(30.0)
            phase.counters = _counters(children[0])
            with suppress(SdfError):
                await bus.close()
    return phase


def _children(folder: Path, address: str) -> list[Child]:
    config = folder / "settings.json"
    config.write_text(json.dumps({"bus": f"kafka://{address}", "retention": {"raw_hours": 24.0}}))
    pipeline = ["up", "--json", "--config", str(config), "--data", str(folder / "data")]
    several = {"pipeline": pipeline}
    for own, other in ((1, 2), (2, 1)):
        words = ["agent", "--name", f"loop-{own}", "--from", f"127.0.66.{own}", "--bus", f"kafka://{address}"]
        several[f"agent-{own}"] = [*words, "--peer", f"loop-{other}=127.0.66.{other}", "--rate", "20"]
    several = {name: ["sdfstream", *words] for name, words in several.items()}
    several["fabric"] = ["tests.fuzz.fabric", address]
    env = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return [Child(name, [sys.executable, "-m", *words], folder / f"{name}.log", env) for name, words in several.items()]


async def _story(bus: KafkaBus, phase: Phase, data: Path, seed: int, count: int, clean_s: float) -> None:
    """The fabric tells its story in its own time; the strangers talk as fast as the pipeline takes it."""
    began_s = time.monotonic()
    if count:
        await _strangers(bus, phase, data, seed, count)
    await asyncio.sleep(max(0.0, clean_s - (time.monotonic() - began_s)))
    phase.took_s = time.monotonic() - began_s


async def _strangers(bus: KafkaBus, phase: Phase, data: Path, seed: int, count: int) -> None:
    traffic = Traffic(Draw(random.Random(seed), STRANGERS), damaged=0.8, without=frozenset({DECLARED_TYPE}))
    looked_s = time.monotonic()
    while phase.sent < count:
        batch = [traffic.one() for _ in range(min(200, count - phase.sent))]
        for one in batch:
            if one.topic in _UNREAD:
                continue
            with suppress(FormatError):
                headers = [pair for pair in one.headers if pair[0] != "bus_at_ns"]  # the bus gives its own
                codec.decode(one.topic, headers, one.value, one.key)
                continue
            phase.refused[_digest(one.topic, one.value)] = one.topic
        await asyncio.gather(*(bus.publish_bytes(one.topic, one.key, one.headers, one.value) for one in batch))
        phase.sent += len(batch)
        if time.monotonic() - looked_s > 2.0:
            looked_s = time.monotonic()
            while await _lag(phase, data) > _LAG:  # noqa: ASYNC110 (what is waited for is no event)
                await asyncio.sleep(0.5)
            if phase.sent % 20_000 < 4_000:
                print(f"  {phase.sent} sent", file=sys.stderr, flush=True)


def _digest(topic: str, value: bytes) -> bytes:
    return hashlib.blake2b(topic.encode() + value, digest_size=10).digest()


async def _lag(phase: Phase, data: Path) -> int:
    """Messages that the slowest reader is behind; one that gives no answer is behind without end."""
    try:
        lag: dict[str, Any] = (await asyncio.to_thread(fetch_board, data))["pipeline"]["lag"]
    except (SdfError, OSError) as error:
        phase.unanswered.add(str(error))
        return _NO_ANSWER
    return max(map(int, lag.values()), default=0)


async def _drained(phase: Phase, data: Path) -> None:
    """Until nothing waits any more, and what was caused by it has come through."""
    deadline_s = time.monotonic() + _DRAIN_S
    while await _lag(phase, data) > 100 and time.monotonic() < deadline_s:  # noqa: ASYNC110
        await asyncio.sleep(1.0)
    await asyncio.sleep(10.0)
    phase.lag = await _lag(phase, data)


def _weigh(phase: Phase, children: list[Child]) -> None:
    for child in children:
        if child.deaths or not child.alive:
            phase.ended[child.name] = len(child.deaths) or 1
        elif child.process is not None and child.name != "fabric":
            text = Path(f"/proc/{child.process.pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+)", text)
            phase.rss_mb[child.name] = round(int(found[1]) / 1024, 1) if found else 0.0


def _counters(pipeline: Child) -> dict[str, int]:
    """What the pipeline said at its end."""
    for line in reversed(pipeline.log.read_text(errors="replace").splitlines()):
        with suppress(ValueError, KeyError, TypeError):
            counters: dict[str, int] = json.loads(line.partition(" ")[2])["counters"]
            return counters
    return {"no counters.restarted": 1}


async def _findings(bus: KafkaBus, phase: Phase) -> None:
    async for message in _read(bus, "fuzz-findings", [FINDING.name]):
        data = message.body.data if isinstance(message.body, Event) else {}
        if message.body.source == "detect" and isinstance(data.get("subject"), dict):  # type: ignore[union-attr]
            subject = str(data["subject"].get("id"))
            if OURS.fullmatch(subject):
                phase.findings.add((str(data.get("kind")), subject))


async def _dead(bus: KafkaBus, phase: Phase) -> None:
    async for message in _read(bus, "fuzz-dead", [f"{name}{dead_letters.SUFFIX}" for name in TOPICS]):
        if isinstance(message.body, Event) and "value" in message.body.data:
            raw = dead_letters.pack(message.body)[1]
            topic = message.topic.removesuffix(dead_letters.SUFFIX)
            phase.dead[_digest(topic, raw)] = str(message.body.data.get("reason") or "")


async def _read(bus: KafkaBus, group: str, topics: list[str]) -> AsyncIterator[Message]:
    subscription = await bus.subscribe(group, topics, from_start=True)
    try:
        while True:
            for message in await subscription.read(timeout_s=0.5):
                yield message
    finally:
        await subscription.close()


async def _until(true: Callable[[], bool], within_s: float, child: Child) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        if not child.alive or time.monotonic() > deadline_s:
            raise RuntimeError(f"{child.name} does not run: {child.log.read_text()[-1500:]}")
        await asyncio.sleep(0.2)
