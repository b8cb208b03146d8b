"""What the labels of one kind of finding teach: a classifier, its record so far, and the rules' record.

Both records are progressive: each label is first foreseen, then learned. So a probability that is shown has been tried
on findings that the classifier did not know, and the rules are measured on the same ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sdfstream.detect.learned.classifier import CauseClassifier
from sdfstream.detect.learned.labels import MOST_LABELS, FindingFacts, Labelled
from sdfstream.records.silences import FALSE_ALARM

LEAST_LABELS: Final = 8
"""Labelled findings of a kind before anything is said of it; see decision 0032 for the curve."""
LEAST_OF_CAUSE: Final = 3
"""Of them, those of the cause that is said: one odd finding, or two by one mistake, teach nothing."""
MARGIN: Final = 0.1
"""The learned cause must be more probable than the rules' by this much."""
LEAST_PROBABILITY: Final = 0.5
"""And more likely than not. The loop acts on findings from this confidence on (`ActuateConfig.least_confidence`): what
labels teach of a cause shall not keep it from acting on a place that is known."""
_NEWEST: Final = 50
"""Labels that make a record: what was foreseen badly while it was young is forgotten."""
_PRIOR: Final = 2.0
"""The rules' own confidence weighs as much as so many labels."""


@dataclass(frozen=True, slots=True)
class LearnedCause:
    """What labels say of a finding."""

    cause: str
    """The rules' cause, or one that is more probable by `MARGIN`."""
    probability: float
    labels: int
    """Findings that were labelled with the cause; 0: it is the rules' own."""
    false_alarm: float | None
    """Probability that it is none; None: no finding of the kind was labelled so."""


class KindModel:
    """Labelled findings of a kind, learned in order.

    Parameters
    ----------
    labelled : sequence of Labelled
        All of them, so far; `follow` takes those that come.
    """

    def __init__(self, labelled: Sequence[Labelled]) -> None:
        self._classifier = CauseClassifier(MOST_LABELS)
        self._labels: Counter[str] = Counter()
        self._learned: list[Labelled] = []
        self._foreseen: deque[bool] = deque(maxlen=_NEWEST)
        """Of the newest labels: whether the classifier foresaw them."""
        self._rules: dict[str, deque[bool]] = {}
        """Of the newest labels of each cause that rules say: whether the rules were right."""
        self.follow(labelled)

    def follow(self, labelled: Sequence[Labelled]) -> bool:
        """Learn what came since; False: what was learned is not all true any more.

        Whenever it is True the model is, bit for bit, one that is made anew of `labelled`.
        """
        known = len(self._learned)
        if len(labelled) < known or any(a is not b for a, b in zip(self._learned, labelled, strict=False)):
            return False
        for one in labelled[known:]:
            self._learn(one.facts, one.cause)
            self._learned.append(one)
        return True

    def _learn(self, facts: FindingFacts, cause: str) -> None:
        if self.labels >= LEAST_LABELS // 2:
            self._foreseen.append(_likeliest(self._classifier.probabilities(facts.features)) == cause)
        rules = self._rules.setdefault(facts.rules_cause, deque(maxlen=_NEWEST))
        rules.append(facts.rules_cause == cause)
        self._classifier.learn(facts.features, cause)
        self._labels[cause] += 1

    @property
    def labels(self) -> int:
        """Labels learned."""
        return self._labels.total()

    def assess(self, facts: FindingFacts, confidence: float) -> LearnedCause | None:
        """What the labels say; None: they are too few, or of findings unlike this one.

        Parameters
        ----------
        facts : FindingFacts
        confidence : float
            Of the rules, 0..1.
        """
        near = self._classifier.probabilities(facts.features) if self.labels >= LEAST_LABELS else {}
        if not near:
            return None
        sure = self._sure()
        said = {cause: sure * p for cause, p in near.items()}
        false_alarm = said.pop(FALSE_ALARM, 0.0) if self._labels[FALSE_ALARM] else None
        rules, best = self._rules_right(facts.rules_cause, confidence), _likeliest(said)
        known = best != facts.rules_cause and self._labels[best] >= LEAST_OF_CAUSE
        if known and said[best] >= max(LEAST_PROBABILITY, rules + MARGIN):
            return LearnedCause(best, said[best], self._labels[best], false_alarm)
        return LearnedCause(facts.rules_cause, rules, 0, false_alarm)

    def _sure(self) -> float:
        """Probability that what the classifier finds most likely is so, by its record; a half without one."""
        return (sum(self._foreseen) + 1.0) / (len(self._foreseen) + 2.0)

    def _rules_right(self, cause: str, confidence: float) -> float:
        """Probability that the rules are right: their confidence, corrected by what labels said where they said so."""
        record = self._rules.get(cause, ())
        return (_PRIOR * confidence + sum(record)) / (_PRIOR + len(record))


def _likeliest(said: dict[str, float]) -> str:
    """The most probable cause, the first by name of equal ones; empty: none was learned."""
    return min(said, key=lambda cause: (-said[cause], cause), default="")
