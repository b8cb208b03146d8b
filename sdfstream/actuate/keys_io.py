"""Keys on disk: the controller's own, made on first use, and the operators' public ones.

``<data>/keys/controller.key`` holds 32 raw bytes, readable by its owner alone; ``controller.pub`` its public key as
base64 in one line, which agents are given. ``<data>/keys/operators/*.pub`` are the operators who may override.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.records.signature import KeyRing, Signer

CONTROLLER: Final = "controller"


@dataclass(frozen=True, slots=True)
class Keys:
    """What the controller signs with, and whose overrides it obeys."""

    signer: Signer
    operators: KeyRing
    public: Path
    """Where the controller's public key lies."""


def load(data: Path, *, make: bool = True) -> Keys:
    """The keys below `data`; the controller's is made when there is none and `make`.

    Raises
    ------
    ConfigError
        A key file cannot be read or written, is no key, or others may read the private one.
    """
    folder = data / "keys"
    signer = private_key(folder / f"{CONTROLLER}.key", make=make)
    operators = folder / "operators"
    return Keys(signer, public_keys(operators), folder / f"{CONTROLLER}.pub")


def private_key(path: Path, *, make: bool = True) -> Signer:
    """The key in `path` (32 raw bytes, mode 0600); with `make` a new one and its ``.pub`` where there is none.

    Raises
    ------
    ConfigError
        As `load`.
    """
    try:
        if not path.exists() and make:
            _make(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigError(f"{path} can be read by others; make it `chmod 600`")
        signer = Signer(path.read_bytes())
        public = path.with_suffix(".pub")
        if make and not public.exists():
            public.write_text(base64.b64encode(signer.public).decode() + "\n")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return signer


def _make(path: Path) -> None:
    """Whole or not at all, and never over another one: two processes may start at once."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(32))
    try:
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink()


def public_keys(folder: Path) -> KeyRing:
    """The public keys in ``<folder>/*.pub``, base64, one each; an empty ring when the folder is not there.

    Raises
    ------
    ConfigError
        A file is no public key.
    """
    return KeyRing([public_key(path) for path in sorted(folder.glob("*.pub"))] if folder.is_dir() else [])


def public_key(path: Path) -> bytes:
    """The 32 raw bytes of the public key in `path`.

    Raises
    ------
    ConfigError
        The file cannot be read or is no public key.
    """
    try:
        raw = base64.b64decode(path.read_text().strip(), validate=True)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{path} holds no base64: {error}") from error
    if len(raw) != 32:
        raise ConfigError(f"{path} holds {len(raw)} bytes; a public key has 32")
    return raw
