"""The open software-driven fabric for AI clusters; see ARCHITECTURE.md for the path of a sample.

A program that owns RDMA queue pairs offers them with ``sdfstream.steerable`` (`sdfstream.verbs.steerable_io`).
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

_LATER = {"steerable": "sdfstream.verbs.steerable_io"}
"""Public names and their modules, which are loaded when first used: no room below may depend on them."""


def __getattr__(name: str) -> Any:
    """One of `_LATER`."""
    if name not in _LATER:
        raise AttributeError(f"module 'sdfstream' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
