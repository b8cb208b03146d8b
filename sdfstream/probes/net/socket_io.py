"""One probing socket: bound to its NIC's device, with stamps, and with TOS, TTL and destination of what arrives.

Why bound as it is: SO_BINDTODEVICE (no privilege needed since Linux 5.7) makes the kernel send by this NIC whatever
the routing table prefers, and deliver only what came in by it. The socket is bound to the wildcard address, so that
a packet for another NIC's address that strays in by this NIC is *seen* (by PKTINFO), refused and counted, not
silently dropped. Where several NICs share a device (aliases on one interface) each socket takes its own address.

Stamps (SO_TIMESTAMPING, Documentation/networking/timestamping.rst): a socket reports kernel stamps or the NIC's, never
both, so that all its packets carry one kind of stamp, made by one clock. `ProbeSocket.kind` says which it became.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.netns_io import identity, inside
from sdfstream.probes.stamp.datagrams import SENT_TTL, address_octets
from sdfstream.records.units import StampKind, UInt8s

IP_PKTINFO, IP_RECVERR, IP_RECVTTL, IP_RECVTOS, IP_MTU_DISCOVER = 8, 11, 12, 13, 10
IPV6_RECVERR, IPV6_MTU_DISCOVER, IPV6_RECVPKTINFO = 25, 23, 49
IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS, IPV6_PKTINFO, IPV6_HOPLIMIT, IPV6_TCLASS = 51, 66, 50, 52, 67
_SIOCGIFFLAGS, _IFF_UP, _SIOCGIFMTU = 0x8913, 0x1, 0x8921
_PMTUDISC_PROBE: Final = 3
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
_BUFFER_BYTES: Final = 4 << 20
"""Receive and send buffer asked for; a queued TX stamp or small packet is charged about 800 bytes."""

TOS_AT: Final = 16
"""Offset of the TOS or traffic class octet in a socket's `control`."""
CONTROL_BYTES: Final = 64

SO_TIMESTAMPING: Final = 37
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_SOFTWARE, _RAW_HARDWARE, _OPT_ID, _OPT_TSONLY = 1 << 4, 1 << 6, 1 << 7, 1 << 11
_KERNEL_FLAGS: Final = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE | _OPT_TSONLY
_HARDWARE_FLAGS: Final = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE | _OPT_TSONLY

_SIOCETHTOOL, _SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x8946, 0x89B0, 0x89B1
_ETHTOOL_GET_TS_INFO: Final = 0x41
_TX_ON: Final = 1
_FILTER_ALL: Final = 1

OpenError: TypeAlias = OSError | ConfigError | UnavailableError


@dataclass(slots=True)
class ProbeSocket:
    """An open socket and what is needed to send by it and to check what arrives."""

    sock: socket.socket
    fd: int
    nic: NicConfig
    port: int
    interface: int
    """Interface index of the device when the socket was opened."""
    address: bytes
    """16 octets, IPv4 as ::ffff:a.b.c.d."""
    kind: StampKind
    """Who stamps this socket's packets."""
    stamp_room: int
    """TX stamps that fit into its buffers before the kernel drops them."""
    control: UInt8s
    """(CONTROL_BYTES,) control messages to send with: TOS, and PKTINFO with source address and interface."""
    control_bytes: int

    @property
    def v6(self) -> bool:
        """Whether it is an IPv6 socket."""
        return self.sock.family == socket.AF_INET6


def open_probe_sockets(
    nic: NicConfig, ports: Sequence[int], *, own_address: bool, hardware: bool
) -> list[ProbeSocket | OpenError]:
    """Open the sockets of `nic` on UDP `ports` (0: any) in one visit to its namespace: each socket, or its error.

    Parameters
    ----------
    own_address : bool
        Bind to the NIC's address instead of the wildcard (several NICs share the device).
    hardware : bool
        Ask the NIC for stamps.

    Returns
    -------
    list
        In place of a socket: an OSError when the device, its address or its namespace is not there now (ENODEV,
        EADDRNOTAVAIL, ENOENT, …) or the port is taken now (EADDRINUSE); a ConfigError or UnavailableError when it can
        never work, because the port is reserved or the kernel refuses to bind to a device.
    """

    def work() -> list[ProbeSocket | OpenError]:
        found: list[ProbeSocket | OpenError] = []
        for port in ports:
            try:
                found.append(_open_here(nic, port, own_address=own_address, hardware=hardware))
            except (OSError, ConfigError, UnavailableError) as error:
                found.append(error)
        return found

    try:
        return inside(nic.netns, work)
    except OSError as error:
        return [error] * len(ports)


def _open_here(nic: NicConfig, port: int, *, own_address: bool, hardware: bool) -> ProbeSocket:
    """Open a socket in the namespace of the calling thread."""
    v6 = ipaddress.ip_address(nic.address).version == 6
    sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        interface = socket.if_nametoindex(nic.device)
        _bind(sock, nic, port, own_address=own_address)
        _request_metadata(sock, v6)
        stamp_room, kind = _make_room(sock), enable_stamps(sock, nic.device, hardware=hardware)
        address = address_octets(nic.address)
        control, control_bytes = _control(address, interface, v6)
        port = sock.getsockname()[1]
    except BaseException:
        sock.close()
        raise
    return ProbeSocket(sock, sock.fileno(), nic, port, interface, address, kind, stamp_room, control, control_bytes)


class NicFound(NamedTuple):
    """A NIC that can be used now."""

    identity: tuple[object, int]
    """Its namespace, and its interface index there."""
    mtu_bytes: int | None
    """MTU of its device; None: it cannot be read."""


def presence(nic: NicConfig) -> NicFound:
    """Look whether `nic` can be used now.

    Raises
    ------
    OSError
        The namespace, the device or the address is not there (now), or the device is switched off.
    """
    v6 = ipaddress.ip_address(nic.address).version == 6

    def look() -> tuple[int, int | None]:
        with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            interface = socket.if_nametoindex(nic.device)
            ifreq = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16s24x", nic.device.encode()[:15]))
            if not struct.unpack_from("H", ifreq, 16)[0] & _IFF_UP:
                raise OSError(errno.ENETDOWN, "the device is switched off", nic.device)
            _bind(sock, nic, 0, own_address=True)
            return interface, _mtu_bytes(sock, nic.device)

    name = identity(nic.netns)
    interface, mtu_bytes = inside(nic.netns, look)
    return NicFound((name, interface), mtu_bytes)


def _mtu_bytes(sock: socket.socket, device: str) -> int | None:
    try:
        ifreq = fcntl.ioctl(sock, _SIOCGIFMTU, struct.pack("16s24x", device.encode()[:15]))
    except OSError:
        return None
    return int(struct.unpack_from("i", ifreq, 16)[0])


def report_icmp(socket_: ProbeSocket, on: bool) -> None:
    """Let ICMP errors come up by the socket's error queue (IP_RECVERR).

    Off by default: while it is on, an ICMP error also makes the next send on the socket fail once.
    """
    layer, option = (socket.IPPROTO_IPV6, IPV6_RECVERR) if socket_.v6 else (socket.IPPROTO_IP, IP_RECVERR)
    socket_.sock.setsockopt(layer, option, int(on))


def send_limited(opened: ProbeSocket, address: bytes, port: int, payload: bytes, tos: int, ttl: int) -> None:
    """Send one datagram with its own TTL or hop limit; raises OSError. `address`: 16 octets."""
    if opened.v6:
        destination: tuple[str, int] = (socket.inet_ntop(socket.AF_INET6, address), port)
        layer, tos_type, ttl_type, info_type = socket.IPPROTO_IPV6, IPV6_TCLASS, IPV6_HOPLIMIT, IPV6_PKTINFO
        info = struct.pack("@16sI", opened.address, opened.interface)
    else:
        destination = (socket.inet_ntop(socket.AF_INET, address[12:]), port)
        layer, tos_type, ttl_type, info_type = socket.IPPROTO_IP, socket.IP_TOS, socket.IP_TTL, IP_PKTINFO
        info = struct.pack("@i4s4x", opened.interface, opened.address[12:])
    octets = ((tos_type, struct.pack("@i", tos)), (ttl_type, struct.pack("@i", ttl)), (info_type, info))
    opened.sock.sendmsg([payload], [(layer, kind, data) for kind, data in octets], 0, destination)


def _bind(sock: socket.socket, nic: NicConfig, port: int, *, own_address: bool) -> None:
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.device.encode() + b"\0")
    except PermissionError as error:
        raise UnavailableError(f"{nic.nic}: this kernel lets only root bind a socket to a device") from error
    try:
        sock.bind((nic.address if own_address else "", port))
    except OSError as error:
        if error.errno == errno.EACCES:
            sentence = f"{nic.nic}: UDP port {port} is reserved for root; choose a port above 1023"
            raise ConfigError(sentence) from error
        raise


def _request_metadata(sock: socket.socket, v6: bool) -> None:
    """Ask for destination, TTL and TOS of what arrives; send with the DF bit, whatever path MTU is remembered."""
    if v6:
        layer = socket.IPPROTO_IPV6
        for option in (IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS):
            sock.setsockopt(layer, option, 1)
        sock.setsockopt(layer, IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
        sock.setsockopt(layer, socket.IPV6_UNICAST_HOPS, SENT_TTL)
    else:
        layer = socket.IPPROTO_IP
        for option in (IP_PKTINFO, IP_RECVTTL, IP_RECVTOS):
            sock.setsockopt(layer, option, 1)
        sock.setsockopt(layer, IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        sock.setsockopt(layer, socket.IP_TTL, SENT_TTL)


def _make_room(sock: socket.socket) -> int:
    """Enlarge the buffers as far as we may; how many TX stamps then fit (they are charged to the receive buffer)."""
    for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, plain, _BUFFER_BYTES)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2048


def _control(address: bytes, interface: int, v6: bool) -> tuple[UInt8s, int]:
    """Control messages for sending: TOS first, at one offset in both families, then PKTINFO."""
    if v6:
        tos = struct.pack("@QiiI4x", 20, socket.IPPROTO_IPV6, IPV6_TCLASS, 0)
        info = struct.pack("@Qii16sI4x", 36, socket.IPPROTO_IPV6, IPV6_PKTINFO, address, interface)
    else:
        tos = struct.pack("@QiiI4x", 20, socket.IPPROTO_IP, socket.IP_TOS, 0)
        # in_pktinfo: interface, source address (spec_dst), unused
        info = struct.pack("@QiiI4s4x4x", 28, socket.IPPROTO_IP, IP_PKTINFO, interface, address[12:])
    packed = tos + info
    control = np.zeros(CONTROL_BYTES, np.uint8)
    control[: len(packed)] = np.frombuffer(packed, np.uint8)
    return control, len(packed)


def enable_stamps(sock: socket.socket, device: str, *, hardware: bool) -> StampKind:
    """Switch stamping on; the kind of stamps that `sock` will report.

    With `hardware`, the NIC is asked first; when it cannot stamp every packet in both directions, or may not be
    set to, the kernel stamps.
    """
    kind = StampKind.HARDWARE if hardware and _nic_stamps(sock, device) else StampKind.KERNEL
    restart_stamp_ids(sock, kind)
    return kind


def restart_stamp_ids(sock: socket.socket, kind: StampKind) -> None:
    """Let the ids of TX stamps (OPT_ID) start at 0 with the next packet.

    A failed send leaves it open whether the packet used up an id (kernels differ), so the count is started afresh.
    Switching only OPT_ID off and on resets the kernel's counter and leaves receive stamps undisturbed.
    """
    flags = _HARDWARE_FLAGS if kind is StampKind.HARDWARE else _KERNEL_FLAGS
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags | _OPT_ID)


def capabilities(sock: socket.socket, device: str) -> int:
    """The SOF_TIMESTAMPING_* bits that the driver of `device` offers; 0 when it offers none.

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
