"""Which host a message of an agent speaks for; rows of another host are refused (``foreign-host``).

An agent's raw messages are keyed by its host, and its events name it as their source. Both are what detectors, clocks
and plans attribute what they read to, so a message must speak of that host alone:

===========================  ======================  =================================================================
topic                        speaks for              refused when
===========================  ======================  =================================================================
``sdf.raw.probe.v1``         its key                 a sender's NIC is not the key's
``sdf.raw.port.v1``          its key                 a row's host, NIC or port is not the key's
``sdf.raw.qp.v1``            its key                 a sending NIC is not the key's, but for rows that the host of the
                                                     receiving NIC made by its own clock (kernel flows counted there)
``sdf.raw.liveness.v1``      its key                 the host or an observing NIC is not the key's
``sdf.state.job.v1``         the host of job@host    its shard is another host's
``sdf.state.topology.v1``    the event's source      a traced path or flow does not leave a NIC of the source; an
                                                     announcement is of another host; declared cabling speaks for none
``sdf.control.outcome.v1``   the event's source      (the controller writes it too: not compared)
===========================  ======================  =================================================================

Whether the writer *is* that host only the transport can know: on the link the process at the socket's other end
(`link.owners`); Kafka shows a reader no principal, there two writers for one host are found by `detect.producers`.
An honest agent never mixes hosts in a message, so a message with one foreign row is refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.fabric import FLOW_TYPE, PATH_TYPE, SILENT_TYPE, host_of
from sdfstream.records.mesh import HOST_TYPE
from sdfstream.records.message import Body, Event
from sdfstream.records.topics import JOB, LIVENESS, OUTCOME, PORT, PROBE, QP, TOPOLOGY

REASON: Final = "foreign-host"
_BY_KEY: Final = frozenset({PROBE.name, PORT.name, QP.name, LIVENESS.name})
_BY_SOURCE: Final = frozenset({PATH_TYPE, FLOW_TYPE, SILENT_TYPE, HOST_TYPE})
_OWN: Final[dict[str, tuple[str, ...]]] = {PROBE.name: ("src",), PORT.name: ("host", "nic", "port"), QP.name: ("src",)}
"""Columns of a bulk topic whose hosts must be the producer's."""


def speaker(topic: str, key: str, body: Body) -> str | None:
    """The host that a message speaks for; None: for none (declared cabling, what stages make)."""
    if topic in _BY_KEY:
        return key
    if topic == JOB.name:
        return key.rpartition("@")[2]
    by_source = topic == OUTCOME.name or (
        topic == TOPOLOGY.name and isinstance(body, Event) and body.type in _BY_SOURCE
    )
    return body.source if by_source and isinstance(body, Event) else None


def check(topic: str, key: str, body: Body) -> None:
    """Raise `FormatError` ``foreign-host`` where a message speaks of a host that is not its producer's."""
    host = speaker(topic, key, body)
    if host is None:
        return
    if isinstance(body, Event):
        compare = _EVENTS.get(body.type if topic == TOPOLOGY.name else topic)
        foreign = compare(host, body.data) if compare is not None else None
    elif topic == QP.name:
        foreign = _foreign_flow(body, host)
    else:
        foreign = next((f for name in _OWN.get(topic, ()) if (f := _foreign(body, name, host)) is not None), None)
    if foreign is not None:
        raise FormatError(REASON, f"{foreign[:100]!r} in a message of {host[:100]!r}")


def names_only_own(topic: str, key: str, batch: pa.RecordBatch) -> bool:
    """Whether a batch with these dictionaries passes `check` whatever its rows: they name none but its host."""
    host = speaker(topic, key, batch)
    if host is None:
        return True
    dictionaries = (columns.names(batch, column)[1] for column in _OWN.get(topic, ()))
    return all(isinstance(name, str) and host_of(name) == host for names in dictionaries for name in names)


def _foreign(batch: pa.RecordBatch, column: str, host: str) -> str | None:
    """A name in `column` that is not of `host`; names stand in a dictionary, so few are looked at."""
    codes, names = columns.names(batch, column)
    others = [n for n, name in enumerate(names) if not isinstance(name, str) or host_of(name) != host]
    if not others:
        return None
    used = np.intersect1d(codes, others)
    return str(names[int(used[0])]) if used.size else None


def _foreign_flow(batch: pa.RecordBatch, host: str) -> str | None:
    """A sending NIC that is not of `host`, in a row that `host` did not receive and date by its own clock."""
    foreign = _foreign(batch, "src", host)
    if foreign is None:
        return None
    sends, receives, dates = (_is_of(batch, column, host) for column in ("src", "dst", "clock_src"))
    others = ~sends & ~(receives & dates)
    return foreign if others.any() else None


def _is_of(batch: pa.RecordBatch, column: str, host: str) -> npt.NDArray[np.bool_]:
    """Rows whose name in `column` is of `host`."""
    codes, names = columns.names(batch, column)
    own = np.array([isinstance(name, str) and host_of(name) == host for name in names] + [False])
    return own[codes]


def _liveness(host: str, data: Mapping[str, object]) -> str | None:
    said = data.get("host") or host
    changes = data.get("changes")
    named = [said] + (
        [c.get("observer") for c in changes if isinstance(c, Mapping)] if isinstance(changes, list) else []
    )
    return _first_foreign(host, named)


def _job(host: str, data: Mapping[str, object]) -> str | None:
    return _first_foreign(host, [data.get("host")])


def _path(host: str, data: Mapping[str, object]) -> str | None:
    return _first_foreign(host, [data.get("dst" if data.get("dir") == "rev" else "src")])


def _flow(host: str, data: Mapping[str, object]) -> str | None:
    return _first_foreign(host, [data.get("src")])


def _first_foreign(host: str, named: list[object]) -> str | None:
    return next((name for name in named if isinstance(name, str) and host_of(name) != host), None)


_EVENTS: Final[dict[str, Callable[[str, Mapping[str, object]], str | None]]] = {
    LIVENESS.name: _liveness,
    JOB.name: _job,
    PATH_TYPE: _path,
    FLOW_TYPE: _flow,
    SILENT_TYPE: _path,
    HOST_TYPE: _job,
}
