"""Crashes placed in process: at every publish, save, insert and commit in turn. What the parts found, added up.

A part is a module with ``placements(seed, n) -> PlacementReport`` that places about `n` crashes by itself, without a
broker. It is listed in `PARTS`; one that is not there yet is said to be missing, and the run does not balance.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

PARTS: Final = ("tests.chaos.placed_stages", "tests.chaos.placed_archive")
"""Modules that place crashes, each in its own part of the path."""
LEAST: Final = 1000
"""Placements of a whole run."""


@dataclass(slots=True)
class PlacementReport:
    """What came of placing crashes."""

    placed: int = 0
    lost: int = 0
    """Rows, events or outputs that an undisturbed run has and a disturbed one had not."""
    doubled: int = 0
    failures: list[str] = field(default_factory=list)
    """One sentence each, with what is needed to place that crash again."""
    by_part: dict[str, int] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        """Whether every disturbed run came to what the undisturbed one did."""
        return not (self.lost or self.doubled or self.failures)

    def add(self, name: str, part: PlacementReport) -> None:
        """Add another part's report."""
        self.placed += part.placed
        self.lost += part.lost
        self.doubled += part.doubled
        self.failures += [f"{name}: {failure}" for failure in part.failures]
        self.by_part[name] = self.by_part.get(name, 0) + part.placed


def placements(
    seed: int, n: int, parts: Sequence[str] = PARTS, say: Callable[[str], None] = lambda line: None
) -> PlacementReport:
    """Place about `n` crashes, shared out evenly among `parts`."""
    whole = PlacementReport()
    for name in parts:
        short = name.rpartition(".")[2].removeprefix("placed_")
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            whole.failures.append(f"{short}: no such part yet ({name})")
            continue
        whole.add(short, module.placements(seed, -(-n // len(parts))))
        say(f"{whole.by_part[short]} crashes placed in {short}")
    return whole
