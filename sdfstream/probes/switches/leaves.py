"""Which leaf of a switch's model is which column of ``sdf.raw.port.v1``.

Paths are compared without what vendors and encodings put around them (`plain`): an origin (``rfc7951:``), names of
modules (``openconfig-interfaces:interfaces``), keys in brackets, and the name of a container that comes twice, as where
SONiC answers ``…/state/counters`` with ``{"openconfig-interfaces:counters": {…}}``.

===========================  =========================================================================================
column                       leaves of /interfaces/interface, the first that a port ever gave counts
===========================  =========================================================================================
``state``                    ``state/admin-status`` DOWN: disabled; else ``state/oper-status``
``speed_mbps``               ``ethernet/state/negotiated-port-speed``, ``ethernet/state/port-speed``
``carrier_changes``          ``state/counters/carrier-transitions``, ``…/interface-transitions``
``rx_bytes``, ``tx_bytes``   ``state/counters/in-octets``, ``…/out-octets``
``rx_packets``, …            ``…/in-pkts``; else the sum of unicast, multicast and broadcast
``rx_errors``                ``…/in-errors``, ``…/in-fcs-errors``, ``ethernet/state/counters/in-crc-errors``
``tx_errors``                ``…/out-errors``
``rx_discards``, …           ``…/in-discards``, ``…/out-discards``
``rx_pause``, …              ``ethernet/state/counters/in-mac-pause-frames``, ``…/out-mac-pause-frames``
``fec_…``, symbol_errors     ``ethernet/state/counters/fec-corrected-blocks``, ``…/fec-uncorrectable-blocks``,
                             ``…/in-symbol-error``
===========================  =========================================================================================

Of Nokia's own model (SR Linux) ``/interface/statistics``, ``/interface/oper-state`` and ``admin-state`` are known too.
Not taken: ``mtu`` (vendors count the frame's header or do not), optics, subinterfaces, rates that a switch made itself.

References
----------
openconfig-interfaces.yang, openconfig-if-ethernet.yang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sdfstream.probes.ports.reading import State

_STATE, _COUNTERS, _ETHERNET = "state/", "state/counters/", "ethernet/state/counters/"
_ROOTS: Final = ("interfaces/interface/", "interface/")

_PACKETS: Final = ("unicast-pkts", "multicast-pkts", "broadcast-pkts")
SOURCES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    # column: its sources in the order of preference, each one leaf, or several that are summed
    "carrier_changes": ((f"{_COUNTERS}carrier-transitions",), (f"{_COUNTERS}interface-transitions",)),
    "rx_bytes": ((f"{_COUNTERS}in-octets",),),
    "tx_bytes": ((f"{_COUNTERS}out-octets",),),
    "rx_packets": ((f"{_COUNTERS}in-pkts",), tuple(f"{_COUNTERS}in-{kind}" for kind in _PACKETS)),
    "tx_packets": ((f"{_COUNTERS}out-pkts",), tuple(f"{_COUNTERS}out-{kind}" for kind in _PACKETS)),
    "rx_errors": ((f"{_COUNTERS}in-errors",), (f"{_COUNTERS}in-fcs-errors",), (f"{_ETHERNET}in-crc-errors",)),
    "tx_errors": ((f"{_COUNTERS}out-errors",),),
    "rx_discards": ((f"{_COUNTERS}in-discards",),),
    "tx_discards": ((f"{_COUNTERS}out-discards",),),
    "rx_pause": ((f"{_ETHERNET}in-mac-pause-frames",),),
    "tx_pause": ((f"{_ETHERNET}out-mac-pause-frames",),),
    "fec_corrected": ((f"{_ETHERNET}fec-corrected-blocks",),),
    "fec_uncorrectable": ((f"{_ETHERNET}fec-uncorrectable-blocks",),),
    "symbol_errors": ((f"{_ETHERNET}in-symbol-error",),),
}
COUNTERS: Final = frozenset(leaf for sources in SOURCES.values() for leaves in sources for leaf in leaves)
OPER, ADMIN = f"{_STATE}oper-status", f"{_STATE}admin-status"
SPEEDS: Final = ("ethernet/state/negotiated-port-speed", "ethernet/state/port-speed")
WORDS: Final = frozenset({OPER, ADMIN, *SPEEDS})
"""Leaves whose value is a name of an enumeration."""
_SAME: Final = {
    # Nokia's own model: the leaf that means the same
    "statistics/in-octets": f"{_COUNTERS}in-octets",
    "statistics/out-octets": f"{_COUNTERS}out-octets",
    "statistics/in-packets": f"{_COUNTERS}in-pkts",
    "statistics/out-packets": f"{_COUNTERS}out-pkts",
    "statistics/in-error-packets": f"{_COUNTERS}in-errors",
    "statistics/out-error-packets": f"{_COUNTERS}out-errors",
    "statistics/in-discarded-packets": f"{_COUNTERS}in-discards",
    "statistics/out-discarded-packets": f"{_COUNTERS}out-discards",
    "statistics/carrier-transitions": f"{_COUNTERS}carrier-transitions",
    "oper-state": OPER,
    "admin-state": ADMIN,
    "ethernet/port-speed": SPEEDS[1],
}
_KEYS: Final = re.compile(r"\[[^\]]*\]")
_SPEED: Final = re.compile(r"(?:SPEED_)?(\d{1,5})(MB|GB|M|G)?")
_MOST_SPEED_MBPS: Final = 2**31
_TOO_MANY: Final = 1 << 63
"""A sum of three counters beyond 63 bits is none."""
_OPER_STATES: Final[dict[str, State]] = {
    "UP": "up",
    "DOWN": "down",
    "LOWER_LAYER_DOWN": "down",
    "DORMANT": "down",
    "NOT_PRESENT": "absent",
}
_OFF: Final = frozenset({"DOWN", "DISABLE", "DISABLED"})


def plain(path: str) -> str:
    """The path of a value below ``/interfaces/interface``; empty: it is none of a port.

    >>> plain("/openconfig-interfaces:interfaces/interface/state/counters/openconfig-interfaces:counters/in-octets")
    'state/counters/in-octets'
    >>> plain("/interfaces/interface/subinterfaces/subinterface/state/counters/in-octets")
    'subinterfaces/subinterface/state/counters/in-octets'
    """
    names: list[str] = []
    for element in _KEYS.sub("", path).split("/"):
        name = element.rpartition(":")[2]
        if name and names[-1:] != [name]:
            names.append(name)
    joined = "/".join(names)
    return next((joined.removeprefix(root) for root in _ROOTS if joined.startswith(root)), "")


def leaf_of(path: str) -> str | None:
    """The leaf as this module names it; None: none of those that are taken.

    >>> leaf_of("/srl_nokia-interfaces:interface/statistics/in-octets")
    'state/counters/in-octets'
    """
    below = plain(path)
    leaf = _SAME.get(below, below)
    return leaf if leaf in COUNTERS or leaf in WORDS else None


def columns_of(leaves: Mapping[str, int], sources: dict[str, int]) -> dict[str, int]:
    """Counters by column; `sources` (column to rank in `SOURCES`) binds a column to the source that it came from.

    Two sources of one column differ by a constant. So where a better one is met, the column is left out once: readers
    take no rate from what was before.
    """
    found: dict[str, int] = {}
    for column, ranked in SOURCES.items():
        known = sources.get(column)
        for rank, summed in enumerate(ranked[: None if known is None else known + 1]):
            if not all(leaf in leaves for leaf in summed):
                continue
            sources[column] = rank
            total = sum(leaves[leaf] for leaf in summed)
            if known in (None, rank) and total < _TOO_MANY:
                found[column] = total
            break
    return found


def state_of(oper: str, admin: str) -> State:
    """State of a port by its two words; an unknown word, or none, says nothing.

    >>> state_of("UP", ""), state_of("DOWN", "DOWN"), state_of("down", "enable"), state_of("TESTING", "UP")
    ('up', 'disabled', 'down', 'unknown')
    """
    if admin.upper() in _OFF:
        return "disabled"
    return _OPER_STATES.get(oper.upper().replace("-", "_"), "unknown")


def speed_mbps(word: str) -> int | None:
    """Mbit/s of ``SPEED_400GB`` or Nokia's ``400G``; None: it is not told.

    >>> speed_mbps("SPEED_400GB"), speed_mbps("SPEED_2500MB"), speed_mbps("100G"), speed_mbps("SPEED_UNKNOWN")
    (400000, 2500, 100000, None)
    """
    found = _SPEED.fullmatch(word.upper())
    if found is None or found[2] is None:
        return None
    mbps = int(found[1]) * (1000 if found[2].startswith("G") else 1)
    return mbps if 0 < mbps < _MOST_SPEED_MBPS else None
