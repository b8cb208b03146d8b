"""One run: the story told to the agents while the plan is carried out, then everything counted."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.records.message import Event, Output
from sdfstream.records.topics import ARCHIVED, CLOCK, EDGE, ESTIMATE, LIVENESS, OWD, PORT, PROBE, QP, QP_WINDOW
from sdfstream.records.units import NS_PER_S
from tests.chaos import accounting, archived, digest, journal, judgements, onbus
from tests.chaos.accounting import Books, Made, Run
from tests.chaos.acts import Hand
from tests.chaos.house import House
from tests.chaos.judgements import Verdict
from tests.chaos.plan import Act, Size
from tests.chaos.story import Clock, Known, Story

FROM_AGENTS = frozenset({PROBE.name, PORT.name, QP.name, LIVENESS.name, "sdf.state.topology.v1", "sdf.state.job.v1"})
"""Topics that only agents write."""
MIXED = frozenset({"sdf.control.outcome.v1"})
"""Topics that agents and a stage write: what the agents made must be there, the rest is the stage's."""
SETTINGS = {
    "actuate": {"mode": "enforce", "steer_on": [], "steer_collisions": False, "lease_s": 12.0},
    "retention": {"raw_hours": 24.0},
}
CAUGHT_UP_S = 4.0
"""The archive is up with the bus when its newest row is this young: it gathers for a second before it inserts."""
_SETTLE_S = 120.0


@dataclass(slots=True)
class Ledger:
    """What the story gave to which agent."""

    given: dict[str, tuple[str, str, int, int, str]] = field(default_factory=dict)
    """By number: topic, key, rows, digest, host."""
    _bodies: dict[str, list[tuple[str, pa.RecordBatch]]] = field(default_factory=lambda: defaultdict(list))

    def enter(self, number: int, host: str, output: Output) -> None:
        """Note a message as it was given."""
        name = str(number)
        if isinstance(output.body, Event):
            event = output.body
            sum_ = digest.event(event.id, event.source, event.type, event.data)
            self.given[name] = (output.topic, output.key, 1, sum_, host)
            return
        self.given[name] = (output.topic, output.key, output.body.num_rows, 0, host)
        waiting = self._bodies[output.topic]
        waiting.append((name, output.body))
        if len(waiting) >= 500:
            self._settle(output.topic)

    def made(self, runs: Sequence[journal.Told]) -> list[Made]:
        """What these runs took up."""
        for topic in list(self._bodies):
            self._settle(topic)
        made = []
        for told in runs:
            for number in told.made:
                if number in told.own:
                    own = told.own[number]
                    topic, key, rows, sum_, host = own.topic, own.key, 1, own.digest, ""
                else:
                    topic, key, rows, sum_, host = self.given[number]
                made.append(Made(topic, key, rows, sum_, told.boot_id, number in told.taken, host))
        return made

    def _settle(self, topic: str) -> None:
        waiting = self._bodies.pop(topic, [])
        for (name, _), sum_ in zip(waiting, digest.batches(topic, [body for _, body in waiting]), strict=True):
            of, key, rows, _, host = self.given[name]
            self.given[name] = (of, key, rows, sum_, host)


@dataclass(slots=True)
class Outcome:
    """What one run came to."""

    books: Books
    findings: Verdict
    commands: Verdict
    letters: dict[str, int]
    kills: dict[str, int]
    outages: list[dict[str, Any]]
    done: list[str]
    missing: list[str]
    ends: dict[str, int]
    """Processes that ended by themselves, and how often."""
    said: list[judgements.Said] = field(default_factory=list)
    """All findings."""
    recovered_s: list[tuple[str, float]] = field(default_factory=list)
    """After each outage, how long until the archive was up with the bus."""
    late_s: float = 0.0
    """By how much the story was told late at worst."""
    worked: dict[str, float] = field(default_factory=dict)
    """Share of what a stage was given that it gave an account of."""
    known: list[Known] = field(default_factory=list)
    """What was broken."""


@dataclass(slots=True)
class Running:
    """One run in the making."""

    seed: int
    size: Size
    house: House
    say: Callable[[str], None]
    known: Sequence[Known]
    faults: Sequence[Any]
    acts: Sequence[Act]
    meanwhile: Callable[[Clock], Any] | None = None
    """Something else that is done while the story is told."""
    clock: Clock = field(default_factory=Clock)
    ledger: Ledger = field(default_factory=Ledger)
    start_ns: int = 0
    remarks: list[str] = field(default_factory=list)
    lags: list[tuple[float, float]] = field(default_factory=list)
    """(monotonic seconds, by how much the archive was behind)."""

    async def run(self) -> Outcome:
        """All of it; the house is up already."""
        hand = Hand(self.house, np.random.default_rng([self.seed, 3]), self.say)
        began_s = time.monotonic()
        watching = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell(hand, began_s))
                group.create_task(hand.carry_out(self.acts, self.clock))
                if self.meanwhile is not None:
                    group.create_task(self.meanwhile(self.clock))
        finally:
            hand.undo()
        await self._settle()
        watching.cancel()
        return await asyncio.to_thread(self._count, hand)

    async def _tell(self, hand: Hand, began_s: float) -> None:
        """Give each agent what its NICs measured, when they did."""
        self.start_ns = time.time_ns() - int((time.monotonic() - began_s) * NS_PER_S)
        story = Story(self.seed, self.faults, self.start_ns)
        of = {host: agent for agent in self.house.agents.values() for host in agent.hosts}
        next_line_s = 0.0
        for number, told in enumerate(story.told(self.size.story_s)):
            wait_s = began_s + told.at_ns / NS_PER_S - time.monotonic()
            await asyncio.sleep(wait_s if wait_s > 0.002 else 0)  # late or not: others must have their turn
            self.clock.told(told.at_ns / NS_PER_S, time.monotonic() - began_s)
            given = of[told.host].feed(number, told.output)
            if given is not None:
                self.ledger.enter(number, told.host, given)
                if hand.sample is None and told.output.topic == PROBE.name:
                    hand.sample = told.output.body
            if told.at_ns / NS_PER_S >= next_line_s:
                lag = f", archive {self.lags[-1][1]:.1f} s behind" if self.lags else ""
                late_s = time.monotonic() - began_s - told.at_ns / NS_PER_S
                late = f", told {late_s:.1f} s late" if late_s > 1 else ""
                self.say(f"{told.at_ns / NS_PER_S:6.1f} s of {self.size.story_s:g}{lag}{late}")
                next_line_s += 15.0

    async def _watch(self) -> None:
        """How far the archive is behind the bus, once a second."""
        while True:
            await asyncio.sleep(1.0)
            newest_ns = await asyncio.to_thread(archived.newest_ns, self.house.sql, PROBE.name)
            if newest_ns:
                self.lags.append((time.monotonic(), (time.time_ns() - newest_ns) / NS_PER_S))

    async def _settle(self) -> None:
        """Agents send what they have; what is on the bus reaches the archive; then the stages end, in order."""
        self.say("agents send what they have")
        ended = await asyncio.gather(*(agent.end(110.0) for agent in self.house.agents.values()))
        late = [agent for agent, orderly in zip(self.house.agents, ended, strict=True) if not orderly]
        self.remarks += [f"agent {agent} could not send all that it had in time" for agent in late]
        self.say("stages catch up")
        for topics in (sorted(FROM_AGENTS), [EDGE.name, ESTIMATE.name], [OWD.name, CLOCK.name, QP_WINDOW.name]):
            await self._caught_up(topics)
        await asyncio.sleep(3.0)
        names = [f"{stage}-{member}" for stage, member in self.house.members if stage != "archive"]
        for name in names:
            await self.house.stages[name].stop()
        await self._quiet()
        for name, child in self.house.stages.items():
            if name not in names and not await child.stop(60.0):
                self.say(f"{name} had to be killed")

    async def _caught_up(self, topics: Sequence[str]) -> None:
        """Until every stage has dealt with what is on `topics` now."""
        servers, deadline_s = self.house.broker.address, time.monotonic() + _SETTLE_S
        ends = await asyncio.to_thread(onbus.ends, servers, topics)
        for stage in dict.fromkeys(stage for stage, _ in self.house.members):
            while (left := await asyncio.to_thread(onbus.behind, servers, stage, ends)) > 0:
                if time.monotonic() > deadline_s:
                    self.remarks.append(f"{stage} is {left} records behind on {', '.join(topics)} in the end")
                    break
                await asyncio.sleep(1.0)

    async def _quiet(self) -> None:
        """Until nothing new has come to the archive for a while."""
        deadline_s, before, since_s = time.monotonic() + _SETTLE_S, None, time.monotonic()
        while time.monotonic() < deadline_s and time.monotonic() - since_s < 6.0:
            reach = {name: await asyncio.to_thread(archived.reach, self.house.sql, name) for name in ARCHIVED}
            if reach != before:
                before, since_s = reach, time.monotonic()
            await asyncio.sleep(1.0)

    # --- the books -------------------------------------------------------------------------------------------------

    def _count(self, hand: Hand) -> Outcome:
        """Read bus and archive, and compare."""
        self.say("counting")
        books, servers = Books(), self.house.broker.address
        told = [(name, one) for name, several in self.house.runs().items() for one in several]
        runs = {one.boot_id: Run(one.boot_id, name, one.orderly, one.shed_rows) for name, one in told}
        made = self.ledger.made([one for _, one in told])
        of_agents: list[accounting.Record] = []
        said: dict[str, list[judgements.Said]] = {}
        tallies: dict[str, Any] = {}
        for name in [*ARCHIVED, EDGE.name, ESTIMATE.name]:
            topic = onbus.read(servers, name, hand.poisons, self.start_ns)
            for line in topic.unreadable:
                books.remarks.append(f"cannot be read: {line}")
            records, again = accounting.once(topic.records)
            if name in ARCHIVED:
                accounting.archive(books, records, again, archived.read(self.house.sql, name))
            if name in FROM_AGENTS:
                of_agents += records
            elif name in MIXED:
                mine = {(m.topic, m.key, m.digest) for m in made}
                of_agents += [r for r in records if (r.topic, r.key, r.digest) in mine]
            if name not in FROM_AGENTS and topic.said_again:
                books.doubled += topic.said_again
                books.remarks.append(f"{name}: {topic.said_again} rows or events say what another one said already")
            said[name], tallies[name] = topic.said, topic.tally
        accounting.agents(books, made, runs, of_agents)
        letters = self._letters(books, hand, of_agents)
        worked = {
            "exchanges": accounting.worked_on(books, "exchanges", tallies[PROBE.name], tallies[OWD.name]),
            "chunks": accounting.worked_on(books, "chunks", tallies[QP.name], tallies[QP_WINDOW.name]),
        }
        books.remarks += self.remarks
        findings = said.pop("sdf.event.finding.v1")
        return Outcome(
            books,
            judgements.findings([self._as_told(k) for k in self.known], findings),
            judgements.commands(said["sdf.control.command.v1"]),
            letters,
            hand.kills,
            hand.outages,
            hand.done,
            self.house.missing,
            {name: len(child.deaths) for name, child in self.house.stages.items() if child.deaths},
            findings,
            self._recovered(hand.outages),
            self.clock.late_s,
            worked,
            list(self.known),
        )

    def _letters(self, books: Books, hand: Hand, records: Sequence[accounting.Record]) -> dict[str, int]:
        """Dead letters against the poison."""
        dead: list[tuple[str, str]] = []
        refused: list[accounting.Place] = []
        for name in [*ARCHIVED, EDGE.name, ESTIMATE.name]:
            topic = onbus.read(self.house.broker.address, f"{name}.dlq", {}, 0)
            dead += [(topic.name, fingerprint) for fingerprint in topic.dead]
            refused += topic.about
        names = {fingerprint: made.name for fingerprint, made in hand.poisons.items()}
        poisoned = {record.place for record in records if record.poison}
        return accounting.letters(books, names, dead, refused, poisoned)

    def _as_told(self, fault: Known) -> Known:
        """The fault with the times at which it was really told."""
        return replace(fault, at_s=self.clock.real_s(fault.at_s), until_s=self.clock.real_s(fault.until_s))

    def _recovered(self, outages: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
        """After each outage, how long the archive needed to be up with the bus again."""
        found = []
        for outage in outages:
            after = [at for at, lag in self.lags if at > outage["until_s"] and lag < CAUGHT_UP_S]
            found.append((outage["who"], round(min(after) - outage["until_s"], 1) if after else -1.0))
        return found
