"""What a process says of its queue pairs is what agents read."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

from sdfstream.agent.jobmap.drop_file import read_file
from sdfstream.records.job import job_shard
from sdfstream.verbs.description import Registration, alternates, drop_file, queue_pair, shard

QP = SimpleNamespace(
    number=17,
    peer_number=23,
    path=0xFFFE,
    rate_bps=None,
    dscp=26,
    src_address="10.0.0.1",
    dst_address="10.0.9.1",
    dst_port=4791,
)
ABOUT = Registration("h00/r0", "h01/r0", 3, 4, 0xFFFE, alternates(0xFFFE, 3))


def test_an_agent_reads_it_back() -> None:
    pairs = [queue_pair(ABOUT, QP, can_steer=True)]
    made = shard("train", "h00", 4242, 7, pairs, "/run/x/control")
    assert job_shard(made.as_data()) == made
    (about,) = made.qps
    assert (about.qp, about.steering, about.alternates) == ("h00/r0#17", "socket", (0xFFFF, 0xC000, 0xC001))
    assert str(about.flow()) == "h00/r0>h01/r0 udp 65534>4791 dscp26"
    assert about.answers(0xC000).source_port == 0xFFFE  # answers stay on the port that both ends began with
    assert about.peer_qp == "h01/r0#23"
    read, refused = read_file("train@h00.json", json.dumps(drop_file(made)).encode())
    assert (read.ranks, read.control, refused) == (made.ranks, "/run/x/control", ())
    assert made.ranks[0].nics == ("h00/r0",)


def test_what_cannot_be_steered_offers_nothing() -> None:
    about = queue_pair(ABOUT, QP, can_steer=False)
    assert (about.steering, about.alternates) == ("none", ())


def test_only_queue_pairs_of_the_host() -> None:
    other = Registration("h02/r0", "h01/r0")
    pairs = [queue_pair(about, QP, can_steer=True) for about in (ABOUT, other)]
    assert [p.src for p in shard("train", "h00", 1, 0, pairs, "").qps] == ["h00/r0"]


def test_alternates_are_all_different_and_never_the_own_port() -> None:
    ports = alternates(0xC000, 1 << 20)
    assert len(ports) == len(set(ports)) == 0x3FFF
    assert 0xC000 not in ports


def test_one_that_may_be_moved_nowhere_cannot_be_steered() -> None:
    assert queue_pair(replace(ABOUT, alternates=()), QP, can_steer=True).steering == "none"
