"""What nf_tables is told about kernel flows, its answers, and the rows made of them; no kernel is asked."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.agent.commands import kernel_flow as kf
from sdfstream.agent.commands.kernel_rows import ArrivalPorts, KernelRows
from tests.fixtures.control import SRC, queue_pair

FLOW = kf.Ends("tcp", "10.0.0.1", "10.0.4.1", 49_500, 5201)


def test_a_move_is_one_transaction_and_keeps_the_answers_of_the_port_before() -> None:
    elements = kf.Elements()
    first = kf.moved(FLOW, 50_001)
    assert elements.changes(first).splitlines() == [
        "add element netdev sdfstream out_tcp4 { 10.0.0.1 . 10.0.4.1 . 49500 . 5201 : 50001 }",
        "add element netdev sdfstream in_tcp4 { 10.0.4.1 . 10.0.0.1 . 5201 . 50001 : 49500 }",
    ]
    elements.take(first)
    assert elements.changes(first) == ""
    on = kf.moved(FLOW, 50_002)
    assert elements.changes(on).splitlines()[:2] == [
        "delete element netdev sdfstream out_tcp4 { 10.0.0.1 . 10.0.4.1 . 49500 . 5201 }",
        "add element netdev sdfstream out_tcp4 { 10.0.0.1 . 10.0.4.1 . 49500 . 5201 : 50002 }",
    ]
    elements.take(on)
    elements.take(kf.moved(FLOW, 49_500))
    assert {element[0] for element in elements.of} == {"in"}


@given(st.lists(st.sampled_from((49_500, 50_001, 50_002, 50_003)), max_size=12))
def test_whatever_moves_were_made_the_maps_say_the_last(paths: list[int]) -> None:
    elements = kf.Elements()
    for path in paths:
        wanted = kf.moved(FLOW, path)
        assert (elements.changes(wanted) == "") == all(elements.of.get(k) == v for k, v in wanted.items())
        elements.take(wanted)
        assert elements.of.get(("out", "tcp4", FLOW.key), FLOW.source_port) == path
        for port in {*paths[: paths.index(path) + 1]} - {FLOW.source_port}:
            assert elements.of["in", "tcp4", FLOW.by(port).answers.key] == FLOW.source_port


def test_the_receiving_end_translates_back_and_mirrors() -> None:
    assert kf.ready(FLOW, (49_500, 50_001)) == {("back", "tcp4", "10.0.0.1 . 10.0.4.1 . 50001 . 5201"): 49_500}
    assert kf.mirrored(FLOW, 50_001) == {("mirror", "tcp4", "10.0.4.1 . 10.0.0.1 . 5201 . 49500"): 50_001}
    assert set(kf.mirrored(FLOW, 49_500).values()) == {None}


def test_a_device_may_be_called_anything() -> None:
    text = kf.chains("eth0.100-x")
    assert "chain out_eth0_2e100_2dx {" in text
    assert 'device "eth0.100-x"' in text


@given(st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda x: st.lists(
    x, max_size=3) | st.dictionaries(st.sampled_from(["nftables", "set", "map", "elem", "val", "concat", "counter"]), x,
                                     max_size=4)).map(json.dumps))  # fmt: skip
def test_no_answer_of_nft_is_too_odd(text: str) -> None:
    assert isinstance(kf.read_counts(text), dict)
    assert isinstance(kf.read_ports(text), dict)


def test_rows_are_what_was_sent_since_the_last_time() -> None:
    rows = KernelRows("h0")
    pair = queue_pair(protocol="tcp", steering="kernel")
    key = pair.qp
    assert rows.step([("job1", pair)], {key: kf.Count(10, 1_000)}, 1_000) is None
    batch = rows.step([("job1", pair)], {key: kf.Count(30, 31_000)}, 2_000)
    assert batch is not None
    row = {name: batch.column(name)[0].as_py() for name in ("sent_at_ns", "qp", "path", "bytes", "packets", "src")}
    assert row == {
        "sent_at_ns": 1_000,
        "qp": key,
        "path": pair.path,
        "bytes": 30_000 - 20 * 66,
        "packets": 20,
        "src": SRC,
    }
    assert rows.step([("job1", pair)], {key: kf.Count(30, 31_000)}, 3_000) is None  # nothing was sent
    assert rows.step([("job1", pair)], {key: kf.Count(1, 100)}, 4_000) is None  # counted afresh
    assert rows.step([("job1", pair)], {}, 5_000) is None


def test_rows_of_what_is_received_have_the_receiving_hosts_clock_and_no_link_header() -> None:
    rows = KernelRows("h4")
    pair = queue_pair(protocol="udp", steering="kernel", counted="received")
    assert rows.step([("job1", pair)], {pair.qp: kf.total([kf.Count(4, 400), kf.Count(6, 600)])}, 1_000) is None
    batch = rows.step([("job1", replace(pair, path=50_002))], {pair.qp: kf.Count(20, 11_000)}, 2_000)
    assert batch is not None
    row = {name: batch.column(name)[0].as_py() for name in ("clock_src", "path", "bytes", "packets", "src")}
    assert row == {"clock_src": "h4", "path": 50_002, "bytes": 10_000 - 10 * 28, "packets": 10, "src": SRC}


def test_a_flow_comes_from_the_port_of_most_packets_since_the_last_look() -> None:
    ports, pair = ArrivalPorts(), queue_pair(protocol="udp", steering="kernel", counted="received")
    assert ports.of(pair, {pair.path: kf.Count(0, 0), 50_002: kf.Count(0, 0)}) == pair.path
    assert ports.of(pair, {pair.path: kf.Count(90, 0), 50_002: kf.Count(0, 0)}) == pair.path
    assert ports.of(pair, {pair.path: kf.Count(92, 0), 50_002: kf.Count(30, 0)}) == 50_002
    assert ports.of(pair, {pair.path: kf.Count(92, 0), 50_002: kf.Count(30, 0)}) == 50_002  # nothing came
    ports.keep([])
    assert ports.of(pair, {}) == pair.path
