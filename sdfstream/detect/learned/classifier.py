"""An online classifier of causes: river's nearest neighbours among labelled findings, of which it needs few.

Of what river has, it changed the most causes rightly without changing one wrongly, and its import is the lightest
(decision 0032). `river` is imported where a process learns its first label, and nowhere else.
"""

from __future__ import annotations

from typing import Any, Final

from sdfstream.detect.learned.features import Features

NEIGHBOURS: Final = 5
"""Labelled findings that are asked, each with the inverse of its distance. Of three, two wrong labels outvote the rest;
of seven, a cause must have been labelled seven times before it is told."""
FARTHEST: Final = 3.0
"""A finding farther than this from every labelled one is unlike them all, and nothing is said of it. In decades, or
facts that differ; findings of one cause are within 1.4 of each other nine times in ten."""
_APART: Final = 0.1
"""Of a labelled finding and one that is asked about, at least: else river takes one equal neighbour for certainty."""


class CauseClassifier:
    """Learns one finding's cause at a time.

    Parameters
    ----------
    most : int
        Findings that are remembered, the newest.

    Examples
    --------
    >>> learned = CauseClassifier(100)
    >>> for share in (1.0, 1.1, 1.2):
    ...     learned.learn({"loss-share": share}, "gray-failure")
    ...     learned.learn({"loss-share": share + 1.5}, "degraded-link")
    >>> {cause: round(p, 2) for cause, p in learned.probabilities({"loss-share": 2.7}).items()}
    {'degraded-link': 0.94, 'gray-failure': 0.06}
    >>> learned.probabilities({"loss-share": 6.0})
    {}
    """

    def __init__(self, most: int) -> None:
        from river import neighbors

        engine = neighbors.LazySearch(window_size=most, min_distance_keep=0)
        self._model: Any = neighbors.KNNClassifier(n_neighbors=NEIGHBOURS, engine=engine, weighted=True)
        self._learned: Any = neighbors.LazySearch(window_size=most, min_distance_keep=0)

    def learn(self, found: Features, cause: str) -> None:
        """Take one labelled finding."""
        self._model.learn_one({**found, "": _APART}, cause)
        self._learned.append(dict(found))

    def probabilities(self, found: Features) -> dict[str, float]:
        """Probability of the causes of its neighbours, by name; none: it is unlike all that was learned."""
        asked = dict(found)
        _, distance = self._learned.search(asked, 1)
        if not distance or distance[0] > FARTHEST:
            return {}
        said = self._model.predict_proba_one(asked)
        return {str(cause): float(said[cause]) for cause in sorted(said) if said[cause]}
