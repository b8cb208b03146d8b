"""Back-pressure: which queues are put under which, and when a NIC is a storm's root without pause counters."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.detections import Detection
from sdfstream.detect.root.spread import longest, under_the_first
from sdfstream.records.finding import Evidence, Subject

S = 1_000_000_000


def queue(direction: str, since_s: float = 30.0, us: float = 800.0, ce: float | None = 0.0, cause: str = "queueing"):
    a, b = direction.split("->")
    nic = next((end for end in (a, b) if "/" in end), None)
    subject = Subject("nic", nic) if nic else Subject("link", "--".join(sorted((a, b))))
    evidence = [Evidence("delay-excess", us, "µs", direction)]
    if ce is not None:
        evidence.append(Evidence("ce-share", ce, "1", direction))
    return Detection("congestion", subject, int(since_s * S), cause, 0.9, tuple(evidence), directions=(direction,))


def told(queues: list[Detection], *, marking: bool = True) -> dict[str, tuple[str, int]]:
    return {q.subject.id: (q.cause, q.attached) for q in under_the_first(queues, marking=marking)}


STORM = [
    queue("l2->h4/r0"),
    queue("s1->l2", 30.2),
    queue("l0->s1", 30.3),
    queue("h1/r0->l0", 30.4),
    queue("s3->l2", 30.2),
]


def test_a_storm_without_counters_is_one_finding_of_its_nic() -> None:
    for marking in (True, False):
        assert told(STORM, marking=marking) == {"h4/r0": ("pause-storm", 4)}


def test_a_queue_that_is_marked_too_late_has_those_before_it_as_symptoms() -> None:
    queues = [queue("l2->s2", ce=0.05, cause="ecn-mistuned"), queue("h4/r0->l2", 30.3)]
    assert told(queues) == {"l2--s2": ("ecn-mistuned", 1)}


def test_a_port_that_is_paused_may_hold_up_little() -> None:
    assert told([queue("l1->s0", ce=0.05), queue("l2->l1", us=95.0)]) == {"l1--s0": ("queueing", 1)}


def test_a_queue_leads_to_another_through_one_that_no_path_tells_apart() -> None:
    """All paths over l1->s1 come from a NIC that l1 pauses, or go to the queue behind s1."""
    queues = [queue("s1->l0", ce=0.05, cause="ecn-mistuned"), queue("h3/r0->l1", 30.1, us=4900.0)]
    assert len(under_the_first(queues, marking=True)) == 2
    (root,) = under_the_first(queues, marking=True, hidden=lambda a, b: (a, b) == ("l1", "s1"))
    assert (root.subject.id, root.attached) == ("l0--s1", 1)


def test_a_gap_of_two_waits_tells_the_longest_queue_s_paths() -> None:
    waits = np.array([90.0, 95.0, 860.0, 790.0, 100.0, 900.0])
    assert longest(waits).tolist() == [False, False, True, True, False, True]
    assert not longest(waits[:3]).any(), "one path is no queue"
    assert not longest(np.linspace(100.0, 1000.0, 30)[::-1]).any()


def test_what_is_marked_short_unknown_or_older_stands_alone() -> None:
    root = queue("l2->s2", ce=0.05)
    for other in (
        queue("h4/r0->l2", ce=0.9),
        queue("h4/r0->l2", us=60.0),
        queue("h4/r0->l2", ce=None),
        queue("h4/r0->l2", since_s=20.0),
        queue("h4/r0->l3"),
    ):
        assert told([root, other]) == {"l2--s2": ("queueing", 0), "h4/r0": ("queueing", 0)}


def test_what_a_nic_gets_from_many_meets_on_a_link_before_its_port() -> None:
    """Two of three senders of an incast share a link to the NIC's leaf."""
    port = queue("l2->h4/r0", us=78.0, ce=0.35)
    assert told([port, queue("s0->l2", 30.2, us=40.0, ce=0.01)]) == {"h4/r0": ("queueing", 1)}
    assert told([port, queue("s0->l2", 40.0, us=30.0, ce=0.01)]) == {"h4/r0": ("queueing", 1)}
    leaves = frozenset({"l0", "l1", "l2", "l3"})
    (told_of, *more) = under_the_first([port, queue("l0->s1", 30.2, us=60.0, ce=0.1)], marking=True, leaves=leaves)
    assert (told_of.subject.id, told_of.attached, more) == ("h4/r0", 1, [])
    apart = [
        queue("l2->s1", 30.2, us=40.0, ce=0.01),  # it leaves the NIC's leaf
        queue("s0->l2", 30.2, us=40.0, ce=0.2),  # marked: a queue of its own
        queue("s0->l2", 34.0, us=60.0, ce=0.01),  # begun later
        queue("s0->l2", 26.0, us=40.0, ce=0.01),  # and before
        queue("s0->l2", 30.2, us=75.0, ce=0.01),  # nearly as long
        queue("s0->l3", 30.2, us=40.0, ce=0.01),  # elsewhere
    ]
    for other in apart:
        assert len(under_the_first([port, other], marking=True, leaves=leaves)) == 2


def test_two_queues_where_nothing_is_marked_are_two() -> None:
    assert len(told([queue("s1->l2"), queue("l0->s1")], marking=False)) == 2


def test_queues_in_a_ring_have_no_root_and_are_all_told() -> None:
    assert len(told([queue("l0->s0"), queue("s0->l1"), queue("l1->s1"), queue("s1->l0")])) == 4


def test_a_storm_that_counters_show_is_left_as_it_is() -> None:
    assert len(told([queue("l2->h4/r0", cause="pause-storm"), *STORM[1:]])) == 5


def test_a_nic_whose_counters_say_that_it_pauses_nobody_is_no_storm() -> None:
    (found,) = under_the_first(STORM, marking=True, calm=lambda nic: nic == "h4/r0")
    assert (found.cause, found.severity, found.attached) == ("queueing", "warning", 4)
