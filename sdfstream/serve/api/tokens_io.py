"""The tokens file ``<data>/api.tokens``: read when it changes, written whole, for its owner alone (0600)."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sdfstream import strict_json
from sdfstream.errors import ConfigError, FormatError
from sdfstream.serve.api.roles import ROLES, ApiToken, from_data, hashed, to_data

FILE: Final = "api.tokens"
PREFIX: Final = "sdf_"
"""Tokens begin so, that searches for leaked secrets find them."""


@dataclass(slots=True)
class TokenFile:
    """The tokens of a data folder, as of its file's last change."""

    data: Path
    _tokens: list[ApiToken] = field(default_factory=list)
    _seen: tuple[int, int, int] | None = None

    def tokens(self) -> list[ApiToken]:
        """Those of now; a file that cannot be trusted or read gives none.

        Raises
        ------
        ConfigError
            The file can be read by others, belongs to somebody else, or cannot be read.
        """
        path = self.data / FILE
        try:
            status = path.stat(follow_symlinks=False)
        except FileNotFoundError:
            self._tokens, self._seen = [], None
            return []
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._tokens, self._seen = [], None
            self._tokens = read(self.data)
            self._seen = seen
        return self._tokens


def read(data: Path) -> list[ApiToken]:
    """The tokens of `data`; none where there is no file.

    Raises
    ------
    ConfigError
        The file can be read by others, belongs to somebody else, or cannot be read.
    """
    path = data / FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise ConfigError(f"{path} belongs to somebody else or can be read by others (chmod 600): no token counts")
        try:
            return from_data(strict_json.loads(file.read(1 << 20)))
        except FormatError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error


def add(data: Path, name: str, role: str, expires_at_ns: int | None = None) -> str:
    """Make a token; its text, which is written nowhere.

    Raises
    ------
    ConfigError
        There is a token of that name, or the role is none, or the file cannot be read or written.
    """
    if role not in ROLES:
        raise ConfigError(f"role must be one of {', '.join(ROLES)}")
    tokens = read(data)
    if any(token.name == name for token in tokens):
        raise ConfigError(f"there is a token called {name!r} already; remove it first")
    text = PREFIX + secrets.token_urlsafe(32)
    _write(data, [*tokens, ApiToken(name, role, hashed(text), expires_at_ns)])
    return text


def remove(data: Path, name: str) -> None:
    """Take a token back; ConfigError where there is none of that name."""
    tokens = read(data)
    left = [token for token in tokens if token.name != name]
    if len(left) == len(tokens):
        raise ConfigError(f"there is no token called {name!r}")
    _write(data, left)


def _write(data: Path, tokens: list[ApiToken]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    unfinished = data / f".{FILE}.{os.getpid()}"
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(to_data(tokens), file, indent=1)
            file.write("\n")
            os.fsync(file.fileno())
        unfinished.replace(data / FILE)
    except OSError as error:
        raise ConfigError(f"{data / FILE} cannot be written: {error.strerror}") from error
