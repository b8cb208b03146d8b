"""What queue pairs ask of the probes: watch sessions and traces, in the order of need."""

from __future__ import annotations

from dataclasses import replace

from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.requests import flow_requests, return_watch_requests, watch_requests
from sdfstream.records.fabric import QueuePair
from tests.fixtures import control as c

RECEIVED = QueuePair("h4/r0#9", 1, 0, c.DST, c.SRC, "10.0.0.1", 51_000, 4791, alternates=(51_001,), steering="socket")


def test_flows_in_use_come_first_and_answers_need_an_address() -> None:
    pair = c.queue_pair()
    requests = flow_requests([pair], [RECEIVED], {c.DST: "10.0.4.1"}.get)
    assert [w.flow for w in requests][:2] == [pair.flow(), RECEIVED.answers()]
    assert [w.dst_address for w in requests][:2] == ["10.0.4.1", "10.0.4.1"]
    assert len(requests) == 5
    assert flow_requests([], [RECEIVED], {}.get) == []
    assert watch_requests([pair, pair]) == [WatchRequest(c.SRC, c.DST, "10.0.4.1", 0, (pair.flow(),))]
    moved = replace(pair, qp="h0/r0#2", path=pair.alternates[0])
    assert watch_requests([pair, moved])[0].flows == (pair.flow(), moved.flow())


def test_the_first_alternates_are_urgent_and_the_rest_can_wait() -> None:
    pair = c.queue_pair(alternates=tuple(range(50_002, 50_010)))
    requests = flow_requests([pair], [], {}.get)
    assert [w.flow.source_port for w in requests if w.urgent] == [c.PATHS[0], *range(50_002, 50_006)]
    assert [w.flow.source_port for w in requests if not w.urgent] == list(range(50_006, 50_010))


def test_answers_are_watched_where_no_configured_session_probes_and_the_address_is_known() -> None:
    known = {c.SRC: "10.0.0.1"}.get
    back = WatchRequest(c.DST, c.SRC, "10.0.0.1", 0, quick=False)
    received = QueuePair("h4/r0#9", 1, 0, c.SRC, c.DST, "10.0.4.1", 51_000, 4791, steering="socket")
    assert return_watch_requests([received], frozenset(), known) == [back]
    assert return_watch_requests([received], frozenset({(c.DST, c.SRC)}), known) == []
    assert return_watch_requests([received], frozenset(), {}.get) == []
