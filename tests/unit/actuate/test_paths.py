"""Probe paths and clocks, as reported."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.paths import UNKNOWN_NS, ClockErrors, Mapper, Probing
from sdfstream.actuate.routes import Directed, ProbeKey, Routes
from sdfstream.records import columns
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import NS_PER_MS, NS_PER_S

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


def test_a_watch_names_fast_probe_paths_and_the_slowest_which_the_agent_can_make_fast() -> None:
    """Eight at most; to the same far NIC before others, whatever their pace."""
    routes, probing = Routes(300 * S), Probing()
    paces_ms = {"b/0": {1: 20, 2: 20, 10: 100, 11: 100, 20: 1000, 21: 1000, 22: 1000}, "c/0": {1: 20, 20: 1000}}
    listed = []
    for dst, ports in paces_ms.items():
        for port, ms in ports.items():
            key = ProbeKey("a/0", dst, port, 0)
            routes.take_probe(Directed(key, "fwd"), ("cable", "up"), True, S)
            listed.append(
                {**key._asdict(), "role": "sender", "state": "alive", "interval_ns": ms * NS_PER_MS},
            )
    probing.take({"host": "a", "complete": True, "changes": listed})
    mapper = Mapper(ActuateConfig(), routes, probing)
    chosen = [(key.dst, key.path) for key in mapper._probes("a/0", "b/0", "up", S)]
    assert chosen == [
        ("b/0", 1), ("b/0", 2), ("c/0", 1), ("b/0", 20), ("b/0", 21), ("b/0", 22), ("b/0", 10), ("b/0", 11)
    ]  # fmt: skip
    mapper.config = ActuateConfig(most_watch_paths=4)
    mapper._found_at = (-1, -1, -1)
    chosen = [(key.dst, key.path) for key in mapper._probes("a/0", "b/0", "up", S)]
    assert chosen == [("b/0", 1), ("b/0", 2), ("b/0", 20), ("b/0", 21)]
