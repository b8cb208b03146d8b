"""Traffic: every topic there is, repeated by its seed, and sound messages that the codec takes."""

from __future__ import annotations

import random
from itertools import islice

from sdfstream.bus import codec
from sdfstream.errors import FormatError
from sdfstream.records.topics import TOPICS
from tests.fuzz.traffic import Traffic, Wire
from tests.fuzz.values import EVERYBODY, Draw


def drawn(seed: int, count: int) -> list[Wire]:
    return list(islice(Traffic(Draw(random.Random(seed), EVERYBODY)), count))


def test_a_seed_repeats_its_messages() -> None:
    assert drawn(7, 100) == drawn(7, 100)
    assert drawn(7, 100) != drawn(8, 100)


def test_every_topic_is_drawn_and_most_sound_messages_are_taken() -> None:
    taken, refused, topics = 0, 0, set()
    for one in drawn(1, 600):
        if not one.sound:
            continue
        try:
            codec.decode(one.topic, one.headers, one.value)
            taken += 1
            topics.add(one.topic)
        except FormatError:
            refused += 1
    assert topics == set(TOPICS)
    assert taken > 2 * refused  # edges of int64 lie beyond what the codec lets in
