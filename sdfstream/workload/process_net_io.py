"""The NICs of a job: raw sockets that send by any source port and receive what is ours, in batches.

One raw UDP socket per NIC, bound to its device. It sends whole IPv4 packets (IP_HDRINCL), so a change of source port
is a change of two octets. It receives what a filter in the kernel lets through: datagrams to port 4791 with our magic
and this process's run number, so several jobs can share a NIC. A second, mute UDP socket holds the port, so that the
kernel does not answer "port unreachable".

Arrivals are stamped by the kernel. Departures are stamped by user space just before the batch is handed over, and
again, for the packets whose sender asked, by the kernel as they leave.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from sdfstream.workload.qp_header import MAGIC, PORT
from sdfstream.workload.qp_send import Left
from sdfstream.workload.rank_job import ToSend
from sdfstream.workload.rank_plan import NicPlace

T = TypeVar("T")
_ROWS: Final = 256
_ROW_BYTES: Final = 2048
_CONTROL_BYTES: Final = 64
_IP_BYTES, _UDP_BYTES = 20, 8
_TTL: Final = 64
_BUFFER_BYTES: Final = 4 << 20
_SO_TIMESTAMPING, _SO_RCVBUFFORCE, _SO_SNDBUFFORCE, _SO_ATTACH_FILTER = 37, 33, 32, 26
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE, _OPT_ID, _OPT_TSONLY = 1 << 1, 1 << 3, 1 << 4, 1 << 7, 1 << 11
_RECEIVE_FLAGS: Final = _RX_SOFTWARE | _SOFTWARE | _OPT_TSONLY
_MSG_DONTWAIT: Final = 0x40
_MSG_ERRQUEUE: Final = 0x2000
_STAMPS_KEPT: Final = 4_096

_HEADERS: Final = struct.Struct("!BBHHHBBH4s4sHHHH")
_SOCKADDR: Final = struct.Struct("=H2s4s8x")
_ASK_STAMP: Final = struct.pack("=QiiI4x", 20, socket.SOL_SOCKET, _SO_TIMESTAMPING, _TX_SOFTWARE)
_STAMP_HEADER: Final = struct.Struct("=Qii")
_MMSGHDR: Final = np.dtype(
    {
        "names": ["name", "namelen", "iov", "iovlen", "control", "controllen", "flags", "len"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_libc: Final = ctypes.CDLL(None, use_errno=True)

Receive = Callable[[int, int, int, int, memoryview], None]
"""(rank, source port, TOS octet, arrived_at_ns, UDP payload); the payload is gone after the call."""


class _Block:
    """Rows for recvmmsg and sendmmsg, wired up once."""

    def __init__(self, control: bytes = b"", name_bytes: int = 0) -> None:
        self.data = np.zeros((_ROWS, _ROW_BYTES), np.uint8)
        self.view = self.data.reshape(-1).data
        self.control = np.zeros((_ROWS, _CONTROL_BYTES), np.uint8)
        if control:
            self.control[:, : len(control)] = np.frombuffer(control, np.uint8)
        self.names = np.zeros((_ROWS, 16), np.uint8)
        self.name_view = self.names.reshape(-1).data
        self._iov: npt.NDArray[np.uint64] = np.zeros((_ROWS, 2), np.uint64)
        self._header: npt.NDArray[Any] = np.zeros(_ROWS, _MMSGHDR)
        self._iov[:, 0] = _addresses(self.data)
        self._iov[:, 1] = _ROW_BYTES
        self.size = self._iov[:, 1]
        header = self._header
        header["iov"] = _addresses(self._iov)
        header["iovlen"] = 1
        header["name"] = _addresses(self.names) if name_bytes else 0
        header["namelen"] = name_bytes
        header["control"] = _addresses(self.control)
        self.control_size = header["controllen"]
        self.length = header["len"]
        self.address = header.ctypes.data


class Nic:
    """One NIC's socket, reopened when its device has come back.

    Parameters
    ----------
    place : NicPlace
    run : int
        Of our packets' header.
    enter : callable
        (path of a network namespace or None, work) to the result of the work, done there.
    """

    def __init__(self, place: NicPlace, run: int, enter: Callable[[str | None, Callable[[], Any]], Any]) -> None:
        try:
            self.address = ipaddress.IPv4Address(place.address).packed
        except ValueError as error:
            raise ConfigError(f"a job needs IPv4: {place.nic} has {place.address}") from error
        self.place = place
        self.asked: deque[Left] = deque(maxlen=_STAMPS_KEPT)
        """Who waits for the kernel's stamps, in the order of sending."""
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
            self._sockets = self._enter(self.place.netns, self._make)
        except PermissionError as error:
            raise UnavailableError(f"{self.place.nic}: raw sockets need root (CAP_NET_RAW)") from error
        self.fd = self._sockets[0].fileno()

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._sockets:
            sock.close()
        self._sockets = []
        self.asked.clear()

    def restart_stamps(self) -> None:
        """A send failed, so it is open which departures are still to be stamped: forget them."""
        self.asked.clear()
        if self.sock is not None:
            _read_errors(self.sock)

    def _make(self) -> list[socket.socket]:
        device = self.place.device.encode() + b"\0"
        made: list[socket.socket] = []
        try:
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_UDP)
            made.append(raw)
            _attach(raw, _ours(self._run))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
            for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
                try:
                    raw.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
                except OSError:
                    raw.setsockopt(socket.SOL_SOCKET, plain, _BUFFER_BYTES)
            raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RECEIVE_FLAGS)
            mute = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            made.append(mute)
            _attach(mute, [_REFUSE])
            mute.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            mute.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            try:
                mute.bind(("", PORT))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:  # then somebody else keeps the kernel quiet
                    raise
        except BaseException:
            for sock in made:
                sock.close()
            raise
        return made


class JobNet:
    """The NICs of all ranks.

    Parameters
    ----------
    places : sequence of NicPlace
        By rank.
    run : int
    enter : callable
        As `Nic`.
    counters : Counters
        Gets ``received``, ``sent``, ``unsent`` (why), ``nic-away``, ``nic-back``.
    """

    def __init__(
        self,
        places: Sequence[NicPlace],
        run: int,
        enter: Callable[[str | None, Callable[[], Any]], Any],
        counters: Counters,
    ) -> None:
        self._counters = counters
        self.nics: list[Nic] = []
        try:
            for place in places:
                try:
                    self.nics.append(Nic(place, run, enter))
                except OSError as error:
                    raise UnavailableError(f"{place.nic}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise
        self._names = [_SOCKADDR.pack(socket.AF_INET, b"\0\0", nic.address) for nic in self.nics]
        self._in = _Block()
        self._out = _Block(control=_ASK_STAMP, name_bytes=16)

    def close(self) -> None:
        """Close all sockets."""
        for nic in self.nics:
            nic.close()

    def receive(self, take: Receive) -> int:
        """Hand everything that has arrived to `take`; how many datagrams."""
        total = 0
        for rank, nic in enumerate(self.nics):
            if nic.sock is None:
                continue
            n = _ROWS
            while n == _ROWS:
                n = self._drain(rank, nic, take)
                total += n
            if nic.asked:
                _tell(nic)
        if total:
            self._counters.add("received", n=total)
        return total

    def send(self, batch: Sequence[ToSend]) -> None:
        """Send datagrams, which are sorted by rank; what the kernel does not take is lost, as on a wire."""
        first = 0
        while first < len(batch):
            rank, last = batch[first].rank, first + 1
            while last < len(batch) and last - first < _ROWS and batch[last].rank == rank:
                last += 1
            self._send(self.nics[rank], batch[first:last])
            first = last

    def reopen(self) -> None:
        """Try to open the sockets of NICs that have gone away."""
        for nic in self.nics:
            if nic.sock is None:
                try:
                    nic.open()
                except (OSError, UnavailableError):
                    continue
                self._counters.add("nic-back")

    def _drain(self, rank: int, nic: Nic, take: Receive) -> int:
        block = self._in
        block.control_size[:] = _CONTROL_BYTES
        n: int = _libc.recvmmsg(nic.fd, ctypes.c_void_p(block.address), _ROWS, _MSG_DONTWAIT, None)
        if n <= 0:
            self._look_at(nic, ctypes.get_errno() if n < 0 else 0)
            return 0
        user_at_ns = time.time_ns()
        sizes = block.length[:n].tolist()
        stamps = block.control.view(np.int64)[:n, 2:4].tolist()
        stamped = (block.control_size[:n] == _CONTROL_BYTES).tolist()
        data, at = block.view, 0
        for i, size in enumerate(sizes):
            header = (data[at] & 0xF) << 2
            if size > _ROW_BYTES or size < header + _UDP_BYTES:
                self._counters.add("refused", "length")
            else:
                at_ns = stamps[i][0] * NS_PER_S + stamps[i][1] if stamped[i] else user_at_ns
                udp = at + header
                port = data[udp] << 8 | data[udp + 1]
                take(rank, port, data[at + 1], at_ns, data[udp + _UDP_BYTES : at + size])
            at += _ROW_BYTES
        return n

    def _send(self, nic: Nic, batch: Sequence[ToSend]) -> None:
        if nic.sock is None:
            self._counters.add("unsent", "nic-away", len(batch))
            return
        block, n = self._out, len(batch)
        data, names, at = block.view, block.name_view, 0
        sizes, asks = [], []
        for i, item in enumerate(batch):
            payload = item.payload
            length = _UDP_BYTES + len(payload)
            far = self.nics[item.peer].address
            _HEADERS.pack_into(
                data, at, 0x45, item.tos, _IP_BYTES + length, 0, 0x4000, _TTL, socket.IPPROTO_UDP, 0,
                nic.address, far, item.source_port, PORT, length, 0,
            )  # fmt: skip
            data[at + 28 : at + 28 + len(payload)] = payload
            names[i * 16 : i * 16 + 16] = self._names[item.peer]
            sizes.append(_IP_BYTES + length)
            asks.append(len(_ASK_STAMP) if item.left else 0)
            at += _ROW_BYTES
        block.size[:n] = sizes
        block.control_size[:n] = asks
        self._hand_over(nic, batch)

    def _hand_over(self, nic: Nic, batch: Sequence[ToSend]) -> None:
        now_ns = time.time_ns()
        sent, n = 0, len(batch)
        while sent < n:
            done = _libc.sendmmsg(nic.fd, ctypes.c_void_p(self._out.address + sent * 64), n - sent, _MSG_DONTWAIT)
            if done <= 0:
                break
            for item in batch[sent : sent + done]:
                if item.left:
                    item.left(now_ns)
                    nic.asked.append(item.left)
            sent += done
        self._counters.add("sent", n=sent)
        if sent < n:
            number = ctypes.get_errno()
            self._counters.add("unsent", errno.errorcode.get(number, str(number)), n - sent)
            nic.restart_stamps()
            self._look_at(nic, number)

    def _look_at(self, nic: Nic, number: int) -> None:
        """A socket whose device was removed never works again; one whose device is down does."""
        if number in (errno.ENODEV, errno.ENXIO):
            nic.close()
            self._counters.add("nic-away")


_LOAD_IHL, _LOAD_HALF, _LOAD_WORD = (0xB1, 0, 0, 0), 0x48, 0x40
_IF_EQUAL: Final = 0x15
_ACCEPT, _REFUSE = (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)


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


def _attach(sock: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))


def _tell(nic: Nic) -> None:
    """Give the kernel's departure stamps to those who asked, in the order of sending."""
    assert nic.sock is not None
    for at_ns in _read_errors(nic.sock):
        if nic.asked:
            nic.asked.popleft()(at_ns)


def _read_errors(sock: socket.socket) -> list[int]:
    """The stamps in a socket's error queue."""
    stamps: list[int] = []
    while True:
        try:
            _, ancillary, _, _ = sock.recvmsg(1, 512, _MSG_ERRQUEUE | _MSG_DONTWAIT)
        except OSError:
            return stamps
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= 16:
                seconds, ns = struct.unpack_from("=qq", data)
                stamps.append(seconds * NS_PER_S + ns)


def _addresses(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    rows = np.arange(len(array), dtype=np.uint64)
    return np.uint64(array.ctypes.data) + rows * np.uint64(array.strides[0])
