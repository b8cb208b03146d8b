"""SO_TIMESTAMPING: who stamps a socket's packets, and asking the NIC to (Documentation/networking/timestamping.rst).

A socket reports kernel stamps or the NIC's, never both: its packets then all carry one kind of stamp, made by one
clock. What was got is returned, so that the kind columns and clock ids tell the truth.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from typing import Final

from sdfstream.records.units import StampKind

SO_TIMESTAMPING: Final = 37
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_SOFTWARE, _RAW_HARDWARE, _OPT_ID, _OPT_TSONLY = 1 << 4, 1 << 6, 1 << 7, 1 << 11
_KERNEL_FLAGS: Final = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE | _OPT_TSONLY
_HARDWARE_FLAGS: Final = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE | _OPT_TSONLY

_SIOCETHTOOL, _SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x8946, 0x89B0, 0x89B1
_ETHTOOL_GET_TS_INFO: Final = 0x41
_TX_ON: Final = 1
_FILTER_ALL: Final = 1


def enable(sock: socket.socket, device: str, *, hardware: bool) -> StampKind:
    """Switch stamping on; the kind of stamps that `sock` will report.

    With `hardware`, the NIC is asked first; when it cannot stamp every packet both ways, or may not be told to, the
    kernel stamps.
    """
    kind = StampKind.HARDWARE if hardware and _nic_stamps(sock, device) else StampKind.KERNEL
    restart_ids(sock, kind)
    return kind


def restart_ids(sock: socket.socket, kind: StampKind) -> None:
    """Let the ids of TX stamps (OPT_ID) start at 0 with the next packet.

    A failed send leaves it open whether the packet used up an id (kernels differ), so the count is started afresh.
    Switching only OPT_ID off and on resets the kernel's counter and leaves receive stamps undisturbed.
    """
    flags = _HARDWARE_FLAGS if kind is StampKind.HARDWARE else _KERNEL_FLAGS
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags | _OPT_ID)


def capabilities(sock: socket.socket, device: str) -> int:
    """The SOF_TIMESTAMPING_* bits that the driver of `device` offers; 0 when it does not tell.

    ``struct ethtool_ts_info``: cmd, so_timestamping, phc_index, tx_types, 3 reserved, rx_filters, 3 reserved.
    """
    buffer = bytearray(struct.pack("IIiI3II3I", _ETHTOOL_GET_TS_INFO, *([0] * 10)))
    if not _ioctl(sock, _SIOCETHTOOL, device, buffer):
        return 0
    offered: int = struct.unpack_from("I", buffer, 4)[0]
    return offered


def _nic_stamps(sock: socket.socket, device: str) -> bool:
    """Make the NIC stamp every packet in both directions; False when it cannot or may not.

    ``struct hwtstamp_config``: flags, tx_type, rx_filter. Setting it needs CAP_NET_ADMIN; without, it may have been
    set already (by ptp4l or hwstamp_ctl), which is good enough.
    """
    needed = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE
    if capabilities(sock, device) & needed != needed:
        return False
    config = bytearray(struct.pack("iii", 0, _TX_ON, _FILTER_ALL))
    if not _ioctl(sock, _SIOCSHWTSTAMP, device, config) and not _ioctl(sock, _SIOCGHWTSTAMP, device, config):
        return False
    _, tx_type, rx_filter = struct.unpack("iii", config)
    return bool(tx_type == _TX_ON and rx_filter == _FILTER_ALL)


def _ioctl(sock: socket.socket, request: int, device: str, data: bytearray) -> bool:
    """An interface ioctl whose ``ifr_data`` points at `data`; False when it is refused."""
    buffer = (ctypes.c_char * len(data)).from_buffer(data)
    ifreq = struct.pack("16sP16x", device.encode()[:15], ctypes.addressof(buffer))
    try:
        fcntl.ioctl(sock.fileno(), request, ifreq)
    except OSError:
        return False
    return True
