"""Wire messages without end: those that fit their schema, and those that were damaged, of every topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sdfstream.bus import cloudevents, codec
from sdfstream.records.topics import TOPICS, Topic
from tests.fuzz import events, mutate
from tests.fuzz.batches import Batches
from tests.fuzz.values import Draw

_LARGE_ROWS: Final = 1_000
POOL: Final = 96
"""Sound messages of a topic that are held, to be sent again or damaged; one is made afresh now and then."""


class Wire(NamedTuple):
    """A message as a producer puts it on the bus."""

    topic: str
    key: str
    headers: tuple[tuple[str, bytes], ...]
    value: bytes
    sound: bool
    """Whether it was drawn from its topic's schema and not damaged."""


@dataclass(slots=True)
class Traffic:
    """Messages of `topics`, all that there are by default."""

    draw: Draw
    topics: tuple[str, ...] = tuple(TOPICS)
    damaged: float = 0.5
    """Share of messages that are damaged."""
    without: frozenset[str] = frozenset()
    """Event types that are not drawn."""
    _pool: dict[str, list[Wire]] = field(default_factory=dict)
    _seq: int = 0
    _batches: Batches = field(init=False)

    def __post_init__(self) -> None:
        self._batches = Batches(self.draw)

    def __iter__(self) -> Iterator[Wire]:
        """Messages, without end."""
        while True:
            yield self.one()

    def one(self, topic: str = "") -> Wire:
        """The next message; of `topic` where it is given."""
        draw = self.draw
        name = topic or draw.rng.choice(self.topics)
        if not draw.chance(self.damaged):
            return self._numbered(self._sound(name))
        if draw.chance(0.5):
            return self._torn(name)
        return self._misshapen(TOPICS[name])

    def _sound(self, name: str) -> Wire:
        pool = self._pool.setdefault(name, [])
        if len(pool) < POOL or self.draw.chance(0.3):
            made = self._made(TOPICS[name])
            if len(pool) >= POOL:
                pool[self.draw.rng.randrange(POOL)] = made
            else:
                pool.append(made)
            return made
        return self.draw.rng.choice(pool)

    def _made(self, topic: Topic) -> Wire:
        if topic.columns is None:
            kinds = [kind for kind in events.DRAWERS[topic.name] if kind not in self.without]
            body = events.event(self.draw, topic.name, self.draw.rng.choice(kinds))
            return self._wire(topic, mutate.dumped(cloudevents.as_object(body)), sound=True)
        compression = "zstd" if self.draw.chance(0.2) else None
        return self._wire(topic, mutate.stream([self._batches.one(topic)], compression), sound=True)

    def _torn(self, name: str) -> Wire:
        """Bytes or headers are damaged."""
        rng, one = self.draw.rng, self._sound(name)
        dice = rng.random()
        if dice < 0.85:
            other = rng.choice(self._pool[rng.choice(list(self._pool))])
            return one._replace(value=mutate.damaged(rng, one.value, other.value), sound=False)
        if dice < 0.9:
            return one._replace(topic=rng.choice(self.topics), sound=False)
        headers = dict(one.headers)
        which = rng.choice([*headers, "bus_at_ns", "extra"])
        if rng.random() < 0.3:
            headers.pop(which, None)
        else:
            headers[which] = mutate.damaged(rng, headers.get(which, b"7"))[:300]
        return one._replace(headers=tuple(headers.items()), sound=False)

    def _misshapen(self, topic: Topic) -> Wire:
        """Well formed, and not what the topic's schema says."""
        draw = self.draw
        if topic.columns is None:
            kinds = [kind for kind in events.DRAWERS[topic.name] if kind not in self.without]
            body = events.event(draw, topic.name, draw.rng.choice(kinds))
            envelope = cloudevents.as_object(body)
            if draw.chance(0.8):
                envelope["data"] = mutate.altered(draw, envelope["data"])
            else:
                envelope = mutate.altered(draw, envelope)
            if self.without and isinstance(envelope, dict) and str(envelope.get("type")) in self.without:
                return self._misshapen(topic)
            return self._wire(topic, mutate.dumped(envelope), sound=False)
        batches = mutate.foreign(draw, self._batches.one(topic))
        # a bomb is compressed: a plain one is only large, and one in fifty of those still makes up most of all bytes
        plain = 0.02 if batches[0].num_rows > _LARGE_ROWS else 0.5
        value = mutate.stream(batches, None if draw.chance(plain) else "zstd")
        return self._wire(topic, value, sound=False)

    def _wire(self, topic: Topic, value: bytes, *, sound: bool) -> Wire:
        content = cloudevents.CONTENT_TYPE if topic.columns is None else codec.ARROW_CONTENT_TYPE
        headers = (("schema", topic.name.encode()), ("content-type", content.encode()))
        return Wire(topic.name, self.draw.text("host"), headers, value, sound)

    def _numbered(self, one: Wire) -> Wire:
        """With a producer's run and number, which may repeat, go back, or leave gaps."""
        draw = self.draw
        if draw.chance(0.3):
            return one
        self._seq += draw.rng.choice((1, 1, 1, 0, 5, -3))
        number = self._seq if draw.chance(0.95) else draw.rng.choice((0, 2**31, 2**63 - 1, 2**64 - 1))
        boot = draw.rng.choice(("evil-boot", "evil-boot-2", draw.text())).encode()
        headers = (*one.headers, ("boot_id", boot), ("batch_seq", b"%d" % max(number, 0)))
        return one._replace(headers=headers)
