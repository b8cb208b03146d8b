"""Who asks the SQL front, and whether a web page does it behind a user's back. Pure."""

from __future__ import annotations

import enum
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sdfstream.archive.failures import AUTHENTICATION_FAILED, EngineError

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_NOT_FOREIGN: Final = frozenset({"", "none"})
"""Values of Sec-Fetch-Site for a request that no page made: no browser, or an address that a person typed."""


class Caller(enum.Enum):
    """Who asks."""

    OWNER = "owner"
    """The data folder's owner or root, known by the socket's peer; reads."""
    READER = "reader"
    """Has the token to read."""
    WRITER = "writer"
    """Has the token to write."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The passwords of a front."""

    reader: str
    writer: str | None = None
    """None: nobody writes."""
    advice: str = ""
    """Where the reader's token is found, for whoever has none."""

    def caller(self, password: str) -> Caller:
        """Who gives this password.

        Raises
        ------
        EngineError
            516: it is no token of this front.
        """
        given = password.encode()
        may_write = self.writer is not None and hmac.compare_digest(given, self.writer.encode())
        if may_write:
            return Caller.WRITER
        if hmac.compare_digest(given, self.reader.encode()):
            return Caller.READER
        problem = "the password is wrong" if password else "a password is needed"
        raise EngineError(f"{problem}{self.advice}", AUTHENTICATION_FAILED)


def page_in_between(hosts: Sequence[str], headers: Mapping[str, str], names: frozenset[str] | None) -> str | None:
    """Why a request is taken for a web page's; None: it is not.

    Parameters
    ----------
    hosts : sequence of str
        Every Host header.
    headers : mapping
        Lower-case headers.
    names : frozenset of str, optional
        Names that this address has; None: it may have any.

    A page must reach loopback neither from another site (Origin, Sec-Fetch-Site) nor by giving its own name this
    address (DNS rebinding: Host). No page is served here, so none may ask.
    """
    if len(hosts) != 1:
        return "a request names its host once"
    try:
        host = urlsplit("//" + hosts[0]).hostname
    except ValueError:
        host = None
    if host is None or (names is not None and host not in names):
        return "this address is not known by the name in the Host header"
    if "origin" in headers or headers.get("sec-fetch-site", "").lower() not in _NOT_FOREIGN:
        return "web pages may not ask here (Origin, Sec-Fetch-Site)"
    return None
