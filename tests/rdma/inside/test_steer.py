"""Steering a real queue pair: where its packets go, how long it takes, what it costs, and how a dead path is left."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.verbs.endpoint_io import ConnectionSettings
from sdfstream.verbs.library_io import Verbs, device_names
from sdfstream.verbs.live_qp_io import LiveQp
from tests.rdma.inside import fabric
from tests.rdma.inside.pairs import Pair, capture, figure

TRIALS = 20


@pytest.fixture(scope="module")
def verbs(devices: tuple[str, ...]) -> Verbs:
    return Verbs()


@pytest.fixture(scope="module")
def ports(devices: tuple[str, ...]) -> dict[str, list[int]]:
    return fabric.ports_by_path(4)


@pytest.fixture
def pair(verbs: Verbs, ports: dict[str, list[int]]) -> Iterator[Pair]:
    made = Pair(verbs, "rxa0", "rxb0", ConnectionSettings(ports["p0"][0], dscp=26))
    yield made
    fabric.black_hole("p0", on=False)
    made.close()


def test_devices_are_named(verbs: Verbs, devices: tuple[str, ...]) -> None:
    assert sorted(device_names(verbs)) == sorted(devices)


def test_what_the_device_can_do_is_found_by_trying(pair: Pair) -> None:
    can = pair.live.capabilities
    assert (can.driver, can.steer, can.throttle, can.run_on_hardware) == ("rxe", "sqd", "software", True)
    assert (pair.live.src_address, pair.live.dst_address) == ("10.0.0.1", "10.0.9.1")
    assert pair.live.dscp == 26


def test_every_packet_leaves_by_the_port_and_takes_the_predicted_path(pair: Pair, ports: dict[str, list[int]]) -> None:
    for path, other in (("p0", "p1"), ("p1", "p0")):
        for port in ports[path]:
            pair.live.steer(port, time.monotonic_ns())
            before = fabric.sent(path), fabric.sent(other)
            with capture("a0") as packets:
                for _ in range(20):
                    pair.post(1)
                    assert [c.status for c in pair.wait(1)] == [0]
            assert packets == [(port, 26 << 2 | 2)] * 20
            assert fabric.sent(path) - before[0] == 20
            assert fabric.sent(other) == before[1]
            assert pair.live.path == port
    print(f"\nfigure packets on the predicted path: 20 of 20 by each of {sum(map(len, ports.values()))} source ports")


def test_a_port_of_its_own_by_hash_is_known(verbs: Verbs, pair: Pair) -> None:
    """A queue pair without a flow label: its port follows from the two numbers."""
    from sdfstream.verbs.udp_port import source_port

    enums = verbs.enums
    attr, _ = pair.a.qp.query(enums.IBV_QP_AV)
    address = attr.ah_attr
    pair.reset()
    again = verbs.qp.QPAttr(port_num=1)
    again.dest_qp_num, again.path_mtu, again.timeout, again.retry_cnt = pair.b.address.number, 5, 14, 6
    again.rq_psn = again.sq_psn = 0
    again.max_rd_atomic = again.max_dest_rd_atomic = again.min_rnr_timer = 1
    route = verbs.addr.GlobalRoute(dgid=verbs.addr.GID(str(address.dgid)), sgid_index=1, flow_label=0, hop_limit=64)
    again.ah_attr = verbs.addr.AHAttr(gr=route, is_global=1, port_num=1)
    pair.a.qp.to_rts(again)
    pair.b.connect(pair.a.address, pair.settings)
    expected = source_port(0, pair.a.address.number, pair.b.address.number)
    assert LiveQp(verbs, pair.a.qp, pair.a.context).path == expected
    with capture("a0") as packets:
        pair.post(3)
        assert [c.status for c in pair.wait(3)] == [0] * 3
    # registration wrote the port as a label: the number itself is what must be right
    assert {port for port, _ in packets} == {expected}


def test_a_live_move_loses_nothing(pair: Pair, ports: dict[str, list[int]]) -> None:
    took_ms, done = [], 0
    for trial in range(3 * TRIALS):
        pair.post(16)
        began_s = time.monotonic()
        pair.live.steer(ports["p1" if trial % 2 else "p0"][trial % 4], time.monotonic_ns())
        took_ms.append((time.monotonic() - began_s) * 1e3)
        done += sum(c.status == 0 for c in pair.wait(16))
    assert done == 3 * TRIALS * 16
    figure("live move with 16 outstanding", took_ms)


def test_moves_between_slow_ports_end(pair: Pair, ports: dict[str, list[int]]) -> None:
    """The last acknowledgement comes while the queue waits in SQD, and the device forgets to look."""
    fabric.delay("p0", 5)
    took_ms = []
    for trial in range(2 * TRIALS):
        pair.post(16)
        began_s = time.monotonic()
        pair.live.steer(ports["p0"][trial % 4], time.monotonic_ns())
        took_ms.append((time.monotonic() - began_s) * 1e3)
        assert not pair.live.is_moving
        assert [c.status for c in pair.wait(16, limit_s=5)] == [0] * 16
    figure("live move on a path of 5 ms with 16 outstanding", took_ms)


def test_a_dead_path_is_left_before_retries_run_out_and_the_program_sees_no_error(
    pair: Pair, ports: dict[str, list[int]]
) -> None:
    steer_ms, flowing_ms, errors = [], [], 0
    for trial in range(TRIALS):
        pair.live.steer(ports["p0"][0], time.monotonic_ns())
        fabric.black_hole("p0", on=True)
        pair.post(16)
        time.sleep(0.005 * trial)  # the first retry is due after 67 ms: before, at and after it
        began_s = time.monotonic()
        pair.live.steer(ports["p1"][trial % 4], time.monotonic_ns())
        steer_ms.append((time.monotonic() - began_s) * 1e3)
        completions = pair.wait(16, limit_s=5)
        flowing_ms.append((time.monotonic() - began_s) * 1e3)
        assert len(completions) == 16, f"trial {trial}: {completions}"
        errors += sum(c.status != 0 for c in completions)
        fabric.black_hole("p0", on=False)
    figure("move off a black hole, 16 outstanding: command", steer_ms)
    figure("move off a black hole, 16 outstanding: all acknowledged", flowing_ms)
    print(f"figure errors that the program saw: {errors} of {16 * TRIALS}")
    assert errors == 0


def test_a_queue_pair_in_error_is_not_moved_and_says_why(pair: Pair, ports: dict[str, list[int]], verbs: Verbs) -> None:
    attr = verbs.qp.QPAttr(qp_state=verbs.enums.IBV_QPS_ERR)
    pair.a.qp.modify(attr, verbs.enums.IBV_QP_STATE)
    with pytest.raises(RefusedError, match="failed"):
        pair.live.steer(ports["p1"][0], time.monotonic_ns())
    assert pair.live.path == ports["p0"][0]


def test_an_unconnected_queue_pair_is_refused(pair: Pair, verbs: Verbs) -> None:
    pair.a.reset()
    with pytest.raises(RefusedError, match="connected"):
        LiveQp(verbs, pair.a.qp, pair.a.context)
