"""What a process says of its real queue pairs: the answer to ``list`` and the file in the drop directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from sdfstream.records.fabric import QueuePair, host_of
from sdfstream.records.job import FILE_VERSION, JobShard, Rank
from sdfstream.verbs.udp_port import LEAST_PORT


class Described(Protocol):
    """A queue pair that can say where it sends (`live_qp_io.LiveQp`)."""

    number: int
    peer_number: int
    path: int
    rate_bps: int | None
    dscp: int
    src_address: str
    dst_address: str
    dst_port: int


@dataclass(frozen=True, slots=True)
class Registration:
    """What the program said when it registered a queue pair."""

    src: str
    """NIC id that sends."""
    dst: str
    """NIC id that receives."""
    rank: int = 0
    peer_rank: int = 0
    answer_path: int | None = None
    """Source port of the far end's acknowledgements; None: the same as the pair's, wherever that is moved to."""
    alternates: tuple[int, ...] = ()

    def id(self, number: int) -> str:
        """QP id."""
        return f"{self.src}#{number}"


def alternates(path: int, count: int) -> tuple[int, ...]:
    """Source ports that a queue pair on `path` may be moved to: its neighbours, within those of RoCEv2.

    >>> alternates(65534, 3)
    (65535, 49152, 49153)
    """
    span = 0x10000 - LEAST_PORT
    return tuple(LEAST_PORT + (path - LEAST_PORT + step) % span for step in range(1, min(count, span - 1) + 1))


def queue_pair(about: Registration, qp: Described, *, can_steer: bool) -> QueuePair:
    """A queue pair as the job map has it; one that may be moved nowhere cannot be steered."""
    can_steer = can_steer and bool(about.alternates)
    return QueuePair(
        qp=about.id(qp.number),
        rank=about.rank,
        peer_rank=about.peer_rank,
        src=about.src,
        dst=about.dst,
        dst_address=qp.dst_address,
        path=qp.path,
        dst_port=qp.dst_port,
        transport="rocev2",
        dscp=qp.dscp,
        answer_path=about.answer_path,
        steering="socket" if can_steer else "none",
        alternates=about.alternates if can_steer else (),
        rate_bps=qp.rate_bps,
        src_address=qp.src_address,
        peer_qp=f"{about.dst}#{qp.peer_number}",
    )


def shard(job: str, host: str, pid: int, since_at_ns: int, pairs: Iterable[QueuePair], control: str) -> JobShard:
    """The calling process's share of a job on `host`."""
    sends = tuple(pair for pair in pairs if host_of(pair.src) == host)
    nics: dict[int, tuple[str, ...]] = {}
    for pair in sends:
        nics[pair.rank] = tuple(dict.fromkeys((*nics.get(pair.rank, ()), pair.src)))
    ranks = tuple(Rank(rank, names, pid) for rank, names in sorted(nics.items()))
    return JobShard(job, host, since_at_ns=since_at_ns, source="process", ranks=ranks, qps=sends, control=control)


def drop_file(of: JobShard) -> dict[str, Any]:
    """Content of the file that makes the job known to its agent; queue pairs come from the control socket."""
    ranks = [{"rank": r.rank, "nics": list(r.nics), "pid": r.pid} for r in of.ranks]
    named = {"job": of.job, "host": of.host, "since_at_ns": of.since_at_ns}
    return {"version": FILE_VERSION, **named, "ranks": ranks, "control": of.control}
