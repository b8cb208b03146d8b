"""Queues are real: the delay is the backlog over the rate, CE follows the backlog, classes queue apart.

All delays here are between kernel stamps (SO_TIMESTAMPING on sending and receiving), so a busy machine cannot
move them; a test waits for what it needs rather than for a fixed time.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import time

import numpy as np
import pytest

from sdfstream.errors import ConfigError
from sdfstream.lab import Fabric
from tests.fixtures.lab import SMALL, needs_ebpf, udp, up_or_skip

pytestmark = pytest.mark.lab
SRC, DST = "h00/r0", "h02/r0"
SO_TIMESTAMPING = 37
RX_STAMPS = 16 | 8
TX_STAMPS = 16 | 2 | 128 | 2048  # software, of sending, numbered, without the packet


class Probe:
    """Sends numbered packets over one path and pairs their kernel stamps with backlog and arrived TOS."""

    def __init__(self, fabric: Fabric, direction: str, tos: int) -> None:
        self.fabric, self.direction = fabric, direction
        port = fabric.ports_via(direction, SRC, DST, 1, 9000)[0]
        self.receiver = udp(fabric, DST, 9000)
        self.receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_STAMPS)
        self.receiver.setsockopt(socket.SOL_IP, 13, 1)  # IP_RECVTOS
        self.sender = udp(fabric, SRC, port)
        self.sender.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_STAMPS)
        self.sender.setsockopt(socket.SOL_IP, socket.IP_TOS, tos)
        for one in (self.receiver, self.sender):
            one.setblocking(False)
        self.backlog: list[int] = []

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.sender.close()
        self.receiver.close()

    def run(self, packets: int, every_s: float) -> None:
        for _ in range(packets):
            self.backlog.append(self.fabric.backlog_bytes(self.direction))
            number = struct.pack("=I", len(self.backlog) - 1)
            self.sender.sendto(number, (self.fabric.plan.nic(DST).a.address, 9000))
            time.sleep(every_s)
        time.sleep(0.1)

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(delay in ns, backlog in bytes at sending, CE or not) of every packet stamped at both ends."""
        left = dict(self._left())
        arrived = dict(self._arrived())
        both = sorted(left.keys() & arrived.keys())
        delay_ns = np.array([arrived[i][0] - left[i] for i in both])
        ce = np.array([arrived[i][1] & 3 == 3 for i in both])
        return delay_ns, np.array(self.backlog)[both], ce

    def _left(self):
        while True:
            try:
                _, control, _, _ = self.sender.recvmsg(64, 512, socket.MSG_ERRQUEUE)
            except BlockingIOError:
                return
            found = {(level, kind): data for level, kind, data in control}
            yield struct.unpack_from("=I", found[(socket.SOL_IP, 11)], 12)[0], _stamp(found)

    def _arrived(self):
        while True:
            try:
                data, control, _, _ = self.receiver.recvmsg(64, 512)
            except BlockingIOError:
                return
            found = {(level, kind): data for level, kind, data in control}
            if (socket.SOL_SOCKET, SO_TIMESTAMPING) in found:
                yield struct.unpack("=I", data)[0], (_stamp(found), found[(socket.SOL_IP, 1)][0])


def _stamp(control: dict[tuple[int, int], bytes]) -> int:
    seconds, ns = struct.unpack_from("=qq", control[(socket.SOL_SOCKET, SO_TIMESTAMPING)])
    return seconds * 1_000_000_000 + ns


def wait_for_backlog(fabric: Fabric, direction: str, at_least_bytes: int) -> None:
    end = time.monotonic() + 10
    while fabric.backlog_bytes(direction) < at_least_bytes:
        assert time.monotonic() < end, f"{direction} never queued {at_least_bytes} bytes"
        time.sleep(0.005)


def test_delay_is_backlog_over_rate_and_ce_follows_the_backlog(fabric: Fabric) -> None:
    """Idle, then overloaded 1.5 times: the delay of each packet is the backlog it met, to the bucket's credit."""
    with Probe(fabric, "l0->s1", tos=2) as probe:
        probe.run(60, 0.002)
        fabric.congest("l0->s1", 1.5)
        probe.run(250, 0.002)
        delay_ns, backlog, ce = probe.result()
    queue_ns = backlog * 8e9 / fabric.spec.rate_bps
    correlation = np.corrcoef(delay_ns, queue_ns)[0, 1]
    error_ms = (delay_ns - queue_ns) / 1e6
    met_bytes = delay_ns * fabric.spec.rate_bps / 8e9
    k, guard = fabric.spec.ce_threshold_bytes, fabric.spec.burst_bytes + 1_500
    deep, shallow = met_bytes > k + guard, met_bytes < k - guard
    print(
        f"lab: delay against backlog·8/rate: {delay_ns.size} packets, correlation {correlation:.5f}, error p5/p50/p95 "
        f"{np.percentile(error_ms, [5, 50, 95]).round(3)} ms, largest delay {delay_ns.max() / 1e6:.1f} ms; "
        f"CE {ce[deep].sum()} of {deep.sum()} above the threshold, {ce[shallow].sum()} of {shallow.sum()} below"
    )
    assert correlation > 0.98
    assert abs(np.median(error_ms)) < 2.5
    assert delay_ns[:50].min() < 1e6 < 30e6 < delay_ns.max()
    assert deep.sum() > 100 and shallow.sum() > 30
    needs_ebpf(fabric)
    assert ce[deep].all()
    assert not ce[shallow].any()


def test_an_idle_spine_and_packets_without_ecn_are_never_marked(fabric: Fabric) -> None:
    needs_ebpf(fabric)
    fabric.congest("l0->s1", 1.5)
    wait_for_backlog(fabric, "l0->s1", 60_000)
    for direction, tos in (("l0->s0", 2), ("l0->s1", 0)):
        with Probe(fabric, direction, tos) as probe:
            probe.run(50, 0.002)
            delay_ns, _, ce = probe.result()
        assert ce.size > 30 and not ce.any()
        if direction == "l0->s0":
            assert fabric.done_to(direction).marked == 0
            assert np.median(delay_ns) < 2e6


@pytest.mark.parametrize("loaded_dscp", [46, 0])
def test_a_class_queues_only_its_own_dscp(loaded_dscp: int) -> None:
    spec = dataclasses.replace(SMALL, class_dscp=46, class_rate_bps=8_000_000)
    with up_or_skip(spec) as fabric:
        fabric.congest("l0->s1", 1.5, dscp=loaded_dscp)
        end = time.monotonic() + 10
        while fabric.queue("l0->s1", loaded_dscp)[1] < 60_000 and time.monotonic() < end:
            time.sleep(0.005)
        median_ms = {}
        for dscp in (46, 0):
            with Probe(fabric, "l0->s1", tos=dscp << 2 | 2) as probe:
                probe.run(60, 0.002)
                median_ms[dscp] = float(np.median(probe.result()[0])) / 1e6
        print(f"lab: class of DSCP {loaded_dscp} overloaded: median delay by DSCP {median_ms} ms")
        assert median_ms[loaded_dscp] > 20
        assert median_ms[46 - loaded_dscp] < 2
        assert fabric.queue("l0->s1", 46 - loaded_dscp)[1] < 3_000


@pytest.mark.parametrize("direction", ["l0->s1", "s1->l2"])
def test_cross_traffic_queues_at_its_target_and_nowhere_else(direction: str) -> None:
    with up_or_skip(dataclasses.replace(SMALL, hosts=8)) as fabric:
        fault = fabric.congest(direction, 1.3)
        wait_for_backlog(fabric, direction, 60_000)
        elsewhere = [
            fabric.backlog_bytes(d)
            for d, (a, b) in fabric.plan.by_direction.items()
            if d != direction and a.end == a.node and b.end == b.node
        ]
        assert max(elsewhere) < 15_000
        fabric.heal(fault.id)
        sent = fault.parameters["sent"]
        assert sent["packets"] / sent["seconds"] < 1.1 * sum(fault.parameters["packets_per_s"])


def test_incast_towards_a_host_needs_and_uses_its_own_queue() -> None:
    with up_or_skip(dataclasses.replace(SMALL, host_rate_bps=10_000_000)) as fabric:
        fabric.congest("h02/r0", 1.5, seconds=5)
        wait_for_backlog(fabric, "l2->h02/r0", 60_000)
        assert fabric.backlog_bytes("s0->l2") + fabric.backlog_bytes("s1->l2") < 15_000


def test_cross_traffic_ends_by_itself(fabric: Fabric) -> None:
    fault = fabric.congest("l0->s1", 0.3, seconds=0.2)
    end = time.monotonic() + 10
    while fault.healed_at_ns is None and time.monotonic() < end:
        time.sleep(0.01)
    assert fault.healed_at_ns is not None
    assert fault.parameters["sent"]["packets"] > 0
    assert fabric.queue("l0->s1")[2] == 0


def test_two_loads_may_end_at_one_host(fabric: Fabric) -> None:
    faults = [fabric.congest("l0->s1", 0.2), fabric.congest("l1->s1", 0.2)]
    assert [fault.id for fault in fabric.heal()] == [fault.id for fault in faults]
    assert all(fault.parameters["sent"]["seconds"] > 0 for fault in faults)


def test_a_load_that_cannot_be_is_no_fault(fabric: Fabric) -> None:
    fabric.inject("s1", "link-down")
    with pytest.raises(ConfigError, match="no path"):
        fabric.congest("l0->s1")
    assert [fault.kind for fault in fabric.faults.active] == ["link-down"]
