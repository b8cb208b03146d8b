"""Why the brokers refuse a connection: the client only reports that it failed, so one more attempt looks for the cause.

Called after a failure only. Every cause becomes a sentence that names the setting to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterable, Iterator
from typing import Final

from aiokafka import errors as kafka
from aiokafka.conn import create_conn
from aiokafka.protocol.metadata import MetadataRequest

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.security_io import client_settings
from sdfstream.errors import ConfigError, SdfError, UnavailableError

PATIENCE_S: Final = 5.0
UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's X509_V_ERR_*: no issuer, self-signed, self-signed in the chain, no local issuer, leaf not verified."""
EXPIRED: Final = frozenset({9, 10})
WRONG_NAME: Final = frozenset({62, 64})


async def diagnose(config: KafkaConfig, doing: str, brokers: Iterable[tuple[str, int]] = ()) -> SdfError:
    """Why the brokers cannot be used: those that `config` names, and `brokers` whose addresses those gave.

    Parameters
    ----------
    config : KafkaConfig
    doing : str
        What was tried, for the sentence.
    brokers : iterable of (host, port)
        How the brokers call themselves (advertised.listeners), as far as that is known.
    """
    absent: list[str] = []
    for host, port in dict.fromkeys([*_named(config.servers), *brokers]):
        found = await _one(config, host, port)
        if isinstance(found, ConfigError):
            return ConfigError(f"Kafka, {doing}: {found}")
        if found is not None:
            absent.append(str(found))
    return UnavailableError(f"Kafka, {doing}: {'; '.join(absent) or 'the connection broke; now the brokers answer'}")


async def _one(config: KafkaConfig, host: str, port: int) -> SdfError | None:
    """The cause at one broker; None: it answers."""
    at = f"{host}:{port}"
    settings = {name: value for name, value in client_settings(config).items() if name != "bootstrap_servers"}
    try:
        async with asyncio.timeout(PATIENCE_S):
            connection = await create_conn(host, port, request_timeout_ms=round(PATIENCE_S * 1000), **settings)
            try:
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except Exception as error:
        for cause in _causes(error):
            if (said := _sentence(cause, config, at)) is not None:
                return said
        return await _silent(config, host, port)
    return None


def _sentence(error: BaseException, config: KafkaConfig, at: str) -> SdfError | None:
    """The cause that one exception shows; None: none."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigError(_certificate(error, config, at))
    if isinstance(error, ssl.SSLError):
        said = (error.reason or str(error)).lower().replace("_", " ")
        if "wrong version number" in said or "record layer" in said:
            return ConfigError(f"{at} does not speak TLS there, but kafka.security is {config.security}")
        if "certificate" in said or "handshake failure" in said:
            return ConfigError(
                f"{at} wants another certificate of ours ({said}): see kafka.cert_file and kafka.key_file"
            )
        return UnavailableError(f"{at}: TLS failed: {said}")
    if isinstance(error, kafka.SaslAuthenticationFailed | kafka.AuthenticationFailedError):
        where = f"kafka.password_env ({config.password_env})" if config.password_env else "kafka.password_file"
        return ConfigError(
            f"{at} does not let user {config.user} in: wrong user or password; see kafka.user and {where}"
        )
    if isinstance(error, kafka.UnsupportedSaslMechanismError | kafka.IllegalSaslStateError):
        return ConfigError(f"{at} takes no {config.mechanism} from users: see kafka.mechanism and kafka.security")
    if isinstance(error, socket.gaierror):
        return UnavailableError(f"{at}: no such host ({error.strerror})")
    if isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionResetError) and error.errno:
        return UnavailableError(f"{at}: {os.strerror(error.errno).lower()}")
    return None


def _certificate(error: ssl.SSLCertVerificationError, config: KafkaConfig, at: str) -> str:
    said = error.verify_message
    if error.verify_code in WRONG_NAME:
        return (
            f"the certificate of {at} is for another name ({said}): name the brokers in --bus, and in their "
            "advertised.listeners, as their certificates do"
        )
    if error.verify_code in EXPIRED:
        return f"the certificate of {at} is not valid now ({said}): renew it, or set the clock"
    if error.verify_code in UNKNOWN_AUTHORITY:
        known = f"{config.ca_file} does" if config.ca_file else "this machine's authorities do"
        return f"the certificate of {at} is from an authority that {known} not name ({said}): see kafka.ca_file"
    return f"the certificate of {at} is refused: {said}"


async def _silent(config: KafkaConfig, host: str, port: int) -> SdfError:
    """The cause when a broker took the connection and gave no answer: it may speak another protocol."""
    at = f"{host}:{port}"
    tls, sasl = "SSL" in config.security, config.security.startswith("SASL")
    if not tls and await _speaks_tls(host, port):
        return ConfigError(f"{at} speaks TLS, but kafka.security is {config.security}")
    if not await _listens(host, port):
        return UnavailableError(f"{at} does not answer")
    if tls and not await _speaks_tls(host, port):
        return ConfigError(f"{at} does not speak TLS, but kafka.security is {config.security}")
    if tls and not sasl and not config.cert_file:
        return ConfigError(
            f"{at} ends the connection: it may want a certificate of ours (kafka.cert_file) or a user (kafka.security "
            "SASL_SSL)"
        )
    if not sasl:
        return ConfigError(f"{at} ends the connection: it may want a user (kafka.security SASL_SSL or SASL_PLAINTEXT)")
    return UnavailableError(f"{at} takes connections but does not answer")


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # only looks; nothing is sent
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError):
        return False
    await _close(writer)
    return True


async def _listens(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    await _close(writer)
    return True


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await writer.wait_closed()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _named(servers: str) -> list[tuple[str, int]]:
    named = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if host and port.isdigit():
            named.append((host.strip("[]"), int(port)))
    return named
