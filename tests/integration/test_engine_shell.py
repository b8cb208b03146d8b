"""The packet engine's IO shell over loopback: real sockets, real stamps, its own thread; no root needed."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator

import numpy as np
import pytest

from sdfstream.agent.commands.actuator import ActuatorRequest
from sdfstream.agent.commands.qp_socket_io import request_line
from sdfstream.probes.engine import layouts as engine_layouts
from sdfstream.probes.engine.shell_layouts import REFLECTOR as REFLECTING
from sdfstream.probes.net.socket_io import report_icmp
from sdfstream.probes.stamp.datagrams import SENT_TTL, address_octets
from sdfstream.records.fabric import QueuePair
from sdfstream.records.units import NS_PER_MS, NS_PER_S, StampKind
from tests.fixtures.engine_loopback import REFLECTOR, SENDER, Loopback, astray, opened_on, plain, until
from tests.property import test_qpcontrol_rules as orders

KEY = b"a key for tests"
SILENT = 2


@pytest.fixture
def made() -> Iterator[list[Loopback]]:
    all_made: list[Loopback] = []
    yield all_made
    for pair in all_made:
        pair.close()


def check_rows(pair: Loopback, paths: int) -> None:
    rows = pair.rows()
    answered = rows[rows["flags"] & engine_layouts.ROW_ANSWERED > 0]
    assert len(rows) > 0
    assert len(answered) == len(rows)
    for path in range(paths):
        seq = rows["seq"][rows["path"] == path]
        assert seq.tolist() == list(range(len(seq)))
    kinds = np.stack([answered[f"t{i}_kind"] for i in (1, 2, 4)])
    late = rows["seq"] > 20  # the kernel switches stamping on shortly after the first socket asks for it
    assert (kinds[:, late] == StampKind.KERNEL).all()
    t3_known = answered["t3_kind"][late] == StampKind.KERNEL
    assert t3_known.mean() > 0.95
    sane = answered[late]
    assert (sane["t2_ns"] >= sane["t1_ns"]).all()
    assert np.median(sane["t2_ns"] - sane["t1_ns"]) < NS_PER_MS
    assert (sane["t4_ns"] >= sane["t3_ns"])[t3_known].all()
    assert np.median(sane["t4_ns"] - sane["t3_ns"]) < NS_PER_MS
    assert (rows["ttl_fwd"][late] == SENT_TTL).all()
    assert (rows["tos_rev"][late] == rows["tos_fwd"][late]).all()


def test_two_thousand_probes_a_second_are_all_answered(made: list[Loopback]) -> None:
    pair = Loopback(20, 100)
    made.append(pair)
    pair.shell.start()
    pair.run_for(2.0)
    for path in range(20):
        pair.engine.end(path)
    pair.run_for(0.4)
    counted = pair.engine.counters()
    assert counted["sent"] > 1_000
    assert counted["answered"] == counted["sent"] == len(pair.rows())
    assert not [name for name in {**counted, **pair.shell.counters()} if "refused" in name or "unsent" in name]
    check_rows(pair, 20)
    report = pair.shell.report()
    assert report.running
    assert report.cpu_ns > 0
    assert pair.shell.quantile_ns("turn", 0.5) > 0
    assert pair.shell.counters()["turns"] > 100
    inbound = pair.shell.take_inbound()
    assert len(np.unique(inbound["path"])) == 20
    assert {pair.reflector.nic_name(n) for n in inbound["sender"].tolist()} == {"h1/n"}


def _turns_and_turnaround(pair: Loopback) -> tuple[float, float]:
    """Turns a probe, and the median time between a probe's arrival and its answer, ns, once intervals are known."""
    pair.shell.start()
    pair.run_for(1.0)
    before, sent = pair.shell.counters()["turns"], pair.engine.counters()["sent"]
    first = len(pair.rows())
    pair.run_for(1.0)
    rows = pair.rows()[first:]
    known = rows[rows["t3_kind"] == StampKind.KERNEL]
    assert (rows["flags"] & engine_layouts.ROW_ANSWERED > 0).all()
    assert len(known) > 0.95 * len(rows)  # stamps are read less often too, but in time for the next answer
    turns, n = pair.shell.counters()["turns"] - before, pair.engine.counters()["sent"] - sent
    return turns / n, float(np.median(known["t3_ns"] - known["t2_ns"]))


def test_where_no_path_is_quick_a_turn_takes_many_packets(made: list[Loopback]) -> None:
    slow, quick = Loopback(60, 20, liveness_ms=600), Loopback(12, 100)
    made += [slow, quick]
    turns, turnaround_ns = _turns_and_turnaround(slow)
    assert turns < 0.35
    assert 0 < turnaround_ns < 7 * NS_PER_MS
    slow.shell.close()
    turns, turnaround_ns = _turns_and_turnaround(quick)
    assert turnaround_ns < 2 * NS_PER_MS


@pytest.mark.parametrize("settings", [{"hmac_key": KEY}, {"old_wait": True}, {"addresses": ("::1", "::1")}])
def test_it_works_in_other_ways(made: list[Loopback], settings: dict[str, object]) -> None:
    pair = Loopback(4, 200, **settings)  # type: ignore[arg-type]
    made.append(pair)
    pair.shell.start()
    pair.run_for(0.6)
    for path in range(4):
        pair.engine.end(path)
    pair.run_for(0.4)
    check_rows(pair, 4)


def test_a_probe_that_finds_the_reflector_idle_is_answered_at_once(made: list[Loopback]) -> None:
    pair = Loopback(1, 50)
    made.append(pair)
    pair.shell.start()
    pair.run_for(0.6)
    assert not pair.shell.report().resting
    assert pair.shell.quantile_ns("answer", 0.25) < NS_PER_MS


def test_a_closed_reflector_is_silent_and_the_order_goes_out(made: list[Loopback]) -> None:
    pair = Loopback(2, 100, liveness_ms=60)
    made.append(pair)
    near, far = socket.socketpair()
    far.settimeout(2)
    line = b'{"do":"set","choice":{"path":49153}}\n'
    pair.engine.watch([[0, 1]], [(0, [0])])
    pair.shell.link(0, near)
    pair.shell.prepare(2, None, [(0, line)])
    pair.shell.prepare(2, 0, [(0, b"not this\n")])
    pair.engine.arm(2, 0)
    pair.shell.start()
    pair.run_for(0.5)
    assert not (pair.events()["state"] == SILENT).any()
    pair.shell.close_socket(REFLECTOR)
    assert far.recv(1000) == line
    until(lambda: (pair.events()["state"] == SILENT).sum() == 2)
    events = pair.events()
    given = events[events["kind"] == engine_layouts.EVENT_ORDER]
    assert given["path"].tolist() == [2]
    assert given["state"].tolist() == [0]
    silent = events[(events["kind"] == engine_layouts.EVENT_LIVENESS) & (events["state"] == SILENT)]
    decided_ns = silent["at_ns"] - silent["since_ns"]
    assert (decided_ns >= 60 * NS_PER_MS).all()
    assert (decided_ns < 200 * NS_PER_MS).all()
    assert pair.shell.counters()["orders"] == 1
    pair.shell.link(0, None)
    pair.shell.settle()
    near.close()
    far.close()


def test_a_line_prepared_long_before_is_obeyed_when_it_goes_out() -> None:
    """A failover's request holds nothing that is only known in the last moment: its ``ttl_ms`` is for limits alone."""
    rules, sender = orders.control()
    command = orders.signed(orders.order("failover"))
    qp = QueuePair(orders.QP, 0, 1, "h00/r0", "h01/r0", "10.0.0.1", orders.PORTS[0], 4791)
    asked = ActuatorRequest(1, "set", qp, "/x", command, path=orders.PORTS[2], choice=True, ttl_ms=10_000)
    line = json.loads(request_line(asked))
    assert rules.set(line, "h00", orders.BUS_NS + 9 * NS_PER_S, 9 * NS_PER_S)["ok"]
    assert sender.path == orders.PORTS[2]


def test_the_rest_of_a_long_order_follows(made: list[Loopback]) -> None:
    pair = Loopback(1, 100, liveness_ms=40)
    made.append(pair)
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    line = bytes(range(256)) * 512
    pair.engine.watch([[0]], [(0, [0])])
    pair.shell.link(1, near)
    pair.shell.prepare(0, None, [(1, line)])
    pair.engine.arm(0, 0)
    pair.shell.start()
    pair.run_for(0.2)
    pair.shell.close_socket(REFLECTOR)
    got = b""
    far.settimeout(2)
    while len(got) < len(line):
        got += far.recv(1 << 16)
    assert got == line
    assert pair.shell.link_error(1) == 0
    pair.shell.link(1, None)
    pair.shell.settle()
    near.close()
    far.close()


def test_an_order_to_a_process_that_went_away_says_so(made: list[Loopback]) -> None:
    pair = Loopback(1, 100, liveness_ms=40)
    made.append(pair)
    near, far = socket.socketpair()
    far.close()
    pair.engine.watch([[0]], [(0, [0])])
    pair.shell.link(0, near)
    pair.shell.prepare(0, None, [(0, b"x\n")])
    for order in (0, 1):
        pair.engine.arm(order, 0)
    pair.shell.start()
    pair.run_for(0.2)
    pair.shell.close_socket(REFLECTOR)
    until(lambda: pair.shell.counters().get("orders.failed"))
    until(lambda: pair.shell.counters().get("orders.unprepared"))
    assert pair.shell.link_error(0) == 32
    pair.shell.link(0, None)
    pair.shell.settle()
    near.close()


def test_a_socket_is_closed_and_another_adopted_while_it_runs(made: list[Loopback]) -> None:
    pair = Loopback(1, 200)
    made.append(pair)
    pair.shell.start()
    pair.run_for(0.2)
    pair.shell.close_socket(SENDER)
    until(lambda: pair.shell.counters().get("unsent.nic-away"))
    pair.shell.settle()
    assert pair.near.sock.fileno() == -1
    before = pair.engine.counters()["answered"]
    pair.shell.adopt(SENDER, opened_on(pair.near.nic, pair.near.port), role=1, host=0)
    until(lambda: pair.engine.counters()["answered"] > before + 20)
    pair.run_for(0.1)
    assert (pair.rows()["t1_kind"][-5:] == StampKind.KERNEL).all()


def test_strays_are_counted_by_reason(made: list[Loopback]) -> None:
    for changed, reason in (
        ({"interface": 4_000}, "refused.wrong-rail"),
        ({"address": address_octets("127.0.0.9")}, "refused.wrong-address"),
    ):
        pair = Loopback(1, 100)
        made.append(pair)
        number = pair.reflector.nic_number("h2/n")
        wrong = astray(pair.far, **changed)
        pair.shell.adopt(REFLECTOR, wrong, role=REFLECTING, host=1, nic=number)
        pair.shell.start()
        until(lambda pair=pair, reason=reason: pair.shell.counters().get(reason, 0) > 3)
        assert pair.engine.counters().get("answered", 0) == 0
        pair.shell.stop()


def test_a_socket_that_fails_as_if_its_nic_had_gone_is_suspected(made: list[Loopback]) -> None:
    pair = Loopback(1, 100)
    made.append(pair)
    control = pair.near.control.copy()
    control[40:44] = np.frombuffer(struct.pack("@i", 9_999), np.uint8)  # the interface of PKTINFO, behind TOS
    pair.shell.adopt(SENDER, astray(pair.near, control=control), role=1, host=0)
    pair.shell.start()
    assert until(pair.shell.suspects) == [SENDER]
    until(lambda: any(name.startswith("unsent.") for name in pair.shell.counters()))
    assert pair.engine.counters()["unsent"] > 0


def test_a_datagram_with_its_own_ttl_and_the_icmp_error_that_it_causes(made: list[Loopback]) -> None:
    pair = Loopback(1, 100)
    made.append(pair)
    pair.shell.start()
    pair.run_for(0.1)
    there = plain("127.0.0.4")
    to = address_octets("127.0.0.4")
    pair.shell.send_limited(SENDER, to, there.getsockname()[1], b"traced", 0, 7)
    data, control, _, _ = there.recvmsg(100, 100)
    assert data == b"traced"
    assert [struct.unpack("@i", value)[0] for level, kind, value in control if (level, kind) == (0, 2)] == [7]
    port = there.getsockname()[1]
    there.close()
    report_icmp(pair.near, True)
    pair.shell.send_limited(SENDER, to, port, b"nobody is there", 0, 7)
    error = until(pair.shell.take_icmp)[0]
    assert (error.slot, error.port, error.type, error.code) == (SENDER, port, 3, 3)
    assert error.destination == to
    assert error.quote == b"nobody is there"
    pair.run_for(0.3)
    pair.take_rows()
    assert pair.engine.counters().get("unsent", 0) == 0
    assert pair.engine.counters()["answered"] > 20


def test_changes_of_the_reflector_go_through_the_shell(made: list[Loopback]) -> None:
    pair = Loopback(1, 100)
    made.append(pair)
    pair.shell.start()
    until(lambda: pair.engine.counters().get("answered"))
    pair.reflector.know("configuration", {})
    pair.shell.settle()
    until(lambda: pair.reflector.counters.as_dict().get("reflector.refused.stranger"))


def test_inbound_changes_that_found_no_room_are_told_later(made: list[Loopback]) -> None:
    pair = Loopback(6, 200, room={"inbound": 4, "inbound_ns": 5 * NS_PER_MS})
    made.append(pair)
    pair.shell.start()
    until(lambda: pair.shell.counters().get("shed.inbound"))
    pair.shell.take_inbound()
    again = until(lambda: [event for event in pair.shell.take_inbound() if event["complete"]])
    assert {int(event["path"]) for event in again} <= set(range(6))
    assert pair.engine.counters()["answered"] > 0


def test_it_stops_and_starts_again(made: list[Loopback]) -> None:
    pair = Loopback(1, 200)
    made.append(pair)
    for _ in range(2):
        before = pair.engine.counters().get("answered", 0)
        pair.shell.start()
        until(lambda before=before: pair.engine.counters().get("answered", 0) > before)
        began_s = time.monotonic()
        pair.shell.stop()
        assert time.monotonic() - began_s < 1
        assert not pair.shell.report().running


def test_the_priority_that_was_reached_is_told(made: list[Loopback]) -> None:
    pair = Loopback(1, 10, realtime=True)
    made.append(pair)
    pair.shell.start()
    until(lambda: pair.shell.report().running)
    report = pair.shell.report()
    assert (report.priority == "real-time") is (report.refused == "")
