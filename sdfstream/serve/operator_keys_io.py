"""The operator's signing key and the public keys that a pipeline trusts, in its data folder.

``<data>/keys/operator.key``: 32 raw bytes, for its owner alone (0600). ``<data>/keys/operators/<user>.pub``: the public
key, base64 on one line; whoever may write into that folder decides whom the controller obeys.
"""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import re
import secrets
from pathlib import Path
from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.records.signature import Signer

KEYS: Final = "keys"
KEY_NAME: Final = "operator.key"
TRUSTED: Final = "operators"
_BYTES: Final = 32


def user() -> str:
    """Who types, as the system knows them."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid-{os.getuid()}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name) or "operator"


def ensure(data: Path) -> Signer:
    """The key of the data folder, made on first use."""
    if not key_path(data).exists():
        make(data)
    return read(data)


def make(data: Path) -> Path:
    """Make the key and put its public key among the trusted; returns the public key's file.

    Raises
    ------
    ConfigError
        There is one already, or the folder cannot be written.
    """
    path = key_path(data)
    private = secrets.token_bytes(_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(private)
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise ConfigError(f"{path} exists already; remove it first if it is to be replaced") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return trust(data, Signer(private).public, user())


def read(data: Path, path: Path | None = None) -> Signer:
    """The key at `path`, by default the data folder's.

    Raises
    ------
    ConfigError
        There is none, it is not 32 bytes, or others than its owner can read it.
    """
    path = path or key_path(data)
    try:
        mode = path.stat().st_mode
        private = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"no operator key at {path}; make one with `sdfstream policy keygen`") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if mode & 0o077:
        raise ConfigError(f"{path} can be read by others (mode {mode & 0o777:03o}); chmod 600 it, or make a new one")
    if len(private) != _BYTES:
        raise ConfigError(f"{path} holds {len(private)} bytes; a signing key is {_BYTES}")
    return Signer(private)


def trust(data: Path, public: bytes, name: str) -> Path:
    """Put a public key among those that the pipeline on `data` trusts."""
    path = data / KEYS / TRUSTED / f"{name}.pub"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(base64.b64encode(public).decode() + "\n", encoding="ascii")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def trusted(data: Path) -> dict[str, bytes]:
    """Name → public key of every operator that the pipeline on `data` trusts.

    Raises
    ------
    ConfigError
        A file among them is no public key: nobody is trusted by halves.
    """
    found = {}
    for path in sorted((data / KEYS / TRUSTED).glob("*.pub")):
        try:
            public = base64.b64decode(path.read_text(encoding="ascii").strip(), validate=True)
        except (OSError, ValueError, binascii.Error) as error:
            raise ConfigError(f"{path} is no public key: {error}") from error
        if len(public) != _BYTES:
            raise ConfigError(f"{path} is no public key: {len(public)} bytes instead of {_BYTES}")
        found[path.stem] = public
    return found


def key_path(data: Path) -> Path:
    """Where the data folder's key lies."""
    return data / KEYS / KEY_NAME
