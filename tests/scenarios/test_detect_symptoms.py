"""What follows from a fault is told with it, ends with it, and is not told again: queues that overflow, late agents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.records import arrow, columns
from sdfstream.records.message import Message
from sdfstream.records.units import NS_PER_S
from tests.fixtures.drive import Reported, run
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape
from tests.fixtures.lossy_fabric import NARROW, Lossy, LossyFabric, lossy_links

SHAPE = Shape(hosts=8, rails=1, leaves=4, spines=2, ports=3, rate_hz=12.0, peers=4)
QUEUE_S, DRAINED_S, LOSSY_S, HEALED_S = 14.0, 24.0, 31.0, 39.0


def loud(reported: Reported) -> list[tuple[str, str]]:
    """What was opened above info."""
    return [(f["kind"], f["subject"]["id"]) for _, f in reported.findings("open") if f["severity"] != "info"]


def when(reported: Reported, status: str, kind: str) -> list[float]:
    return [t for t, f in reported.findings(status) if f["kind"] == kind]


@pytest.mark.parametrize(("seed", "drop"), [(11, 0.04), (12, 0.08)])
def test_what_a_queue_drops_is_told_with_it_and_is_over_with_it(seed: int, drop: float) -> None:
    """A queue overflows; later another link loses packets without a word."""
    queue, lossy = "l0->s0", "l2->s1"
    faults = [Fault((queue,), QUEUE_S, DRAINED_S, delay_us=30_000, drop=drop), Fault((lossy,), LOSSY_S, HEALED_S, 0.1)]
    reported = run(DetectStage(), Fabric(seed, faults, SHAPE).messages(47))
    assert loud(reported) == [("congestion", "l0--s0"), ("loss", "l2--s1")]
    told = [f for _, f in reported.findings() if f["kind"] == "congestion"][-1]
    assert "loss" in {s["kind"] for s in told["symptoms"]}, "the loss is told with the queue"
    (drained,), (over,) = when(reported, "resolved", "congestion"), when(reported, "resolved", "loss")
    assert drained - DRAINED_S < 4.0 and -0.1 < over - HEALED_S < 6.0


@pytest.mark.parametrize("seed", [21])
def test_loss_that_was_there_before_the_queue_or_stays_after_it_is_a_finding(seed: int) -> None:
    queue = Fault(("l0->s0",), 18.0, 26.0, delay_us=30_000)
    before = run(DetectStage(), Fabric(seed, [Fault(("l0->s0",), 12.0, 99.0, 0.1), queue], SHAPE).messages(36))
    assert loud(before) == [("loss", "l0--s0"), ("congestion", "l0--s0")]
    assert when(before, "resolved", "loss") == []
    after = run(DetectStage(), Fabric(seed, [Fault(("l0->s0",), 20.0, 99.0, 0.1), queue], SHAPE).messages(36))
    assert loud(after) == [("congestion", "l0--s0"), ("loss", "l0--s0")]
    assert 26.0 < when(after, "open", "loss")[0] < 34.0


def test_faint_loss_that_is_enough_only_when_its_queue_has_drained_is_no_finding_of_its_own() -> None:
    shape = replace(SHAPE, rate_hz=40.0, base_loss=1e-4)
    queue = Fault(("l0->s0",), QUEUE_S, 28.0, delay_us=30_000, drop=0.003)
    assert loud(run(DetectStage(), Fabric(6, [queue], shape).messages(36))) == [("congestion", "l0--s0")]


def held_up(messages: Iterable[Message], at_s: float, for_s: float) -> list[Message]:
    """All agents publish nothing for a while; what they made meanwhile reaches the bus at once, in order."""
    first, last = (EPOCH + int(s * NS_PER_S) for s in (at_s, at_s + for_s))
    return [replace(m, bus_at_ns=last) if first <= m.bus_at_ns < last else m for m in messages]


@pytest.mark.parametrize(("seed", "for_s"), [(31, 0.6), (33, 1.0), (35, 1.6)])
def test_gray_loss_stays_told_while_agents_are_late(seed: int, for_s: float) -> None:
    """It is told once, at its link, until it is over: what is not seen for a second is not healed."""
    shape = replace(NARROW, hosts=12, leaves=6, peers=6)
    (link,) = lossy_links(seed, shape, 1, (0.08, 0.081))
    fault = Lossy(link.subject, link.links, link.share, 6.0, 20.0)
    messages = held_up(LossyFabric(seed, shape, [fault], 28.0).messages(), 14.0, for_s)
    reported = run(DetectStage(), messages)
    assert loud(reported) == [("loss", link.subject)]
    (over,) = when(reported, "resolved", "loss")
    assert 22.0 < over < 28.0  # the first probe is sent 2 s after the epoch
    shares = [f["evidence"][0]["value"] for t, f in reported.findings() if 12.0 < t < 22.0]
    assert all(0.03 < share < 0.3 for share in shares)


@pytest.mark.parametrize("seed", [41, 42])
def test_one_queue_is_one_finding_though_a_class_of_few_paths_cannot_place_it(seed: int) -> None:
    """Of a second class only paths over the queue are probed, as jobs' own are: all slow, none well beside them."""
    shape = replace(SHAPE, classes=(0, 26))
    fabric = Fabric(seed, [Fault(("l0->s0",), QUEUE_S, 20.0, delay_us=30_000)], shape)
    over = fabric.links["l0->s0"]
    crossing = {n for n in range(len(fabric.sessions)) if over in fabric.fwd[n]}
    kept = [n for n in sorted(crossing) if fabric.sessions[n][3] == 26]
    reported = run(DetectStage(), only(fabric.messages(26), fabric, kept))
    assert loud(reported) == [("congestion", "l0--s0")]
    classes = {e["value"] for _, f in reported.findings() for e in f["evidence"] if e["what"] == "class"}
    assert classes == {0.0, 26.0}


def only(messages: Iterable[Message], fabric: Fabric, kept: list[int]) -> Iterable[Message]:
    """Rows of class 0, and those of class 26 of these sessions of the fabric alone."""
    names = "dscp_sent", "dscp"
    wanted = session_keys(fabric.src_nic[kept], fabric.dst_nic[kept], fabric.port[kept])
    for message in messages:
        body = message.body
        name = next((c for c in names if isinstance(body, pa.RecordBatch) and c in body.schema.names), "")
        if name:
            (src, nics), (dst, _) = (columns.names(body, end) for end in ("src", "dst"))
            assert nics == fabric.nics
            mine = np.isin(session_keys(src, dst, columns.values(body, "path")), wanted)
            rows = np.flatnonzero((columns.values(body, name) != 26) | mine)
            if not rows.size:
                continue
            message = replace(message, body=body.take(arrow.numbers(rows, pa.int64())))
        yield message


def session_keys(src: np.ndarray, dst: np.ndarray, path: np.ndarray) -> np.ndarray:
    """One number for numbers of two NICs and a source port."""
    return (src.astype(np.int64) << 40) | (dst.astype(np.int64) << 20) | path
