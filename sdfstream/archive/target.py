"""The address of an engine: a folder for the embedded one, a URL for a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sdfstream.errors import ConfigError

DATABASE = "sdf"
"""The database used when a target names none."""


@dataclass(frozen=True, slots=True)
class Folder:
    """An embedded chDB engine with its data in `path`; one process at a time can open it."""

    path: str
    database: str = DATABASE

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Server:
    """A ClickHouse server's HTTP interface."""

    host: str
    port: int
    user: str = "default"
    password: str = field(default="", repr=False)
    database: str = DATABASE
    secure: bool = False
    socket: Path | None = field(default=None, repr=False)
    """A Unix socket that leads there instead."""

    def __str__(self) -> str:
        """The URL without its password, fit for messages and logs."""
        if self.socket is not None:
            return str(self.socket)
        scheme = "https" if self.secure else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.database}"


def parse(target: str) -> Folder | Server:
    """A target from its text.

    >>> parse("http://ops:secret@ch.example:8124/fabric")
    Server(host='ch.example', port=8124, user='ops', database='fabric', secure=False)
    >>> parse("data/archive")
    Folder(path='data/archive', database='sdf')

    Raises
    ------
    ConfigError
        The text is neither; the password is not repeated.
    """
    if "://" not in target:
        if not target:
            raise ConfigError("archive target is empty: give a folder or http://user:password@host:8123/database")
        return Folder(target)
    scheme = target.partition("://")[0]
    if scheme == "chdb":
        return Folder(target.partition("://")[2])
    if scheme not in ("http", "https"):
        raise ConfigError(f"archive target: scheme {scheme} is not known; use a folder, http:// or https://")
    try:
        url = urlsplit(target)
        port = url.port
    except ValueError:  # its text would quote what stands where the port should: a part of the password, perhaps
        raise ConfigError(
            f"archive target: {scheme}://… is not a URL; in user and password write / ? # @ : as %2F %3F %23 %40 %3A"
        ) from None
    if not url.hostname:
        raise ConfigError(f"archive target: {scheme}://… names no host")
    secure = scheme == "https"
    return Server(
        host=url.hostname,
        port=port or (8443 if secure else 8123),
        user=unquote(url.username or "default"),
        password=unquote(url.password or ""),
        database=unquote(url.path.strip("/")) or DATABASE,
        secure=secure,
    )
