"""Authentication: one function makes the arguments of producers, consumers and admin clients.

The settings never hold a password, only where to read it, so that no printed configuration, command line or log can
show it.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, Final

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.errors import ConfigError

MAX_PASSWORD_BYTES: Final = 4096


def client_settings(config: KafkaConfig) -> dict[str, Any]:
    """Keyword arguments of every aiokafka client: addresses of the brokers, and authentication.

    Raises
    ------
    ConfigError
        A file or variable that `config` names cannot be used; the message names the key.
    """
    settings: dict[str, Any] = {"bootstrap_servers": config.servers, "security_protocol": config.security}
    if "SSL" in config.security:
        settings["ssl_context"] = _tls(config)
    if config.security.startswith("SASL"):
        settings |= {
            "sasl_mechanism": config.mechanism,
            "sasl_plain_username": config.user,
            "sasl_plain_password": password(config),
        }
    return settings


def librdkafka_settings(config: KafkaConfig) -> dict[str, Any]:
    """The same for a client made on librdkafka, which alone can set rights (`acl_io`)."""
    settings: dict[str, Any] = {"bootstrap.servers": config.servers, "security.protocol": config.security}
    files = {
        "ssl.ca.location": config.ca_file,
        "ssl.certificate.location": config.cert_file,
        "ssl.key.location": config.key_file,
    }
    settings |= {name: path for name, path in files.items() if path}
    if config.security.startswith("SASL"):
        settings |= {
            "sasl.mechanism": config.mechanism,
            "sasl.username": config.user,
            "sasl.password": password(config),
        }
    return settings


def password(config: KafkaConfig) -> str:
    """The user's password, from the file or variable that `config` names.

    Raises
    ------
    ConfigError
        There is none.
    """
    if config.password_env:
        found = os.environ.get(config.password_env, "")
        if not found:
            raise ConfigError(f"kafka.password_env: the environment has no variable {config.password_env}")
        return found
    try:
        raw = Path(config.password_file).read_bytes()[:MAX_PASSWORD_BYTES]
        line = raw.decode().split("\n", 1)[0].rstrip("\r")
    except OSError as error:
        raise ConfigError(f"kafka.password_file: {config.password_file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"kafka.password_file: {config.password_file} is not text in UTF-8") from error
    if not line:
        raise ConfigError(f"kafka.password_file: the first line of {config.password_file} is empty")
    return line


def _tls(config: KafkaConfig) -> ssl.SSLContext:
    """Verifies the broker's certificate and name always; there is no setting to do without."""
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"kafka.ca_file: {config.ca_file}: {_why(error, 'a certificate')}") from error
    if config.cert_file:
        try:
            # without this an encrypted key would ask for its password on the terminal
            context.load_cert_chain(config.cert_file, config.key_file, password=lambda: b"")
        except (OSError, ValueError) as error:
            absent = "kafka.cert_file" if not Path(config.cert_file).is_file() else "kafka.key_file"
            named = config.cert_file if absent == "kafka.cert_file" else config.key_file
            raise ConfigError(f"{absent}: {named}: {_why(error, 'this certificate and its open key')}") from error
    return context


def _why(error: OSError | ValueError, wanted: str) -> str:
    if isinstance(error, ssl.SSLError | ValueError):
        return f"does not hold {wanted} in PEM"
    return error.strerror or str(error)
