"""Kafka's errors in our tree, its log at a bearable rate, its times where they can be believed; no broker needed."""

from __future__ import annotations

import asyncio
import logging

import pytest
import uvloop
from aiokafka import errors as kafka

from sdfstream.bus.kafka.errors_io import ERRORS, RateLimit, mapped
from sdfstream.bus.kafka.times import MAX_EARLY_NS, MAX_LATE_NS, entered_at_ns
from sdfstream.errors import BusError, ConfigError, SdfError, UnavailableError
from sdfstream.records.units import NS_PER_MS


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        (kafka.KafkaConnectionError("x"), UnavailableError),
        (kafka.TopicAuthorizationFailedError("x"), ConfigError),
        (kafka.MessageSizeTooLargeError("x"), BusError),
        (kafka.KafkaTimeoutError("x"), BusError),
        (kafka.ConsumerStoppedError("x"), BusError),
        (ConnectionRefusedError("x"), UnavailableError),
    ],
)
def test_foreign_errors_become_ours_with_their_cause(theirs: Exception, mine: type[SdfError]) -> None:
    with pytest.raises(mine, match="Kafka, trying") as caught, mapped("trying"):
        raise theirs
    assert caught.value.__cause__ is theirs


def test_a_write_to_a_connection_that_was_closed_is_a_broker_that_is_away() -> None:
    async def write_to_closed() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", port)
        transport.abort()
        await asyncio.sleep(0.05)
        server.close()
        with pytest.raises(UnavailableError, match="trying: the connection was closed"), mapped("trying"):
            transport.write(b"x")

    uvloop.run(write_to_closed())


def test_what_is_not_kafkas_passes() -> None:
    with pytest.raises(RuntimeError), mapped("trying"):
        raise RuntimeError("a defect")
    with pytest.raises(ZeroDivisionError), mapped("trying"):
        raise ZeroDivisionError


def test_every_row_of_the_table_can_be_reached() -> None:
    for i, (theirs, _) in enumerate(ERRORS):
        assert not any(issubclass(theirs, earlier) for earlier, _ in ERRORS[:i]), theirs


def test_a_flood_of_log_lines_becomes_one_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    handler = RateLimit(every_s=10.0)
    logger = logging.getLogger("aiokafka-test")
    logger.propagate = False
    logger.addHandler(handler)
    for i in range(50):
        logger.warning("no broker %d", i)
    logger.warning("something else")
    handler._seen[("aiokafka-test", "no broker %d")] = (-100.0, 49)
    logger.warning("no broker %d", 50)
    logger.removeHandler(handler)
    assert caplog.messages == ["no broker 0", "something else", "no broker 50 [and 49 more like it]"]


def test_the_handler_is_installed_once() -> None:
    logger = logging.getLogger("aiokafka")
    RateLimit.install()
    RateLimit.install()
    assert sum(isinstance(h, RateLimit) for h in logger.handlers) == 1


@pytest.mark.parametrize(
    ("header_ns", "by_broker", "before_ns", "at_ns", "set_aside"),
    [
        (5_000 * NS_PER_MS + 123, True, 0, 5_000 * NS_PER_MS + 123, False),
        (None, True, 0, 5_000 * NS_PER_MS, False),
        (5_000 * NS_PER_MS + 2 * MAX_EARLY_NS, True, 0, 5_000 * NS_PER_MS, True),
        (5_000 * NS_PER_MS - 2 * MAX_LATE_NS, True, 0, 5_000 * NS_PER_MS, True),
        (5_000 * NS_PER_MS - 2 * MAX_LATE_NS, False, -(10**18), 5_000 * NS_PER_MS - 2 * MAX_LATE_NS, False),
        (5_000 * NS_PER_MS, True, 6_000 * NS_PER_MS, 6_000 * NS_PER_MS, False),
    ],
)
def test_a_producers_nanoseconds_are_believed_beside_the_brokers_stamp(
    header_ns: int | None, by_broker: bool, before_ns: int, at_ns: int, set_aside: bool
) -> None:
    assert entered_at_ns(header_ns, 5_000, by_broker, before_ns) == (at_ns, set_aside)
