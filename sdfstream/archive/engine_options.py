"""How the embedded engine is started: with configuration and users of our own, never with files that it finds.

The first handle of a process starts the engine, so every handle is opened with these options. Pure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FILES: Final = Path(__file__).parent / "engine_config"

ENGINE_OPTIONS: Final = {"config-file": str(_FILES / "config.xml"), "users_config": str(_FILES / "users.xml")}
"""chDB's startup arguments."""

READER: Final = "sdf_reader"
"""The role (``engine_config/users.xml``) in which readers ask."""


def connection_string(path: str) -> str:
    """The engine of the folder `path`, as ``chdb.connect`` takes it.

    >>> connection_string("a").partition("?")[0]
    'a'
    """
    return f"{path}?" + "&".join(f"{name}={value}" for name, value in ENGINE_OPTIONS.items())
