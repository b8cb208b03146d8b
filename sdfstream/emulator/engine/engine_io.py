"""The job in C as a Python object: made from a plan, without I/O where a test drives it, asked for its figures."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.emulator.engine import layouts
from sdfstream.emulator.engine.library_io import SINK, library
from sdfstream.emulator.qp_chunk import CarriedChunk
from sdfstream.emulator.qp_header import ChunkReport
from sdfstream.emulator.rank_job import OutgoingDatagram
from sdfstream.emulator.rank_plan import JobPlan, QpPlan
from sdfstream.errors import ConfigError
from sdfstream.records.units import Ecn
from sdfstream.stats import Counters

Records = npt.NDArray[Any]
_ROWS: Final = 1_024


class NativeJob:
    """As `rank_job.JobEngine`, in C; given the same calls both send the same octets.

    Parameters
    ----------
    plan : JobPlan
    run : int
        Number of this run, 32 random bits.
    now_ns : int
        Any steady clock; the same one in all calls.

    Raises
    ------
    UnavailableError
        There is no library.
    ConfigError
        It does not take such a job.
    """

    def __init__(self, plan: JobPlan, run: int, now_ns: int) -> None:
        self.plan = plan
        self.library = library()
        self._qps = np.array(
            [(qp.number, qp.rank, qp.peer_rank, qp.ports[0]) for qp in plan.qps], dtype=layouts.QP_PLAN
        )
        config = _config(plan, run, now_ns)
        self.address: Any = self.library.je_new(config.ctypes.data, self._qps.ctypes.data)
        if not self.address:
            raise ConfigError(f"job {plan.spec.name}: the data plane in C does not take it")

    def close(self) -> None:
        """Free it; nothing else may be called then."""
        if self.address:
            self.library.je_free(self.address)
            self.address = None

    def receive(self, rank: int, source_port: int, tos: int, at_ns: int, packet: bytes, now_ns: int) -> None:
        """A datagram arrived at the NIC of `rank` at `at_ns` (host's clock)."""
        self.library.je_receive(self.address, rank, source_port, tos, at_ns, packet, len(packet), now_ns)

    def step(self, now_ns: int) -> list[OutgoingDatagram]:
        """Acknowledge, continue collectives, send: the datagrams that are to leave now, rank by rank."""
        out: list[OutgoingDatagram] = []

        def take(_: int, at: int) -> None:
            found = np.frombuffer(ctypes.string_at(at, layouts.DATAGRAM.itemsize), dtype=layouts.DATAGRAM)[0]
            payload = ctypes.string_at(int(found["payload"]), int(found["octets"]))
            rank, peer, port, tos, asks, qp, chunk = found.tolist()[:7]

            def departed(at_ns: int) -> None:
                self.library.je_departed(self.address, qp, asks, chunk, port, at_ns)

            out.append(OutgoingDatagram(rank, peer, port, tos, payload, departed if asks else None))

        self.library.je_step(self.address, now_ns, SINK(take), None)
        out.sort(key=lambda item: item.rank)
        return out

    def next_ns(self, now_ns: int) -> int:
        """When `step` has something to do if nothing arrives."""
        return int(self.library.je_next_ns(self.address, now_ns))

    def steer(self, qp: int, path: int, now_ns: int) -> None:
        """Move the queue pair of this index."""
        self.library.je_steer(self.address, qp, path, now_ns)

    def limit(self, qp: int, rate_bps: int | None) -> None:
        """Limit the queue pair of this index; None: not any more."""
        self.library.je_limit(self.address, qp, rate_bps or 0)

    @property
    def is_done(self) -> bool:
        """Whether every rank has done its last collective."""
        return bool(self.reports()[0]["done"])

    def reports(self) -> tuple[Records, Records]:
        """(report, a report of each queue pair)."""
        report, qps = empty_reports(self.plan)
        self.library.je_reported(self.address, report.ctypes.data, qps.ctypes.data)
        return report[0], qps

    def stats(self) -> dict[str, Any]:
        """Figures since the start, as `JobEngine.stats`."""
        report, qps = self.reports()
        return stats(self.plan, report, qps, Counters("job"))

    def take_rows(self) -> list[tuple[QpPlan, CarriedChunk]]:
        """The chunks carried since the last call."""
        return take_rows(self.plan, self.library.je_take_rows, self.address)


def empty_reports(plan: JobPlan) -> tuple[Records, Records]:
    """Room for (a report, a report of each queue pair)."""
    return np.zeros(1, dtype=layouts.REPORT), np.zeros(len(plan.qps), dtype=layouts.QP_REPORT)


def stats(plan: JobPlan, report: Any, qps: Records, counters: Counters) -> dict[str, Any]:
    """Figures as `JobEngine.stats` has them; `counters` are those of the sockets, and get those of the job."""
    refusals = report["refusals"].tolist()
    for reason, n in zip(layouts.REFUSALS, refusals, strict=True):
        if reason == "doubled":
            counters.add("doubled", n=n)
        elif reason:
            counters.add("refused", reason, n)
    counters.add("rows-shed", n=int(report["rows_shed"]))
    by_qp = {name: int(qps[name].sum()) for name in qps.dtype.names or () if name != "window_packets"}
    return {
        "collectives": int(report["collectives"]),
        "checked_right": int(report["right"]),
        "checked_wrong": int(report["ended"] - report["right"]),
        "payload_bytes": int(report["payload_octets"]),
        "doubled_chunks": counters.get("doubled"),
        "rescued_chunks": int(report["rescued"]),
        "duplicate_packets": by_qp["duplicates"],
        "retransmits": by_qp["retransmits"],
        "time_outs": by_qp["time_outs"],
        "refused": counters.total("refused") + by_qp["requester_refused"] + by_qp["responder_refused"],
        "counters": counters.as_dict(),
        "qps": [_qp_stats(qp, one) for qp, one in zip(plan.qps, qps, strict=True)],
    }


def take_rows(plan: JobPlan, take: Any, address: Any) -> list[tuple[QpPlan, CarriedChunk]]:
    """The chunks that `take` hands out."""
    chunks: list[tuple[QpPlan, CarriedChunk]] = []
    rows = np.zeros(_ROWS, dtype=layouts.ROW)
    n = _ROWS
    while n == _ROWS:
        n = take(address, rows.ctypes.data, _ROWS)
        chunks += [(plan.qps[row[0]], _carried(row)) for row in rows[:n].tolist()]
    return chunks


def _carried(row: tuple[int, ...]) -> CarriedChunk:
    _, chunk, collective, octets, packets, retransmits, path, ce, sent_at_ns, acknowledged_at_ns, arrived, completed = (
        row
    )
    report = None if arrived == layouts.NONE_NS else ChunkReport(chunk, ce, arrived, completed)
    return CarriedChunk(chunk, collective, octets, path, packets, retransmits, sent_at_ns, acknowledged_at_ns, report)


def _config(plan: JobPlan, run: int, now_ns: int) -> Records:
    spec = plan.spec
    config = np.zeros(1, dtype=layouts.CONFIG)
    values = {
        "octets": layouts.CONFIG.itemsize,
        "run": run,
        "ranks": len(plan.nics),
        "qps": len(plan.qps),
        "collective": layouts.KINDS.index(spec.collective),
        "elements": spec.elements,
        "chunk_elements": spec.chunk_elements,
        "tos_data": spec.dscp << 2 | Ecn.ECT0,
        "tos_ack": spec.dscp << 2,
        "collectives": spec.collectives or 0,
        "rate_bps": spec.rate_bps or 0,
        "now_ns": now_ns,
    }
    for name, value in values.items():
        config[name] = value
    return config


def _qp_stats(qp: QpPlan, one: Any) -> dict[str, Any]:
    moved_at_ns = int(one["moved_at_ns"])
    return {
        "qp": qp.id,
        "rank": qp.rank,
        "peer_rank": qp.peer_rank,
        "path": int(one["path"]),
        "rate_bps": int(one["rate_bps"]) or None,
        "sent_bytes": int(one["sent_octets"]),
        "acknowledged_bytes": int(one["acknowledged_octets"]),
        "retransmits": int(one["retransmits"]),
        "time_outs": int(one["time_outs"]),
        "moved_at_ns": None if moved_at_ns == layouts.NONE_NS else moved_at_ns,
        "rtt_ns": int(one["rtt_ns"]),
        "window_packets": round(float(one["window_packets"]), 1),
    }
