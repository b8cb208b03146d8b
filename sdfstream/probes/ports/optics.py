"""Optical power and temperature from a module's own memory: SFF-8472 (SFP), SFF-8636 (QSFP), CMIS (QSFP-DD, OSFP).

Pure: `read_module` is given a way to fetch octets. A module is identified once, then only its monitors are
fetched, because every fetch goes over a slow two-wire bus. Copper cables and modules without monitors are
remembered as `NO_MODULE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sdfstream.probes.ports.reading import PortReading

Kind = Literal["sfp", "qsfp", "cmis", "none"]


class MemoryWindow(NamedTuple):
    """Octets of one page of a module's memory; a window never crosses octet 128."""

    page: int
    offset: int
    length: int
    address: int = 0x50
    """Two-wire address: 0x50, or 0x51 for an SFP's diagnostics (A2h)."""


Fetch = Callable[[MemoryWindow], bytes]
"""Octets of a window; shorter or empty when the module does not give them."""

LOWER: Final = MemoryWindow(0, 0, 128)
_UPPER: Final = MemoryWindow(0, 128, 128)
_CMIS_CHANNEL_MONITORS: Final = MemoryWindow(1, 160, 1)
"""01h:160: bit 1 transmit power, bit 2 receive power are monitored (CMIS 5.0, 8.4.6)."""
_MONITORS: Final[dict[Kind, tuple[MemoryWindow, ...]]] = {
    "sfp": (MemoryWindow(0, 96, 10, 0x51),),
    "qsfp": (MemoryWindow(0, 22, 36),),
    "cmis": (MemoryWindow(0, 14, 2), MemoryWindow(0x11, 154, 48)),
    "none": (),
}
_DARK_DBM: Final = -40.0
"""Power is counted in steps of 0.1 µW (−40 dBm); a count of 0 is less than that and is given as −40 dBm."""


@dataclass(frozen=True, slots=True)
class Module:
    """Kind, channels and monitors of a module."""

    kind: Kind
    channels: tuple[int, ...] = ()
    """Optical channels (CMIS: lanes) that exist, from 0."""
    has_tx_power: bool = False
    has_rx_power: bool = False


NO_MODULE: Final = Module("none")


def identify(fetch: Fetch) -> Module | None:
    """The module's kind and channels; `NO_MODULE` when it has no optical monitors, None when it cannot be read."""
    lower = fetch(LOWER)
    if len(lower) < LOWER.length:
        return None
    identifier = lower[0]  # SFF-8024, table 4-1
    if identifier == 0x03:
        return _sfp(lower)
    if identifier in (0x0D, 0x11):
        return _qsfp(lower, fetch(_UPPER))
    if identifier in (0x18, 0x19, 0x1B, 0x1E, 0x1F, 0x20, 0x21):
        return _cmis(lower, fetch)
    return NO_MODULE


def read_module(module: Module, fetch: Fetch) -> PortReading:
    """The monitors of an identified module; those that it does not give are left out."""
    reading = PortReading("module")
    data = [fetch(window) for window in _MONITORS[module.kind]]
    whole = all(len(d) == w.length for d, w in zip(data, _MONITORS[module.kind], strict=True))
    if not data or not whole:
        return reading
    if module.kind == "sfp":  # A2h: temperature 96, voltage 98, bias 100, transmit power 102, receive power 104
        _put(reading, module, data[0][0:2], data[0][6:8], data[0][8:10])
    elif module.kind == "qsfp":  # temperature 22, receive power 34..41, bias 42..49, transmit power 50..57
        _put(reading, module, data[0][0:2], data[0][28:36], data[0][12:20])
    else:  # 00h: temperature 14; 11h: transmit power 154..169, bias 170..185, receive power 186..201
        _put(reading, module, data[0], data[1][0:16], data[1][32:48])
    return reading


def _sfp(lower: bytes) -> Module:
    """SFF-8472: octet 8 bits 2, 3 copper cable; octet 92 bit 6 has diagnostics, bit 5 internally calibrated."""
    if lower[8] & 0x0C or not lower[92] & 0x40 or not lower[92] & 0x20:
        return NO_MODULE  # external calibration (before 2005 or so) is not converted: no figure rather than a wrong one
    return Module("sfp", (0,), True, True)


def _qsfp(lower: bytes, upper: bytes) -> Module | None:
    """SFF-8636: 00h:147 technology (0xA0 and above: copper), 113 lanes not there, 220 bit 2 transmit power."""
    if len(upper) < _UPPER.length:
        return None
    if upper[147 - 128] >= 0xA0:
        return NO_MODULE
    channels = tuple(channel for channel in range(4) if not lower[113] >> channel & 1)
    return Module("qsfp", channels, bool(upper[220 - 128] & 0x04), True)


def _cmis(lower: bytes, fetch: Fetch) -> Module | None:
    """CMIS: octet 2 bit 7 flat memory (no page 11h), 85 media type (1, 2: optical), 00h:210 lanes not there."""
    if lower[2] & 0x80 or lower[85] not in (1, 2):
        return NO_MODULE
    upper, monitors = fetch(_UPPER), fetch(_CMIS_CHANNEL_MONITORS)
    if len(upper) < _UPPER.length or not monitors:
        return None
    channels = tuple(channel for channel in range(8) if not upper[210 - 128] >> channel & 1)
    return Module("cmis", channels, bool(monitors[0] & 0x02), bool(monitors[0] & 0x04))


def _put(reading: PortReading, module: Module, temperature: bytes, tx: bytes, rx: bytes) -> None:
    reading.values["module_temp_c"] = int.from_bytes(temperature, "big", signed=True) / 256
    if module.channels and module.has_tx_power:
        reading.values["tx_power_dbm"] = _weakest_dbm(tx, module.channels)
    if module.channels and module.has_rx_power:
        reading.values["rx_power_dbm"] = _weakest_dbm(rx, module.channels)


def _weakest_dbm(powers: bytes, channels: Sequence[int]) -> float:
    """The weakest channel of 16-bit counts of 0.1 µW: 10·log10(count / 10 000), since 1 mW is 10 000 counts."""
    weakest = min(int.from_bytes(powers[2 * channel : 2 * channel + 2], "big") for channel in channels)
    return 10 * math.log10(weakest / 10_000) if weakest else _DARK_DBM
