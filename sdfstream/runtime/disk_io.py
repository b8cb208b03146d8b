"""Room on the disk of a folder, as gauges of a process's metrics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path


def gauges(folder: Path) -> dict[str, Callable[[], float | None]]:
    """Free bytes (for a user without special rights) and size of the file system of `folder`, asked at each scrape."""
    return {
        "data_disk_free_bytes": partial(_usage, folder, "free"),
        "data_disk_size_bytes": partial(_usage, folder, "total"),
    }


def _usage(folder: Path, which: str) -> float | None:
    try:
        return float(getattr(shutil.disk_usage(folder), which))
    except OSError:  # no such folder yet, or one that cannot be asked
        return None
