"""Packages of the lock files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
LOCKS: Final = ("requirements.lock", "requirements-run.lock", "requirements-peers.lock", "requirements-chart.lock")
_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)


class Package(NamedTuple):
    """A locked package, by its normalised name."""

    name: str
    version: str


def packages() -> list[Package]:
    """Every package that some lock file names, once per version."""
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in LOCKS)
    return sorted({Package(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in _PIN.findall(text)})
