"""Cursors: where a page ended, as text that its reader hands back unchanged. Pure.

A cursor holds the key of the last item, not a number: items that come or go meanwhile neither repeat nor hide others.
It also holds what was asked and, for the past, the instant, so that all pages are of one moment.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.serve.api.problem import ProblemError

_UNASKED: Final = frozenset({"cursor", "limit"})


def encode(resource: str, asked: Mapping[str, Any], key: tuple[Any, ...]) -> str:
    """The cursor behind the item with `key`."""
    text = json.dumps([_asked(resource, asked), list(key)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(resource: str, asked: Mapping[str, Any], cursor: str, like: tuple[type, ...]) -> tuple[Any, ...]:
    """The key in `cursor`, of values of the types `like`.

    Raises
    ------
    ProblemError
        400: it is no cursor, or one of another question.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        said, key = strict_json.loads(text)
        fits = isinstance(key, list) and [type(value) for value in key] == list(like)
    except (binascii.Error, FormatError, ValueError, TypeError, UnicodeDecodeError):
        raise ProblemError(400, "cursor is not the `next` of a page") from None
    if not fits:
        raise ProblemError(400, "cursor is not the `next` of a page")
    if said != _asked(resource, asked):
        raise ProblemError(400, "cursor belongs to another question: leave it out, or ask with the same parameters")
    return tuple(key)


def _asked(resource: str, asked: Mapping[str, Any]) -> str:
    text = json.dumps([resource, sorted((k, v) for k, v in asked.items() if k not in _UNASKED)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
