"""Findings name the jobs that they hurt: surely by traced routes, possibly where the route is not known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import JOB
from tests.fixtures.drive import run
from tests.fixtures.faultlist import busy_link
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape
from tests.fixtures.trainers import Trainer, Training, together

SHAPE = Shape(hosts=6, leaves=6, ports=3, owd=False)


def one_direction(seed: int) -> tuple[Fabric, str, str]:
    """A fabric with a link dead in one direction from 6 s on, the direction and the link."""
    fabric = Fabric(seed, [], SHAPE)
    leaf, spine = busy_link(fabric, np.random.default_rng(seed))
    link_direction = f"{leaf}->{spine}"
    return Fabric(seed, [Fault((link_direction,), 6, drop=1)], SHAPE), link_direction, f"{leaf}--{spine}"


def evidence(finding: dict, what: str) -> dict[str, int]:
    return {e["where"]: int(e["value"]) for e in finding["evidence"] if e["what"] == what}


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_link_names_exactly_the_jobs_that_cross_it_in_that_direction(seed: int) -> None:
    fabric, link_direction, link = one_direction(seed)
    hosts = tuple(fabric.hosts)
    jobs = Training(
        fabric,
        [Trainer("all", hosts), Trainer("few", hosts[1:3], pairs=1), Trainer("untraced", hosts, traced=False)],
        seed,
        windows=False,
    )
    reported = run(DetectStage(), together(fabric.messages(9), jobs.messages(9)))
    (finding,) = [f for _, f in reported.findings("open") if f["kind"] == "link-down"]
    assert finding["subject"]["id"] == link
    truth = {job: len(jobs.crossing(job, link_direction)) for job in ("all", "few")}
    assert finding["jobs"] == sorted(job for job, n in truth.items() if n)
    assert evidence(finding, "queue-pairs") == {job: n for job, n in truth.items() if n}
    assert list(evidence(finding, "queue-pairs-possibly")) == ["untraced"]


def test_a_dead_nic_names_every_job_on_it_and_none_else_whatever_is_known_of_routes() -> None:
    fault = Fault(("h01/r0->l0", "l0->h01/r0"), 6, drop=1)
    fabric = Fabric(4, [fault], replace(SHAPE, declared=False, traced=False))
    jobs = Training(
        fabric,
        [Trainer("on", ("h00", "h01", "h02"), traced=False), Trainer("off", ("h03", "h04"), traced=False)],
        windows=False,
    )
    reported = run(DetectStage(), together(fabric.messages(9), jobs.messages(9)))
    (finding,) = [f for _, f in reported.findings("open") if f["kind"] == "nic-down"]
    assert finding["jobs"] == ["on"]
    assert evidence(finding, "queue-pairs") == {"on": 4} and not evidence(finding, "queue-pairs-possibly")


def test_an_open_finding_follows_jobs_that_start_and_end() -> None:
    fault = Fault(("h01/r0->l0", "l0->h01/r0"), 3, drop=1)
    fabric = Fabric(4, [fault], SHAPE)
    early, late = Trainer("early", ("h00", "h01"), until_s=7), Trainer("late", ("h01", "h02"), at_s=10)
    jobs = Training(fabric, [early, late], windows=False)
    reported = run(DetectStage(), together(fabric.messages(13), jobs.messages(13)))
    said = [(t, f["jobs"]) for t, f in reported.findings() if f["kind"] == "nic-down"]
    assert said[0][1] == ["early"]
    assert next(t for t, names in said if names == []) < 8.3
    assert said[-1][1] == ["late"] and next(t for t, names in said if names == ["late"]) < 11.3


def test_job_events_that_cannot_be_read_are_counted_and_harm_nothing() -> None:
    stage = DetectStage()
    odd: list[dict] = [{}, {"job": 3}, {"job": "a", "host": "h", "qps": [{"src": "x"}]}, {"job": "a", "qps": 3}]
    odd.append({"job": "a", "host": "h", "qps": [{"src": "x/0", "dst": "y/0", "dst_address": "a", "path": 5,
                                                    "dst_port": 6, "alternates": ["z"]}]})  # fmt: skip
    for i, data in enumerate(odd):
        stage.step([Message(JOB.name, "k", Event(JOB.name, "h", str(i), 0, data), EPOCH + i, i)], EPOCH + i)
    assert stage.counters.get("refused", "job-part") == len(odd)
