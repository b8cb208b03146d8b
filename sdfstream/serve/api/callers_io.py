"""Who asks the API: by token, or as the data folder's owner on loopback."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sdfstream.errors import ConfigError
from sdfstream.serve.api.peer import End, is_loopback, uid_of
from sdfstream.serve.api.problem import ProblemError
from sdfstream.serve.api.roles import ApiRole, role_of
from sdfstream.serve.api.tokens_io import FILE, TokenFile

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""A proxy of the owner's speaks for whoever stands behind it: its callers need tokens."""
_NOT_FOREIGN: Final = frozenset({"", "none", "same-origin"})
"""Values of Sec-Fetch-Site for requests that no page of another site made."""


class Callers:
    """Tells a caller's role."""

    def __init__(self, data: Path) -> None:
        self._tokens = TokenFile(data)
        self._owner = os.geteuid()
        self._advice = f"make one with `sdfstream token add NAME --role view`; it goes into {FILE}"

    def role(
        self, headers: Mapping[str, str], hosts: list[str], caller: End | None, ours: End | None
    ) -> ApiRole | None:
        """The role of whoever sent a request; None: nobody whom we know.

        Raises
        ------
        ProblemError
            400, 401, 403, 421, 503: the request is a foreign web page's, or its token is none.
        """
        _refuse_foreign_pages(headers, hosts)
        given = headers.get("authorization")
        if given is not None:
            scheme, _, token = given.partition(" ")
            if scheme.lower() != "bearer":
                raise ProblemError(401, "Authorization must be: Bearer TOKEN")
            try:
                role = role_of(self._tokens.tokens(), token.strip(), time.time_ns())
            except ConfigError as error:
                raise ProblemError(503, str(error)) from error
            if role is None:
                raise ProblemError(401, f"the token is not known, or over; {self._advice}")
            return role
        if caller is None or ours is None or not self._is_owner(headers, caller, ours):
            return None
        name = _host_name(hosts[0])
        if name not in LOOPBACK_NAMES:
            raise ProblemError(421, "without a token this address is asked as 127.0.0.1, localhost or ::1")
        return ApiRole.ADMIN

    def refusal(self) -> ProblemError:
        """What somebody is told whom we do not know."""
        return ProblemError(401, f"a token is needed (Authorization: Bearer TOKEN); {self._advice}")

    def _is_owner(self, headers: Mapping[str, str], caller: End, ours: End) -> bool:
        if not is_loopback(caller[0]) or any(name in headers for name in _FORWARDED):
            return False
        table = Path("/proc/self/net/tcp6" if ":" in caller[0] else "/proc/self/net/tcp")
        try:
            with table.open(encoding="ascii", errors="replace") as lines:
                return uid_of(lines, caller, ours) in (self._owner, 0)
        except (OSError, ValueError):
            return False


def _refuse_foreign_pages(headers: Mapping[str, str], hosts: list[str]) -> None:
    """A page of another site must reach us neither directly (Origin) nor under a name of its own (Host)."""
    if len(hosts) != 1 or _host_name(hosts[0]) is None:
        raise ProblemError(400, "a request names its host once")
    origin = headers.get("origin")
    if origin is not None and _host_and_port(origin) != hosts[0].lower():
        raise ProblemError(403, "web pages of other sites may not ask here (Origin)")
    if headers.get("sec-fetch-site", "").lower() not in _NOT_FOREIGN:
        raise ProblemError(403, "web pages of other sites may not ask here (Sec-Fetch-Site)")


def _host_and_port(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # as of https://[
        return None


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
