"""What sessions of a late agent lost: forgotten, but of what stands only the latest."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.late_agents import drop_losses
from sdfstream.detect.gray.lossy import LossySubject
from sdfstream.detect.localise import Location
from sdfstream.detect.runs import LossRuns
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Subject

S = 1_000_000_000
T0 = 1_800_000_000 * S


@pytest.mark.parametrize(("stands", "left"), [(False, 0), (True, 5)])
def test_one_late_moment_takes_a_minute_only_from_what_nothing_explains(stands: bool, left: int) -> None:
    """Two sessions lose a probe every two seconds for twenty; the agent of the first is late at the end."""
    sessions = Sessions(4)
    slots = sessions.of_names([("a/0", "b/0", "udp", 50000, 0), ("c/0", "b/0", "udp", 50000, 0)], T0)
    runs = LossRuns(sessions)
    runs.ensure()
    for step in range(200):
        at = np.full(2, T0 + step * S // 10)
        runs.take_rows(slots, np.full(2, step), np.full(2, step % 20 != 5), at, np.zeros(2, np.int64))
    where = Location(Subject("path", "a"), ["a"], True, 0.05, slots[:1], [("a", 1.0)], 1.0, ["both"])
    standing = [LossySubject(where, T0)] if stands else []
    before = runs.windows[1].recent("events", 32)[slots]
    drop_losses(runs, Cabling(sessions), standing, np.array([True, False]), T0 + 20 * S)
    after = runs.windows[1].recent("events", 32)[slots]
    assert before.tolist() == [10, 10]
    assert after[0] >= left and (after[0] == 0) == (not stands)
    assert after[1] == 10
    assert runs.windows[0].recent("events", 10)[slots[0]] == 0  # of the last two seconds nothing counts
