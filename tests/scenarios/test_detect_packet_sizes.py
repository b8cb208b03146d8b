"""Large packets that do not pass where small ones do: the MTU of a link or NIC; what is dead takes both, and is dead.

The fabric's second class stands for the large probes, so that a fault may hit them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.records import columns
from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from tests.fixtures.drive import Reported, run
from tests.fixtures.leafspine import Fabric, Fault, Shape

LARGE = 46
SHAPE = Shape(hosts=6, rails=1, leaves=3, spines=3, ports=4, rate_hz=8.0, classes=(0, LARGE))
BROKEN_S, HEALED_S, RUN_S = 6.0, 14.0, 20.0


def with_sizes(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if message.topic == PROBE.name:
            body = message.body
            is_large = columns.values(body, "dscp_sent") == LARGE
            octets = pa.array(np.where(is_large, 4200, 128).astype(np.uint16))
            at = body.schema.get_field_index("size_bytes")
            message = replace(message, body=body.set_column(at, body.schema.field(at), octets))
        yield message


def found(faults: list[Fault], seed: int = 3) -> Reported:
    return run(DetectStage(), with_sizes(Fabric(seed, faults, SHAPE).messages(RUN_S)))


@pytest.mark.parametrize("seed", range(3))
def test_a_link_that_large_packets_do_not_pass_is_named_and_is_over_once_they_do(seed: int) -> None:
    both = ("l0->s1", "s1->l0")
    reported = found([Fault(both, BROKEN_S, HEALED_S, drop=1.0, dscp=LARGE)], seed)
    ((at_s, kind, subject),) = reported.opened()
    assert (kind, subject) == ("mtu-mismatch", "l0--s1") and at_s - BROKEN_S < 4
    opened = reported.findings("open")[0][1]
    assert (opened["class"], opened["cause"], opened["severity"]) == ("configuration", "mtu", "warning")
    evidence = {e["what"]: e["value"] for e in opened["evidence"]}
    assert evidence["silent-octets"] == 4200 and evidence["silent-paths"] and evidence["small-paths-alive"]
    ((at_s, _, _),) = reported.resolved()
    assert HEALED_S < at_s < HEALED_S + 5


def test_a_nic_that_large_packets_do_not_pass_is_named() -> None:
    leaf = Fabric(3, [], SHAPE).leaf["h02/r0"]
    both = (f"h02/r0->{leaf}", f"{leaf}->h02/r0")
    reported = found([Fault(both, BROKEN_S, drop=1.0, dscp=LARGE)])
    assert [(kind, subject) for _, kind, subject in reported.opened()] == [("mtu-mismatch", "h02/r0")]


@pytest.mark.parametrize("directions", [("l0->s1", "s1->l0"), ("l0->s1",)])
def test_a_dead_link_is_dead_and_no_matter_of_size(directions: tuple[str, ...]) -> None:
    """Large probes are evidence of that like the others: it is told as where all are of one size."""
    faults = [Fault(directions, BROKEN_S, drop=1.0)]
    alike = run(DetectStage(), Fabric(3, faults, SHAPE).messages(RUN_S))
    assert found(faults).opened() == alike.opened() == [(pytest.approx(7.5, abs=0.5), "link-down", "l0--s1")]


def test_loss_of_a_third_is_no_matter_of_size() -> None:
    kinds = {kind for _, kind, _ in found([Fault(("l0->s1", "s1->l0"), BROKEN_S, drop=0.3)]).opened()}
    assert kinds and "mtu-mismatch" not in kinds


def test_packets_of_two_sizes_that_pass_are_no_finding() -> None:
    assert found([]).opened() == []
