"""A fabric whose operators label findings: faults that rules confuse, in another order and strength on every seed.

Without port counters (agents without rights, virtual machines) delay alone does not tell a slow NIC, a pause storm and
many senders from each other. And one cause is this fabric's own: where a link loses a tenth and more, it was always
the optics, and its operators say ``degraded-link`` where rules can only say ``gray-failure``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sdfstream.records.silences import FALSE_ALARM
from sdfstream.twin.scenario import TwinScenario, parse

_FIRST_S: Final = 28.0
"""Baselines are learnt by then."""
_BETWEEN_S: Final = 7.0
"""Queues drain and findings are resolved in between."""
_OPTICS: Final = 0.1
"""Share lost from which it was always the optics."""
_CAUSES: Final[dict[str, str]] = {
    "incast": "queueing",
    "congested-link": "queueing",
    "slow-nic": "slow-nic",
    "pfc-storm": "pause-storm",
    "ecn-mistuned": "ecn-mistuned",
    "gray-loss": "gray-failure",
}


def scenario(seed: int, *, counters: bool) -> TwinScenario:
    """The scenario of a seed; `counters`: whether agents read port counters."""
    rng = np.random.Generator(np.random.PCG64([seed, 99]))

    def between(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 3)

    faults: list[dict[str, Any]] = [
        {"kind": "incast", "lasts": 8, "senders": int(rng.integers(4, 8))},
        {"kind": "slow-nic", "lasts": 8, "share": between(0.05, 0.3)},
        {"kind": "pfc-storm", "lasts": 8, "share": between(0.01, 0.05)},
        {"kind": "congested-link", "lasts": 8, "direction": "random", "share": between(1.05, 1.3)},
        {"kind": "ecn-mistuned", "lasts": 8, "direction": "random"},
        {"kind": "gray-loss", "lasts": 20, "direction": "random", "share": between(0.02, 0.05)},
        {"kind": "gray-loss", "lasts": 12, "direction": "random", "share": between(_OPTICS, 0.3)},
        {"kind": "load-surge", "lasts": 6},
    ]
    at_s, ordered = _FIRST_S, []
    for number in rng.permutation(len(faults)).tolist():
        ordered.append({**faults[number], "at": at_s})
        at_s += faults[number]["lasts"] + _BETWEEN_S
    whole = {
        "about": "Faults one after another that rules confuse",
        "fabric": {"kind": "leaf-spine", "hosts": 8, "leaves": 4, "spines": 4},
        "probes": {"peers": 5, "ports": 3},
        "load": {"utilisation": 0.3},
        "known": {"counters": counters},
        "seconds": at_s,
        "faults": ordered,
    }
    return parse(whole, "labels", "labels")


def cause_of(fault: Mapping[str, Any] | None) -> str:
    """What this fabric's operators call a fault (a line of ``truth/faults.jsonl``); None: what no fault explains."""
    if fault is None:
        return FALSE_ALARM
    optics = fault["kind"] == "gray-loss" and fault["parameters"]["share"] >= _OPTICS
    return "degraded-link" if optics else _CAUSES[fault["kind"]]
