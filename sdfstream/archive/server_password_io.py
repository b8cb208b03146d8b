"""The password of a ClickHouse server that a verb asks, from where the process list does not show it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from sdfstream.errors import ConfigError

VARIABLE: Final = "SDFSTREAM_SQL_PASSWORD"


def has_password(url: str) -> bool:
    """Whether a password stands in `url` itself."""
    try:
        return bool(urlsplit(url).password)
    except ValueError:
        return False


def with_password(url: str, file: Path | None) -> str:
    """`url` with the password in `file`, else in SDFSTREAM_SQL_PASSWORD; one that stands in `url` stays.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    if has_password(url) or "://" not in url:
        return url
    if file is not None:
        try:
            password = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--password-file {file} cannot be read: {error}") from error
    else:
        password = os.environ.get(VARIABLE, "")
    if not password:
        return url
    scheme, _, rest = url.partition("://")
    user, at, where = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0] if at else 'default'}:{quote(password, safe='')}@{where}"
