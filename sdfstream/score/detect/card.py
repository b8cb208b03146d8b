"""The scorecard of findings: shares, delays and counts over all runs, as one JSON object; null where not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from sdfstream.score.detect.confusion import calibration, matrix
from sdfstream.score.detect.facts import GRAY, HARD, FaultFact, RunFacts
from sdfstream.score.detect.hops import HopSums

_DAY_S: Final = 86_400.0


def card(runs: Sequence[RunFacts]) -> dict[str, Any]:
    """The card.

    Precision counts findings above info, recall and the rest count faults; ``place_at_1`` and ``cause_accuracy`` are
    shares of the faults that were found; so is ``inferred``: placed by NICs and paths, no switch's name being known.
    ``grouping_ari`` is the median over the runs, ``confusion`` counts faults by their class and the class told,
    ``calibration`` has the share of findings that were true by the probability that they stated (`confusion`).
    Delays run from the fault to the first finding tied to it, path symptoms included. ``closed_early`` and
    ``empty_evidence`` are numbers of findings. Of queues and utilisations (``sdf.derived.hop.v1``, `hops`): root mean
    squared errors over all rows, of queues also over those whose queue stood (``standing_rmse_bytes``), and the share
    whose truth lies within two of the stated errors (``queue_within``); ``hops`` has them by scenario.
    """
    faults = [fault for run in runs for fault in run.faults]
    alarms, wrong = sum(run.alarms for run in runs), sum(len(run.false_alarms) for run in runs)
    days = sum(run.seconds for run in runs) / _DAY_S
    return {
        "scenarios": len({run.scenario for run in runs}),
        "seeds": sorted({run.seed for run in runs}),
        "faults": len(faults),
        "precision": _share(alarms - wrong, alarms),
        **_shares(faults),
        "hard_delay_p99_s": delay(faults, HARD),
        "gray_delay_p99_s": delay(faults, GRAY),
        "false_alarms": wrong,
        "false_alarms_per_day": round(wrong / days, 2) if days else None,
        **_hops(runs),
        "grouping_ari": _median([run.grouping_ari for run in runs]),
        "closed_early": sum(f.closed_early for f in faults),
        "empty_evidence": sum(len(run.empty_evidence) for run in runs),
        "findings_per_root": _share(sum(f.findings for f in faults), sum(f.found for f in faults)),
        "confusion": matrix((f.kind, f.reported_class) for f in faults),
        "calibration": calibration([one for run in runs for one in run.stated]),
        "hops": {
            name: _hops([run for run in runs if run.scenario == name])
            for name in sorted({run.scenario for run in runs if run.hops.queues or run.hops.uses})
        },
        "with_map": _half(runs, blind=False),
        "without_map": _half(runs, blind=True),
        "per_fault": {
            kind: _per_fault([f for f in faults if f.kind == kind]) for kind in sorted({f.kind for f in faults})
        },
        "wrong": dict(sorted(Counter(f"{run.scenario}: {text}" for run in runs for text in run.false_alarms).items())),
        "empty": dict(
            sorted(Counter(f"{run.scenario}: {text}" for run in runs for text in run.empty_evidence).items())
        ),
        "missed": sorted(f"{f.scenario} {f.seed}: {f.kind} {f.target}" for f in faults if not f.found),
    }


def _half(runs: Sequence[RunFacts], *, blind: bool) -> dict[str, Any]:
    mine = [run for run in runs if run.blind == blind]
    alarms, wrong = sum(run.alarms for run in mine), sum(len(run.false_alarms) for run in mine)
    return {"precision": _share(alarms - wrong, alarms), **_shares([f for run in mine for f in run.faults])}


def _shares(faults: Sequence[FaultFact]) -> dict[str, Any]:
    found = [f for f in faults if f.found]
    directed = [f for f in found if f.directed is not None]
    return {
        "recall": _share(len(found), len(faults)),
        "place_at_1": _share(sum(f.exact for f in found), len(found)),
        "direction_at_1": _share(sum(bool(f.directed) for f in directed), len(directed)),
        "cause_accuracy": _share(sum(f.cause for f in found), len(found)),
        "inferred": _share(sum(f.inferred for f in found), len(found)),
    }


def _per_fault(faults: Sequence[FaultFact]) -> dict[str, Any]:
    found = [f for f in faults if f.found]
    delays = [f.delay_s for f in found if f.delay_s is not None]
    return {
        "faults": len(faults),
        **_shares(faults),
        "delay_p50_s": round(float(np.median(delays)), 3) if delays else None,
        "delay_p99_s": delay(faults, {faults[0].kind}),
        "findings_per_root": _share(sum(f.findings for f in faults), len(found)),
        "closed_early": sum(f.closed_early for f in faults),
        "reported": dict(Counter(text.split()[0] for f in faults for text in f.reported[:1])),
    }


def delay(faults: Iterable[FaultFact], kinds: Iterable[str]) -> float | None:
    """99th percentile of the delays of the faults found of some kinds, s."""
    wanted = set(kinds)
    delays = [f.delay_s for f in faults if f.kind in wanted and f.delay_s is not None]
    return round(float(np.percentile(delays, 99)), 3) if delays else None


def _hops(runs: Sequence[RunFacts]) -> dict[str, Any]:
    whole = HopSums()
    for run in runs:
        whole = whole.plus(run.hops)
    return {
        "queue_rmse_bytes": _root(whole.bytes2, whole.queues, 0),
        "queue_rmse_us": _root(whole.ns2 / 1e6, whole.queues, 2),
        "standing_rmse_bytes": _root(whole.standing_bytes2, whole.standing, 0),
        "queue_within": _share(whole.within, whole.queues),
        "utilisation_rmse": _root(whole.share2, whole.uses, 4),
    }


def _root(squares: float, n: int, digits: int) -> float | None:
    return round(float(np.sqrt(squares / n)), digits) if n else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.median(known)), 4) if known else None


def _share(some: int, whole: int) -> float | None:
    return round(some / whole, 4) if whole else None
