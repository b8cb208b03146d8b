"""The token of a data folder: whoever can read the file may read the archive over TCP.

Loopback does not tell users apart, a file's mode does: ``<data>/sql.token`` is for its owner alone (0600), and for
root. ``sdfstream sql`` needs no token; it asks at the socket beside it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from sdfstream.errors import ConfigError

FILE: Final = "sql.token"
_FEWEST: Final = 16
"""Characters: a shorter token might be guessed."""


def ensure_token(data: Path) -> str:
    """The token of the data folder, made when there is none.

    Raises
    ------
    ConfigError
        The file can be read by others, is a link, belongs to somebody else, holds too little, or cannot be written.
    """
    path = data / FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token


def _read(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            token = file.read(1 << 12).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); remove it, and a new token is made") from error
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
        raise ConfigError(f"{path} belongs to somebody else or can be read by others; remove it, and a new one is made")
    if len(token) < _FEWEST:
        raise ConfigError(f"{path} holds fewer than {_FEWEST} characters; remove it, and a new token is made")
    return token
