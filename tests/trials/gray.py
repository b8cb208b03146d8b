"""Gray loss put to its links: seeded fabrics with known truth, the whole detect stage, everything ever said counted.

``python -m tests.trials.gray [--seeds N] [--first N] [--seconds N] [--latest S] [--shape wide|narrow] [--clean]``. No
lab, no clock: a run is drawn, played and judged. ``make gray`` runs the usual ones and fails below their limits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import Reported, run
from tests.fixtures.lossy_fabric import NARROW, WIDE, Lossy, LossyFabric, lossy_links, lossy_switch

SHAPES = {"wide": WIDE, "narrow": NARROW}
BANDS = ((0.002, 0.004), (0.004, 0.012), (0.012, 0.1))


@dataclass
class Verdict:
    """What was said in one run, against the truth."""

    faults: list[Lossy]
    named: dict[str, float] = field(default_factory=dict)
    """Lossy subjects that were named, with the second after the fault began."""
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last statement about each right subject."""
    wrong: list[tuple[float, str, str]] = field(default_factory=list)
    """Everything else that was opened."""
    standing: list[str] = field(default_factory=list)
    """Wrong subjects open at the end."""
    early: list[tuple[str, float]] = field(default_factory=list)
    """Right findings that were resolved while the fault lasted, with the second."""
    empty: int = 0
    """Statements whose evidence shows no loss."""
    late_since_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def ratios(self) -> list[float]:
        """Share as last said over the truth, of every right finding."""
        true = {f.subject: f.share for f in self.faults}
        return [_evidence(data)["loss-share"] / true[name] for name, data in self.last.items()]


def judge(faults: list[Lossy], reported: Reported, seconds: float) -> Verdict:
    """Score everything that was said; times in the run count from the first probe, 2 s after the epoch."""
    verdict, true = Verdict(faults), {f.subject: f for f in faults}
    standing: dict[str, tuple[str, str]] = {}
    for bus_s, finding in reported.findings():
        at_s, subject = bus_s - 2.0, finding["subject"]["id"]
        fault = true.get(subject) if finding["kind"] == "loss" else None
        if finding["kind"] == "loss":
            said = _evidence(finding)
            verdict.empty += said["loss-events"] < 1 or said["probes"] < 1 or said["loss-share"] <= 0
        if finding["status"] == "open":
            standing[finding["id"]] = (finding["kind"], subject)
            if fault is None:
                verdict.wrong.append((round(at_s, 1), finding["kind"], subject))
            elif subject not in verdict.named:
                verdict.named[subject] = at_s - fault.at_s
        if fault is not None:
            verdict.last[subject] = finding
        if finding["status"] == "resolved":
            standing.pop(finding["id"], None)
            if fault is not None and at_s < min(fault.until_s, seconds) - 2.0:
                verdict.early.append((subject, round(at_s, 1)))
    verdict.standing = [subject for kind, subject in standing.values() if kind != "loss" or subject not in true]
    return verdict


def _evidence(finding: dict[str, Any]) -> dict[str, float]:
    return {e["what"]: e["value"] for e in finding["evidence"]}


def play(seed: int, shape: str, faults: list[Lossy], seconds: float) -> Verdict:
    """One run of the shipped settings."""
    messages = list(LossyFabric(seed, SHAPES[shape], faults, seconds).messages())
    began_s = time.process_time()
    reported = run(DetectStage(DetectConfig()), messages)
    verdict = judge(faults, reported, seconds)
    verdict.cpu_s = time.process_time() - began_s
    return verdict


def drawn(seed: int, shape: str, latest_s: float = 0.0) -> list[Lossy]:
    """Faults of a seed: one to eight lossy links, in every tenth seed a whole switch."""
    if seed % 10 == 9:
        return [
            lossy_switch(seed, SHAPES[shape], float(np.exp(np.random.default_rng(seed).uniform(*np.log((0.004, 0.1))))))
        ]
    return lossy_links(seed, SHAPES[shape], 1 + seed % 8, (0.002, 0.1), latest_s)


def figures(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Precision, recall (by band of share), F1 of what stood at the end and of all ever said, shares, delays."""
    runs = list(verdicts)
    faults = [(f, v) for v in runs for f in v.faults]
    right = sum(len(v.named) for v in runs)
    wrong = sum(len(v.wrong) for v in runs)
    held = sum(f.subject in v.last and v.last[f.subject]["status"] != "resolved" for f, v in faults)
    standing = sum(len(v.standing) for v in runs)
    recall, precision = held / max(1, len(faults)), held / max(1, held + standing)
    ratios = [r for v in runs for r in v.ratios]
    result: dict[str, Any] = {
        "runs": len(runs),
        "faults": len(faults),
        "f1": round(2 * recall * precision / max(1e-9, recall + precision), 4),
        "recall": round(recall, 4),
        "precision": round(precision, 4),
        "precision_ever": round(right / max(1, right + wrong), 4),
        "share_within_1.5": round(float(np.mean([1 / 1.5 <= r <= 1.5 for r in ratios])), 4) if ratios else None,
        "wrong": wrong,
        "empty_evidence": sum(v.empty for v in runs),
        "closed_early": sum(len(v.early) for v in runs),
        "core": round(sum(v.cpu_s for v in runs), 1),
    }
    for low, high in BANDS:
        mine = [(f, v) for f, v in faults if low <= f.share < high]
        delays = sorted(v.named[f.subject] for f, v in mine if f.subject in v.named)
        result[f"{100 * low:g}-{100 * high:g} %"] = {
            "faults": len(mine),
            "recall": round(len(delays) / max(1, len(mine)), 3),
            "delay_s": [round(float(np.median(delays)), 1), round(delays[-1], 1)] if delays else None,
        }
    return result


def below_limits(told: dict[str, Any], clean: bool) -> list[str]:
    """Sentences about what `figures` missed; empty: nothing."""
    none = ("wrong", "empty_evidence", "closed_early") if clean else ("empty_evidence", "closed_early")
    missed = [f"{told[name]} {name}, none allowed" for name in none if told[name]]
    least = {} if clean else {"f1": 0.95, "recall": 0.92, "precision_ever": 0.95, "share_within_1.5": 0.9}
    return missed + [f"{name} {told[name]}, at least {limit}" for name, limit in least.items() if told[name] < limit]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.gray", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--latest", type=float, default=0.0, help="faults begin up to so many seconds after the probes")
    parser.add_argument("--shape", choices=SHAPES, default="wide")
    parser.add_argument("--clean", action="store_true", help="no faults at all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 below the limits, and say which")
    args = parser.parse_args()
    verdicts = []
    for seed in range(args.first, args.first + args.seeds):
        faults = [] if args.clean else drawn(seed, args.shape, args.latest)
        verdict = play(seed, args.shape, faults, args.seconds)
        verdicts.append(verdict)
        missed = [(f.subject, round(100 * f.share, 2), len(f.links)) for f in faults if f.subject not in verdict.named]
        print(
            f"seed {seed}: {len(verdict.named)} of {len(faults)}, missed {missed}, wrong {verdict.wrong}, "
            f"early {verdict.early}, {verdict.cpu_s:.1f} s",
            flush=True,
        )
    told = figures(verdicts)
    print(json.dumps(told, indent=None if args.json else 1))
    if args.check:
        sys.exit("\n".join(below_limits(told, args.clean)) or 0)


if __name__ == "__main__":
    main()
