"""Who may do what: roles, the tokens that carry them, and the role that each request needs. Pure.

A role may do all that those below it may. A token stands in the tokens file as its SHA-256 only: 256 random bits need
no slow hash, and whoever reads the file learns no token.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sdfstream.errors import FormatError
from sdfstream.records.silences import LIFT, SILENCE, FindingSilence


class ApiRole(enum.IntEnum):
    """What a caller may do; larger includes smaller."""

    VIEW = 1
    """Read everything."""
    LABEL = 2
    """Say something beside the measurements: alerts of an Alertmanager, signed silences and labels of findings."""
    APPROVE = 3
    """Pass on signed approvals and undos of single commands, and silences with which the loop pauses (maintenance)."""
    ADMIN = 4
    """Pass on every signed override: mode, hold, kill switch."""

    @property
    def word(self) -> str:
        """As it is spelt in files and on the command line."""
        return self.name.lower()


ROLES: Final[dict[str, ApiRole]] = {role.word: role for role in ApiRole}
OF_OVERRIDE: Final[dict[str, ApiRole]] = {
    **dict.fromkeys(("approve", "refuse", "undo"), ApiRole.APPROVE),
    **dict.fromkeys(("silence", "label"), ApiRole.LABEL),
}
"""ApiRole by what an override does; everything else needs `ApiRole.ADMIN`. Where it depends: `needed_for`."""
OPEN: Final = frozenset({"/healthz", "/openapi.json"})
"""Paths that anybody who reaches the address may read: whether data is fresh, and how to ask."""
PAGE: Final = "/page/"
"""Below it, and at ``/``, are the page's own files, which hold no data."""
ALERTS: Final = "/v1/alerts"
"""Where an Alertmanager posts its webhook."""
OVERRIDES: Final = "/v1/overrides"
"""Where signed overrides are posted."""
MOST_TOKENS: Final = 1000


def needed_for(override: Mapping[str, Any], silence: Callable[[str], FindingSilence | None]) -> ApiRole:
    """The role that passing on an override needs.

    Parameters
    ----------
    override : mapping
        As it came, not checked yet.
    silence : callable
        The silence that an override of this id has begun; None: none that is known (a hold, or nothing).

    >>> needed_for({"what": "silence", "set": {"maintenance": True}}, lambda _: None).word
    'approve'
    >>> needed_for({"what": "lift", "target": {"type": "override", "id": "o-7"}}, lambda _: None).word
    'admin'
    """
    what, given = str(override.get("what")), override.get("set") or {}
    if what == LIFT:
        target = override.get("target")
        begun = silence(str(target.get("id"))) if isinstance(target, Mapping) else None
        if begun is None:
            return ApiRole.ADMIN
        return ApiRole.APPROVE if begun.maintenance else ApiRole.LABEL
    if what == SILENCE and not (isinstance(given, Mapping) and given.get("maintenance", False) is False):
        return ApiRole.APPROVE
    return OF_OVERRIDE.get(what, ApiRole.ADMIN)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One token of the tokens file."""

    name: str
    """Whose it is."""
    role: str
    sha256: str
    """Of the token, hex."""
    expires_at_ns: int | None = None
    """None: never."""


def needed(method: str, path: str) -> ApiRole | None:
    """The least role for a request; None: none is needed. What an override does is weighed once it was read."""
    is_open = path in OPEN or path == "/" or path.startswith(PAGE)
    if is_open and method in ("GET", "HEAD"):
        return None
    if method in ("GET", "HEAD", "OPTIONS"):
        return ApiRole.VIEW
    return ApiRole.LABEL if path in (ALERTS, OVERRIDES) else ApiRole.APPROVE


def role_of(tokens: Iterable[ApiToken], given: str, now_ns: int) -> ApiRole | None:
    """The role that the text of a token gives; None: it is none of them, or over.

    Every token is compared, in constant time each, so that the time taken tells nothing about any.
    """
    digest, found = hashed(given), None
    for token in tokens:
        is_same = hmac.compare_digest(digest, token.sha256)
        if is_same and (token.expires_at_ns is None or token.expires_at_ns > now_ns):
            found = ROLES[token.role]
    return found


def hashed(token: str) -> str:
    """SHA-256, hex.

    >>> hashed("abc")[:16]
    'ba7816bf8f01cfea'
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def from_data(data: Any) -> list[ApiToken]:
    """The tokens of a tokens file's JSON.

    Raises
    ------
    FormatError
        ``tokens``: something of it cannot be read; the detail says what, and quotes no hash.
    """
    rows = data.get("tokens") if isinstance(data, Mapping) else None
    if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) > MOST_TOKENS:
        raise FormatError("tokens", f"`tokens` must be a list of at most {MOST_TOKENS}")
    return [_token(row) for row in rows]


def to_data(tokens: Iterable[ApiToken]) -> dict[str, Any]:
    """What `from_data` reads."""
    return {"tokens": [asdict(token) for token in tokens]}


def _token(row: Any) -> ApiToken:
    if not isinstance(row, Mapping) or row.keys() - {"name", "role", "sha256", "expires_at_ns"}:
        raise FormatError("tokens", "a token has name, role, sha256 and expires_at_ns, nothing else")
    name, role, digest, expires_at_ns = (row.get(n) for n in ("name", "role", "sha256", "expires_at_ns"))
    if not isinstance(name, str) or not name:
        raise FormatError("tokens", "a token without a name")
    if role not in ROLES:
        raise FormatError("tokens", f"token {name!r}: role must be one of {', '.join(ROLES)}")
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise FormatError("tokens", f"token {name!r}: sha256 must be 64 hex digits")
    if expires_at_ns is not None and (not isinstance(expires_at_ns, int) or isinstance(expires_at_ns, bool)):
        raise FormatError("tokens", f"token {name!r}: expires_at_ns must be a whole number")
    return ApiToken(name, str(role), digest, expires_at_ns)
