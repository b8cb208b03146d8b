"""What newer elements explain in place of standing ones, and that one of the spines is never explained away."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.explained_away import explained_away
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.detect.sessions import Sessions
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject

CABLES = [{"id": f"{a}--{b}", "a": {"node": a}, "b": {"node": b}} for a, b in (("h0/r0", "l0"), ("l0", "s0"))]


def gone(standing: Subject, *, declared: bool) -> list[Subject]:
    """Of what stands and costs ten paths a tenth each; two newer elements cost five of them each."""
    cabling = Cabling(Sessions(16))
    if declared:
        cabling.topology = Topology({"nodes": [], "nics": [{"id": "h0/r0"}], "links": CABLES})
    k, n, used = np.array([200.0] * 5 + [20.0] * 5), np.full(10, 1000.0), np.arange(10)
    first, second = Subject("link", "l0--s1"), Subject("link", "l1--s1")
    half = np.arange(10) < 5
    pool = {standing: np.ones(10), first: half.astype(float), second: (~half).astype(float)}
    return explained_away(cabling, [standing], pool, [first, second], (k, n, used), 1e-3)


def test_newer_elements_that_leave_it_nothing_take_its_place() -> None:
    assert gone(Subject("switch", "s1"), declared=True) == [Subject("switch", "s1")]
    assert gone(Subject("switch", CORE), declared=False) == [Subject("switch", CORE)]


def test_one_of_the_spines_stays() -> None:
    assert gone(Subject("switch", CORE), declared=True) == []
