"""Values that nobody may read: passwords, keys, tokens. Errors and printed settings pass through here.

A setting is secret by its name, also a mistyped one (``hmac_keys``, ``passwort``): better a value too few in an error
than one too many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "(hidden)"
"""Stands where a secret value would."""
_WORDS: Final = re.compile(r"hmac|key|passw|pwd|secret|token|credential|cred\b|auth|priv|pass\b", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(?<=://)\S*@")
"""User and password of a URL, also where the password holds what a URL would have to escape."""


def is_secret(path: str) -> bool:
    """Whether the setting at the dotted `path` suggests a secret.

    >>> is_secret("agent.hmac_key"), is_secret("agent.hosts.0.host")
    (True, False)
    """
    return _WORDS.search(path) is not None


def quoted(path: str, value: object) -> str:
    """How an error about the setting at `path` quotes `value`: numbers only, since any text may be a slipped password.

    >>> quoted("flush_ms", "hunter2"), quoted("hmac_key", 12345), quoted("agent", {"hmac_key": "x"}), quoted("n", 1.5)
    ('text', '(hidden)', 'a mapping', '1.5')
    """
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if is_secret(path):
        return HIDDEN
    if value is None or isinstance(value, int | float):
        return "nothing" if value is None else repr(value)
    return "text" if isinstance(value, str | bytes) else type(value).__name__


def without_password(text: str) -> str:
    """`text` with user and password of every URL in it hidden.

    >>> without_password("no ClickHouse at http://ops:pa/ss@ch:8123/sdf")
    'no ClickHouse at http://(hidden)@ch:8123/sdf'
    """
    return _IN_URL.sub(f"{HIDDEN}@", text)


def hidden_at(plain: Any, path: str = "") -> str | None:
    """Path of a value that `hidden` replaced, in settings that were printed and are read again; None: there is none."""
    if isinstance(plain, Mapping):
        children = [(f"{path}.{key}" if path else str(key), value) for key, value in plain.items()]
    elif isinstance(plain, list | tuple):
        children = [(f"{path}.{i}", value) for i, value in enumerate(plain)]
    else:
        return path if isinstance(plain, str) and HIDDEN in plain else None
    return next((found for key, value in children if (found := hidden_at(value, key)) is not None), None)


def hidden(plain: Any, path: str = "") -> Any:
    """`plain` (settings as JSON data) with secret values replaced, for whoever prints it.

    Names of files and of environment variables that hold a secret are none.
    """
    if isinstance(plain, Mapping):
        return {key: hidden(value, str(key)) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [hidden(value, path) for value in plain]
    if isinstance(plain, str):
        return HIDDEN if plain and path in SECRETS else without_password(plain)
    return plain


SECRETS: Final = ("hmac_key",)
"""Settings that hold a secret themselves."""
