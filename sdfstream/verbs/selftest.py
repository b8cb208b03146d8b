"""What two hosts' RDMA can be used for, as one report to share: evidence in place of "not yet run on hardware".

Nothing here depends on the fabric's topology. Whether a packet's path follows its source port is asked of its delay:
where ports take different paths, the medians of their completion times differ by more than chance. Equal delays prove
nothing: equal paths look the same, and so do paths chosen packet by packet.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.verbs.capabilities import QpCapabilities

_SIGNIFICANT: Final = 5.0
"""Standard errors of a median by which two ports must differ: one false alarm in 100,000 pairs for normal errors."""


@dataclass(frozen=True, slots=True)
class PortTrial:
    """One live move, with requests outstanding, and what was measured on the new port."""

    port: int
    why_not: str
    """Why the move was refused; empty: it was made."""
    move_ns: int
    posted: int
    completed: int
    """Of the posted, with success."""
    errors: int
    completion_ns: tuple[int, ...]
    """Of single small writes, from post to completion."""


def selftest_report(
    near: dict[str, Any], far: dict[str, Any], can: QpCapabilities, trials: Sequence[PortTrial]
) -> dict[str, Any]:
    """Plain JSON; figures are None where there is nothing to take them from."""
    moved = [trial for trial in trials if not trial.why_not]
    posted, completed = sum(t.posted for t in trials), sum(t.completed for t in trials)
    differs, why = delay_follows_port(moved)
    return {
        "version": 1,
        "near": near,
        "far": far,
        "capabilities": can.as_data(),
        "moves": len(moved),
        "moves_refused": sorted({t.why_not for t in trials if t.why_not}),
        "move_ms": _spread([t.move_ns / 1e6 for t in moved]),
        "requests": posted,
        "requests_lost": posted - completed,
        "errors": sum(t.errors for t in trials),
        "completion_us": _spread([ns / 1e3 for t in trials for ns in t.completion_ns]),
        "by_port": {str(t.port): _spread([ns / 1e3 for ns in t.completion_ns]) for t in moved},
        "delay_follows_port": differs,
        "delay_follows_port_why": why,
        "stamps": "user space",
        "retry_race": "not tried: it needs a path that is cut by hand",
        "live_steering_works": bool(moved) and posted == completed and not any(t.why_not for t in trials),
    }


def delay_follows_port(trials: Sequence[PortTrial]) -> tuple[bool | None, str]:
    """Whether some ports are slower than others, and by what it is known; None: it cannot be known.

    The standard error of a median is 1.2533 σ / √n for normal errors, with σ = 1.4826 MAD.
    """
    usable = [t for t in trials if len(t.completion_ns) >= 10]
    if len(usable) < 2:
        return None, "fewer than two ports were measured"
    medians, errors = zip(*(_median_and_error(t.completion_ns) for t in usable), strict=True)
    low, high = (medians.index(f(medians)) for f in (min, max))
    gap = medians[high] - medians[low]
    bound = _SIGNIFICANT * (errors[low] ** 2 + errors[high] ** 2) ** 0.5
    said = f"ports {usable[low].port} and {usable[high].port}: {gap / 1e3:.1f} µs apart, chance gives {bound / 1e3:.1f}"
    return (True, said) if gap > bound else (None, said + "; equal delays prove nothing")


def _median_and_error(values: Sequence[int]) -> tuple[float, float]:
    median = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(v - median) for v in values)
    return median, max(1.2533 * deviation / len(values) ** 0.5, 1.0)


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {"n": len(ordered), "min": ordered[0], "median": statistics.median(ordered), "max": ordered[-1]}
