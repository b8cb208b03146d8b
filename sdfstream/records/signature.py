"""Ed25519 signatures over commands and overrides, and the keys they are checked against (RFC 8032).

A key id is the first 16 hex digits of the SHA-256 of the raw public key, so nobody chooses ids by hand and no id can
be given to another key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.command import signed_bytes

REPLAY_KEY: Final = bytes(range(32))
"""A replay's signing key: public, and in no agent's key ring."""


class Signer:
    """Signs with one private key (32 raw bytes)."""

    def __init__(self, private: bytes) -> None:
        try:
            self._key = Ed25519PrivateKey.from_private_bytes(private)
        except ValueError as error:
            raise ConfigError(f"a signing key is 32 bytes, not {len(private)}") from error
        self.public = self._key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.key_id = key_id(self.public)

    def sign(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """`data` with our ``key_id`` and the signature over all of it."""
        named = {**data, "key_id": self.key_id}
        signature = base64.b64encode(self._key.sign(signed_bytes(named))).decode()
        return {**named, "signature": signature}


class KeyRing:
    """Public keys (32 raw bytes each) that are trusted."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        try:
            self._keys = {key_id(raw): Ed25519PublicKey.from_public_bytes(raw) for raw in keys}
        except ValueError as error:
            raise ConfigError(f"a public key is 32 bytes: {error}") from error

    def __len__(self) -> int:
        return len(self._keys)

    def refuses(self, data: Mapping[str, Any]) -> str:
        """Why `data` is not trusted: ``unknown-key``, ``forged`` or ``canonical``; empty when it is."""
        key = self._keys.get(str(data.get("key_id")))
        if key is None:
            return "unknown-key"
        try:
            key.verify(base64.b64decode(str(data.get("signature", "")), validate=True), signed_bytes(data))
        except (InvalidSignature, binascii.Error, ValueError):
            return "forged"
        except FormatError as error:
            return error.reason
        return ""


def key_id(public: bytes) -> str:
    """The id of a public key.

    >>> key_id(bytes(32))
    '66687aadf862bd77'
    """
    return hashlib.sha256(public).hexdigest()[:16]
