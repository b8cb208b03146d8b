"""The demo's closing report: faults, findings, their delay and cost, and where to look further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sdfstream.board.humanize import duration
from sdfstream.score.report import aligned, summary


def report(outcome: Mapping[str, Any], data: Path) -> str:
    """The text of `lab_io.run_scenario`'s outcome."""
    clocks = outcome["clocks"]
    load = ", ".join(f"{one:.1f}" for one in outcome["load"])
    head = (
        f"\n{outcome['seconds']:.0f} s in all; ready after {outcome['ready_s']} s; "
        f"{clocks['by_status'].get('synced', 0)} of {clocks['known']} clocks synced, "
        f"worst bound {duration(clocks['worst_err_ns'])}; machine load {load}\n"
        f"{shares(outcome['cpu'])}\n"
    )
    tail = f"\nEverything else is gone; what was measured is in {data}. `rm -r {data}` removes that too."
    return "\n".join((head, jobs_table(outcome["acts"]), "", summary(outcome["outcome"], data=str(data)), tail))


def shares(cpu: Mapping[str, Any]) -> str:
    """What the machine was busy with (`cpu_io`), in one line.

    >>> shares({"seconds": 100.0, "cores": 2, "machine": 1.25, "of_a_core": {"pipeline": 0.4, "agent": 0.2}})
    'CPU time over 100 s: pipeline 40 % of a core, agent 20 %; 1.2 of 2 cores busy in all'
    """
    figures = [f"{group} {share:.0%}".replace("%", " %") for group, share in cpu["of_a_core"].items()]
    first, *others = figures or ["nothing 0 %"]
    named = ", ".join((f"{first} of a core", *others))
    return f"CPU time over {cpu['seconds']:.0f} s: {named}; {cpu['machine']:.1f} of {cpu['cores']} cores busy in all"


_HEADS: Final = ("fault", "job", "before", "worst second", "with the loop", "after", "what the loop did")


def jobs_table(acts: Sequence[Mapping[str, Any]]) -> str:
    """Payload of each job around each fault, Mbit/s, and what the loop did."""
    lines: list[tuple[str, ...]] = [_HEADS]
    for act in acts:
        for number, name in enumerate(sorted(act["before_mbps"])):
            rates = (_rate(act[key].get(name)) for key in ("before_mbps", "worst_mbps", "loop_mbps", "after_mbps"))
            first = number == 0
            lines.append((act["act"] if first else "", name, *rates, _loop_text(act["loop"]) if first else ""))
    return aligned(lines)


def _rate(mbps: float | None) -> str:
    return "–" if mbps is None else f"{mbps:.1f} Mbit/s"


def _loop_text(loop: Mapping[str, Any]) -> str:
    if not loop["moves"]:
        return "nothing"
    text = ", ".join(f"{n} × {kind}" for kind, n in sorted(loop["moves"].items()))
    if loop["first_ms"] is not None:
        text += f", the first after {duration(loop['first_ms'] * 1e6)}"
    if loop["gains"]:
        text += "; gain " + ", ".join(f"× {gain:g}" for gain in loop["gains"])
    return text + (f"; {loop['taken_back']} taken back" if loop["taken_back"] else "")
