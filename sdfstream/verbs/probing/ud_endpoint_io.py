"""UD queue pairs with their memory: messages out with an address each, messages in with the header of their packet.

One slot of the memory is one message. The first half of the slots receive; a slot is posted again as soon as its
message has been copied out. The second half send; a slot is free again when its send has completed.

Where a device takes the source port from each packet's address, one queue pair sends by all of them. Soft-RoCE does
not: a UD queue pair has one port, which follows from its number. There an endpoint has a queue pair for each path, and
the ports are those that the device gives (`source_ports`).
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.errors import UnavailableError
from sdfstream.records.units import UInt8s
from sdfstream.verbs.capabilities import chooses_datagram_ports
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.probing.arrival import HEADER_BYTES
from sdfstream.verbs.probing.completions_io import (
    UdCompletion,
    completion_queue,
    is_readable,
    only_new_file,
    open_events,
)
from sdfstream.verbs.probing.device_events import PortFacts
from sdfstream.verbs.probing.routes import RoceRoute
from sdfstream.verbs.requests_io import MemorySpan, ReceiveRequests, SendRequests
from sdfstream.verbs.udp_port import LEAST_PORT, rxe_datagram_port

_SLOTS: Final = 512
"""In each direction."""
_MOST_HANDLES: Final = 4096
"""Address handles that are stored; the one unused for longest goes."""
_LOOK_S: Final = 2e-4
"""How often a queue is looked at that cannot wake us."""
_OPENING: Final = threading.Lock()
"""Descriptors of a context are told by what is new in the process: two threads must not open one at once."""
_SENT: Final = 1 << 32
"""Set in the ids of sends."""


class UdAddress(NamedTuple):
    """What the far end must know to send to an endpoint."""

    gid: str
    qpn: int
    qkey: int


class UdMessages(NamedTuple):
    """What a pass over the completions found."""

    received: list[UdCompletion]
    headers: UInt8s
    """(n, 40) of `received`."""
    data: UInt8s
    """(n, octets) their payloads; what lies behind each length is stale."""
    sent: list[tuple[int, int | None]]
    """(token, NIC's stamp or None) of what left."""
    failed: list[int]
    """Tokens of what did not."""


class UdEndpoint:
    """A UD queue pair on one port of a device, ready to send and receive.

    Parameters
    ----------
    verbs : Verbs
    device : str
    octets : int
        Of the longest message.
    qkey : int
        Below 2^31: messages with another key never arrive.
    ports : sequence of int
        Source ports to send by; on a device that chooses them itself, as many others.
    port, gid_index : int

    Raises
    ------
    UnavailableError
        The device cannot be opened, has no GID there, or gives no queue pair.
    """

    def __init__(
        self,
        verbs: Verbs,
        device: str,
        octets: int,
        qkey: int,
        ports: Sequence[int] = (LEAST_PORT,),
        port: int = 1,
        gid_index: int = 1,
    ) -> None:
        self._verbs, self.device, self._port, self._gid_index = verbs, device, port, gid_index
        self._slot_bytes, self._qkey = HEADER_BYTES + octets, qkey
        self._handles: OrderedDict[RoceRoute, Any] = OrderedDict()
        self._closing: list[Any] = []
        try:
            with _OPENING:
                before = open_events()
                self.context: Any = self._stored(verbs.device.Context(name=device))
                self.events_fd = only_new_file(before)
                self._open(ports)
        except verbs.error as error:
            self.close()
            raise UnavailableError(f"RDMA device {device}: {error}") from error
        self._free = deque(range(_SLOTS))
        self._tokens: dict[int, tuple[int, int]] = {}
        """Of what was posted, by slot: its token, and the number of its queue pair."""
        for slot in range(_SLOTS):
            self._receive(slot)
        self._queue.arm()

    def _open(self, ports: Sequence[int]) -> None:
        verbs, enums = self._verbs, self._verbs.enums
        pd = self._stored(verbs.pd.PD(self.context))
        before = open_events()
        self._channel = self._stored(verbs.cq.CompChannel(self.context))
        self.wake_fd = only_new_file(before)
        self._queue = completion_queue(verbs, self.context, 2 * _SLOTS, self._channel)
        self._stored(self._queue.queue)
        self._mr = self._stored(verbs.mr.MR(pd, 2 * _SLOTS * self._slot_bytes, enums.IBV_ACCESS_LOCAL_WRITE))
        self._sends = SendRequests(verbs, self._mr, enums.IBV_WR_SEND_WITH_IMM)
        self._receives = ReceiveRequests(verbs, self._mr)
        room = (ctypes.c_uint8 * (2 * _SLOTS * self._slot_bytes)).from_address(self._mr.buf)
        self._memory: UInt8s = np.frombuffer(memoryview(room), dtype=np.uint8).reshape(2 * _SLOTS, self._slot_bytes)
        self._pd = pd
        self._qps: list[Any] = []
        self.chooses_ports = chooses_datagram_ports(int(self.context.query_device().vendor_id))
        self._qp_of: dict[int, Any] = {}
        """By source port; where the device takes it from the address, always the same."""
        while len(self._qp_of) < len(ports):
            qp = self._queue_pair()
            own = ports if self.chooses_ports else [rxe_datagram_port(int(qp.qp_num))]
            self._qp_of |= dict.fromkeys(own, qp)
        self.source_ports = tuple(self._qp_of)
        gid = str(self.context.query_gid(self._port, self._gid_index))
        self.address = UdAddress(gid, int(self._qps[0].qp_num), self._qkey)
        self.stamps = self._queue.stamps

    def _queue_pair(self) -> Any:
        """One more queue pair, ready to send."""
        verbs, enums, queue = self._verbs, self._verbs.enums, self._queue.queue
        cap = verbs.qp.QPCap(max_send_wr=_SLOTS, max_recv_wr=_SLOTS, max_send_sge=1, max_recv_sge=1)
        init = verbs.qp.QPInitAttr(qp_type=enums.IBV_QPT_UD, scq=queue, rcq=queue, cap=cap, sq_sig_all=1)
        qp = self._stored(verbs.qp.QP(self._pd, init, None))
        self._make_ready(qp)
        self._qps.append(qp)
        return qp

    def _make_ready(self, qp: Any) -> None:
        """RESET to RTS."""
        attr = self._verbs.qp.QPAttr(port_num=self._port)
        attr.qkey, attr.pkey_index, attr.sq_psn = self._qkey, 0, 0
        qp.to_rts(attr)

    def _stored(self, resource: Any) -> Any:
        """`resource`, which `close` will close, the last one first."""
        self._closing.append(resource)
        return resource

    def send(self, token: int, octets: bytes, to: UdAddress, route: RoceRoute, immediate: int) -> bool:
        """Post a message by the source port that is its immediate data; its token comes back in `take`.

        False: no slot is free, or the device refuses.
        """
        if not self._free or not self._closing:
            return False
        slot = self._free.popleft()
        where = self._memory[_SLOTS + slot]
        where[: len(octets)] = np.frombuffer(octets, dtype=np.uint8)
        post = self._sends.one(MemorySpan(_SENT | slot, (_SLOTS + slot) * self._slot_bytes, len(octets)))
        post.imm_data = immediate
        try:
            post.set_wr_ud(self._handle(route), to.qpn, to.qkey)
            qp = self._qp_of.get(immediate, self._qps[0])
            qp.post_send(post)
        except self._verbs.error:
            self._free.append(slot)
            return False
        self._tokens[slot] = token, self._qps.index(qp)
        return True

    def _handle(self, route: RoceRoute) -> Any:
        """The address handle of a route."""
        if route in self._handles:
            self._handles.move_to_end(route)
            return self._handles[route]
        addr = self._verbs.addr
        global_route = addr.GlobalRoute(
            dgid=addr.GID(route.gid),
            sgid_index=self._gid_index,
            flow_label=route.flow_label,
            traffic_class=route.traffic_class,
            hop_limit=route.hop_limit,
        )
        attr = addr.AHAttr(gr=global_route, is_global=1, port_num=self._port)
        handle = addr.AH(self._pd, attr=attr)
        self._handles[route] = handle
        if len(self._handles) > _MOST_HANDLES:
            self._handles.popitem(last=False)[1].close()
        return handle

    def take(self) -> UdMessages:
        """What arrived and what left since the last call."""
        completions = self._completions()
        broken: set[int] = set()
        received, sent, failed, rows = [], [], [], []
        for completion in completions:
            if completion.id & _SENT:
                slot = completion.id & (_SENT - 1)
                if slot not in self._tokens:  # of a queue pair that was begun anew since
                    continue
                token, qp = self._tokens.pop(slot)
                self._free.append(slot)
                if completion.status:
                    failed.append(token)
                    broken.add(qp)
                else:
                    sent.append((token, completion.at_ns))
            else:
                if not completion.status and completion.octets > HEADER_BYTES:
                    received.append(completion)
                    rows.append(completion.id)
        held = self._memory[rows]  # a copy: the slots receive again from here on
        for completion in completions:
            if not completion.id & _SENT:
                if completion.status:
                    broken.add(completion.id % len(self._qps))
                else:
                    self._receive(completion.id)
        for qp in sorted(broken):
            failed += self._begin_anew(qp)
        return UdMessages(received, held[:, :HEADER_BYTES], held[:, HEADER_BYTES:], sent, failed)

    def _completions(self) -> list[UdCompletion]:
        """What has completed. UnavailableError: the device is gone."""
        try:
            return self._queue.take() if self._closing else []
        except self._verbs.error as error:
            raise UnavailableError(f"RDMA device {self.device}: {error}") from error

    def _begin_anew(self, number: int) -> list[int]:
        """Bring a queue pair in ERR, where any failed send leaves it, back to RTS; tokens of what it had not sent."""
        enums, qp = self._verbs.enums, self._qps[number]
        attr = self._verbs.qp.QPAttr(qp_state=enums.IBV_QPS_RESET)
        if self._verbs.attempt(lambda: qp.modify(attr, enums.IBV_QP_STATE)):
            return []
        lost = [slot for slot, (_, owner) in self._tokens.items() if owner == number]
        tokens = [self._tokens.pop(slot)[0] for slot in lost]
        self._free.extend(lost)
        if not self._verbs.attempt(lambda: self._make_ready(qp)):
            for slot in range(number, _SLOTS, len(self._qps)):
                self._receive(slot)
        return tokens

    def _receive(self, slot: int) -> None:
        room = self._receives.one(MemorySpan(slot, slot * self._slot_bytes, self._slot_bytes))
        qp = self._qps[slot % len(self._qps)]
        self._verbs.attempt(lambda: qp.post_recv(room))

    def wait(self, timeout_s: float) -> None:
        """Until something completes, or the time-out passes; without holding the interpreter's lock."""
        if not self.wakes:
            time.sleep(min(timeout_s, _LOOK_S))
        elif is_readable(self.wake_fd, timeout_s):
            self.rearm()

    @property
    def wakes(self) -> bool:
        """Whether `wake_fd` becomes readable at a completion; else the endpoint must be looked at."""
        return self.wake_fd >= 0 and bool(self._closing) and self._queue.wakes

    def rearm(self) -> None:
        """Take what made `wake_fd` readable, so that it becomes so again at the next completion; then `take`.

        UnavailableError: the device is gone.
        """
        queue = self._queue.queue
        try:
            while is_readable(self.wake_fd) and not self._verbs.attempt(lambda: self._channel.get_cq_event(queue)):
                queue.ack_events(1)
            self._queue.arm()
        except self._verbs.error as error:
            raise UnavailableError(f"RDMA device {self.device}: {error}") from error

    def event(self) -> str:
        """The next event of the device, without ``IBV_EVENT_``; empty: there is none."""
        if self.events_fd < 0 or not self._closing or not is_readable(self.events_fd):
            return ""
        try:
            event = self.context.get_async_event()
        except self._verbs.error:  # readable, and yet nothing there: the device is going, which its ports tell
            return ""
        kind = int(event.event_type)
        event.ack()
        enums = self._verbs.enums
        names = (name for name in dir(enums) if name.startswith("IBV_EVENT_") and int(getattr(enums, name)) == kind)
        return next(names, f"IBV_EVENT_{kind}").removeprefix("IBV_EVENT_")

    def ports(self) -> dict[int, PortFacts]:
        """Facts of the port that is used; empty: the device is gone."""
        try:
            port = self.context.query_port(self._port)
        except self._verbs.error:
            return {}
        try:
            gid = str(self.context.query_gid(self._port, self._gid_index))
        except self._verbs.error:
            gid = ""
        return {self._port: PortFacts(int(port.state), "" if gid.strip(":0") == "" else gid, int(port.lid))}

    def close(self) -> None:
        """Close everything, the last opened first; what the device refuses is left to the process's end."""
        for resource in itertools.chain(self._handles.values(), reversed(self._closing)):
            self._verbs.attempt(resource.close)
        self._handles.clear()
        self._closing.clear()
