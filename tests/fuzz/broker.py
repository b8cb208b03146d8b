"""Hostile messages on a real broker, through a whole pipeline's process, with agents attached; then all is counted.

Phases of the same story, each with a broker, a pipeline (``sdfstream up``) and two agents of its own: a small fabric
whose faults are known (`fabric`), without strangers; with `count` hostile messages beside it, once per seed; and, after
the first of those, its twin: as long, with the same messages but for those that are refused. Looked at are the findings
about the fabric's hosts (`told`), what became of every refused message, processes that ended, their memory, and the
processor time that a message costs each. Memory is held against the twin's: what strangers say that can be read is
kept as anybody's is, by the stages' own bounds, and a process that has worked for long holds more than a young one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.errors import SdfError
from sdfstream.serve.query_io import fetch_board
from tests.chaos.process import Child
from tests.fixtures.kafka_broker import Broker, jars
from tests.fuzz import strangers, told

ROOT: Final = Path(__file__).resolve().parents[2]
CLEAN_S: Final = 150.0
_DRAIN_S: Final = 600.0
_LAG: Final = 100
"""Messages that may always be on their way."""
_SETTLE_S: Final = 25.0
"""Until memory is weighed: what a burst took is given back within 10 s twice (`runtime.freed_memory_io`)."""
_WEIGHED: Final = 75
"""Times, a second apart: the archive's inserts and merges, once in so long, take a seventh of a pipeline's memory for
half a minute (seen: 150 MB of 900), and a phase must not be weighed inside one and its twin outside."""
_NO_ANSWER: Final = 1 << 31
_ODD: Final = ("unaligned", "raised", "restarted", "lost", "ticks-skipped", "commit-failed", "begun-anew")
"""Words in the names of counters that are told of every phase."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Phase:
    """What one phase came to."""

    name: str
    plan: strangers.Plan = field(default_factory=strangers.Plan)
    sent: strangers.Sent = field(default_factory=strangers.Sent)
    sent_s: float = 0.0
    took_s: float = 0.0
    dead: dict[bytes, str] = field(default_factory=dict)
    """Digest of the message in each dead letter, and the reason."""
    letters: int = 0
    findings: told.Told = field(default_factory=set)
    same_input: told.Told = field(default_factory=set)
    """Findings that the same messages give without the strangers'."""
    rss_mb: dict[str, float] = field(default_factory=dict)
    """Resident memory of each process at the end, the median over some time."""
    peak_mb: dict[str, float] = field(default_factory=dict)
    """The most that each ever had."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Processor time of each process from the first stranger to the last message read."""
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


@dataclass(slots=True)
class Sums:
    """One hostile phase in numbers, as a line of a results file; those of several seeds add up."""

    seeds: int = 0
    hostile: int = 0
    refused: int = 0
    """Different ones."""
    letters: int = 0
    missing: int = 0
    ended: int = 0
    restarts: int = 0
    aside: int = 0
    took_s: float = 0.0
    wrong: int = 0

    def add(self, other: Sums) -> None:
        """Take the counts of another phase as well."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def run(
    seeds: list[int], count: int, clean_s: float = CLEAN_S, *, keep: bool = False, results: Path | None = None
) -> int:
    """The clean phase, then a hostile one per seed; 0 when all is well, in `results` too, which has a line per seed."""
    folder = Path(tempfile.mkdtemp(prefix="sdf-fuzz-"))
    sums, wrong = Sums(), False
    try:
        clean = _ran(Phase("clean"), folder, clean_s, keep=keep)
        twin: Phase | None = None
        wrong = _judge(clean, clean) > 0
        for seed in seeds:
            plan = strangers.Plan(seed, count)
            hostile = _ran(Phase(f"seed {seed}", plan), folder, clean_s, keep=keep)
            found = _judge(clean, hostile)
            if twin is None:
                same = replace(plan, refused_too=False, within_s=hostile.sent_s)
                twin = _ran(Phase(f"twin of seed {seed}", same), folder, hostile.took_s, keep=keep)
                found += _judge(clean, twin)
            found += _judge_memory(twin, hostile)
            one = _sums(hostile, found)
            sums.add(one)
            if results is not None:
                with results.open("a") as lines:
                    lines.write(json.dumps(asdict(one)) + "\n")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if results is not None:
        sums = Sums()
        for line in results.read_text().splitlines():
            sums.add(Sums(**json.loads(line)))
    wrong = wrong or sums.wrong > 0
    print(f"sums {json.dumps(asdict(sums))}\n{'NOT WELL' if wrong else 'all is well'}", flush=True)
    return int(wrong)


def _ran(phase: Phase, folder: Path, story_s: float, *, keep: bool) -> Phase:
    own = folder / phase.name.replace(" ", "-")
    own.mkdir(parents=True)
    asyncio.run(_run_phase(phase, own, story_s))
    if not keep:
        shutil.rmtree(own, ignore_errors=True)
    return phase


def _sums(hostile: Phase, wrong: int) -> Sums:
    sent = hostile.sent
    return Sums(
        seeds=1,
        hostile=sent.count,
        refused=len(sent.refused),
        letters=hostile.letters,
        missing=len(sent.refused.keys() - hostile.dead.keys()),
        ended=len(hostile.ended),
        restarts=hostile.restarts,
        aside=hostile.aside,
        took_s=round(hostile.took_s, 1),
        wrong=wrong,
    )


def _judge(clean: Phase, phase: Phase) -> int:
    """Says what `phase` came to, and what is wrong with it; the number of the latter."""
    reasons = dict(Counter(phase.dead.values()).most_common(8))
    print(
        f"{phase.name}: {phase.sent.count} hostile messages in {phase.took_s:.0f} s, {len(phase.sent.refused)} refused "
        f"(different ones), {phase.letters} dead letters of {len(phase.dead)} {reasons}; ended {phase.ended}, restarts "
        f"{phase.restarts}, set aside {phase.aside}, lag {phase.lag}; findings {sorted(phase.findings)}; "
        f"RSS MB {phase.rss_mb}, at most {phase.peak_mb}; CPU s {phase.cpu_s}"
    )
    odd = {name: n for name, n in phase.counters.items() if n and any(word in name for word in _ODD)}
    print(f"{phase.name}: counted {odd}; status gave no answer: {sorted(phase.unanswered)}")
    if phase.sent.count:
        print(f"{phase.name}: CPU us per hostile message, beyond the clean phase's rate: {_cost_us(clean, phase)}")
    wrong = [f"WRONG {phase.name}: {what}" for what in (*_common(phase), *_letters(phase))]
    print("\n".join(wrong), end="\n" if wrong else "", flush=True)
    return len(wrong)


def _cost_us(clean: Phase, phase: Phase) -> dict[str, int]:
    beside = {name: clean.cpu_s[name] * phase.took_s / clean.took_s for name in clean.cpu_s}
    return {name: round((phase.cpu_s[name] - beside[name]) / phase.sent.count * 1e6) for name in clean.cpu_s}


def _common(phase: Phase) -> Iterator[str]:
    if phase.ended or phase.restarts or phase.aside:
        yield "a process or a stage ended, began again, or set a message aside"
    if phase.unanswered:
        yield f"status gave no answer: {sorted(phase.unanswered)}"
    if phase.lag > _LAG:
        yield f"{phase.lag} messages were never read"
    if missing := told.MUST - phase.findings:
        yield f"the story was not told: {sorted(missing)}"
    if phase.findings != phase.same_input:
        more, less = phase.findings - phase.same_input, phase.same_input - phase.findings
        yield f"the same messages without strangers are told otherwise: too many {sorted(more)}, missing {sorted(less)}"


def _letters(phase: Phase) -> Iterator[str]:
    if missing := phase.sent.refused.keys() - phase.dead.keys():
        topics = Counter(phase.sent.refused[one] for one in missing)
        yield f"{len(missing)} refused messages are in no dead letter: {dict(topics)}"
    if any(not reason for reason in phase.dead.values()):
        yield "a dead letter has no reason"


def _judge_memory(twin: Phase, hostile: Phase) -> int:
    """Says how much more `hostile` holds than its twin, and what the refused messages cost; the number of processes
    that hold more than a tenth more.
    """
    more = {name: round(100 * (mb / twin.rss_mb[name] - 1), 1) for name, mb in hostile.rss_mb.items()}
    most = {name: round(100 * (mb / twin.peak_mb[name] - 1), 1) for name, mb in hostile.peak_mb.items()}
    refused = max(1, hostile.sent.refusals)
    cost_us = {name: round((hostile.cpu_s[name] - twin.cpu_s[name]) / refused * 1e6) for name in twin.cpu_s}
    print(f"{hostile.name} beside {twin.name}: RSS % more {more}, peak {most}; CPU us per refused message {cost_us}")
    wrong = [name for name, percent in more.items() if percent > 10.0]
    if wrong:
        print(f"WRONG {hostile.name}: memory of {wrong}", flush=True)
    return len(wrong)


async def _run_phase(phase: Phase, folder: Path, story_s: float) -> None:
    kafka = jars(Path(os.environ.get("SDFSTREAM_KAFKA_JARS") or ROOT / ".cache" / "kafka"))
    with Broker(kafka, folder / "kafka") as at:
        bus = KafkaBus(KafkaConfig(servers=at.address, partitions=2), time.time_ns, boot_id="fuzz")
        await bus.start()
        children = _children(folder, at.address)
        try:
            await children[0].start()
            await _until(lambda: children[0].said("running;"), 120.0, children[0])
            for other in children[1:]:
                await other.start()
            await asyncio.sleep(3.0)
            before_s = _cpu_s(children, at)
            await _story(bus, phase, folder / "data", story_s)
            await _drained(phase, folder / "data")
            phase.cpu_s = {name: round(now_s - before_s[name], 1) for name, now_s in _cpu_s(children, at).items()}
            await _weigh(phase, children)
            for child in children[1:]:
                await child.stop(30.0)
            await asyncio.sleep(2.0)
            phase.findings = await told.live(bus)
            phase.dead, phase.letters = await told.dead(bus)
            phase.same_input = await told.without_strangers(bus, phase.sent.messages)
        finally:
            for child in children:
                await child.stop(30.0)
            phase.counters = _counters(children[0])
            with suppress(SdfError):
                await bus.close()


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


async def _story(bus: KafkaBus, phase: Phase, data: Path, story_s: float) -> None:
    """The fabric tells its story in its own time; the strangers talk as fast as the pipeline takes it."""
    began_s = time.monotonic()
    if phase.plan.count:
        await strangers.send(bus, phase.sent, phase.plan, lambda: _lag(phase, data))
    phase.sent_s = time.monotonic() - began_s
    await asyncio.sleep(max(0.0, story_s - (time.monotonic() - began_s)))
    phase.took_s = time.monotonic() - began_s


async def _lag(phase: Phase, data: Path) -> int:
    """Messages that the slowest reader is behind; one that gives no answer is behind without end."""
    try:
        lag: dict[str, Any] = (await asyncio.to_thread(fetch_board, data))["pipeline"]["lag"]
    except (SdfError, OSError) as error:
        phase.unanswered.add(str(error))
        return _NO_ANSWER
    return max(map(int, lag.values()), default=0)


async def _drained(phase: Phase, data: Path) -> None:
    """Until nothing waits any more, and detect has come past the story's end.

    What waits is known by the brokers' last answers, which are old where a process is starved: detect was a minute
    behind with nothing waiting.
    """
    ended_ns, deadline_s = time.time_ns(), time.monotonic() + _DRAIN_S
    while time.monotonic() < deadline_s:
        if await _lag(phase, data) <= _LAG and await _known_at_ns(phase, data) > ended_ns:
            break
        await asyncio.sleep(1.0)
    await asyncio.sleep(_SETTLE_S)
    phase.lag = await _lag(phase, data)


async def _known_at_ns(phase: Phase, data: Path) -> int:
    """Bus time up to which detect has judged; 0: no answer."""
    try:
        return int((await asyncio.to_thread(fetch_board, data))["known_at_ns"])
    except (SdfError, OSError) as error:
        phase.unanswered.add(str(error))
        return 0


def _cpu_s(children: list[Child], broker: Broker) -> dict[str, float]:
    """Processor time of every process so far, ours included."""
    pids = {child.name: child.process.pid for child in children if child.process is not None and child.alive}
    found = {"feeder": time.process_time()}
    for name, pid in {**pids, "broker": broker.pid}.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return found


async def _weigh(phase: Phase, children: list[Child]) -> None:
    """Each process's memory, the median over some time, and who has ended."""
    seen: dict[str, list[float]] = {}
    for _ in range(_WEIGHED):
        for child in children:
            if child.alive and child.process is not None and child.name != "fabric":
                seen.setdefault(child.name, []).append(_status_mb(child.process.pid, "VmRSS"))
        await asyncio.sleep(1.0)
    phase.rss_mb = {name: median(several) for name, several in seen.items()}
    for child in children:
        if child.deaths or not child.alive:
            phase.ended[child.name] = len(child.deaths) or 1
        elif child.process is not None and child.name != "fabric":
            phase.peak_mb[child.name] = _status_mb(child.process.pid, "VmHWM")


def _status_mb(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return round(int(found[1]) / 1024, 1) if found else 0.0


def _counters(pipeline: Child) -> dict[str, int]:
    """What the pipeline said at its end."""
    for line in reversed(pipeline.log.read_text(errors="replace").splitlines()):
        with suppress(ValueError, KeyError, TypeError):
            counters: dict[str, int] = json.loads(line.partition(" ")[2])["counters"]
            return counters
    return {"no counters.restarted": 1}


async def _until(true: Callable[[], bool], within_s: float, child: Child) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        if not child.alive or time.monotonic() > deadline_s:
            raise RuntimeError(f"{child.name} does not run: {child.log.read_text()[-1500:]}")
        await asyncio.sleep(0.2)
