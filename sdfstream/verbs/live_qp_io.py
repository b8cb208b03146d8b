"""One connected RC queue pair of this process: its source port and its rate, changed while it works."""

from __future__ import annotations

import errno
import ipaddress
import os
import time
from collections.abc import Callable
from typing import Any, Final

from sdfstream.qpcontrol.rules import RefusedError
from sdfstream.records.units import NS_PER_MS
from sdfstream.verbs.capabilities import QpCapabilities, SteerBy, capabilities, driver_of, needs_prompt
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.move import POLL_NS, LiveMove, MoveStep
from sdfstream.verbs.pacer import PostPacer
from sdfstream.verbs.udp_port import ROCE_PORT, flow_label, source_port

_PATIENCE_NS: Final = 700 * NS_PER_MS
"""How long a move may wait for the send queue to drain before its command is answered; the agent waits for a second."""


class LiveQp:
    """A queue pair that can be moved and paced (`qpcontrol.rules.Steerable`).

    Parameters
    ----------
    verbs : Verbs
    qp : pyverbs.qp.QP
        Connected (RTS), with a global route.
    context : pyverbs.device.Context
        Its device.
    paced : bool
        The program calls `pace` before it posts, so that limits can hold.

    Raises
    ------
    RefusedError
        ``unknown-target``: it is not connected, or not by RoCEv2.
    """

    def __init__(self, verbs: Verbs, qp: Any, context: Any, *, paced: bool = False) -> None:
        self._verbs = verbs
        self._qp = qp
        enums = verbs.enums
        attr, _ = qp.query(enums.IBV_QP_STATE | enums.IBV_QP_AV | enums.IBV_QP_DEST_QPN | enums.IBV_QP_PORT)
        if attr.qp_state != enums.IBV_QPS_RTS or not attr.ah_attr.is_global:
            raise RefusedError("unknown-target", "a queue pair can be steered once it is connected (RTS), by RoCEv2")
        self.number, self.peer_number = int(qp.qp_num), int(attr.dest_qp_num)
        self.path = source_port(attr.ah_attr.flow_label, self.number, self.peer_number)
        self.dscp = int(attr.ah_attr.traffic_class) >> 2
        self.dst_address = gid_address(str(attr.ah_attr.dgid))
        self.src_address = gid_address(str(context.query_gid(attr.ah_attr.port_num, attr.ah_attr.sgid_index)))
        self.dst_port = ROCE_PORT
        self.moved_at_ns = 0
        self.waits: Callable[[], None] = lambda: None
        """Called when a move has not ended in time: somebody must call `go_on` until it has."""
        self._pacer = PostPacer()
        self._paced = paced
        self._move: tuple[LiveMove, int] | None = None
        self._vendor_id = int(context.query_device().vendor_id)
        self.capabilities: QpCapabilities = capabilities(self._vendor_id, self._try_methods(), paced=paced)

    # -- path -------------------------------------------------------------------------------------------------------

    def steer(self, path: int, now_ns: int) -> None:
        """Send by source port `path` from now on, in well under a millisecond of standstill on a healthy path.

        Raises
        ------
        RefusedError
            ``not-possible``: the device has no method; ``failed``: it refused; ``busy``: an earlier move waits for the
            send queue to drain.

        Notes
        -----
        `path` is the new one as soon as the device has the new address. Where the queue then does not drain in time,
        this returns all the same, and `go_on` ends the move.
        """
        if self._move is not None and not self.go_on():
            raise RefusedError("busy", "an earlier move waits for the send queue to drain")
        if self.capabilities.steer == "none":
            raise RefusedError("not-possible", self.capabilities.why_not)
        if self.capabilities.steer == "udp-sport":
            if error := self._verbs.move_port(self._qp, path):
                raise RefusedError("failed", f"new source port: {os.strerror(error)}")
            self._has_moved(path)
            return
        self._move = (LiveMove(needs_prompt(self._vendor_id)), path)
        deadline_ns = now_ns + _PATIENCE_NS
        while not self.go_on() and time.monotonic_ns() < deadline_ns:
            time.sleep(POLL_NS / 1e9)
        if self.is_moving:
            self.waits()

    @property
    def is_moving(self) -> bool:
        """Whether a move waits for the send queue to drain."""
        return self._move is not None

    def go_on(self) -> bool:
        """Do what a begun move can do now; whether it is over. RefusedError ``failed`` when the device refused."""
        if self._move is None:
            return True
        move, path = self._move
        while not move.is_over:
            step, before = move.step, move.waited
            error = self._do(step, path)
            move.did(error)
            if step is MoveStep.ADDRESS and not error:
                self._has_moved(path)
            if move.waited > before:
                if self._state() == self._verbs.enums.IBV_QPS_ERR:  # retries ran out meanwhile
                    move.step, move.error = MoveStep.FAILED, errno.ETIMEDOUT
                    break
                return False
        self._move = None
        if move.step is MoveStep.FAILED:
            if self._state() == self._verbs.enums.IBV_QPS_ERR:
                raise RefusedError("failed", "it has ended in error; its program must connect it anew")
            raise RefusedError("failed", f"live change through SQD: {os.strerror(move.error)}")
        return True

    # -- rate -------------------------------------------------------------------------------------------------------

    @property
    def rate_bps(self) -> int | None:
        """Limit in force."""
        return self._pacer.rate_bps

    @rate_bps.setter
    def rate_bps(self, rate_bps: int | None) -> None:
        if rate_bps is not None and not self._paced:
            raise RefusedError("not-possible", "this program does not ask the pacer before it posts")
        self._pacer.rate_bps = rate_bps

    def pace(self, octets: int) -> None:
        """Wait until a post of this many octets keeps the limit; returns at once where there is none."""
        if wait_ns := self._pacer.reserve(octets, time.monotonic_ns()):
            time.sleep(wait_ns / 1e9)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _has_moved(self, path: int) -> None:
        self.path = path
        self.moved_at_ns = time.time_ns()

    def _state(self) -> int:
        attr, _ = self._qp.query(self._verbs.enums.IBV_QP_STATE)
        return int(attr.qp_state)

    def _try_methods(self) -> dict[SteerBy, str]:
        """Each method on the idle pair, changing nothing; why it failed, or nothing."""
        tried: dict[SteerBy, str] = {}
        if driver_of(self._vendor_id) == "mlx5":
            error = self._verbs.move_port(self._qp, self.path)
            tried["udp-sport"] = os.strerror(error) if error else ""
            if not error:
                return tried
        move = LiveMove(needs_prompt(self._vendor_id))
        ends_ns = time.monotonic_ns() + _PATIENCE_NS
        while not move.is_over and time.monotonic_ns() < ends_ns:
            before = move.waited
            move.did(self._do(move.step, self.path))
            if move.waited > before:
                time.sleep(POLL_NS / 1e9)
        if not move.is_over:
            self._move = (move, self.path)
        tried["sqd"] = os.strerror(move.error) if move.step is MoveStep.FAILED else ""
        return tried

    def _do(self, step: MoveStep, path: int) -> int:
        """Carry out one step of a move; its errno, or 0."""
        enums, qp_module = self._verbs.enums, self._verbs.qp
        match step:
            case MoveStep.HALT:
                attr = qp_module.QPAttr(qp_state=enums.IBV_QPS_SQD)
                return self._verbs.attempt(lambda: self._qp.modify(attr, enums.IBV_QP_STATE))
            case MoveStep.ADDRESS:
                return self._verbs.attempt(lambda: self._qp.modify(self._address(path), enums.IBV_QP_AV))
            case MoveStep.RESUME:
                attr = qp_module.QPAttr(qp_state=enums.IBV_QPS_RTS)
                return self._verbs.attempt(lambda: self._qp.modify(attr, enums.IBV_QP_STATE))
            case _:
                # an atomic operation without memory is refused before it is queued, and the device looks all the same
                memory, wr = self._verbs.wr.SGE(0, 0, 0), self._verbs.wr
                nothing = wr.SendWR(opcode=enums.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[memory])
                return self._verbs.attempt(lambda: self._qp.post_send(nothing))

    def _address(self, path: int) -> Any:
        """The present address with the flow label of `path`."""
        enums, addr = self._verbs.enums, self._verbs.addr
        now, _ = self._qp.query(enums.IBV_QP_AV)
        old = now.ah_attr
        route = addr.GlobalRoute(
            dgid=addr.GID(str(old.dgid)),
            sgid_index=old.sgid_index,
            flow_label=flow_label(path),
            traffic_class=old.traffic_class,
            hop_limit=old.hop_limit,
        )
        attr = self._verbs.qp.QPAttr(port_num=old.port_num)
        attr.ah_attr = addr.AHAttr(gr=route, is_global=1, port_num=old.port_num, sl=old.sl, static_rate=old.static_rate)
        return attr


def gid_address(gid: str) -> str:
    """The IP address that a GID of RoCEv2 holds.

    >>> gid_address("0000:0000:0000:0000:0000:ffff:0a00:0901")
    '10.0.9.1'
    """
    address = ipaddress.IPv6Address(gid)
    return str(address.ipv4_mapped or address)
