"""What newer elements explain in place of standing ones, and that one of the spines is never explained away."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.explained_away import explained_away, note_heirs
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.lossy import LossySubject
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.detect.localise import Location
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


class Lost(LossySubject):
    """Of six paths, which lose a tenth or nothing."""

    def counts(self, seen: object) -> LossCounts:
        return LossCounts(np.array([100, 90, 110, 0, 0, 0]), np.full(6, 1000))


def lost(name: str, slots: list[int], share: float = 0.0) -> Lost:
    location = Location(Subject("nic", name), [], False, share, np.array(slots), [], 1.0)
    return Lost(location, 0, share=share, slots=np.array(slots))


def heirs(former: Lost, *standing: Lost) -> list[tuple[tuple[str, str], ...]]:
    subjects = {x.location.subject: x for x in standing}
    exposures = {s: np.isin(np.arange(6), x.slots).astype(float) for s, x in subjects.items()}
    note_heirs([former], subjects, exposures, None, 1e-3, -20.0)  # type: ignore[arg-type]
    return [x.instead_of for x in standing]


def test_what_loses_as_before_is_noted_with_what_costs_it_most() -> None:
    link, other = lost("link", [0, 1, 2, 3], 0.1), lost("other", [1], 0.02)
    assert heirs(lost("former", [0, 1, 2]), link, other) == [(("nic", "former"),), ()]
    assert heirs(link, lost("again", [0, 1, 2], 0.1)) == [(("nic", "link"),)]


def test_what_has_healed_or_is_another_matter_is_nobodys() -> None:
    assert heirs(lost("former", [3, 4, 5]), lost("link", [0, 1, 2, 3, 4, 5], 0.1)) == [()], "loses nothing"
    assert heirs(lost("former", [0, 1, 2]), lost("link", [2, 3, 4], 0.1)) == [()], "crosses a third of its paths"


def test_what_stands_again_is_nobodys() -> None:
    link, former = lost("link", [0, 1, 2, 3], 0.1), lost("former", [0, 1, 2], 0.05)
    heirs(former, link)
    assert heirs(lost("x", [3, 4]), link, former) == [(), ()]
