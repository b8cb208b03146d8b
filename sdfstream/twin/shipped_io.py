"""The scenarios that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sdfstream.errors import ConfigError

FOLDER: Final = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    """Names of the shipped scenarios, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find(name: str) -> Path:
    """The file of a scenario: a path, or a shipped name.

    Raises
    ------
    ConfigError
        There is neither.
    """
    shipped = FOLDER / f"{name}.yaml"
    if name in names():
        return shipped
    if Path(name).is_file():
        return Path(name)
    raise ConfigError(f"no file {name}, and no shipped scenario of that name; there are {', '.join(names())}")
