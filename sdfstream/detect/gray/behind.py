"""A lossy link behind a NIC: where routes are not known, the paths that lose are laid to what some NICs share.

Of the paths that a NIC sends or receives, those over one lossy link lose, so that the NIC seems to lose a small share
of all. What tells them apart are its neighbours' paths over the same link.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.inferred.hidden import hidden_elements
from sdfstream.detect.localise import Location, at_element
from sdfstream.detect.problem import Observations
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.records.units import Float64s

_SURELY: Final = float(np.log(1e-4))
_LEAST_EVENTS: Final = 2
_OTHERS: Final = 2
"""Paths of other NICs that lose as well, at least."""


def lossy_link_behind(cabling: Cabling, nic: str, counts: LossCounts, others: Float64s) -> Location | None:
    """The inferred place that explains the losses of `nic` and of others beside it; None: nothing clear.

    `others` is the share of probes of each session that all else loses.
    """
    group, used = cabling.groups(), counts.used
    if not (group >= 0).any():
        return None
    events, probes = counts.events[used], counts.probes[used]
    sick = events >= _LEAST_EVENTS
    sick[sick] = log_tail_bound(events[sick], probes[sick], np.clip(others[used][sick], 1e-9, 0.999)) <= _SURELY
    rest = sick | (events == 0)
    paths = Observations.of(used[rest], "both", 0.0, 1.0)
    number, table = cabling.sessions.nics.find(nic), cabling.sessions.table
    for hidden in hidden_elements(cabling.sessions, group, paths, sick[rest]):
        slots = paths.slots[hidden.rows]
        own = (table["src"][slots] == number) | (table["dst"][slots] == number)
        if own.any() and int((~own).sum()) >= _OTHERS:
            share = float(counts.events[slots].sum() / max(1, counts.probes[slots].sum()))
            return at_element(hidden, paths, share)
    return None
