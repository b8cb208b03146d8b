"""What is put under which root, and what stands on its own."""

from dataclasses import replace
from typing import Any

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.ledger import Ledger
from sdfstream.detect.root.symptoms import Roots
from sdfstream.detect.sessions import Sessions
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Evidence, Subject
from sdfstream.stats import Counters

S = 1_000_000_000
T0 = 1_800_000_000 * S


def made() -> tuple[Roots, Ledger]:
    cabling = Cabling(Sessions(16))
    ends = [("h0/r0", "l0"), ("h1/r0", "l1"), ("l0", "s0"), ("l1", "s0")]
    links = [{"id": f"{a}--{b}", "a": {"node": a}, "b": {"node": b}} for a, b in ends]
    nics = [{"id": n, "host": n[:2], "rail": 0} for n in ("h0/r0", "h1/r0")]
    cabling.declare(Topology({"nodes": [], "links": links, "nics": nics}))
    return Roots(cabling), Ledger(DetectConfig(), Counters("detect"))


def sick(kind: str, type_: Any, name: str, since_s: float = 0.0, cause: str = "unknown") -> Detection:
    evidence = (Evidence("silent-paths", 1.0, "paths", name),)
    return Detection(kind, Subject(type_, name), T0 + int(since_s * S), cause, 0.9, evidence)


def names(detections: list[Detection]) -> list[str]:
    return [d.subject.id for d in detections]


def test_nics_and_links_of_a_dead_switch_are_its_symptoms() -> None:
    roots, ledger = made()
    found = [sick("nic-down", "nic", "h0/r0"), sick("link-down", "switch", "l0"), sick("nic-down", "nic", "h1/r0")]
    own, explained = roots.gather([*found, sick("link-down", "link", "l0--s0", 1.0)], ledger, "silence", T0 + S)
    assert names(own) == ["l0", "h1/r0"] and {key[2] for key in explained} == {"h0/r0", "l0--s0"}
    assert own[0].attached == 2 and {s["subject"]["id"] for s in own[0].symptoms} == {"h0/r0", "l0--s0"}


def test_a_nic_whose_leaf_works_and_what_was_down_long_before_stand_alone() -> None:
    roots, ledger = made()
    switch = sick("link-down", "switch", "l0", 60)
    known = replace(sick("nic-down", "nic", "h0/r0", 60), alone=True)
    assert names(roots.gather([switch, known], ledger, "silence", T0 + 61 * S)[0]) == ["l0", "h0/r0"]
    long_before = sick("link-down", "link", "l0--s0", 0)
    assert names(roots.gather([switch, long_before], ledger, "silence", T0 + 61 * S)[0]) == ["l0", "l0--s0"]


def test_silence_that_is_laid_to_a_link_after_all_is_the_links() -> None:
    roots, ledger = made()
    roots.gather([sick("link-down", "switch", "l0")], ledger, "silence", T0 + S)
    own, explained = roots.gather([sick("link-down", "link", "l0--s0")], ledger, "silence", T0 + S + S // 10)
    assert names(own) == ["l0--s0"] and not explained


def test_every_queue_is_the_storms_until_a_while_after_it() -> None:
    roots, ledger = made()
    storm, queue = sick("congestion", "nic", "h0/r0", 0, "pause-storm"), sick("congestion", "link", "l1--s0", 1)
    assert names(roots.gather([storm, queue], ledger, "congestion", T0 + 2 * S)[0]) == ["h0/r0"]
    assert roots.gather([queue], ledger, "congestion", T0 + 6 * S)[0] == []
    assert names(roots.gather([queue], ledger, "congestion", T0 + 8 * S)[0]) == ["l1--s0"]


def test_the_state_survives_a_snapshot() -> None:
    roots, ledger = made()
    storm, queue = sick("congestion", "nic", "h0/r0", 0, "pause-storm"), sick("congestion", "link", "l1--s0", 1)
    roots.gather([storm, queue], ledger, "congestion", T0 + 2 * S)
    again = made()[0]
    again.restore(roots.snapshot())
    assert again.snapshot() == roots.snapshot()
    assert again.gather([queue], ledger, "congestion", T0 + 3 * S)[0] == []


def test_loss_on_the_way_of_a_reported_queue_is_its_symptom_unless_it_was_there_before() -> None:
    roots, ledger = made()
    ways = {"directions": ("l0->s0",), "suspects": (("l0->s0", 0.8), ("s0->l0", 0.2))}
    queue = replace(sick("congestion", "link", "l0--s0", 10), **ways)
    loss = replace(sick("loss", "switch", "s0", 12), suspects=(("s0", 0.6), ("l0->s0", 0.4)))
    assert not roots.gather([queue], ledger, "congestion", T0 + 12 * S)[1]
    assert not roots.gather([loss], ledger, "loss", T0 + 12 * S)[1], "no finding yet: it explains nothing"
    ledger.take("congestion", [queue], T0 + 12 * S)
    roots.gather([queue], ledger, "congestion", T0 + 13 * S)
    own, explained = roots.gather([loss], ledger, "loss", T0 + 13 * S)
    assert not own and explained[("loss", "switch", "s0")].subject.id == "l0--s0"
    elsewhere = replace(sick("loss", "link", "l1--s0", 12), suspects=(("l1->s0", 0.9), ("l0->s0", 0.1)))
    before = replace(sick("loss", "link", "l0--s0", 5), **ways)
    assert names(roots.gather([elsewhere, before], ledger, "loss", T0 + 13 * S)[0]) == ["l1--s0", "l0--s0"]


def test_clocks_without_a_bound_are_the_symptoms_of_a_reported_queue_of_milliseconds() -> None:
    roots, ledger = made()
    wait = Evidence("delay-excess", 16_000.0, "µs", "l0->s0")
    queue = replace(sick("congestion", "link", "l0--s0", 10), evidence=(wait,))
    short = replace(queue, evidence=(replace(wait, value=400.0),))
    clocks = [sick("clock-unsynced", "clock", name, 20) for name in ("h0", "h1")]
    faulty = sick("clock-faulty", "clock", "h1", 20)
    for found, left in ((short, ["h0", "h1", "h1"]), (queue, ["h1"])):
        roots, ledger = made()
        ledger.take("congestion", [found], T0 + 12 * S)
        roots.gather([found], ledger, "congestion", T0 + 21 * S)
        assert names(roots.gather([*clocks, faulty], ledger, "clocks", T0 + 21 * S)[0]) == left


def test_what_is_told_stays_told_while_its_root_is_only_suspected() -> None:
    """A link that loses a tenth is silent on many paths at once now and then, as if its switch were down."""
    roots, ledger = made()
    loss, switch = sick("loss", "link", "l0--s0", 1), sick("link-down", "switch", "s0", 2)
    ledger.take("loss", [loss], T0 + 2 * S)
    assert ledger.is_open("loss", loss.subject)
    roots.gather([replace(switch, confirm_ns=S)], ledger, "silence", T0 + 2 * S)
    own, explained = roots.gather([loss], ledger, "loss", T0 + 2 * S)
    assert names(own) == ["l0--s0"] and not explained
    ledger.take("silence", [switch], T0 + 3 * S)
    own, explained = roots.gather([loss], ledger, "loss", T0 + 3 * S)
    assert not own and explained[("loss", "link", "l0--s0")].subject.id == "s0"


def test_silence_that_never_was_a_finding_explains_nothing_once_it_is_over() -> None:
    roots, ledger = made()
    loss, switch = sick("loss", "link", "l0--s0", 2), replace(sick("link-down", "switch", "s0", 2), confirm_ns=S)
    roots.gather([switch], ledger, "silence", T0 + 2 * S)
    assert roots.gather([loss], ledger, "loss", T0 + 2 * S)[1], "it may be down indeed"
    own, explained = roots.gather([loss], ledger, "loss", T0 + 3 * S)
    assert names(own) == ["l0--s0"] and not explained


def test_marks_told_before_their_queue_shows_are_the_queues_while_that_is_no_less_serious() -> None:
    """A queue marks at once; on paths whose delay varies much it is slow seconds later."""
    roots, ledger = made()
    marks = replace(sick("ecn-marks", "link", "l0--s0", 0, "queueing"), severity="warning")
    elsewhere = replace(sick("ecn-marks", "link", "l1--s0", 0, "queueing"), severity="warning")
    mistuned = replace(marks, cause="ecn-mistuned")
    queue = replace(sick("congestion", "link", "l0--s0", 5, "queueing"), severity="warning")
    ledger.take("marks", [marks, elsewhere], T0 + 2 * S)
    ledger.take("congestion", [queue], T0 + 6 * S)
    roots.gather([queue], ledger, "congestion", T0 + 6 * S)
    own, explained = roots.gather([], ledger, "marks", T0 + 7 * S)
    assert not own and {key[2] for key in explained} == {"l0--s0"}
    assert roots.gather([mistuned], ledger, "marks", T0 + 7 * S)[0] == [mistuned], "a threshold is no queue's"
    roots.gather([replace(queue, severity="info")], ledger, "congestion", T0 + 8 * S)
    assert not roots.gather([], ledger, "marks", T0 + 8 * S)[1], "a warning is not taken back for an information"


def test_loss_that_was_told_of_a_leaf_is_its_dead_uplinks_once_that_is_known() -> None:
    roots, ledger = made()
    leaf, link = (replace(sick("loss", t, n, cause="link-failure"), confirm_ns=0) for t, n in
                  (("switch", "l0"), ("link", "l0--s0")))  # fmt: skip
    for now_s, found in ((1.0, leaf), (1.2, link), (1.4, link)):
        own, explained = roots.gather([found], ledger, "loss", T0 + int(now_s * S))
        ledger.take("loss", own, T0 + int(now_s * S))
    assert names(own) == ["l0--s0"]
    assert {key[2] for key in explained} == {"l0"}
    gray = replace(link, cause="gray-failure")
    roots, ledger = made()
    for now_s, found in ((1.0, leaf), (1.2, gray), (1.4, gray)):
        own, explained = roots.gather([found], ledger, "loss", T0 + int(now_s * S))
        ledger.take("loss", own, T0 + int(now_s * S))
    assert not explained


def test_what_is_silent_by_chance_is_so_at_every_instant_though_losses_are_looked_at_at_every_other() -> None:
    roots, ledger = made()
    lossy = replace(sick("loss", "link", "l0--s0"), evidence=(Evidence("loss-share-high", 0.4, "1", "l0->s0"),))
    ledger.take("loss", roots.gather([lossy], ledger, "loss", T0 + S)[0], T0 + S)
    roots.gather([lossy], ledger, "loss", T0 + S)
    by_name = roots._roots["loss", "link", "l0--s0"]
    assert by_name.reported
    quiet = replace(sick("link-down", "switch", "l0"), missed=4)
    assert roots._root_of(quiet, T0 + S) is None  # it crosses nothing that loses
    roots._explains = lambda root, other, now_ns: root.detection.kind == "loss"  # type: ignore[method-assign]
    assert roots._root_of(quiet, T0 + S + S // 10) is by_name
    assert roots._root_of(quiet, T0 + 7 * S) is None
