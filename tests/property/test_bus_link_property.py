"""The link both ways: whatever the order of outputs, messages, breaks and reads, order holds and nothing is lost.

Plus a short fuzz of everything that parses what came over the socket.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sdfstream.bus.link import frames
from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher
from sdfstream.bus.link.downlink import LinkInbox, unpacked
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import CLOCK, COMMAND
from sdfstream.stats import Counters
from tests.bus_samples import clock, mark_of
from tests.fixtures.shapes import sample

COMMANDED = sample(SHAPES[COMMAND.name][COMMAND.name])
STEPS = st.lists(st.sampled_from(["up", "down", "down other", "read", "break", "breathe"]), min_size=1, max_size=30)


def command(mark: int, host: str) -> Output:
    data = COMMANDED | {"mark": mark}
    return Output(COMMAND.name, host, Event(COMMAND.name, "actuate", f"c{mark}", mark, data))


@given(STEPS)
@example(["down", "break", "down", "break", "up", "break", "down", "read"])
@settings(deadline=None, max_examples=40)
def test_any_interleaving_gives_every_message_once_and_every_output_at_least_once(steps: list[str]) -> None:
    async def play(path: Path) -> None:
        bus = MemoryBus(lambda: 0)
        server = LinkServer(bus, path)
        await server.start()
        above = await bus.subscribe("g", [CLOCK.name])
        link = LinkPublisher(path, config=LinkConfig(retry_s=(0.001, 0.002)))
        link.subscribe([COMMAND.name], ["ours"])
        assert await link.subscribed(5)
        up = down = 0
        received: list[int] = []
        for step in steps:
            if step == "up":
                await link.publish([clock(up)])
                up += 1
            elif step == "down":
                await bus.publish([command(down, "ours")])
                down += 1
            elif step == "down other":
                await bus.publish([command(999, "theirs")])
            elif step == "read":
                received += [mark_of(m.body) for m in await link.read(0.001)]
            elif step == "break" and link._writer is not None:
                link._writer.transport.abort()
            else:
                await asyncio.sleep(0.002)
        async with asyncio.timeout(10):
            while len(received) < down:
                received += [mark_of(m.body) for m in await link.read(0.5)]
            arrived: list[int] = []
            while len(set(arrived)) < up:
                arrived += [mark_of(m.body) for m in await above.read(timeout_s=0.5)]
        assert received == list(range(down))
        assert sorted(set(arrived)) == list(range(up))
        assert link.counters.total("down-lost") == server.counters.total("down-shed") == 0
        await link.close()
        await server.close()
        await bus.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder) / "link"))


FIELDS = st.sampled_from(["topics", "keys", "bus", "after", "at", "lost"])
PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(FIELDS, inner),
    max_leaves=20,
)
RUBBISH = st.binary(max_size=200) | PLAIN.map(frames._json)


@given(RUBBISH)
@settings(deadline=None, max_examples=300)
def test_no_bytes_from_outside_raise_anything_but_a_reason(raw: bytes) -> None:
    parsers = (frames.parse_request, frames.parse_welcome, frames.parse_down_head, frames.parse_head)
    for parse in parsers:
        try:
            parse(raw)
        except FormatError as error:
            assert error.reason.startswith("link-")
    try:
        unpacked(raw, b"")
    except FormatError as error:
        assert error.reason


@given(
    st.lists(st.sampled_from(["a", "b", "ü" * 3]), max_size=3),
    st.none() | st.frozensets(st.text(max_size=4).filter(lambda t: t.isprintable())),
    st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers(-1, (1 << 63) - 1), max_size=3).map(tuple)),
)
def test_a_request_comes_back_as_it_was(
    topics: list[str], keys: frozenset[str] | None, after: dict[str, tuple[int, ...]]
) -> None:
    request = frames.SubscribeRequest(tuple(topics), keys, "run", after)
    opening = frames.opening(request)
    assert frames.parse_length(opening[8:12]) == len(opening) - 12
    assert frames.parse_request(opening[12:]) == request


def test_an_inbox_without_a_break_asks_for_the_end() -> None:
    inbox = LinkInbox(Counters("link"), 1000)
    inbox.subscribe([COMMAND.name, COMMAND.name], ["h0"])
    assert inbox.request() == frames.SubscribeRequest((COMMAND.name,), frozenset({"h0"}), "", {})
    inbox.welcomed(frames.Welcome("run", {COMMAND.name: (4, 1 << 48)}))
    assert inbox.request().after == {COMMAND.name: (4, 1 << 48)}


@given(st.text(max_size=40), st.text(max_size=40), st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20))))
@settings(deadline=None, max_examples=150)
def test_a_frame_s_head_is_the_json_of_its_parts(topic: str, key: str, headers: list[tuple[str, str]]) -> None:
    wanted = json.dumps([topic, key, [list(pair) for pair in headers]], separators=(",", ":"), ensure_ascii=False)
    raw = frames.frame(topic, key, [(name, value.encode()) for name, value in headers], b"payload")
    assert raw == frames.LENGTHS.pack(len(wanted.encode()), 7) + wanted.encode() + b"payload"
