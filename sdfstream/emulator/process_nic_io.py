"""The sockets of one NIC of a job.

One raw UDP socket per NIC, bound to its device. It sends whole IPv4 packets (IP_HDRINCL), so a change of source port
is a change of two octets. It receives what a filter in the kernel lets through: datagrams to port 4791 with our magic
and this process's run number, so several jobs can share a NIC. A second, mute UDP socket holds the port, so that the
kernel does not answer "port unreachable".
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from sdfstream.emulator.qp_chunk import OnDeparture
from sdfstream.emulator.qp_header import MAGIC, PORT
from sdfstream.emulator.rank_plan import NicEndpoint
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.units import NS_PER_S

Enter = Callable[[str | None, Callable[[], Any]], Any]
"""(path of a network namespace or None, work) to the result of the work, done there."""

SO_TIMESTAMPING: Final = 37
TX_SOFTWARE: Final = 1 << 1
MSG_DONTWAIT: Final = 0x40
_MSG_ERRQUEUE: Final = 0x2000
_RX_SOFTWARE, _SOFTWARE, _OPT_ID, _OPT_TSONLY = 1 << 3, 1 << 4, 1 << 7, 1 << 11
_STAMP_FLAGS: Final = _RX_SOFTWARE | _SOFTWARE | _OPT_TSONLY
_IP_RECVERR, _ORIGIN_STAMPING = 11, 4
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE, _SO_ATTACH_FILTER = 33, 32, 26
_BUFFER_BYTES: Final = 4 << 20
_MOST_AWAITED: Final = 4_096
"""Transmit stamps that may be waited for; a NIC without carrier takes packets and stamps none."""

_LOAD_IHL, _LOAD_HALF, _LOAD_WORD = (0xB1, 0, 0, 0), 0x48, 0x40
_IF_EQUAL: Final = 0x15
_ACCEPT, _REFUSE = (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)


class NicSocket:
    """One NIC's socket, reopened when its device has come back.

    Parameters
    ----------
    endpoint : NicEndpoint
    run : int
        Of our packets' header.
    enter : Enter
    """

    def __init__(self, endpoint: NicEndpoint, run: int, enter: Enter) -> None:
        try:
            self.address = ipaddress.IPv4Address(endpoint.address).packed
        except ValueError as error:
            raise ConfigError(f"a job needs IPv4: {endpoint.nic} has {endpoint.address}") from error
        self.endpoint = endpoint
        self._awaited: dict[int, OnDeparture] = {}
        self._next_id = 0
        self._run = run
        self._enter = enter
        self._sockets: list[socket.socket] = []
        self.open()

    @property
    def sock(self) -> socket.socket | None:
        """The raw socket; None while the device is away."""
        return self._sockets[0] if self._sockets else None

    def open(self) -> None:
        """Open the sockets.

        Raises
        ------
        OSError
            The device or its namespace is not there (now).
        UnavailableError
            Raw sockets are not allowed.
        """
        self.close()
        try:
            self._sockets = self._enter(self.endpoint.netns, self._make)
        except PermissionError as error:
            raise UnavailableError(f"{self.endpoint.nic}: raw sockets need root (CAP_NET_RAW)") from error
        self.fd = self._sockets[0].fileno()

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        self._awaited.clear()
        self._next_id = 0

    def await_stamp(self, on_departure: OnDeparture) -> None:
        """Expect the kernel's transmit stamp of the packet just sent, for `on_departure`."""
        if len(self._awaited) >= _MOST_AWAITED:
            self.restart_stamps()
        self._awaited[self._next_id] = on_departure
        self._next_id = self._next_id + 1 & 0xFFFFFFFF

    def restart_stamps(self) -> None:
        """A send failed, and whether the packet used up an id is open: expect no stamp, count from 0 again."""
        self._awaited.clear()
        self._next_id = 0
        if self.sock is not None:
            _read_stamps(self.sock)
            _switch_stamps_on(self.sock)

    def report_departures(self) -> None:
        """Hand the kernel's transmit stamps to the callbacks that wait for them."""
        if self._awaited and self.sock is not None:
            for number, at_ns in _read_stamps(self.sock):
                if (on_departure := self._awaited.pop(number, None)) is not None:
                    on_departure(at_ns)

    def _make(self) -> list[socket.socket]:
        device = self.endpoint.device.encode() + b"\0"
        made: list[socket.socket] = []
        try:
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_UDP)
            made.append(raw)
            _attach(raw, _ours(self._run))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
            _empty(raw)
            for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
                try:
                    raw.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
                except OSError:
                    raw.setsockopt(socket.SOL_SOCKET, plain, _BUFFER_BYTES)
            _switch_stamps_on(raw)
            mute = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            made.append(mute)
            _attach(mute, [_REFUSE])
            mute.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            mute.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            try:
                mute.bind(("", PORT))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:  # in use: another process's socket has the same effect
                    raise
        except BaseException:
            for sock in made:
                sock.close()
            raise
        return made


def _ours(run: int) -> list[tuple[int, int, int, int]]:
    """Classic BPF on what a raw socket receives, IP header first: destination port, magic and run must fit."""
    return [
        _LOAD_IHL,
        (_LOAD_HALF, 0, 0, 2),
        (_IF_EQUAL, 0, 5, PORT),
        (_LOAD_WORD, 0, 0, 8),
        (_IF_EQUAL, 0, 3, MAGIC),
        (_LOAD_WORD, 0, 0, 16),
        (_IF_EQUAL, 0, 1, run),
        _ACCEPT,
        _REFUSE,
    ]


def _empty(sock: socket.socket) -> None:
    """Discard what came in before the filter was attached."""
    with contextlib.suppress(OSError):
        while True:
            sock.recv(1)


def _attach(sock: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))


def _switch_stamps_on(sock: socket.socket) -> None:
    """Switching OPT_ID off and on makes the kernel count from 0."""
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _STAMP_FLAGS)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _STAMP_FLAGS | _OPT_ID)


def _read_stamps(sock: socket.socket) -> list[tuple[int, int]]:
    """(number, departure in ns) of the stamps in a socket's error queue; see timestamping.rst."""
    stamps: list[tuple[int, int]] = []
    while True:
        try:
            _, ancillary, _, _ = sock.recvmsg(1, 512, _MSG_ERRQUEUE | MSG_DONTWAIT)
        except OSError:
            return stamps
        at_ns = number = None
        for cmsg_level, kind, data in ancillary:
            if (cmsg_level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING) and len(data) >= 16:
                seconds, ns = struct.unpack_from("=qq", data)
                at_ns = seconds * NS_PER_S + ns
            elif (
                (cmsg_level, kind) == (socket.IPPROTO_IP, _IP_RECVERR)
                and len(data) >= 16
                and data[4] == _ORIGIN_STAMPING
            ):
                (number,) = struct.unpack_from("=I", data, 12)
        if at_ns and number is not None:
            stamps.append((number, at_ns))
