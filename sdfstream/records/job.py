"""Jobs as the network sees them: job → ranks → NICs → queue pairs, published host by host.

A `JobShard` is one host's share of a job; a job is the union of its shards. It is the `data` of ``sdf.state.job.v1``
(key ``job@host``), and, without the fields that an agent fills in, the content of a file in an agent's drop directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sdfstream.errors import FormatError
from sdfstream.records.fabric import QueuePair

FILE_VERSION: Final = 1
"""``version`` of a file in the drop directory."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a job on this host."""

    rank: int
    nics: tuple[str, ...]
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class JobShard:
    """One host's share of a job."""

    job: str
    host: str
    state: str = "running"
    """``running`` or ``ended``."""
    name: str = ""
    """What a person calls it; the id where there is none."""
    since_at_ns: int = 0
    """In this state since, the host's clock."""
    seen_at_ns: int = 0
    """When the agent said so, the host's clock."""
    source: str = "dropdir"
    """``dropdir``: a file said so; ``process``: its queue pairs come from the job's own control socket."""
    ranks: tuple[Rank, ...] = ()
    qps: tuple[QueuePair, ...] = ()
    """Queue pairs whose sending end is on this host."""
    receives: tuple[QueuePair, ...] = ()
    """Queue pairs whose receiving end is on this host: the route of their answers is traced from here."""
    control: str = ""
    """Unix socket of the process that owns the queue pairs with ``steering: socket``; empty: none."""

    @property
    def key(self) -> str:
        """Key on the bus."""
        return f"{self.job}@{self.host}"

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        data: dict[str, Any] = asdict(self)
        data["ranks"] = [{**r, "nics": list(r["nics"])} for r in data["ranks"]]
        for name in ("qps", "receives"):
            data[name] = [{**q, "alternates": list(q["alternates"])} for q in data[name]]
        return data


def job_shard(data: Mapping[str, Any]) -> JobShard:
    """Read the data of a job event, or of a drop file. Fields it does not know are ignored.

    Raises
    ------
    FormatError
        ``job-part``: a field is absent or has the wrong type; the detail names it.
    """
    if not isinstance(data, Mapping):
        raise FormatError("job-part", "not a JSON object")
    try:
        ranks = tuple(
            Rank(_whole(r, "rank"), tuple(_texts(r, "nics")), _whole(r, "pid", None)) for r in data.get("ranks", ())
        )
        qps = tuple(queue_pair(q) for q in data.get("qps", ()))
        receives = tuple(queue_pair(q) for q in data.get("receives", ()))
    except (TypeError, AttributeError) as error:
        raise FormatError("job-part", f"ranks and qps are lists of objects: {error}") from error
    state = _text(data, "state", "running")
    if state not in ("running", "ended"):
        raise FormatError("job-part", f"state is running or ended, not {state!r}")
    return JobShard(
        job=_text(data, "job"),
        host=_text(data, "host"),
        state=state,
        name=_text(data, "name", ""),
        since_at_ns=_whole(data, "since_at_ns", 0) or 0,
        seen_at_ns=_whole(data, "seen_at_ns", 0) or 0,
        source=_text(data, "source", "dropdir"),
        ranks=ranks,
        qps=qps,
        receives=receives,
        control=_text(data, "control", ""),
    )


def queue_pair(data: Mapping[str, Any]) -> QueuePair:
    """Read one queue pair; FormatError ``job-part`` as `job_shard`."""
    src = _text(data, "src")
    path = _port(data, "path")
    return QueuePair(
        qp=_text(data, "qp", f"{src}#{path}"),
        rank=_whole(data, "rank", 0) or 0,
        peer_rank=_whole(data, "peer_rank", 0) or 0,
        src=src,
        dst=_text(data, "dst"),
        dst_address=_text(data, "dst_address"),
        path=path,
        dst_port=_port(data, "dst_port"),
        protocol=_among(data, "protocol", ("udp", "tcp")),
        transport=_among(data, "transport", ("udp", "rocev2", "ib")),
        dscp=_whole(data, "dscp", 0, most=63) or 0,
        answer_path=_whole(data, "answer_path", None, least=1, most=65535),
        answer_port=_whole(data, "answer_port", None, least=1, most=65535),
        steering=_among(data, "steering", ("none", "socket", "kernel")),
        alternates=_ports(data, "alternates"),
        rate_bps=_whole(data, "rate_bps", None),
        src_address=_text(data, "src_address", ""),
        peer_qp=_text(data, "peer_qp", ""),
        counted=_among(data, "counted", ("sent", "received")),
    )


def _text(data: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = data.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise FormatError("job-part", f"{key} must be text, not {value!r}")
    return value


def _texts(data: Mapping[str, Any], key: str) -> list[str]:
    value = data.get(key, ())
    if isinstance(value, str) or not all(isinstance(v, str) for v in value):
        raise FormatError("job-part", f"{key} must be a list of texts, not {value!r}")
    return list(value)


def _among(data: Mapping[str, Any], key: str, values: tuple[str, ...]) -> str:
    value = data.get(key, values[0])
    if value not in values:
        raise FormatError("job-part", f"{key} must be one of {', '.join(values)}, not {value!r}")
    return str(value)


_REQUIRED: Final = object()
_MOST: Final = 2**63 - 1


def _whole(data: Mapping[str, Any], key: str, default: Any = _REQUIRED, *, least: int = 0, most: int = _MOST) -> Any:
    value = data.get(key, default)
    if value is default and default is not _REQUIRED:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FormatError("job-part", f"{key} must be a whole number from {least} to {most}, not {value!r}")
    return value


def _port(data: Mapping[str, Any], key: str) -> int:
    return int(_whole(data, key, least=1, most=65535))


def _ports(data: Mapping[str, Any], key: str) -> tuple[int, ...]:
    values = data.get(key, ())
    if not isinstance(values, list | tuple):
        raise FormatError("job-part", f"{key} must be a list of ports, not {values!r}")
    return tuple(_port({key: value}, key) for value in values)
