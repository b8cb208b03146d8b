"""Labels on some seeds' findings, and the causes of other seeds' findings with and without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sdfstream.detect.learned.causes import LearnedCauses
from sdfstream.records.finding import Finding
from sdfstream.records.message import Event
from sdfstream.records.silences import FALSE_ALARM
from sdfstream.records.topics import OUTCOME, OVERRIDE
from sdfstream.score.detect.labels.sightings import Sighting
from sdfstream.stats import Counters

Seeds = Mapping[int, Sequence[Sighting]]

_ALL: Final = "all faults"


def learn(seeds: Seeds) -> LearnedCauses:
    """What detect has learned when every finding of these seeds was labelled as it truly was."""
    learned = LearnedCauses(Counters("score"))
    for seed, sightings in seeds.items():
        for sighting in sightings:
            for statement in sighting.statements:
                learned.assessed(_of_seed(statement, seed))
        for sighting in sightings:
            _teach(learned, _of_seed(sighting.settled, seed).id, sighting.cause)
    return learned


def _teach(learned: LearnedCauses, finding: str, cause: str) -> None:
    """An operator's label, and the controller's outcome that accepts it."""
    target = {"type": "finding", "id": finding}
    asked = {"id": finding, "what": "label", "operator": "truth", "target": target, "set": {"cause": cause}}
    accepted = {
        "command": finding,
        "state": "applied",
        "host": "controller",
        "action": "label",
        "target": {**target, "override": finding},
        "after": {"cause": cause, "operator": "truth"},
    }
    learned.take_override(Event(OVERRIDE.name, "truth", finding, 0, asked))
    learned.take(Event(OUTCOME.name, "actuate", finding, 0, accepted))


def card(labelled: Seeds, others: Seeds) -> dict[str, Any]:
    """The card: `labelled` seeds teach, `others` are asked.

    ``accuracy``: of each fault, and of all, the share of findings with the right cause on each seed, median and worst.
    ``changed``: causes that were learned, of them right, and those that the rules had right. ``calibration``: mean of
    the probabilities that they were said with. ``false_alarms``: mean probability of ``false-alarm`` that findings
    show, which are one and which are none.
    """
    learned = learn(labelled)
    asked = [(seed, s, learned.assessed(_of_seed(s.settled, seed))) for seed, of in others.items() for s in of]
    changed = [(s, said) for _, s, said in asked if said.cause != s.settled.cause]
    shown = [(s.cause == FALSE_ALARM, p) for _, s, said in asked if (p := _false_alarm(said)) is not None]
    real = [(seed, s, said) for seed, s, said in asked if s.cause != FALSE_ALARM]
    return {
        "labelled_seeds": sorted(labelled),
        "labels": sum(map(len, labelled.values())),
        "seeds": sorted(others),
        "findings": len(asked),
        "accuracy": {
            name: _accuracy([x for x in real if name in (_ALL, x[1].fault)])
            for name in (*sorted({s.fault for _, s, _ in real}), _ALL)
        },
        "changed": {
            "n": len(changed),
            "right": sum(said.cause == s.cause for s, said in changed),
            "rules_right": sum(s.settled.cause == s.cause for s, _ in changed),
            "of_false_alarms": sum(s.cause == FALSE_ALARM for s, _ in changed),
            "mean_probability": _mean(
                [e.value for _, said in changed for e in said.evidence if e.what == "cause-probability"]
            ),
        },
        "false_alarms": {
            "n": sum(yes for yes, _ in shown),
            "mean_probability": _mean([p for yes, p in shown if yes]),
            "mean_probability_of_others": _mean([p for yes, p in shown if not yes]),
        },
    }


def _accuracy(asked: Sequence[tuple[int, Sighting, Finding]]) -> dict[str, Any]:
    seeds = sorted({seed for seed, _, _ in asked})
    rules = [[s.settled.cause == s.cause for of, s, _ in asked if of == seed] for seed in seeds]
    learned = [[said.cause == s.cause for of, s, said in asked if of == seed] for seed in seeds]
    return {"findings": len(asked), "without": _over_seeds(rules), "with": _over_seeds(learned)}


def _over_seeds(right: Sequence[Sequence[bool]]) -> dict[str, float]:
    shares = [float(np.mean(of)) for of in right]
    pooled = float(np.mean([x for of in right for x in of]))
    return {"mean": round(pooled, 3), "median": round(float(np.median(shares)), 3), "worst": round(min(shares), 3)}


def _false_alarm(said: Finding) -> float | None:
    return next((e.value for e in said.evidence if e.what == "false-alarm-probability"), None)


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 3) if values else None


def _of_seed(finding: Finding, seed: int) -> Finding:
    """Two seeds may give two findings one id."""
    return replace(finding, id=f"{seed} {finding.id}")
