"""Whom to meet when: at once, again after failures, soon when silent; what is known stays known."""

from __future__ import annotations

from sdfstream.probes.stamp.datagrams import address_octets
from sdfstream.records.units import NS_PER_S
from sdfstream.verbs.carried.peers import PATIENCE_NS, RENEW_NS, SOON_NS, Peers
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress

FAR, OTHER = "10.0.9.1", "10.0.9.2"
FIRST, SECOND = UdAddress("::ffff:10.0.9.1", 18, 5), UdAddress("::ffff:10.0.9.1", 19, 6)


def test_a_far_end_is_met_once_at_a_time_and_then_now_and_then() -> None:
    peers = Peers()
    peers.want({FAR: "h04/r0"}, 0)
    assert peers.due(0) == [FAR]
    assert peers.due(NS_PER_S * 100) == [], "it is being met"
    peers.met(FAR, FIRST, NS_PER_S)
    assert peers.at(address_octets(FAR)) == FIRST
    assert peers.at(address_octets(OTHER)) is None
    assert peers.due(NS_PER_S + RENEW_NS - 1) == []
    assert peers.due(NS_PER_S + RENEW_NS) == [FAR]


def test_failures_are_tried_again_ever_more_slowly_and_the_known_queue_pair_stays() -> None:
    peers = Peers()
    peers.want({FAR: "h04/r0"}, 0)
    peers.due(0)
    peers.met(FAR, FIRST, 0)
    now_ns, pauses = RENEW_NS, []
    for _ in range(8):
        assert peers.due(now_ns) == [FAR]
        peers.failed(FAR, "refused", now_ns)
        waited = next(i for i in range(1, 62) if peers._peers[FAR].due_ns <= now_ns + i * NS_PER_S // 2)
        pauses.append(waited / 2)
        now_ns += waited * NS_PER_S // 2
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-1] * NS_PER_S == RENEW_NS
    assert peers.at(address_octets(FAR)) == FIRST
    assert peers.unmet(now_ns) == {}, "it has been met"


def test_a_silent_far_end_is_met_soon_but_not_all_the_time() -> None:
    peers = Peers()
    peers.want({FAR: "h04/r0"}, 0)
    peers.due(0)
    peers.met(FAR, FIRST, 0)
    peers.is_silent(FAR, 10 * NS_PER_S)
    assert peers.due(10 * NS_PER_S) == [FAR]
    peers.met(FAR, SECOND, 10 * NS_PER_S)
    assert peers.at(address_octets(FAR)) == SECOND, "it began anew"
    peers.is_silent(FAR, 10 * NS_PER_S + 1)
    assert peers.due(10 * NS_PER_S + 1) == []
    assert peers.due(10 * NS_PER_S + SOON_NS) == [FAR]


def test_who_cannot_be_met_is_told_after_a_while_with_the_reason() -> None:
    peers = Peers()
    peers.want({FAR: "h04/r0", OTHER: "h05/r0"}, 0)
    peers.due(0)
    peers.failed(FAR, "connection refused", 1)
    assert peers.unmet(PATIENCE_NS - 1) == {}
    assert peers.unmet(PATIENCE_NS) == {FAR: "connection refused", OTHER: "no answer yet"}
    peers.want({OTHER: "h05/r0"}, PATIENCE_NS)
    assert set(peers.unmet(PATIENCE_NS)) == {OTHER}
    peers.met(FAR, FIRST, PATIENCE_NS)  # a meeting of one that is wanted no more
    assert peers.at(address_octets(FAR)) is None
