"""The Session-Reflector of one host: answers probes on several sockets, vectorised, without a socket or a clock.

API in short (*now_ns*: steady clock; *system_ns* and everything inside batches: the host's system clock)::

    reflector = SessionReflector(host, sockets, senders, limits=ReflectorLimits(), hmac_key=None, liveness_ms=1000)
        # sockets: {index of a receiving socket: NIC id}; senders: {IP address: KnownSender}
    reflector.know("plan", senders, networks)        # those that the plan names from now on
    answers = reflector.answer(received, now_ns)     # ToSend: each leaves by the socket its probe came in by
    reflector.seal(answers, system_ns)               # ALWAYS, right before sending: writes T3 and the HMACs
    reflector.take_tx_stamps(stamps)                 # true t3, sent in the next answer (Follow-Up Telemetry)
    reflector.nic_usable(nic, usable, now_ns)
    reflector.liveness(now_ns, system_ns, complete=False) -> list[dict]
    reflector.counters                               # stage "reflector": answered, shed, refused.<reason>

Stateful as RFC 8762 section 4.3 means it: the answers of a session (socket, source address and port, SSID) are
numbered from 0, so that a sender can see in which direction a packet was lost; only such a reflector may fill in
Follow-Up Telemetry (RFC 8972 section 4.7). A session beyond the bounded table is answered statelessly: the number is
the probe's and the follow-up stays zero; so are all with ``stateful=False``.

Whom it answers, and how often: `known_senders`.

An answer has exactly the octets of its probe, never more; a probe shorter than the base packet is refused. (RFC 8762
section 4.6 would answer a short TWAMP-Light probe with a whole base packet. That amplifies, so it is not done; such a
sender pads its probes to 44 octets.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sdfstream.probes.config import HostConfig
from sdfstream.probes.stamp import packet, tlv
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps
from sdfstream.probes.stamp.inbound import UNADMITTED, Arrivals, Inbound, Rows
from sdfstream.probes.stamp.known_senders import KnownSender, KnownSenders, ReflectorLimits
from sdfstream.probes.stamp.liveness import ALIVE, PathLiveness
from sdfstream.probes.stamp.packet import MAC_BYTES, BatchVerdict, Fields, Mac, fields, macs_equal
from sdfstream.probes.stamp.rates import TokenBucket
from sdfstream.probes.stamp.tlv_answer import ProbeFacts, TlvAnswerer
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Int64s, StampKind, UInt8s
from sdfstream.stats import Counters

_GENERATION_BITS = 15
_ROW_BITS = 16
_USER, _KERNEL, _NONE = np.uint8(StampKind.USER), np.uint8(StampKind.KERNEL), np.uint8(StampKind.NONE)


class SessionReflector:
    """Answers the probes that reach one host.

    Parameters
    ----------
    host : HostConfig
        For the virtual clock.
    sockets : index of a receiving socket to NIC id
    senders : IP address to KnownSender
        Those that the configuration names. Probes of known senders alone are watched for liveness.
    limits : ReflectorLimits, optional
        Who else is answered, and how often.
    hmac_key : bytes or None
        Authenticated mode when given.
    salt : int
        A number that strangers cannot guess.
    error : int or None
        Error Estimate word of answers; its Z bit chooses the format of their stamps.
    sync : int
        What disciplines the clock, `tlv.SyncSource`.
    stateful : bool
        See above.
    classes : (64,) bool or None
        DSCPs in which answers may leave; None: all.
    transport : str
        By which its probes come, for the names of their paths.
    """

    def __init__(
        self,
        host: HostConfig,
        sockets: Mapping[int, str],
        senders: Mapping[str, KnownSender],
        *,
        limits: ReflectorLimits | None = None,
        hmac_key: bytes | None = None,
        salt: int = 0,
        liveness_ms: int = 1000,
        error: int | None = None,
        sync: int = tlv.SyncSource.FREE_RUNNING,
        stateful: bool = True,
        classes: Bools | None = None,
        transport: str = "udp",
    ) -> None:
        self.host = host
        self.counters = Counters("reflector")
        self._mac = None if hmac_key is None else Mac(hmac_key)
        self._mode = packet.mode_of(hmac_key)
        self._error = packet.error_estimate(1e6) if error is None else error
        self._clock = Clock(host.virtual_clock)
        allowed = np.ones(64, dtype=np.bool_) if classes is None else classes
        self._tlvs = TlvAnswerer(self._mode, self._mac, self.counters, sync=sync, classes=allowed)
        self.path_liveness = PathLiveness("reflector", liveness_ms, self._clock)
        limits = limits or ReflectorLimits()
        self._known = KnownSenders(host, limits, salt)
        self._known.know("configuration", senders)
        self._inbound = Inbound(dict(sockets), self._known.names, self.path_liveness, self.counters, transport)
        self._stateful = stateful
        self._rate = TokenBucket(limits.max_pps)

    @property
    def senders(self) -> Sequence[bytes]:
        """16-octet address of the sender of each path of `path_liveness`."""
        return self._inbound.senders

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """Answer these senders, by address, and these networks from now on, instead of those of `group` before."""
        if self._known.know(group, senders, networks):
            self._inbound.name(self._known.names)

    def arriving_pps(self, ports: range) -> float:
        """Probes that arrive per second, by their mean gaps, from named senders over these source ports."""
        alive = np.flatnonzero((self.path_liveness.state == ALIVE) & (self.path_liveness.interval_ns > 0)).tolist()
        mine = [i for i in alive if self.path_liveness.names[i].path in ports]
        return float((NS_PER_S / self.path_liveness.interval_ns[mine]).sum())

    def answer(self, received: Received, now_ns: int) -> ToSend:
        """Answers to the probes in `received`, sorted by socket, still without T3 and HMAC (see `seal`)."""
        rows, arrivals = self._good(received, now_ns)
        socket = received.socket[rows]
        if (socket[1:] < socket[:-1]).any():
            order = np.argsort(socket, kind="stable")
            rows = np.arange(len(received.length))[rows][order]
            arrivals = arrivals.of(order)
            socket = received.socket[rows]
        length = received.length[rows]
        # room behind the longest lets `tlv.arranged` look for padding there
        width = int(length.max(initial=self._mode.base_bytes)) + tlv.HEADER_BYTES
        out = np.array(received.data[rows, :width])
        address, port = received.address[rows], received.port[rows]
        token = np.empty(len(length), dtype=np.int64)
        tos = np.zeros(len(length), dtype=np.uint8)
        if len(length):
            arrival = _Arrival(received, rows)
            self._head(out, received, rows, arrival)
            tos = self._body(out, received, rows, arrivals, arrival, token, now_ns)
            self.counters.add("answered", n=len(length))
        return ToSend(out, length, socket, address, port, tos, token)

    def _good(self, received: Received, now_ns: int) -> tuple[Rows, Arrivals]:
        """The rows to be answered, and their sessions.

        A sender's rate is taken of packets with the right HMAC only: nobody else can use it up. Checking HMACs is what
        costs most, so the rate of all comes before.
        """
        data, length, base = received.data, received.length, self._mode.base_bytes
        verdict = BatchVerdict(len(length), self.counters)
        verdict.refuse(length < base, BatchVerdict.SHORT)
        verdict.refuse(length > data.shape[1], BatchVerdict.CUT)
        if data.shape[1] < base:
            none = np.empty(0, dtype=np.int64)
            return none, Arrivals(none.view(np.uint64), none, none)
        verdict.refuse(packet.are_answers(data, self._mode), BatchVerdict.ANSWER)
        arrivals = self._inbound.look_up(received, fields(data, self._mode.probe)["ssid"].astype(np.int64))
        if np.count_nonzero(arrivals.bucket == UNADMITTED):
            self._admit(received, arrivals, verdict)
        if self._mac is None:
            self._known.limit(arrivals.bucket, arrivals.stranger, verdict, now_ns)
            self._limit(verdict, now_ns)
        else:
            self._limit(verdict, now_ns)
            self._check_macs(data, self._mac, verdict)
            self._known.limit(arrivals.bucket, arrivals.stranger, verdict, now_ns)
        if verdict.all_good:
            return slice(0, len(length)), arrivals
        rows = np.flatnonzero(verdict.good)
        return rows, arrivals.of(rows)

    def _admit(self, received: Received, arrivals: Arrivals, verdict: BatchVerdict) -> None:
        """Refuse packets of senders that are not answered; a session whose sender is known is decided on once."""
        fresh = (arrivals.bucket == UNADMITTED) & verdict.good
        rows = np.flatnonzero(fresh)
        admission = self._known.admit(received.address[rows], received.port[rows])
        arrivals.bucket[rows] = admission.bucket
        for reason, refused in admission.refused.items():
            verdict.refuse_rows(rows[refused & verdict.good[rows]], reason)
        arrivals.fresh = fresh
        if admission.stranger.any():
            arrivals.stranger = np.zeros(len(fresh), dtype=np.bool_)
            arrivals.stranger[rows] = admission.stranger

    def _limit(self, verdict: BatchVerdict, now_ns: int) -> None:
        """Refuse what goes beyond the answers per second."""
        wanted = int(np.count_nonzero(verdict.good))
        granted = self._rate.granted(wanted, now_ns)
        if granted < wanted:
            verdict.refuse_rows(np.flatnonzero(verdict.good)[granted:], BatchVerdict.RATE)

    def _check_macs(self, data: UInt8s, mac: Mac, verdict: BatchVerdict) -> None:
        good = np.flatnonzero(verdict.good)
        heads = data[good, : self._mode.base_bytes]
        right = macs_equal(heads[:, -MAC_BYTES:], mac.of_base(heads, self._mode))
        verdict.refuse_rows(good[~right], BatchVerdict.HMAC)

    def _head(self, out: UInt8s, received: Received, rows: Rows, arrival: _Arrival) -> None:
        """Turn base packets of probes into base packets of answers, but for T3 and HMAC."""
        probe = fields(out[:, : self._mode.base_bytes].copy(), self._mode.probe)
        out[:, : self._mode.base_bytes] = 0
        answer = fields(out, self._mode.answer)
        answer["seq"] = probe["seq"]
        answer["error"] = self._error
        answer["ssid"] = probe["ssid"]
        answer["t2"] = packet.stamp_of(self._clock.reading(arrival.at_ns), self._error)
        answer["sender_seq"] = probe["seq"]
        answer["sender_t1"] = probe["t1"]
        answer["sender_error"] = probe["error"]
        answer["ttl"] = received.ttl[rows]

    def _body(
        self, out: UInt8s, received: Received, rows: Rows, arrivals: Arrivals, arrival: _Arrival, token: Int64s,
        now_ns: int,
    ) -> UInt8s:  # fmt: skip
        """TLVs and session state; fills `token`, returns the TOS octets of the answers."""
        head = fields(out, self._mode.answer)
        length, tos = received.length[rows], received.tos[rows]
        ours = tlv.arranged(out, length, self._mode)
        row = self._inbound.find(
            arrivals,
            received.socket[rows],
            received.address[rows].view(np.uint64),
            received.port[rows].astype(np.int64),
            self._tlvs.class_sent(out, ours, tos),
            now_ns,
        )
        seq = head["seq"].astype(np.int64)
        named = row if self._stateful else np.full(len(row), -1)
        rank = self._inbound.rank(named)
        number = np.where(named >= 0, self._inbound.number(named, rank), seq)
        follow_up, present = self._inbound.next_follow_ups(named, rank)
        stamps = packet.stamp_of(self._clock.reading(follow_up["at_ns"]), self._error)
        facts = ProbeFacts(
            seq=number,
            tos=tos,
            method_in=tlv.METHOD_OF_KIND[arrival.kind],
            fu_seq=np.where(present, follow_up["seq"], np.uint32(0)),
            fu_word=np.where(present, stamps, np.uint64(0)),
            fu_mode=np.where(present, tlv.METHOD_OF_KIND[follow_up["kind"]], np.uint8(0)),
        )
        leaves_with = self._tlvs.answer(out, length, ours, facts)
        name = self._inbound.generation[named] << _ROW_BITS | named
        token[:] = np.where(named >= 0, name << 32 | number, -1)
        self._inbound.take_probes(row, seq, now_ns)
        return leaves_with

    def seal(self, answers: ToSend, system_ns: int) -> None:
        """Write T3 = `system_ns` (through the virtual clock) and the HMACs; to be called right before sending."""
        if not len(answers.length):
            return
        head: Fields = fields(answers.data, self._mode.answer)
        shown = self._clock.reading(np.array([system_ns], dtype=np.int64))
        head["t3"] = packet.stamp_of(shown, self._error)[0]
        if self._mac is not None:
            base = self._mode.base_bytes
            answers.data[:, base - MAC_BYTES : base] = self._mac.of_base(answers.data, self._mode)

    def take_tx_stamps(self, stamps: TxStamps) -> None:
        """Take TX stamps of answers; the latest of each session goes into its next answer."""
        named = stamps.token >> 32
        row = named & ((1 << _ROW_BITS) - 1)
        good = (stamps.at_ns != ABSENT_NS) & (stamps.kind != _NONE) & (stamps.kind != _USER)
        good &= (stamps.token >= 0) & (row < len(self._inbound.generation))
        row = np.where(good, row, 0)
        good &= self._inbound.generation[row] == named >> _ROW_BITS
        self._inbound.store_follow_ups(
            row[good], stamps.token[good] & 0xFFFF_FFFF, stamps.at_ns[good], stamps.kind[good]
        )

    def follow_up_due_ns(self, now_ns: int) -> int:
        """How long TX stamps may stay unread so that each is there for its session's next answer; 0: not known."""
        return self._inbound.shortest_interval_ns(now_ns, NS_PER_S) // 3

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        """A NIC can or cannot receive; what it observes is unknown while it cannot."""
        mine = [i for i, name in enumerate(self.path_liveness.names) if name.observer == nic]
        self.path_liveness.set_usable(np.array(mine, dtype=np.int64), usable, now_ns)

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool = False) -> list[dict[str, Any]]:
        """Assess all inbound paths; entries of those that changed state since the last call, or of all (`complete`)."""
        return self.path_liveness.assess(now_ns, system_ns, complete=complete)


class _Arrival:
    """When the probes in `rows` arrived, and the kind of that stamp; user space where there is no stamp."""

    __slots__ = ("at_ns", "kind")
    at_ns: Int64s
    kind: UInt8s

    def __init__(self, received: Received, rows: Rows) -> None:
        self.at_ns, self.kind = received.at_ns[rows], received.kind[rows]
        if (self.kind != _KERNEL).any() or self.at_ns.min() == ABSENT_NS:
            user = (self.kind == _USER) | (self.kind == _NONE) | (self.at_ns == ABSENT_NS)
            self.at_ns = np.where(user, received.user_at_ns, self.at_ns)
            self.kind = np.where(user, _USER, self.kind)
