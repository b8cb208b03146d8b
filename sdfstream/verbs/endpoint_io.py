"""One end of an RC connection over RoCEv2: device, memory, queue pair, completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sdfstream.errors import UnavailableError
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.requests_io import MemorySpan, ReceiveRequests, SendRequests
from sdfstream.verbs.udp_port import flow_label

_DEPTH: Final = 256
_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """What the far end must know to connect."""

    number: int
    gid: str


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to connect."""

    source_port: int
    dscp: int = 0
    ecn: int = 2
    """2: ECT(0), so that switches may mark instead of drop."""
    timeout: int = 14
    """Local acknowledgement time-out, 4.096 µs · 2^timeout: 14 is 67 ms."""
    retries: int = 6
    """7 is *for ever* on Soft-RoCE, and seven on hardware."""


class Completion(NamedTuple):
    """A completion: 0 is success, 5 flushed, 12 retries exhausted (``ibv_wc_status``)."""

    id: int
    status: int
    octets: int
    is_receive: bool


class RcEndpoint:
    """A queue pair with its completion queue; connect before use.

    Parameters
    ----------
    verbs : Verbs
    device : str
    octets : int
        Of memory.
    shared : RcEndpoint or None
        Whose memory is used, registered with this device too.
    port, gid_index : int

    Raises
    ------
    UnavailableError
        The device cannot be opened or gives no queue pair.
    """

    def __init__(
        self,
        verbs: Verbs,
        device: str,
        octets: int,
        shared: RcEndpoint | None = None,
        port: int = 1,
        gid_index: int = 1,
    ) -> None:
        self._verbs, self._port, self._gid_index = verbs, port, gid_index
        enums = verbs.enums
        self._access = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
        try:
            self.context: Any = verbs.device.Context(name=device)
            self._pd = verbs.pd.PD(self.context)
            self._cq = verbs.cq.CQ(self.context, 4 * _DEPTH)
            where = {} if shared is None else {"address": shared.memory.buf}
            self.memory: Any = verbs.mr.MR(self._pd, octets, self._access, **where)
            cap = verbs.qp.QPCap(max_send_wr=_DEPTH, max_recv_wr=_DEPTH, max_send_sge=1, max_recv_sge=1)
            init = verbs.qp.QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=cap)
            self.qp: Any = verbs.qp.QP(self._pd, init, None)
            gid = str(self.context.query_gid(port, gid_index))
        except verbs.error as error:
            raise UnavailableError(f"RDMA device {device}: {error}") from error
        self._sends = SendRequests(verbs, self.memory, enums.IBV_WR_SEND)
        self._receives = ReceiveRequests(verbs, self.memory)
        self.device, self.address = device, PeerAddress(int(self.qp.qp_num), gid)

    def connect(self, peer: PeerAddress, settings: ConnectionSettings) -> None:
        """RESET to RTS. Raises UnavailableError where the device refuses."""
        enums, addr = self._verbs.enums, self._verbs.addr
        attr = self._verbs.qp.QPAttr(port_num=self._port)
        attr.dest_qp_num, attr.path_mtu = peer.number, self.context.query_port(self._port).active_mtu
        attr.rq_psn = attr.sq_psn = 0
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry = 12, 7
        attr.timeout, attr.retry_cnt, attr.qp_access_flags = settings.timeout, settings.retries, self._access
        route = addr.GlobalRoute(
            dgid=addr.GID(peer.gid),
            sgid_index=self._gid_index,
            flow_label=flow_label(settings.source_port),
            traffic_class=settings.dscp << 2 | settings.ecn,
            hop_limit=64,
        )
        attr.ah_attr = addr.AHAttr(gr=route, is_global=1, port_num=self._port)
        try:
            self.qp.to_rts(attr)
        except self._verbs.error as error:
            raise UnavailableError(f"{self.device}: no connection to {peer.gid}: {error}") from error
        assert self.qp.qp_state == enums.IBV_QPS_RTS

    def reset(self) -> None:
        """To RESET, from wherever it is; what was posted is forgotten without a completion."""
        enums = self._verbs.enums
        attr = self._verbs.qp.QPAttr(qp_state=enums.IBV_QPS_RESET)
        if error := self._verbs.attempt(lambda: self.qp.modify(attr, enums.IBV_QP_STATE)):
            raise UnavailableError(f"{self.device}: the queue pair does not reset: errno {error}")

    def prepare(self, offset: int, octets: int) -> None:
        """Have ready what a later `send_all` with these octets needs, so that it costs little but the driver's call."""
        self._sends.prepare(offset, octets)

    def send(self, id_: int, offset: int, octets: int) -> int:
        """Post a send of these octets of the memory; errno, or 0."""
        return self.send_all([MemorySpan(id_, offset, octets)])

    def send_all(self, sends: Sequence[MemorySpan]) -> int:
        """Post several sends by one call of the driver; errno, or 0. None of them: nothing."""
        return self._verbs.attempt(lambda: self.qp.post_send(self._sends.chain(sends))) if sends else 0

    def write(self, id_: int, octets: int, address: int, key: int) -> int:
        """Post a write of the first octets of the memory to the peer's; errno, or 0."""
        enums, wr = self._verbs.enums, self._verbs.wr
        piece = wr.SGE(self.memory.buf, octets, self.memory.lkey)
        post = wr.SendWR(
            wr_id=id_, sg=[piece], num_sge=1, opcode=enums.IBV_WR_RDMA_WRITE, send_flags=enums.IBV_SEND_SIGNALED
        )
        post.set_wr_rdma(key, address)
        return self._verbs.attempt(lambda: self.qp.post_send(post))

    def receive(self, id_: int, offset: int, octets: int) -> int:
        """Post room for a message; errno, or 0."""
        return self._verbs.attempt(lambda: self.qp.post_recv(self._receives.one(MemorySpan(id_, offset, octets))))

    def completions(self, most: int | None = None) -> list[Completion]:
        """What has ended since the last call, without waiting; at most so many of it."""
        receive, found = self._verbs.enums.IBV_WC_RECV, []
        while True:
            batch = most or _BATCH
            count, ended = self._cq.poll(batch)
            found += [Completion(wc.wr_id, wc.status, wc.byte_len, bool(wc.opcode & receive)) for wc in ended[:count]]
            if most or count < batch:
                return found

    def close(self) -> None:
        """Free everything; a second call does nothing."""
        for thing in (self.qp, self.memory, self._cq, self._pd, self.context):
            thing.close()
