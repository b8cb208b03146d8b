"""What is located at several elements of one thing is one statement about it."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from sdfstream.detect.localise import Location, _merge_hosts
from sdfstream.records.finding import Subject


def at_nic(nic: str, side: str) -> Location:
    return Location(Subject("nic", nic), [side], True, 1.0, np.array([0]), [(side, 1.0)], 1.0, ["both"])


def subjects(*located: Location) -> list[tuple[str, str, tuple[str, ...]]]:
    nics: Any = SimpleNamespace(sessions=SimpleNamespace(nics=SimpleNamespace(list=["h3/r0", "h3/r1", "h4/r0"])))
    return [(x.subject.type, x.subject.id, x.members) for x in _merge_hosts(nics, list(located))]


def test_a_host_is_blamed_where_all_its_nics_are_sick_and_not_for_one_nic_that_was_located_twice() -> None:
    sending, receiving, other = at_nic("h3/r1", "h3/r1->l1"), at_nic("h3/r1", "l1->h3/r1"), at_nic("h3/r0", "l0->h3/r0")
    assert subjects(sending, receiving) == [("nic", "h3/r1", ()), ("nic", "h3/r1", ())]
    assert subjects(sending, other) == [("host", "h3", ("h3/r1", "h3/r0"))]
    assert subjects(sending, receiving, other) == [("host", "h3", ("h3/r1", "h3/r0"))]
