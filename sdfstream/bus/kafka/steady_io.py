"""A bus's idempotent producer: which of the client's failures are retried, and when a new producer takes over.

aiokafka gives every batch a sequence number when it first sends it, keeps one batch per partition in flight, and sends
a batch again for ever while the answer is one that may pass (no connection, no leader yet, no answer in time); the
brokers drop what they have already. So an outage shows as a `publish` that takes as long, and nothing is doubled.
Failures that reach us are of three kinds (aiokafka 0.14, ``producer/sender.py``, ``producer/message_accumulator.py``):

=========================================  ============================  =============================================
what                                       taken by the brokers?         then
=========================================  ============================  =============================================
`send` raises: no metadata, buffer full    no: it was never queued       the producer goes on
for too long, no right
a record's future fails: no leader for     not known: the batch may      a new producer, since the failed batch has used
longer than the time-out                   have been sent before         up sequence numbers: all that follows would be
                                                                         refused as out of order
a record's future fails: refused (size,    no                            the same; one that is too large is raised as
rights, out of order, fenced, brokers                                    `FormatError`, and never sent again
that lost their state)
the client's sender died                   not known                     a new producer
=========================================  ============================  =============================================

A message sent again has the same boot id and number, and readers drop the repeat. The old producer gets `RETIRE_S` for
records that other callers wait for; records without an answer by then fail for those callers too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from aiokafka import errors as kafka

from sdfstream.bus.kafka.errors_io import mapped_error
from sdfstream.errors import BusError, FormatError
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.bus")

RETIRE_S: Final = 5.0
"""Time for an old producer to finish records that other callers wait for."""
NOT_QUEUED: Final = (
    kafka.KafkaTimeoutError,
    kafka.UnknownTopicOrPartitionError,
    kafka.TopicAuthorizationFailedError,
    kafka.MessageSizeTooLargeError,
)
"""Raised by `send` before anything is queued; the producer can go on."""
TOO_LARGE: Final = (kafka.MessageSizeTooLargeError, kafka.RecordListTooLargeError)


class SteadyProducer:
    """The current producer, and its successor when it can send no more.

    Parameters
    ----------
    make : callable
        A started idempotent producer; raises as `producer_io.idempotent`.
    counters : Counters
        ``producer-renewed`` (what had happened).
    """

    def __init__(self, make: Callable[[], Awaitable[Any]], counters: Counters) -> None:
        self._make = make
        self._counters = counters
        self._producer: Any = None
        self._making = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False

    async def get(self) -> Any:
        """A producer that can send; errors as `make`, BusError once closed."""
        async with self._making:
            if self._closed:
                raise BusError("the bus is closed")
            if self._producer is None:
                self._producer = await self._make()
            return self._producer

    async def settle(self, producer: Any, waiting: Iterable[asyncio.Future[Any]]) -> None:
        """Wait until the brokers have every record of `waiting`, which `producer` was given.

        Raises
        ------
        FormatError
            ``oversize``: at least one of them is larger than its topic takes.
        BusError, UnavailableError, ConfigError
            Some were not taken, or it is not known.
        """
        waiting = list(waiting)
        try:
            results = await asyncio.gather(*waiting, return_exceptions=True)
        except asyncio.CancelledError:
            forget(waiting)
            raise
        failed = [e for e in results if isinstance(e, BaseException)]
        if failed:
            self._counters.add("publish-failed", n=len(failed))
            self.broken(producer, failed[0])
            raise _raisable(failed[0])

    def broken(self, producer: Any, why: BaseException) -> None:
        """`producer` can send no more, because of `why`: the next `get` makes another."""
        if producer is not self._producer or self._closed:
            return
        self._producer = None
        self._counters.add("producer-renewed", type(why).__name__)
        _log.warning("Kafka's producer is replaced: %s: %s", type(why).__name__, why)
        task = asyncio.create_task(retire(producer), name="retire-producer")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def not_sent(self, producer: Any, error: Exception) -> None:
        """`send` raised `error`, ours or the client's."""
        cause = error.__cause__ or error
        if not isinstance(error, FormatError) and not isinstance(cause, NOT_QUEUED):
            self.broken(producer, cause)

    async def close(self) -> None:
        """Send what is in flight, for at most `RETIRE_S`, and disconnect."""
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            await retire(producer)
        if self._retiring:
            await asyncio.wait(self._retiring)


def forget(waiting: Iterable[asyncio.Future[Any]]) -> None:
    """Stop waiting for these records; the brokers may still take them."""
    for future in waiting:
        future.cancel()


async def retire(producer: Any) -> None:
    """Stop a producer, within 3 `RETIRE_S` also when brokers are away; then its callers get an error."""
    with suppress(TimeoutError, kafka.KafkaError):
        async with asyncio.timeout(RETIRE_S):
            await producer.stop()
            return
    # `stop` waits for ever for brokers that are away, and a second call of it does nothing
    producer._message_accumulator.fail_all(kafka.ProducerClosed())
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    with suppress(TimeoutError, kafka.KafkaError):
        async with asyncio.timeout(RETIRE_S):
            await producer.client.close()
    if sender is not None:
        await asyncio.wait({sender}, timeout=RETIRE_S)
        if sender.done() and not sender.cancelled():
            sender.exception()


def _raisable(error: BaseException) -> BaseException:
    if isinstance(error, TOO_LARGE):
        raised: BaseException = FormatError("oversize", f"a topic takes no message of this size: {error}")
    else:
        raised = (mapped_error(error, "publishing") if isinstance(error, Exception) else None) or error
    if raised is not error:
        raised.__cause__ = error
    return raised
