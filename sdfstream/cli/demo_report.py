"""The demo's last words: what was injected and found, how fast, what it cost, and where to look further."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdfstream.cli.report import summary
from sdfstream.cli.words import duration


def report(outcome: Mapping[str, Any], data: Path) -> str:
    """The text of `demo_lab.play`'s outcome."""
    clocks = outcome["clocks"]
    load = ", ".join(f"{one:.1f}" for one in outcome["load"])
    head = (
        f"\n{outcome['seconds']:.0f} s in all; ready after {outcome['ready_s']} s; "
        f"{clocks['by_status'].get('synced', 0)} of {clocks['known']} clocks synced, "
        f"worst bound {duration(clocks['worst_err_ns'])}; machine load {load}\n"
    )
    tail = f"\nEverything else is gone; what was measured is in {data}. `rm -r {data}` removes that too."
    return "\n".join((head, summary(outcome["outcome"], data=str(data)), tail))
