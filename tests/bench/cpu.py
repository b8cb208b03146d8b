"""Where this process spends its CPU time: all of it, and by thread, so that an engine's threads can be told apart."""

from __future__ import annotations

import os
import resource
import threading
from collections import Counter
from pathlib import Path

from tests.bench.harness import TICKS_PER_S

KINDS = {"Merge": "merge", "Bg": "merge"}
"""What a thread of chDB does, by how its name begins; all others are ``engine``."""


def whole_s() -> float:
    """CPU seconds of all threads of this process, those that ended included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def by_thread() -> dict[int, tuple[str, float]]:
    """Name and CPU seconds of every thread that lives."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # it ended meanwhile
            continue
        user, system = rest.split()[11:13]
        found[int(task.name)] = (name, (int(user) + int(system)) / TICKS_PER_S)
    return found


def spent(before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]]) -> dict[str, float]:
    """CPU seconds between two looks of `by_thread`: ``main``, each Python thread by its name, and chDB's by kind."""
    names = {t.native_id: t.name for t in threading.enumerate()} | {os.getpid(): "main"}
    total: Counter[str] = Counter()
    for number, (name, used) in after.items():
        kind = next((k for start, k in KINDS.items() if name.startswith(start)), "engine")
        total[names.get(number, kind)] += used - before.get(number, ("", 0.0))[1]
    return dict(total)
