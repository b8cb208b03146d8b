"""What the hosts of a simulated fabric measure, instant by instant, and the faults built into it, with their truth.

The fabric runs in its own time from `EPOCH`; its hosts' clocks are moved by one constant, so that they show the time of
day give or take their hours. The same seed tells the same story, to the byte, but for that constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import LIVENESS, PROBE
from sdfstream.records.units import NS_PER_S
from tests.chaos.jobs import CHUNK_NS, Job
from tests.fixtures.faultlist import busy_link, leaf_of
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape

SHAPE = Shape(
    hosts=8,
    rails=1,
    leaves=4,
    spines=3,
    ports=3,
    rate_hz=8.0,
    reverse=True,
    bursts=False,
    owd=False,
    clocks=False,
    flush_ms=200,
)
"""168 sessions, about 1,300 exchanges a second in 56 messages a second."""


@dataclass(frozen=True, slots=True)
class Known:
    """A fault whose finding must come, and go again."""

    name: str
    at_s: float
    until_s: float
    target: str
    """Id of the element at fault."""
    kinds: tuple[str, ...]
    """Kinds of finding that name it."""
    hosts: tuple[str, ...] = ()
    """Hosts whose own agents are needed to see it."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something that one host's agent has to publish."""

    at_ns: int
    """Since the story's beginning."""
    host: str
    output: Output


def fault_of(
    name: str, fabric: Fabric, rng: np.random.Generator, at_s: float, until_s: float, spared: Sequence[str] = ()
) -> tuple[Fault, Known]:
    """A fault of this kind on a random target; none of the hosts `spared` falls silent."""
    times = {"at_s": at_s, "until_s": until_s}
    if name == "link":
        leaf, spine = busy_link(fabric, rng)
        links = (f"{leaf}->{spine}", f"{spine}->{leaf}")
        return Fault(links, drop=1, **times), Known(name, at_s, until_s, f"{leaf}--{spine}", ("link-down",))
    if name == "delay":
        leaf, spine = busy_link(fabric, rng)
        fault = Fault((f"{leaf}->{spine}",), delay_us=2000, ce=0.5, **times)
        return fault, Known(name, at_s, until_s, f"{leaf}--{spine}", ("congestion", "ecn-marks"))
    if name == "nic":
        nic = str(rng.choice(fabric.nics))
        known = Known(name, at_s, until_s, nic, ("nic-down",), (nic[:3],))
        return Fault(leaf_of(fabric, nic), drop=1, **times), known
    host = str(rng.choice([h for h in fabric.hosts if h not in spared]))
    known = Known(name, at_s, until_s, host, ("host-silent", "agent-stale"), (host,))
    return Fault(host=host, **times), known


AGENTS_GONE = ("cut", "host")
"""Faults by which agents fall silent."""
SEEN_BY_PROBES = ("link", "nic", "delay")
LATE_MEMORY_S = 65.0
"""After an outage of the broker, or of its own network, an agent's news is late, and for a minute its silence is
believed later, by design."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is broken in a story."""

    faults: list[Fault]
    known: list[Known]
    pauses_s: list[float]
    """Instants after a fault at which the broker may go away: no fault begins soon after, and none by which agents
    fall silent within `LATE_MEMORY_S`."""


def script(seed: int, first_s: float, last_s: float, cut: Sequence[str] = (), shape: Shape = SHAPE) -> Script:
    """Faults one after another from `first_s` until none fits before `last_s`; targets and order by the seed.

    With `cut` one kind of fault is that the agent of these hosts is cut off from the bus; that is somebody else's to
    do.
    """
    rng, fabric = np.random.default_rng([seed, 1]), Fabric(seed, [], shape)
    gone = rng.permutation(AGENTS_GONE if cut else AGENTS_GONE[1:]).tolist()
    kinds = [*gone, *rng.permutation(SEEN_BY_PROBES).tolist()]
    made: list[Fault] = []
    known: list[Known] = []
    ends: list[float] = []
    at_s, number = first_s, 0
    while (until_s := at_s + float(rng.uniform(14, 18))) < last_s:
        name = kinds[number % len(kinds)]
        if name == "cut":
            known += [Known(name, at_s, until_s, host, ("agent-stale", "host-silent"), (host,)) for host in cut]
        else:
            late = any(k.name == "cut" and at_s - k.until_s < LATE_MEMORY_S for k in known)
            fault, truth = fault_of(name, fabric, rng, at_s, until_s, cut if late else ())
            made.append(fault)
            known.append(truth)
        ends.append(until_s)
        number += 1
        at_s = until_s + float(rng.uniform(13, 16))
    silent = [k.at_s for k in known if k.name in AGENTS_GONE]
    pauses = [end + float(rng.uniform(0.5, 2.0)) for end in ends]
    return Script(made, known, [p for p in pauses if not any(0 < at - p < LATE_MEMORY_S for at in silent)])


@dataclass(slots=True)
class Clock:
    """How far the story has been told, and when: on a busy machine it may be told late."""

    now_s: float = -1.0
    _told: list[tuple[float, float]] = field(default_factory=list)
    """(story's seconds, seconds since the beginning when that was told), about every tenth."""

    def told(self, story_s: float, real_s: float) -> None:
        """The story has been told up to here."""
        self.now_s = story_s
        if not self._told or story_s - self._told[-1][0] >= 0.1:
            self._told.append((story_s, real_s))

    def real_s(self, story_s: float) -> float:
        """When that instant was told, in seconds since the beginning."""
        if not self._told:
            return story_s
        story, real = zip(*self._told, strict=True)
        return float(np.interp(story_s, story, real))

    @property
    def late_s(self) -> float:
        """By how much it was late at worst."""
        return max((real - story for story, real in self._told), default=0.0)


class Story:
    """Everything that the agents of `hosts` have to say, in order."""

    def __init__(self, seed: int, faults: Sequence[Fault], start_ns: int, shape: Shape = SHAPE) -> None:
        self.fabric = Fabric(seed, list(faults), shape)
        shift_ns = start_ns - EPOCH
        self.fabric.clock = {host: at + shift_ns for host, at in self.fabric.clock.items()}
        self.fabric.clock_of = np.array([self.fabric.clock[h] for h in self.fabric.hosts])
        self._job = Job(self.fabric)
        self._count = 0
        self._start_ns = start_ns

    @property
    def hosts(self) -> list[str]:
        """All hosts, in order."""
        return list(self.fabric.hosts)

    def told(self, seconds: float) -> Iterator[Told]:
        """What is told in the first `seconds`; the fabric is worked out as it goes."""
        next_ns = EPOCH + NS_PER_S
        for message in self.fabric.messages(seconds):
            while message.bus_at_ns >= next_ns:
                for host, output in self._job.step(next_ns):
                    yield self._told(next_ns, host, output)
                next_ns += CHUNK_NS
            yield self._told(message.bus_at_ns, self._host(message), Output(message.topic, message.key, message.body))

    def _host(self, message: Message) -> str:
        """Whose agent says it."""
        if isinstance(message.body, Event) and message.body.source in self.fabric.clock:
            return message.body.source
        return (
            message.key if message.topic in (PROBE.name, LIVENESS.name) or message.key in self.fabric.clock else "h00"
        )

    def _told(self, at_ns: int, host: str, output: Output) -> Told:
        body = output.body
        if isinstance(body, Event):
            self._count += 1
            since_ns = at_ns - EPOCH
            body = replace(body, id=f"{host}-{self._count}", time_ns=self._start_ns + since_ns)
            output = replace(output, body=body)
        return Told(at_ns - EPOCH, host, output)
