"""How far a reader follows one unit of work: the modules it passes, and how often it changes from one to another.

``python -m tests.bench.module_path [PATH]…`` prints for each path, per unit of work: modules passed, changes of module,
median, mean and worst. A change is a Python call or return from one file of the path's package to another; what lies
in other packages counts neither way. Nothing is timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import sdfstream
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.records.topics import PROBE
from sdfstream.sync import SyncStage

PACKAGE: Final = Path(sdfstream.__file__).parent


class Trail:
    """While entered, the modules below `package` in which Python code runs, and the changes between them."""

    def __init__(self, package: Path) -> None:
        self._root = f"{package}/"
        self._current: str | None = None
        self.modules: set[str] = set()
        self.changes = 0

    def __enter__(self) -> Trail:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        """A call enters the frame's own file; a return from a file of the package enters the caller's."""
        entered = frame.f_code.co_filename
        if event == "return" and entered.startswith(self._root) and frame.f_back is not None:
            entered = frame.f_back.f_code.co_filename
        elif event != "call":
            return
        if not entered.startswith(self._root) or entered == self._current:
            return
        self.changes += self._current is not None
        self._current = entered
        self.modules.add(entered)


def sync_path() -> Iterator[Trail]:
    """One probe message of the shipped recording through `SyncStage`, with the tick that is due before it, if any."""
    stage = SyncStage()
    for message in open_recording(PACKAGE / "demo" / "shipped_recording").messages({PROBE.name}):
        with Trail(PACKAGE / "sync") as trail:
            stage.step([message], message.bus_at_ns)
        yield trail


PATHS: Final[dict[str, Callable[[], Iterator[Trail]]]] = {"sync": sync_path}
"""Name of a path, and what walks it: one `Trail` per unit of work."""


def figures(trails: list[Trail]) -> dict[str, dict[str, float]]:
    """Of modules and of changes: median, mean and worst over all units of work."""
    columns = {"modules": [len(t.modules) for t in trails], "changes": [t.changes for t in trails]}
    return {
        name: {"median": statistics.median(found), "mean": statistics.fmean(found), "worst": max(found)}
        for name, found in columns.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.module_path", description=__doc__)
    parser.add_argument("paths", nargs="*", choices=[*PATHS, []], metavar="PATH", help=f"of {', '.join(PATHS)}")
    for path in parser.parse_args().paths or PATHS:
        trails = list(PATHS[path]())
        print(f"{path}: {len(trails)} units of work")
        for name, found in figures(trails).items():
            print(f"  {name}: median {found['median']:.0f}, mean {found['mean']:.1f}, worst {found['worst']:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
