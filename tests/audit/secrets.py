"""Keys, passwords and tokens in tracked files, by the rules of detect-secrets.

Its plugins are asked about whole files instead of lines, which takes seconds instead of minutes; those that go by
entropy are left out, since golden bytes and digests would drown the rest.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector

from tests.audit.locked import ROOT
from tests.audit.policy import MADE_UP

_DATA: Final = (".arrow", ".arrows", ".bin", ".jsonl", ".lock", ".npy", ".pcap", ".png", ".svg")
_BYTES: Final = ("tests/fuzz/cases/", "tests/golden/versions/")
"""Messages in base64: random bytes look like keys."""
_ASSIGNED: Final = re.compile(
    r"""(?i)(?:passw(?:or)?d|secret|token|api_?key|private_?key|hmac_?key)["']?\s*[:=]\s*["']([^"'\s$<{]{8,})["']"""
)
_LEFT_OUT: Final = ("Public IP (ipv4)",)
_SHORTEST: Final = 8
"""Shorter ones in tests are made up."""
_MOST_BYTES: Final = 4 << 20


def found() -> list[str]:
    """A sentence per secret that `policy.MADE_UP` does not name."""
    said = []
    for path in tracked():
        raw = (ROOT / path).read_bytes()
        if len(raw) <= _MOST_BYTES and b"\0" not in raw:
            said += [
                f"{path}:{line}: {kind}; take it out, or name it in tests/audit/policy.py as made up"
                for line, kind, value in secrets(raw.decode(errors="replace"))
                if value not in MADE_UP and not (path.startswith("tests/") and len(value) < _SHORTEST)
            ]
    return said


def tracked() -> list[str]:
    """Text files that git tracks, or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return sorted(
        path
        for path in listed
        if path and not path.endswith(_DATA) and not path.startswith(_BYTES) and (ROOT / path).is_file()
    )


def secrets(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, what it looks like, its value) of everything in `text` that looks like a secret."""
    for kind, plugin in _plugins():
        for pattern in plugin.denylist:
            for match in pattern.finditer(text):
                yield text.count("\n", 0, match.start()) + 1, kind, match.group(match.lastindex or 0)
    for match in _ASSIGNED.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, "Assigned Secret", match.group(1)


@cache
def _plugins() -> tuple[tuple[str, Any], ...]:
    kinds = get_mapping_from_secret_type_to_class()
    chosen = ((kind, cls) for kind, cls in sorted(kinds.items()) if issubclass(cls, RegexBasedDetector))
    return tuple((kind, cls()) for kind, cls in chosen if kind not in _LEFT_OUT)
