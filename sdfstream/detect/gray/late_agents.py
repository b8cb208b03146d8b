"""What sessions of a late agent lost is no evidence: it neither reads its sockets nor answers in time.

So all that they lost is dropped, a moment before included. Of sessions that cross what stands only the latest is: an
agent that is late for a tenth of a second would take away a minute of what shows which of several elements it is, and
what is left may be of few paths, which a switch explains as well as its link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.lossy import LossySubject, exposure
from sdfstream.detect.runs import LossRuns
from sdfstream.records.units import NS_PER_S, Bools

_BEFORE_NS: Final = 3 * NS_PER_S
"""An agent that is found to be late answered nobody since then at the earliest; and time-outs."""


def drop_losses(
    runs: LossRuns, cabling: Cabling, standing: Iterable[LossySubject], troubled: Bools, now_ns: int
) -> None:
    """Drop what sessions of late agents lost.

    Parameters
    ----------
    runs : LossRuns
    cabling : Cabling
    standing : iterable of LossySubject
        What is known to lose.
    troubled : (sessions,) bool
        One of whose agents is late or mute.
    now_ns : int
        Bus time.
    """
    late = np.flatnonzero(troubled[: runs.sessions.count])
    if not late.size:
        return
    over = np.zeros(runs.sessions.count, np.bool_)
    for lossy in standing:
        over |= exposure(cabling, lossy.location, over.size) > 0
    runs.wipe(late[~over[late]])
    runs.wipe(late[over[late]], now_ns - _BEFORE_NS)
