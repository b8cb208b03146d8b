"""The public keys whose commands an agent obeys, from its configuration."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path

from sdfstream.errors import ConfigError
from sdfstream.records.signature import KeyRing
from sdfstream.secret import HIDDEN


def trusted(keys: Sequence[str]) -> KeyRing:
    """The public keys named in a configuration: base64, or a path of a file with 32 raw bytes or base64.

    Raises
    ------
    ConfigError
        A key cannot be read, or there is none.
    """
    if not keys:
        raise ConfigError("control is on, but trusted_keys is empty: nobody could be obeyed")
    return KeyRing(_key(text, f"trusted_keys.{i}") for i, text in enumerate(keys))


def _key(text: str, path: str) -> bytes:
    raw: bytes = text.encode()
    if "/" in text and not text.endswith("="):  # base64 of 32 bytes has slashes too, and ends so
        try:
            raw = Path(text).read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {_named(text)}: {error.strerror}") from error
        if len(raw) == 32:
            return raw
    try:
        key = base64.b64decode(raw.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != 32:
        raise ConfigError(f"{path}: {_named(text)} is no public key of 32 bytes in base64, nor a file that holds one")
    return key


def _named(text: str) -> str:
    """A path; nothing else, since somebody may have put a private key here."""
    return text if text.startswith(("/", "./", "../")) else HIDDEN
