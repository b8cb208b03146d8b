"""Stages over a recording, as fast as the machine allows: the same input gives the same output, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.records.message import Event, Message, Output
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import SHARED
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.aside import AsideStage
from sdfstream.runtime.driver import Stage, Ticker
from sdfstream.stats import Counters

LONGEST_GAP_NS: Final = 24 * 3600 * NS_PER_S
"""A message this far ahead of the last is refused: its time is wrong, and the ticks up to it would never end."""


@dataclass(slots=True)
class Chain:
    """Several stages in a row over one message stream, as a replay runs them."""

    stages: Sequence[Stage]
    ticker: Ticker = field(default_factory=Ticker)
    counters: Counters = field(default_factory=lambda: Counters("replay"))
    _seq: dict[str, int] = field(default_factory=dict)
    _now_ns: int = 0

    def start(self, at_ns: int) -> None:
        """Begin bus time at `at_ns`; the first tick is the boundary after it."""
        self.ticker.last_ns = at_ns // self.ticker.tick_ns * self.ticker.tick_ns
        self._now_ns = at_ns

    def advance(self, to_ns: int) -> Iterator[Message]:
        """Tick all stages at every boundary up to `to_ns`; yields their outputs."""
        for boundary_ns in self.ticker.upto(to_ns):
            self._now_ns = max(self._now_ns, boundary_ns)
            yield from self._step([], tick=True)

    def take(self, messages: list[Message]) -> Iterator[Message]:
        """Advance to `messages` of one slice, then step the stages with them; yields their outputs, in order."""
        at_ns = messages[-1].bus_at_ns
        if at_ns - self._now_ns > LONGEST_GAP_NS:
            self.counters.add("refused", "time-jump", len(messages))
            return
        yield from self.advance(at_ns)
        self._now_ns = max(self._now_ns, at_ns)
        yield from self._step(messages, tick=False)

    def finish(self, end_ns: int) -> Iterator[Message]:
        """Advance to the end and finish every stage; yields their outputs."""
        if end_ns - self._now_ns <= LONGEST_GAP_NS:
            yield from self.advance(end_ns)
            self._now_ns = max(self._now_ns, end_ns)
        made: list[Message] = []
        for stage in self.stages:
            late = [m for m in made if m.topic in stage.reads]
            outputs = stage.step(late, self._now_ns) if late else []
            made += self._messages([*outputs, *stage.finish(self._now_ns)])
        yield from made

    def _step(self, messages: list[Message], *, tick: bool) -> Iterator[Message]:
        seen = messages
        for stage in self.stages:
            mine = [m for m in seen if m.topic in stage.reads]
            if mine or tick:
                made = self._messages(stage.step(mine, self._now_ns))
                seen = seen + made
                yield from made

    def _messages(self, outputs: Iterable[Output]) -> list[Message]:
        made = []
        for output in outputs:
            seq = self._seq.get(output.topic, 0)
            self._seq[output.topic] = seq + 1
            made.append(Message(output.topic, output.key, output.body, self._now_ns, seq))
        return made


def _made_by(message: Message, stage: str) -> bool:
    """Whether `stage`, a writer of the message's topic, wrote it, and will write it again.

    What the controller said of a label it will not: that rests on an operator's key, which no replay has.
    """
    body = message.body
    if message.topic not in SHARED:
        return True
    return isinstance(body, Event) and body.source == stage and body.data.get("action") != "label"


def replay(
    messages: Iterable[Message], stages: Sequence[Stage], start_at_ns: int | None, end_at_ns: int | None
) -> Iterator[Message]:
    """Run `stages` over recorded messages; the same input gives the same output.

    Parameters
    ----------
    messages : iterable of Message
        In order of (bus_at_ns, topic, bus_seq).
    stages : sequence of Stage
        In the order of the path; a topic that one of them writes is ignored in `messages`.
    start_at_ns, end_at_ns : int or None
        Of the recording; None: the first and the last message. A start more than a day before the first message
        is taken for the first message.

    Yields
    ------
    Message
        Outputs of the stages as they enter the bus; `bus_at_ns` is the `now_ns` of the step.
    """
    own = {topic: stage.name for stage in stages for topic in stage.writes}
    chain = Chain([AsideStage(stage) for stage in stages])
    started = False
    for call in in_calls(m for m in messages if m.topic not in own or not _made_by(m, own[m.topic])):
        if not started:
            first_ns = call[0].bus_at_ns
            near = start_at_ns is not None and 0 <= first_ns - start_at_ns <= LONGEST_GAP_NS
            chain.start(start_at_ns if near and start_at_ns is not None else first_ns)
            started = True
        yield from chain.take(call)
    if started or start_at_ns is not None:
        if not started and start_at_ns is not None:
            chain.start(start_at_ns)
        yield from chain.finish(end_at_ns if end_at_ns is not None else 0)
