"""Errors of an engine, and whether they may pass. Pure."""

from __future__ import annotations

import re
from typing import Final

from sdfstream.errors import ArchiveError

TABLE_ALREADY_EXISTS: Final = 57
UNKNOWN_TABLE: Final = 60
UNKNOWN_FORMAT: Final = 73
UNKNOWN_DATABASE: Final = 81
UNKNOWN_SETTING: Final = 115
READONLY: Final = 164
TOO_MANY_SIMULTANEOUS_QUERIES: Final = 202
ABORTED: Final = 236
AUTHENTICATION_FAILED: Final = 516

MAY_PASS: Final = frozenset({75, 159, 164, 202, 209, 210, 236, 241, 242, 243, 252, 285, 319, 394, 425, 439, 999})
"""Error codes after which the same insert may succeed later: time-outs, network, memory, too many parts, a write that
failed, read-only replica, disk full, Keeper away. Any other code means that the statement or the data is wrong."""

_CODE: Final = re.compile(r"Code: (\d+)")
_TRAILER: Final = re.compile(r"\s*\(version [^)]*\)\s*$")
_HEAD: Final = re.compile(r"^(?:Code: \d+\.\s*|DB::Exception:\s*|default:\s*)+")


class EngineError(ArchiveError):
    """The engine refused a statement, or could not be reached.

    Parameters
    ----------
    message : str
        The engine's own words, without codes and version.
    code : int | None
        ClickHouse's error code; None when the engine could not be reached.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code

    @property
    def may_pass(self) -> bool:
        """Whether the same statement may succeed later."""
        return self.code is None or self.code in MAY_PASS or "No space left" in str(self)


def engine_error(text: str, code: int | None = None) -> EngineError:
    """The error in the text that an engine or a client printed.

    >>> error = engine_error("Code: 60. DB::Exception: Unknown table 'x'. (UNKNOWN_TABLE) (version 26.9.2.1)")
    >>> error.code, str(error)
    (60, "Unknown table 'x'. (UNKNOWN_TABLE)")
    """
    found = _CODE.search(text)
    if code is None and found:
        code = int(found.group(1))
    words = text[found.start() :] if found else text
    return EngineError(_HEAD.sub("", _TRAILER.sub("", words.strip())).strip(), code)
