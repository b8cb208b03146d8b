"""Finished exchanges to rows of ``sdf.raw.probe.v1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.probes.config import HostConfig, SessionConfig
from sdfstream.probes.stamp import exchanges as ex
from sdfstream.probes.stamp import packet, tlv
from sdfstream.probes.stamp.packet import Fields
from sdfstream.probes.stamp.paths import Paths, clock_of_far_end
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.arrow import coded, column, text
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Bools, Int32s, Int64s, StampKind, UInt8s
from sdfstream.stats import Counters

_INT32: Final = np.iinfo(np.int32)
_FIELDS: Final = tuple(PROBE.columns or ())
_ANSWERED: Final = ("t2_ns", "t3_ns", "t4_ns", "dscp_rev", "ecn_rev", "seq_rev")
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
        self._before_ns: int | None = None
        self._clock = clock
        self._host = host
        self.adopt(paths)

    def adopt(self, paths: Paths) -> None:
        """Write rows of these paths from now on: the old ones under their numbers, and perhaps more."""
        self._paths = paths
        self._names = RowNames(self._host, paths.sessions)

    def finished(self, exchanges: ex.Exchanges, now_ns: int) -> pa.RecordBatch | None:
        """Rows of all exchanges finished by `now_ns` (steady clock), in order of sending; None: none."""
        # a limit counts once it had passed at the call before: after a stall what lies in the sockets is read first
        passed_ns = now_ns if self._before_ns is None else self._before_ns
        self._before_ns = now_ns
        sent = np.flatnonzero(exchanges.state == ex.SENT)
        lost = sent[passed_ns - exchanges.sent_at[sent] >= exchanges.timeout_ns[exchanges.path[sent]]]
        done = self._settled(exchanges, np.flatnonzero(exchanges.state == ex.ANSWERED), passed_ns)
        if not len(lost) and not len(done):
            return None
        exchanges.state[done] = ex.DONE
        exchanges.state[lost] = ex.LOST
        slot = np.concatenate([done, lost])
        path, seq = exchanges.path[slot], exchanges.seq[slot]
        order = np.lexsort((seq, path, exchanges.sent_at[slot]))
        return self._write(exchanges, slot[order], (np.arange(len(slot)) < len(done))[order])

    def _settled(self, exchanges: ex.Exchanges, slot: Int64s, passed_ns: int) -> Int64s:
        """Answered exchanges whose stamps have all come, or are not waited for any more."""
        _, _, came = exchanges.follow_ups(slot)
        settled = came & (exchanges.t1_kind[slot] != StampKind.NONE)
        waited = passed_ns - exchanges.arrival["answered_at"][slot]
        settled |= waited >= exchanges.wait_ns[exchanges.path[slot]]
        result: Int64s = slot[settled]
        return result

    def _write(self, exchanges: ex.Exchanges, slot: Int64s, answered: Bools) -> pa.RecordBatch:
        path = exchanges.path[slot]
        answer, extension, arrival = exchanges.answer[slot], exchanges.extension[slot], exchanges.arrival[slot]
        near = _near_stamps(exchanges, slot, arrival, answered)
        far = self._far_stamps(exchanges, slot, answer, extension, answered)
        values = (
            self._times(near, far)
            | _marks(self._paths.tos[path], answer, extension, arrival)
            | {
                "path": self._paths.source_port[path].astype(np.uint32),
                "seq": exchanges.seq[slot].astype(np.uint32),
                "seq_rev": answer["seq"].astype(np.uint32),
                "size_bytes": self._paths.size_bytes[path],
                "tx_host_ns": _clipped(near.t1_ns - exchanges.t1_user[slot]),
                "rx_host_ns": _clipped(arrival["t4_user"] - near.t4_ns),
            }
        )
        classed = extension["cos_head"] == tlv.COS_HEAD
        named = self._names.columns(self._paths.session[path], near.hardware, far.t2_kind == StampKind.HARDWARE)
        return batch_of(values, named, classed, answered)

    def _times(self, near: _Near, far: _Far) -> dict[str, npt.NDArray[Any]]:
        clock = self._clock
        return {
            "t1_ns": near.t1_ns if clock.true else clock.reading(near.t1_ns),
            "t2_ns": far.t2_ns,
            "t3_ns": far.t3_ns,
            "t4_ns": near.t4_ns if clock.true else clock.reading(near.t4_ns),
            "t1_kind": near.t1_kind,
            "t2_kind": far.t2_kind,
            "t3_kind": far.t3_kind,
            "t4_kind": near.t4_kind,
        }

    def _far_stamps(
        self, exchanges: ex.Exchanges, slot: Int64s, answer: Fields, extension: Fields, answered: Bools
    ) -> _Far:
        informed = extension["ti_head"] == tlv.TI_HEAD
        method = np.where(informed, extension["method_in"], np.uint8(tlv.Method.NONE))
        t2_kind = tlv.KIND_OF_METHOD[method]
        t2_ns = packet.ns_of(answer["t2"], answer["error"])
        follow_up, error, came = exchanges.follow_ups(slot)
        t3_kind = tlv.KIND_OF_METHOD[follow_up["fu_mode"]]
        t3_ns = packet.ns_of(follow_up["fu_at"], error)
        came &= answered
        came &= self._plausible(t3_ns - t2_ns, t2_kind, t3_kind, came)
        return _Far(
            t2_ns=t2_ns,
            t3_ns=np.where(came, t3_ns, packet.ns_of(answer["t3"], answer["error"])),
            t2_kind=np.where(answered, t2_kind, np.uint8(StampKind.NONE)),
            t3_kind=np.where(answered, np.where(came, t3_kind, np.uint8(StampKind.USER)), np.uint8(StampKind.NONE)),
        )

    def _plausible(self, stay_ns: Int64s, t2_kind: UInt8s, t3_kind: UInt8s, came: Bools) -> Bools:
        """Which follow-ups may be this answer's: made by the clock that made t2, and not long after it."""
        same_clock = (t2_kind == StampKind.HARDWARE) == (t3_kind == StampKind.HARDWARE)
        result: Bools = same_clock & (stay_ns >= 0) & (stay_ns <= FOLLOW_UP_LIMIT_NS)
        self._counters.add("refused", "follow-up", int(np.count_nonzero(came & ~result)))
        return result


@dataclass(slots=True)
class _Far:
    """Stamps of the other end, by its own clock."""

    t2_ns: Int64s
    t3_ns: Int64s
    t2_kind: UInt8s
    t3_kind: UInt8s


@dataclass(slots=True)
class _Near:
    """Stamps of this end, t1 and t4 by one clock."""

    t1_ns: Int64s
    t4_ns: Int64s
    t1_kind: UInt8s
    t4_kind: UInt8s
    hardware: Bools
    """Where that clock is the NIC's."""


def _near_stamps(exchanges: ex.Exchanges, slot: Int64s, arrival: Fields, answered: Bools) -> _Near:
    held = exchanges.t1_kind[slot]
    t1_hard = held == StampKind.HARDWARE
    t4_hard = arrival["t4_kind"] == StampKind.HARDWARE
    hardware = t1_hard & (t4_hard | ~answered)
    t1_user = (held == StampKind.NONE) | (t1_hard & ~hardware)
    t4_user = t4_hard & ~hardware
    t1_kind = np.where(t1_user, np.uint8(StampKind.USER), held)
    t4_kind = np.where(t4_user, np.uint8(StampKind.USER), arrival["t4_kind"])
    return _Near(
        t1_ns=np.where(t1_user, exchanges.t1_user[slot], exchanges.t1_at[slot]),
        t4_ns=np.where(answered, np.where(t4_user, arrival["t4_user"], arrival["t4_at"]), ABSENT_NS),
        t1_kind=t1_kind,
        t4_kind=np.where(answered, t4_kind, np.uint8(StampKind.NONE)),
        hardware=hardware,
    )


def _marks(tos: UInt8s, answer: Fields, extension: Fields, arrival: Fields) -> dict[str, npt.NDArray[Any]]:
    """DSCP, ECN and TTL: as sent, as the probe arrived (forward) and as the answer arrived (reverse)."""
    cos = extension["cos"]
    return {
        "dscp_sent": tos >> 2,
        "ecn_sent": tos & 3,
        "dscp_fwd": (cos >> 20 & 63).astype(np.uint8),
        "ecn_fwd": (cos >> 18 & 3).astype(np.uint8),
        "dscp_rev": arrival["tos"] >> 2,
        "ecn_rev": arrival["tos"] & 3,
        "ttl_fwd": answer["ttl"],
        "ttl_rev": arrival["ttl"],
    }


def _present(values: Mapping[str, npt.NDArray[Any]], classed: Bools, answered: Bools) -> dict[str, Bools]:
    """Where the columns that may be null have a value; `classed`: where a Class of Service TLV came.

    A delay inside this host is one where both readings are the system clock's.
    """
    classed = answered & classed
    return dict.fromkeys(_ANSWERED, answered) | {
        "dscp_fwd": classed,
        "ecn_fwd": classed,
        "ttl_fwd": answered & (values["ttl_fwd"] != 0),
        "ttl_rev": answered & (values["ttl_rev"] != 0),
        "tx_host_ns": values["t1_kind"] == StampKind.KERNEL,
        "rx_host_ns": answered & (values["t4_kind"] == StampKind.KERNEL),
    }


def batch_of(
    values: Mapping[str, npt.NDArray[Any]], named: Mapping[str, pa.Array], classed: Bools, answered: Bools
) -> pa.RecordBatch:
    """The rows of finished exchanges: `values` and `named` together are the columns.

    `answered`: which probes were answered; `classed`: to which of these a Class of Service TLV came back.
    """
    arrays = {**columns_of(values, classed, answered), **named}
    return pa.RecordBatch.from_arrays([arrays[field.name] for field in _FIELDS], schema=PROBE.columns)


def columns_of(values: Mapping[str, npt.NDArray[Any]], classed: Bools, answered: Bools) -> dict[str, pa.Array]:
    """The columns that are no names, as `batch_of` has them."""
    present = _present(values, classed, answered)
    return {
        field.name: column(values[field.name], field.type, present.get(field.name))
        for field in _FIELDS
        if field.name in values
    }


def _clipped(delay_ns: Int64s) -> Int32s:
    return np.clip(delay_ns, _INT32.min, _INT32.max).astype(np.int32)


class NameColumn:
    """A dictionary column whose dictionary is built once: code to name, None for null."""

    def __init__(self, names: Sequence[str | None]) -> None:
        entries = sorted({n for n in names if n is not None})
        index = {name: i for i, name in enumerate(entries)}
        self.indices: Int32s = np.array([-1 if n is None else index[n] for n in names], dtype=np.int32)
        """Of each code, its name's place in the dictionary; −1: null."""
        self.entries = text(entries)
        """The dictionary."""

    def column(self, code: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The names of `code` (n,) as dictionary<int32, utf8>."""
        return coded(self.indices[code], self.entries)


class RowNames:
    """The columns of names in the rows of one host's sessions."""

    def __init__(self, host: HostConfig, sessions: Sequence[SessionConfig]) -> None:
        planes = {nic.nic: nic.plane for nic in host.nics}
        far = [clock_of_far_end(s, hardware=hardware) for hardware in (False, True) for s in sessions]
        self._sessions = len(sessions)
        self.columns_of_names = {
            "src": NameColumn([s.src for s in sessions]),
            "dst": NameColumn([s.dst for s in sessions]),
            "clock_src": NameColumn([host.host, *(s.src for s in sessions)]),
            "clock_dst": NameColumn(far),
            "transport": NameColumn([s.transport for s in sessions]),
            "plane": NameColumn([planes.get(s.src) for s in sessions]),
        }

    def codes(self, session: Int64s, hardware: Bools, far_hardware: Bools) -> dict[str, Int64s]:
        """The codes in `columns_of_names` of rows of these sessions; see `columns`."""
        return {
            "src": session,
            "dst": session,
            "clock_src": np.where(hardware, session + 1, 0),
            "clock_dst": session + far_hardware * self._sessions,
            "transport": session,
            "plane": session,
        }

    def columns(self, session: Int64s, hardware: Bools, far_hardware: Bools) -> dict[str, pa.Array]:
        """Of rows of these sessions; where t1 and t4, and where t2, are a NIC's stamps."""
        codes = self.codes(session, hardware, far_hardware)
        return {name: column.column(codes[name]) for name, column in self.columns_of_names.items()}
