"""What queue pairs carried over each direction of a link: their bytes along the routes of their flows.

A flow's route is its own trace; of one that was not traced the declared graph gives the links with the share of
equal-cost routes that use each, and its bytes are spread so. Then a link that it crosses with the probability w has b·w
of its b bytes, with a standard error of b·√(w(1−w)): it crosses the link or does not.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.flows import Flows
from sdfstream.detect.inband import InBand, Windows
from sdfstream.detect.routes import TracedRoute
from sdfstream.records import columns
from sdfstream.records.fabric import Flow

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_PORTS: Final = 1 << 16
_MOST_ROWS: Final = 4_000_000
_COLUMNS: Final = ("pair", "path", "dst_port", "dscp", "src", "dst", "tcp", "at_ns", "bytes")


class CarriedBytes(NamedTuple):
    """What was carried in one span."""

    by_element: Floats
    """(elements,) bytes."""
    variance: Floats
    """(elements,) bytes²: of which route each flow took."""
    by_sender: dict[str, float]
    """Bytes by the NIC that sent them."""
    whole: bool
    """All routes are known, or spread over all that there are."""


class CarriedByFlows:
    """Windows of queue pairs, kept until their span is closed."""

    def __init__(self, inband: InBand, flows: Flows, cabling: Cabling) -> None:
        self._inband, self._flows, self._cabling = inband, flows, cabling
        self._waiting: list[list[Ints]] = []
        self._rows = 0
        self._routes: dict[Flow, tuple[object, Ints, Floats, bool]] = {}
        """What a flow crosses, and for which route and declaration that holds."""

    def take(self, windows: Windows, batch: pa.RecordBatch) -> None:
        """Take rows of ``sdf.derived.qp.v1`` as `InBand.read` gave them.

        Raises
        ------
        FormatError
            A column is missing, or not of its type.
        """
        transport, names = columns.names(batch, "transport")
        tcp = np.array([name == "tcp" for name in names] + [False], np.int64)[transport]
        rows = windows.rows | {"tcp": tcp}
        for name in ("path", "dst_port"):
            rows[name] = columns.values(batch, name).astype(np.int64)
        use = windows.known & (rows["path"] < _PORTS) & (rows["bytes"] > 0)
        if self._rows + int(use.sum()) <= _MOST_ROWS:
            self._waiting.append([rows[name][use] for name in _COLUMNS])
            self._rows += int(use.sum())

    def close(self, from_ns: int, until_ns: int) -> CarriedBytes:
        """What was carried in the windows that begin in a span of reference time; older ones are dropped."""
        x = dict(zip(_COLUMNS, self._joined(), strict=True))
        mine, later = (x["at_ns"] >= from_ns) & (x["at_ns"] < until_ns), x["at_ns"] >= until_ns
        self._waiting = [[x[name][later] for name in _COLUMNS]] if later.any() else []
        self._rows = int(later.sum())
        x = {name: column[mine] for name, column in x.items()}
        _, first, inverse = np.unique(x["pair"] * _PORTS + x["path"], return_index=True, return_inverse=True)
        carried = np.bincount(inverse, x["bytes"], first.size)
        ends, senders, routes = self._inband.ends.list, dict[str, float](), []
        for row, b in zip(first.tolist(), carried.tolist(), strict=True):
            src, dst = ends[x["src"][row]], ends[x["dst"][row]]
            senders[src] = senders.get(src, 0.0) + b
            ports = int(x["path"][row]), int(x["dst_port"][row])
            routes.append(self._route(Flow(src, dst, "tcp" if x["tcp"][row] else "udp", *ports, int(x["dscp"][row]))))
        n = len(self._cabling.elements)
        if not routes:
            return CarriedBytes(np.zeros(n), np.zeros(n), {}, True)
        element, weight = (np.concatenate([route[i] for route in routes]) for i in (1, 2))
        each = carried.repeat([route[1].size for route in routes])
        by_element = np.bincount(element, each * weight, n).astype(np.float64)
        variance = np.bincount(element, each**2 * weight * (1 - weight), n).astype(np.float64)
        return CarriedBytes(by_element, variance, senders, all(route[3] for route in routes))

    def _route(self, flow: Flow) -> tuple[object, Ints, Floats, bool]:
        """What it holds for; element and weight; whether no others can be crossed."""
        route, declared = self._flows.route(flow), self._cabling.declared
        holds = (declared, None if route is None else _state(route))
        known = self._routes.get(flow)
        if known is not None and known[0] == holds:
            return known
        crossed, closed = self._cabling.route(flow.src, flow.dst, route)
        if len(self._routes) > self._flows.most:
            self._routes.clear()
        element, weight = np.array(list(crossed), np.int64), np.array(list(crossed.values()))
        known = self._routes[flow] = holds, element[element >= 0], weight[element >= 0], closed
        return known

    def forget(self) -> None:
        """Drop all rows: the numbers of `InBand` are others now."""
        self._waiting, self._rows = [], 0

    def _joined(self) -> list[Ints]:
        if not self._waiting:
            return [np.empty(0, np.int64) for _ in _COLUMNS]
        return [np.concatenate(column) for column in zip(*self._waiting, strict=True)]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain arrays."""
        return {"waiting": self._joined()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._routes.clear()
        rows = [np.asarray(column, np.int64) for column in state["waiting"]]
        self._waiting, self._rows = ([rows], rows[0].size) if rows[0].size else ([], 0)


def _state(route: TracedRoute) -> tuple[object, ...]:
    return tuple(route.hops), route.doubt_ns, route.doubt_at, len(route.moved_ns), len(route.others)
