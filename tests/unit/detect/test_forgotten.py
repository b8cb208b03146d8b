"""Sessions that sent nothing for long: their numbers are free for others, and no finding stands by them."""

from __future__ import annotations

import numpy as np

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.engines import Engines
from sdfstream.detect.gray.lossy import LossySubject
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

T0 = 1_800_000_000 * NS_PER_S
AN_HOUR_NS = 3601 * NS_PER_S


def engines_with_two_paths() -> tuple[Engines, np.ndarray]:
    """A path that was last seen at `T0`, and one an hour later."""
    engines = Engines(DetectConfig(), Counters("detect"))
    slots = [
        engines.sessions.of_names([("a/0", "b/0", "udp", port, 0)], at_ns)
        for port, at_ns in ((50000, T0), (50001, T0 + AN_HOUR_NS))
    ]
    for engine in (engines.delays, engines.runs, engines.marks):
        engine.ensure()
    return engines, np.concatenate(slots)


def stands(engines: Engines, subject: Subject, slots: np.ndarray) -> LossySubject:
    where = Location(subject, [subject.id], True, 0.05, slots, [(subject.id, 1.0)], 1.0, ["both"] * slots.size)
    lossy = LossySubject(where, T0, slots=slots, harmed=slots, dead=where)
    engines.loss.standing[subject] = lossy
    return lossy


def test_loss_of_a_path_that_nobody_probes_any_more_stands_no_longer_and_says_why() -> None:
    engines, slots = engines_with_two_paths()
    subject = Subject("path", str(engines.sessions.path_id(int(slots[0]), "fwd")))
    stands(engines, subject, slots[:1])
    engines.ledger.take("loss", [Detection("loss", subject, T0, "gray-failure", 1.0, (), hold_ns=NS_PER_S)], T0)
    engines.forget(T0 + AN_HOUR_NS)
    assert not engines.loss.standing
    (output,) = engines.ledger.take("loss", [], T0 + AN_HOUR_NS)
    said = output.body.data
    assert (said["status"], said["detail"]) == ("resolved", "nothing measures it any more")


def test_what_other_paths_still_show_stands_by_these_alone() -> None:
    engines, slots = engines_with_two_paths()
    lossy = stands(engines, Subject("link", "l0--s0"), slots)
    engines.forget(T0 + AN_HOUR_NS)
    assert lossy.dead is not None
    for kept in (lossy.slots, lossy.harmed, lossy.location.slots, lossy.dead.slots):
        assert kept.tolist() == slots[1:].tolist()
    assert lossy.location.path_directions == ["both"]
    assert list(engines.loss.standing.values()) == [lossy]
