"""Kafka's errors mapped to ours, and its log lines limited in rate."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka import errors as kafka

from sdfstream.bus.kafka import denied
from sdfstream.errors import BusError, ConfigError, FencedError, SdfError, UnavailableError

ERRORS: Final[tuple[tuple[type[Exception], type[SdfError]], ...]] = (
    # the first row that fits decides
    (kafka.KafkaConnectionError, UnavailableError),
    (kafka.NoBrokersAvailable, UnavailableError),
    (kafka.KafkaUnavailableError, UnavailableError),
    (kafka.NodeNotReadyError, UnavailableError),
    (kafka.TopicAuthorizationFailedError, ConfigError),
    (kafka.GroupAuthorizationFailedError, ConfigError),
    (kafka.ClusterAuthorizationFailedError, ConfigError),
    (kafka.TransactionalIdAuthorizationFailed, ConfigError),
    (kafka.AuthenticationFailedError, ConfigError),
    (kafka.SaslAuthenticationFailed, ConfigError),
    (kafka.UnsupportedCodecError, ConfigError),
    (kafka.InvalidReplicationFactorError, ConfigError),
    (kafka.ProducerFenced, FencedError),
    (kafka.InvalidProducerEpoch, FencedError),
    (kafka.KafkaError, BusError),
    (kafka.ConsumerStoppedError, BusError),
    (kafka.IllegalOperation, BusError),
    (OSError, UnavailableError),
)

_CLOSED: Final = "; the handler is closed"
"""End of what uvloop raises where the client writes to a connection that has just been closed."""


def mapped_error(error: Exception, doing: str) -> SdfError | None:
    """The error of our tree for `error`, met while `doing`; None for one that is not Kafka's."""
    for theirs, mine in ERRORS:
        if isinstance(error, theirs):
            return mine(f"Kafka, {doing}: {_denied(error) or f'{type(error).__name__}: {error}'}")
    if isinstance(error, RuntimeError) and str(error).endswith(_CLOSED):
        return UnavailableError(f"Kafka, {doing}: the connection was closed")
    return None


def _denied(error: Exception) -> str:
    """The refused right and its roles, where `error` says that one is missing; else empty."""
    said = error.args[0] if error.args else None
    if isinstance(error, kafka.TopicAuthorizationFailedError) and said:
        return denied.of_topics([said] if isinstance(said, str) else [str(name) for name in said])
    if isinstance(error, kafka.GroupAuthorizationFailedError) and isinstance(said, str):
        return denied.of_group(said)
    if isinstance(error, kafka.TransactionalIdAuthorizationFailed) and isinstance(said, str):
        return denied.of_transactions(said)
    if isinstance(error, kafka.ClusterAuthorizationFailedError):
        return denied.of_cluster()
    return ""


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Raise Kafka's errors as ours, with the cause kept."""
    try:
        yield
    except Exception as error:
        if (mine := mapped_error(error, doing)) is None:
            raise
        raise mine from error


class RateLimit(logging.Handler):
    """Passes at most one record of a kind per `every_s` on to the root's handlers, with the number left out.

    While a broker is away aiokafka says so about thirty times a second.
    """

    def __init__(self, every_s: float = 10.0) -> None:
        super().__init__()
        self._every_s = every_s
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Pass `record` on, or count it."""
        kind = (record.name, str(record.msg))
        now_s = time.monotonic()
        last_s, left_out = self._seen.get(kind, (-self._every_s, 0))
        if now_s - last_s < self._every_s:
            self._seen[kind] = (last_s, left_out + 1)
            return
        if len(self._seen) > 1000:  # kinds are format strings, thus few; this is for one that is not
            self._seen.clear()
        self._seen[kind] = (now_s, 0)
        if left_out:
            record.msg = f"{record.getMessage()} [and {left_out} more like it]"
            record.args = ()
        logging.getLogger().callHandlers(record)

    @classmethod
    def install(cls) -> None:
        """Install one between aiokafka's loggers and the root, once."""
        logger = logging.getLogger("aiokafka")
        if not any(isinstance(h, cls) for h in logger.handlers):
            logger.addHandler(cls())
            logger.propagate = False
            if logger.level == logging.NOTSET:  # INFO has every assignment of every member, partition by partition
                logger.setLevel(logging.WARNING)
