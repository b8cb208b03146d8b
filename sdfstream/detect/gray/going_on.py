"""Loss that has gone on evenly for as long as a path must be silent to be called so.

What is scattered over time is told from a burst by the bins in which losses fall (`known.scattered`): as many as a
second of them, each full only once the time-outs of its probes have passed. Where packets are sprayed, many paths lose
alike, so that each of their last probes, one after the other, shows the share; and an answer shows at once that
the probes before it have none. A burst, or a link that is back, leaves some of those probes unharmed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.runs import REMEMBERED, LossRuns
from sdfstream.records.units import Int64s

_PIECES: Final = 6
"""Of the time that is looked at; as many probes at least of each session."""
_LEAST_LOST: Final = 2
"""In each piece."""
_NO_LESS: Final = 0.4
"""Of the mean share: so much is lost in each piece."""
_NO_MORE: Final = 0.9
"""Of all: where more is lost in some piece it is an outage, or nothing is known of what was sent so long ago."""


def lost_evenly(runs: LossRuns, slots: Int64s, interval_ns: Int64s, lasts_ns: int) -> tuple[int, int]:
    """Loss events and probes of the last of each of these sessions, where together they lost alike of each; else 0, 0.

    Parameters
    ----------
    runs : LossRuns
    slots : (n,) int64
        Sessions.
    interval_ns : (n,) int64
        Their probe intervals; those too short for what `runs` remembers, and those not known, are left out.
    lasts_ns : int
        For how long, up to the last answer of each.

    Returns
    -------
    events, probes : int
        Runs of lost probes, and of probes those answered and one for each run, as `LossRuns` counts them.
    """
    probes = np.maximum(_PIECES, -(-lasts_ns // np.maximum(interval_ns, 1)))
    known = (interval_ns > 0) & (probes < REMEMBERED - 1)
    slots, probes = slots[known], probes[known]
    if not slots.size:
        return 0, 0
    back = np.arange(1, int(probes.max()) + 1)
    counted = back <= probes[:, None]
    answered = runs.answered_back(slots, np.arange(1, back.size + 2))
    begins = ~answered[:, :-1] & answered[:, 1:] & counted
    answered = answered[:, :-1]
    piece = np.minimum((back - 1) * _PIECES // probes[:, None], _PIECES - 1)[counted]
    lost, sent = np.bincount(piece, ~answered[counted], _PIECES), np.bincount(piece, minlength=_PIECES)
    expected = sent * (lost.sum() / sent.sum())
    if (lost < np.maximum(_LEAST_LOST, _NO_LESS * expected)).any() or (lost > _NO_MORE * sent).any():
        return 0, 0
    return int(begins.sum()), int((answered & counted).sum() + begins.sum())
