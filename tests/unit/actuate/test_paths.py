"""Probe paths and clocks, as reported."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.actuate.paths import UNKNOWN_NS, ClockErrors, Probing
from sdfstream.actuate.routes import ProbeKey
from sdfstream.records import columns
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import NS_PER_S

S = NS_PER_S


def test_clocks_that_are_not_known_have_the_widest_bar() -> None:
    clocks = ClockErrors()
    row = {
        "at_ns": np.zeros(3, np.int64),
        "offset_ns": np.zeros(3),
        "skew_ppb": np.zeros(3),
        "n": np.ones(3, np.uint32),
    }
    clocks.take(
        columns.build(
            CLOCK.columns,
            {
                **row,
                "clock": ["h0", "h1", "h2"],
                "err_ns": np.array([5.0, 6.0, 7.0]),
                "status": ["synced", "unsynced", "holdover"],
                "kind": ["causal", "causal", "smoothed"],
            },
        ),
        S,
    )
    assert clocks.err_ns("h0/r0", 2 * S) == 5.0
    assert clocks.err_ns("h1/r0", 2 * S) == clocks.err_ns("h2/r0", 2 * S) == clocks.err_ns("h0/r0", 9 * S) == UNKNOWN_NS


def test_paths_that_are_gone_from_a_complete_list_are_gone() -> None:
    probing = Probing()
    entry = {"role": "sender", "src": "a/0", "dst": "b/0", "path": 1, "dscp": 0, "state": "alive", "interval_ns": 5}
    assert probing.take({"host": "a", "complete": True, "changes": [entry]}) == ({"a/0"}, False)
    assert probing.take({"host": "a", "complete": False, "changes": [entry | {"state": "silent"}]}) == (set(), True)
    key = ProbeKey("a/0", "b/0", 1, 0)
    assert probing.interval_ns(key) == 5 and not probing.alive(key)
    assert probing.take({"host": "a", "complete": True, "changes": []}) == ({"a/0"}, False)
    assert probing.interval_ns(key) is None
    with pytest.raises(ValueError, match="no state"):
        probing.take({"host": "a", "complete": False, "changes": [entry | {"state": "odd"}]})
