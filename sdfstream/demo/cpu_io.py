"""What share of the machine the parts of a demo took: CPU time of their processes, from ``/proc``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = (3, 4)
"""Columns of ``/proc/stat``: idle, waiting for a disk."""
_STEAL: Final = 7


class CpuShares:
    """CPU time (user and system, all threads) of groups of processes since this was made.

    A group is some processes and those that descend from them, without other groups' processes. What the kernel does
    for packets in nobody's name (softirq) is in the machine's share only.

    Parameters
    ----------
    proc : Path
        Where the kernel shows its processes.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._groups: dict[str, list[int]] = {}
        self._began: dict[int, float] = _seconds_by_pid(proc)[0]
        self._machine_began = _busy_seconds(proc)
        self._began_s = time.monotonic()
        self._figures: dict[str, Any] = {}

    def add(self, group: str, pids: Iterable[int | None]) -> None:
        """These processes are part of `group`."""
        self._groups.setdefault(group, []).extend(pid for pid in pids if pid is not None)

    def end(self) -> None:
        """Take the figures now, while the processes live; they stay as they are."""
        elapsed_s = time.monotonic() - self._began_s
        now, parents = _seconds_by_pid(self._proc)
        used = {pid: seconds - self._began.get(pid, 0.0) for pid, seconds in now.items()}
        owners = {pid: group for group, pids in self._groups.items() for pid in pids}
        shares = dict.fromkeys(self._groups, 0.0)
        for pid, seconds in used.items():
            group = _owner(pid, owners, parents)
            if group is not None:
                shares[group] += seconds
        self._figures = {
            "seconds": round(elapsed_s, 1),
            "cores": os.cpu_count(),
            "machine": round((_busy_seconds(self._proc) - self._machine_began) / elapsed_s, 3),
            "of_a_core": {group: round(seconds / elapsed_s, 3) for group, seconds in shares.items()},
        }

    def as_dict(self) -> dict[str, Any]:
        """``of_a_core``: share of each group, 1 is one core; ``machine``: busy cores; empty before `end`."""
        return self._figures


def _owner(pid: int, owners: Mapping[int, str], parents: Mapping[int, int]) -> str | None:
    """The group of the nearest ancestor that has one."""
    seen: set[int] = set()
    while pid in parents and pid not in owners and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
    return owners.get(pid)


def _seconds_by_pid(proc: Path) -> tuple[dict[int, float], dict[int, int]]:
    """(CPU time, parent) of every process that is there."""
    seconds: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        parents[int(entry.name)] = int(fields[1])
    return seconds, parents


def _busy_seconds(proc: Path) -> float:
    """CPU time of all cores that was not idle, whoever had it; what the hypervisor took is not counted."""
    ticks = [int(n) for n in (proc / "stat").read_text().partition("\n")[0].split()[1:9]]
    return sum(n for column, n in enumerate(ticks) if column not in (*_IDLE, _STEAL)) / _TICKS_PER_S
