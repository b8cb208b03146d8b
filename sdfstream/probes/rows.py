"""Finished exchanges to rows of ``sdf.raw.probe.v1``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.probes import exchanges as ex
from sdfstream.probes import stamp, tlv
from sdfstream.probes.arrow import Names, column
from sdfstream.probes.config import HostConfig
from sdfstream.probes.paths import Paths, clock_of_far_end
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Int32s, Int64s, StampKind, UInt8s
from sdfstream.stats import Counters

_INT32: Final = np.iinfo(np.int32)
_FIELDS: Final = tuple(PROBE.columns or ())
_ANSWERED: Final = ("t2_ns", "t3_ns", "t4_ns", "dscp_rev", "ecn_rev")
"""Columns that are null in the row of an unanswered probe, and in no other."""
FOLLOW_UP_LIMIT_NS: Final = 10 * NS_PER_S
"""A follow-up says when the answer left; it must lie this close behind t2."""


class RowWriter:
    """Takes finished exchanges out of the rings of one host and writes their rows.

    Notes
    -----
    A clock column names one clock for two stamps. Where only one of t1 and t4 is the NIC's, its stamp is replaced by
    the user-space reading (kind 0), so that both are the host's clock.
    """

    def __init__(self, host: HostConfig, paths: Paths, clock: Clock, counters: Counters) -> None:
        self._counters = counters
        self._paths = paths
        self._clock = clock
        planes = {nic.nic: nic.plane for nic in host.nics}
        sessions = paths.sessions
        self._src = Names([s.src for s in sessions])
        self._dst = Names([s.dst for s in sessions])
        self._host = host.host
        self._clock_src = Names([host.host, *(s.src for s in sessions)])
        far = [clock_of_far_end(s, hardware=hardware) for hardware in (False, True) for s in sessions]
        self._clock_dst = Names(far)
        self._plane = Names([planes.get(s.src) for s in sessions])

    def finished(self, exchanges: ex.Exchanges, now_ns: int) -> pa.RecordBatch | None:
        """Rows of all exchanges finished by `now_ns` (steady clock), in order of sending; None: none."""
        ring = exchanges.ring
        sent = np.flatnonzero(exchanges.state == ex.SENT)
        lost = sent[now_ns - exchanges.sent_at[sent] >= exchanges.timeout_ns[ring["path"][sent]]]
        open_ = np.flatnonzero(exchanges.state == ex.ANSWERED)
        follow_up, told = self._follow_ups(exchanges, open_)
        path = ring["path"][open_]
        settled = told & (ring["t1_kind"][open_] != StampKind.NONE)
        settled |= now_ns - ring["answered_at"][open_] >= exchanges.wait_ns[path]
        done = open_[settled]
        if not len(lost) and not len(done):
            return None
        slot = np.concatenate([done, lost])
        answered = np.arange(len(slot)) < len(done)
        told = np.concatenate([told[settled], np.zeros(len(lost), dtype=np.bool_)])
        follow_up = np.concatenate([follow_up[settled], np.zeros(len(lost), dtype=ex.FOLLOW_UP)])
        taken = ring[slot]
        order = np.lexsort((taken["seq"], taken["path"], taken["sent_at"]))
        exchanges.state[done] = ex.DONE
        exchanges.state[lost] = ex.LOST
        return self._write(taken[order], answered[order], follow_up[order], told[order])

    def _follow_ups(self, exchanges: ex.Exchanges, slot: Int64s) -> tuple[npt.NDArray[np.void], Bools]:
        """The follow-up of each answered exchange, and whether it came."""
        seq = exchanges.ring["reflector_seq"][slot]
        follow_up = exchanges.follow_ups[exchanges.slot(exchanges.answered_path(slot), seq)]
        return follow_up, (follow_up["word"] != 0) & (follow_up["seq"] == seq)

    def _write(
        self, taken: npt.NDArray[np.void], answered: Bools, follow_up: npt.NDArray[np.void], told: Bools
    ) -> pa.RecordBatch:
        paths = self._paths
        path = taken["path"]
        session = paths.session[path]
        near = _near_stamps(taken, answered)
        t2_kind = np.where(answered, tlv.KIND_OF_METHOD[taken["method_in"]], np.uint8(StampKind.NONE))
        t2_ns = stamp.ns_of(taken["t2_word"], taken["error"])
        t3_kind = tlv.KIND_OF_METHOD[follow_up["mode"]]
        t3_ns = stamp.ns_of(follow_up["word"], follow_up["error"])
        told &= self._plausible(t3_ns - t2_ns, t2_kind, t3_kind, told)
        t3_kind = np.where(told, t3_kind, np.uint8(StampKind.USER))
        t3_ns = np.where(told, t3_ns, stamp.ns_of(taken["t3_word"], taken["error"]))
        classed = answered & (taken["cos_head"] != 0)
        cos = taken["cos"]
        tos = paths.tos[path]
        far_hardware = t2_kind == StampKind.HARDWARE
        present = {name: answered for name in _ANSWERED} | {
            "dscp_fwd": classed,
            "ecn_fwd": classed,
            "ttl_fwd": answered & (taken["ttl_fwd"] != 0),
            "ttl_rev": answered & (taken["ttl_rev"] != 0),
            "tx_host_ns": near.tx_host,
            "rx_host_ns": near.rx_host,
        }
        values = {
            "path": paths.source_port[path].astype(np.uint32),
            "seq": taken["seq"],
            "t1_ns": self._clock.reading(near.t1_ns),
            "t2_ns": t2_ns,
            "t3_ns": t3_ns,
            "t4_ns": self._clock.reading(near.t4_ns),
            "t1_kind": near.t1_kind,
            "t2_kind": t2_kind,
            "t3_kind": np.where(answered, t3_kind, np.uint8(StampKind.NONE)),
            "t4_kind": near.t4_kind,
            "dscp_sent": tos >> 2,
            "ecn_sent": tos & 3,
            "dscp_fwd": (cos >> 20 & 63).astype(np.uint8),
            "ecn_fwd": (cos >> 18 & 3).astype(np.uint8),
            "dscp_rev": taken["tos_rev"] >> 2,
            "ecn_rev": taken["tos_rev"] & 3,
            "size_bytes": paths.size_bytes[path],
            "ttl_fwd": taken["ttl_fwd"],
            "ttl_rev": taken["ttl_rev"],
            "tx_host_ns": _clipped(near.t1_ns - taken["t1_user"]),
            "rx_host_ns": _clipped(taken["t4_user"] - near.t4_ns),
        }
        named = {
            "src": self._src.column(session),
            "dst": self._dst.column(session),
            "clock_src": self._clock_src.column(np.where(near.hardware, session + 1, 0)),
            "clock_dst": self._clock_dst.column(session + far_hardware * len(paths.sessions)),
            "transport": _UDP.column(np.zeros(len(path), dtype=np.int32)),
            "plane": self._plane.column(session),
        }
        arrays = [
            named[field.name]
            if field.name in named
            else column(values[field.name], field.type, present.get(field.name))
            for field in _FIELDS
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PROBE.columns)

    def _plausible(self, stay_ns: Int64s, t2_kind: UInt8s, t3_kind: UInt8s, told: Bools) -> Bools:
        """Follow-ups that may be this answer's: made by the clock that made t2, and not long after it."""
        same_clock = (t2_kind == StampKind.HARDWARE) == (t3_kind == StampKind.HARDWARE)
        result: Bools = same_clock & (stay_ns >= 0) & (stay_ns <= FOLLOW_UP_LIMIT_NS)
        self._counters.add("refused", "follow-up", int(np.count_nonzero(told & ~result)))
        return result


class _Near:
    """Stamps of this end: t1 and t4 on one clock, and the delays inside this host."""

    __slots__ = ("hardware", "rx_host", "t1_kind", "t1_ns", "t4_kind", "t4_ns", "tx_host")
    hardware: Bools
    t1_ns: Int64s
    t4_ns: Int64s
    t1_kind: UInt8s
    t4_kind: UInt8s
    tx_host: Bools
    """Where the delay inside this host before sending can be told: both readings are the system clock's."""
    rx_host: Bools


def _near_stamps(taken: npt.NDArray[np.void], answered: Bools) -> _Near:
    t1_hard = taken["t1_kind"] == StampKind.HARDWARE
    t4_hard = taken["t4_kind"] == StampKind.HARDWARE
    near = _Near()
    near.hardware = t1_hard & (t4_hard | ~answered)
    t1_user = (taken["t1_kind"] == StampKind.NONE) | (t1_hard & ~near.hardware)
    t4_user = t4_hard & ~near.hardware
    near.t1_ns = np.where(t1_user, taken["t1_user"], taken["t1_at"])
    near.t1_kind = np.where(t1_user, np.uint8(StampKind.USER), taken["t1_kind"])
    near.t4_ns = np.where(answered, np.where(t4_user, taken["t4_user"], taken["t4_at"]), ABSENT_NS)
    kind = np.where(t4_user, np.uint8(StampKind.USER), taken["t4_kind"])
    near.t4_kind = np.where(answered, kind, np.uint8(StampKind.NONE))
    near.tx_host = near.t1_kind == StampKind.KERNEL
    near.rx_host = answered & (near.t4_kind == StampKind.KERNEL)
    return near


def _clipped(delay_ns: Int64s) -> Int32s:
    return np.clip(delay_ns, _INT32.min, _INT32.max).astype(np.int32)


_UDP = Names(["udp"])
