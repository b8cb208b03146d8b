"""Ports as sysfs tells of them: texts of ``class/net/DEV`` and ``class/infiniband/DEV/ports/N`` become a `PortReading`.

Texts come as a mapping from file name (relative to the folder) to its text, or None where the file is there but
refuses to be read; a file that is not there is not in the mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sdfstream.errors import FormatError
from sdfstream.probes.ports.reading import PortReading, State, count
from sdfstream.stats import Counters

Files = Mapping[str, str | None]

_NET_COUNTS: Final = {
    "carrier_changes": "carrier_changes",
    "mtu_bytes": "mtu",
    "link_downed": "carrier_down_count",
    "rx_bytes": "statistics/rx_bytes",
    "tx_bytes": "statistics/tx_bytes",
    "rx_packets": "statistics/rx_packets",
    "tx_packets": "statistics/tx_packets",
    "rx_errors": "statistics/rx_errors",
    "tx_errors": "statistics/tx_errors",
    "tx_discards": "statistics/tx_dropped",
}
NET_FILES: Final = (
    "flags",
    "carrier",
    "operstate",
    "speed",
    *_NET_COUNTS.values(),
    "statistics/rx_dropped",
    "statistics/rx_missed_errors",
)
"""Files of ``class/net/DEV`` that are read."""

_RDMA_COUNTS: Final = {
    # column: (file, width in bits of the port counter (IBTA vol. 1, 16.1.3.5), factor)
    "rx_bytes": ("counters/port_rcv_data", 64, 4),  # counted in 4-octet words
    "tx_bytes": ("counters/port_xmit_data", 64, 4),
    "rx_packets": ("counters/port_rcv_packets", 64, 1),
    "tx_packets": ("counters/port_xmit_packets", 64, 1),
    "rx_errors": ("counters/port_rcv_errors", 16, 1),
    "tx_discards": ("counters/port_xmit_discards", 16, 1),
    "symbol_errors": ("counters/symbol_error", 16, 1),
    "link_downed": ("counters/link_downed", 8, 1),
    "rx_discards": ("hw_counters/out_of_buffer", 64, 1),
}
RDMA_FILES: Final = (
    "state",
    "phys_state",
    "rate",
    "link_layer",
    *(file for file, _, _ in _RDMA_COUNTS.values()),
    "hw_counters/link_downed",
)
"""Files of ``class/infiniband/DEV/ports/N`` that are read."""

_IFF_UP: Final = 0x1


def net_reading(files: Files, refused: Counters) -> PortReading:
    """A net device from the texts of its folder."""
    reading = PortReading("sysfs", state=_net_state(files, refused))
    for column, file in _NET_COUNTS.items():
        _take(reading, column, files, file, refused, 32 if column == "mtu_bytes" else 64)
    _take(reading, "speed_mbps", files, "speed", refused, 32)
    dropped = PortReading("")
    _take(dropped, "rx_discards", files, "statistics/rx_dropped", refused)
    _take(dropped, "missed", files, "statistics/rx_missed_errors", refused)
    if "rx_discards" in dropped.values:
        reading.values["rx_discards"] = dropped.values["rx_discards"] + dropped.values.get("missed", 0)
    return reading


def rdma_reading(files: Files, refused: Counters) -> PortReading:
    """A port of an RDMA device from the texts of its folder."""
    reading = PortReading("rdma", state=_rdma_state(files, refused))
    for column, (file, bits, factor) in _RDMA_COUNTS.items():
        _take(reading, column, files, file, refused, bits, factor)
    if "counters/link_downed" not in files:  # soft devices have a 64-bit one instead
        _take(reading, "link_downed", files, "hw_counters/link_downed", refused)
    if "rate" in files:
        try:
            reading.values["speed_mbps"] = _rate_mbps(files["rate"])
        except FormatError as error:
            refused.add("refused", f"speed_mbps.{error.reason}")
    return reading


def is_infiniband(files: Files) -> bool:
    """Whether the link layer is InfiniBand: then the port's own counters see all traffic."""
    return (files.get("link_layer") or "").strip() == "InfiniBand"


def _take(
    reading: PortReading, column: str, files: Files, file: str, refused: Counters, bits: int = 64, factor: int = 1
) -> None:
    if file not in files:
        return
    text = files[file]
    try:
        if text is None:
            raise FormatError("unreadable")
        number = count(text, bits) * factor
        if number >= 1 << 64:
            raise FormatError("too-large")
        reading.values[column] = number
    except FormatError as error:
        refused.add("refused", f"{column}.{error.reason}")


def _rate_mbps(text: str | None) -> int:
    """``400 Gb/sec (4X NDR)`` as Mbit/s."""
    if text is None:
        raise FormatError("unreadable")
    number, _, rest = text.strip().partition(" ")
    whole, _, tenths = number.partition(".")
    plain = all(digits.isascii() and digits.isdigit() and len(digits) < 8 for digits in (whole, tenths or "0"))
    if not plain or not rest.startswith("Gb/sec"):
        raise FormatError("not-a-rate", text[:40])
    mbps = round(float(number) * 1000)
    if not 0 < mbps < 0xFFFF_FFFF:
        raise FormatError("not-known", text[:40])
    return mbps


def _net_state(files: Files, refused: Counters) -> State:
    """IFF_UP tells the administrator's will; then the carrier; then RFC 2863's operational state."""
    flags = (files.get("flags") or "").strip()
    try:
        if flags and not int(flags, 16) & _IFF_UP:
            return "disabled"
    except ValueError:
        refused.add("refused", "state.flags")
    carrier = (files.get("carrier") or "").strip()
    if carrier in ("0", "1"):
        return "up" if carrier == "1" else "down"
    word = (files.get("operstate") or "").strip()
    if word == "up":
        return "up"
    if word in ("down", "lowerlayerdown", "dormant", "testing"):
        return "down" if flags else "unknown"  # without the flags "down" may be the administrator's
    if word == "notpresent":
        return "absent"
    refused.add("refused", "state.operstate")
    return "unknown"


_RDMA_STATES: Final[dict[str, State]] = {"1": "down", "2": "down", "3": "down", "4": "up", "5": "down"}
"""1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER (IBTA PortState): only ACTIVE carries data."""


def _rdma_state(files: Files, refused: Counters) -> State:
    """``4: ACTIVE`` and its like; the number decides. Physical state 3 is "Disabled"."""
    number = (files.get("state") or "").partition(":")[0].strip()
    state = _RDMA_STATES.get(number, "unknown")
    if state == "unknown":
        refused.add("refused", "state.rdma")
    if state == "down" and (files.get("phys_state") or "").partition(":")[0].strip() == "3":
        return "disabled"
    return state
