"""Ports by the kernel's netlink: rtnetlink link messages and ethtool generic netlink answers.

Requests are bodies for `sdfstream.probes.net.netlink.request`; answers become a `PortReading`. Numbers are those of
linux/if_link.h and linux/ethtool_netlink.h.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from sdfstream.errors import FormatError
from sdfstream.probes.net import netlink as nl
from sdfstream.probes.ports.reading import NOT_KNOWN_32, PortReading, State, put
from sdfstream.stats import Counters

RTM_NEWLINK: Final = 16
RTM_GETLINK: Final = 18
_IFINFO: Final = struct.Struct("=BxHiII")
"""ifinfomsg: family, type, index, flags, change mask."""
_ADDRESS, _IFNAME, _MTU, _OPERSTATE, _STATS64, _CARRIER = 1, 3, 4, 16, 23, 33
_CARRIER_CHANGES, _CARRIER_DOWN_COUNT, _ALT_IFNAME = 35, 48, 53
_IFF_UP: Final = 0x1
_IFNAMSIZ: Final = 16
_STATS: Final = {"rx_packets": 0, "tx_packets": 1, "rx_bytes": 2, "tx_bytes": 3, "rx_errors": 4, "tx_errors": 5}
_RX_DROPPED, _TX_DROPPED, _RX_MISSED = 6, 7, 15
"""Indexes in struct rtnl_link_stats64."""
_OPER_UP: Final = 6
_OPER_NOT_PRESENT: Final = 1

GENL_CTRL: Final = 16
ETHTOOL: Final = "ethtool"
LINKMODES_GET, LINKSTATE_GET, PAUSE_GET, FEC_GET, EEPROM_GET, STATS_GET = 4, 6, 21, 29, 31, 32
"""Messages from user to kernel; an answer's own number differs, so answers are known by their sequence."""
READ_COMMANDS: Final = (LINKMODES_GET, LINKSTATE_GET, PAUSE_GET, FEC_GET, STATS_GET)
"""What every reading of a port asks; the module's EEPROM is slow (I2C) and asked seldom."""
_FLAG_COMPACT, _FLAG_STATS = 1, 4
_GROUP_PHY, _GROUP_MAC = 0, 1
_MAC: Final = {0: "tx_packets", 3: "rx_packets", 6: "tx_bytes", 12: "rx_bytes"}
"""IEEE 802.3 clause 30 MAC counters: aFrames/aOctets Transmitted/ReceivedOK, all that passed the port."""
_GROUPS: Final[dict[int, dict[int, str]]] = {_GROUP_PHY: {0: "symbol_errors"}, _GROUP_MAC: _MAC}


class LinkMessage(NamedTuple):
    """A net device in an rtnetlink link message."""

    ifindex: int
    address: bytes
    """Link-layer address."""
    reading: PortReading


def link_request(device: str) -> bytes:
    """Body of RTM_GETLINK for one device by name; a name longer than IFNAMSIZ is an alternative name."""
    kind = _IFNAME if len(device.encode()) < _IFNAMSIZ else _ALT_IFNAME
    return _IFINFO.pack(0, 0, 0, 0, 0) + nl.text(kind, device)


def link(body: bytes, refused: Counters) -> LinkMessage:
    """A net device from the body of RTM_NEWLINK.

    Raises
    ------
    FormatError
        ``truncated``.
    """
    if len(body) < _IFINFO.size:
        raise FormatError("truncated", "ifinfomsg")
    _, _, index, flags, _ = _IFINFO.unpack_from(body)
    found = nl.attributes(body[_IFINFO.size :])
    reading = PortReading("rtnetlink", state=_state(flags, found))
    for column, kind in (
        ("mtu_bytes", _MTU),
        ("carrier_changes", _CARRIER_CHANGES),
        ("link_downed", _CARRIER_DOWN_COUNT),
    ):
        if (value := nl.number(found.get(kind))) is not None:
            put(reading, refused, column, value, 32)
    _stats64(reading, found.get(_STATS64, b""), refused)
    return LinkMessage(index, found.get(_ADDRESS, b""), reading)


def _state(flags: int, found: dict[int, bytes]) -> State:
    if not flags & _IFF_UP:
        return "disabled"
    operstate = nl.number(found.get(_OPERSTATE))
    if operstate == _OPER_NOT_PRESENT:
        return "absent"
    carrier = nl.number(found.get(_CARRIER))
    if carrier is not None:
        return "up" if carrier else "down"
    return "unknown" if not operstate else "up" if operstate == _OPER_UP else "down"


def _stats64(reading: PortReading, data: bytes, refused: Counters) -> None:
    stats = struct.unpack_from(f"={len(data) // 8}Q", data)
    if len(stats) <= _TX_DROPPED:
        return
    for column, index in _STATS.items():
        put(reading, refused, column, stats[index])
    missed = stats[_RX_MISSED] if len(stats) > _RX_MISSED else 0  # dropped excludes missed (if_link.h)
    put(reading, refused, "rx_discards", stats[_RX_DROPPED] + missed)
    put(reading, refused, "tx_discards", stats[_TX_DROPPED])


def family_request(name: str) -> bytes:
    """Body of CTRL_CMD_GETFAMILY, asking for the number of a generic netlink family."""
    return _genl(3) + nl.text(2, name)


def family_of(body: bytes) -> int | None:
    """The family's number from the answer to `family_request`."""
    return nl.number(nl.attributes(body[4:]).get(1))


def ethtool_request(command: int, index: int) -> bytes:
    """Body of one of `READ_COMMANDS` for the device with that interface index."""
    header = 2 if command == STATS_GET else 1
    flags = _FLAG_COMPACT | (_FLAG_STATS if command in (PAUSE_GET, FEC_GET) else 0)
    body = _genl(command) + nl.nested(header, nl.u32(1, index), nl.u32(3, flags))
    if command == STATS_GET:
        groups = (1 << _GROUP_PHY | 1 << _GROUP_MAC).to_bytes(4, "little" if _LITTLE else "big")
        body += nl.nested(3, nl.attribute(1, b""), nl.u32(2, _GROUP_MAC + 1), nl.attribute(4, groups))
    return body


def eeprom_request(index: int, *, offset: int, length: int, page: int, address: int) -> bytes:
    """Body of ETHTOOL_MSG_MODULE_EEPROM_GET: `length` octets of one page, which may not cross octet 128."""
    header = nl.nested(1, nl.u32(1, index))
    window = nl.u32(2, offset) + nl.u32(3, length) + nl.u8(4, page) + nl.u8(5, 0) + nl.u8(6, address)
    return _genl(EEPROM_GET) + header + window


def eeprom_data(body: bytes) -> bytes:
    """The octets of an answer to `eeprom_request`."""
    return nl.attributes(body[4:]).get(7, b"")


def ethtool_reading(answers: dict[int, bytes], refused: Counters) -> PortReading:
    """The reading in the answers (command to body); an answer that cannot be read is counted and left out."""
    reading = PortReading("ethtool")
    for command, body in answers.items():
        try:
            _READERS[command](reading, body[4:], refused)
        except FormatError as error:
            refused.add("refused", f"ethtool-{command}.{error.reason}")
    return reading


def _linkmodes(reading: PortReading, data: bytes, refused: Counters) -> None:
    speed = nl.number(nl.attributes(data).get(5))
    if speed is not None and 0 < speed < NOT_KNOWN_32:
        reading.values["speed_mbps"] = speed
    elif speed is not None:
        refused.add("refused", "speed_mbps.not-known")


def _linkstate(reading: PortReading, data: bytes, refused: Counters) -> None:
    if (downs := nl.number(nl.attributes(data).get(7))) is not None:
        put(reading, refused, "link_downed", downs, 32)


def _pause(reading: PortReading, data: bytes, refused: Counters) -> None:
    stats = nl.attributes(nl.attributes(data).get(5, b""))
    for column, kind in (("tx_pause", 2), ("rx_pause", 3)):
        if (frames := nl.number(stats.get(kind))) is not None:
            put(reading, refused, column, frames)


def _fec(reading: PortReading, data: bytes, refused: Counters) -> None:
    """Each attribute is an array of u64: the total, then one per lane or PCS instance."""
    stats = nl.attributes(nl.attributes(data).get(5, b""))
    for column, kind in (("fec_corrected", 2), ("fec_uncorrectable", 3)):
        if (total := nl.number(stats.get(kind, b"")[:8])) is not None:
            put(reading, refused, column, total)


def _standard_stats(reading: PortReading, data: bytes, refused: Counters) -> None:
    for kind, group in nl.walk(data):
        if kind != 4:
            continue
        which = nl.number(nl.attributes(group).get(2))
        names = _GROUPS.get(which, {}) if which is not None else {}
        for attribute, holder in nl.walk(group):
            for stat, value in nl.walk(holder) if attribute == 4 else ():
                if stat in names and (frames := nl.number(value)) is not None:
                    put(reading, refused, names[stat], frames)


_READERS: Final = {
    LINKMODES_GET: _linkmodes,
    LINKSTATE_GET: _linkstate,
    PAUSE_GET: _pause,
    FEC_GET: _fec,
    STATS_GET: _standard_stats,
}


def _genl(command: int) -> bytes:
    """genlmsghdr: command, version 1, reserved."""
    return struct.pack("=BBH", command, 1, 0)


_LITTLE: Final = bool(struct.pack("=H", 1)[0])
