"""The NICs of a job: datagrams of all ranks sent and received in batches.

Arrivals are stamped by the kernel. Departures are stamped by user space just before the batch is handed over, and
again, for packets with an `on_departure`, by the kernel as they leave.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.emulator.process_nic_io import MSG_DONTWAIT, SO_TIMESTAMPING, TX_SOFTWARE, Enter, NicSocket
from sdfstream.emulator.qp_header import PORT
from sdfstream.emulator.rank_job import OutgoingDatagram
from sdfstream.emulator.rank_plan import NicEndpoint
from sdfstream.errors import UnavailableError
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_ROWS: Final = 256
_ROW_BYTES: Final = 2048
_CONTROL_BYTES: Final = 64
_IP_BYTES, _UDP_BYTES = 20, 8
_TTL: Final = 64

_HEADERS: Final = struct.Struct("!BBHHHBBH4s4sHHHH")
_SOCKADDR: Final = struct.Struct("=H2s4s8x")
_ASK_STAMP: Final = struct.pack("=QiiI4x", 20, socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE)
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


class JobNet:
    """The NICs of all ranks.

    Parameters
    ----------
    endpoints : sequence of NicEndpoint
        By rank.
    run : int
    enter : Enter
    counters : Counters
        Gets ``received``, ``sent``, ``unsent`` (why), ``nic-away``, ``nic-back``.
    """

    def __init__(
        self,
        endpoints: Sequence[NicEndpoint],
        run: int,
        enter: Enter,
        counters: Counters,
    ) -> None:
        self._counters = counters
        self.nics: list[NicSocket] = []
        try:
            for endpoint in endpoints:
                try:
                    self.nics.append(NicSocket(endpoint, run, enter))
                except OSError as error:
                    raise UnavailableError(f"{endpoint.nic}: {error.strerror}") from error
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
            nic.report_departures()
        if total:
            self._counters.add("received", n=total)
        return total

    def send(self, batch: Sequence[OutgoingDatagram]) -> None:
        """Send datagrams, which are sorted by rank; those that the kernel refuses are lost, as on a wire."""
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

    def _drain(self, rank: int, nic: NicSocket, take: Receive) -> int:
        block = self._in
        block.control_size[:] = _CONTROL_BYTES
        n: int = _libc.recvmmsg(nic.fd, ctypes.c_void_p(block.address), _ROWS, MSG_DONTWAIT, None)
        if n <= 0:
            self._check_device(nic, ctypes.get_errno() if n < 0 else 0)
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

    def _send(self, nic: NicSocket, batch: Sequence[OutgoingDatagram]) -> None:
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
            asks.append(len(_ASK_STAMP) if item.on_departure else 0)
            at += _ROW_BYTES
        block.size[:n] = sizes
        block.control_size[:n] = asks
        self._hand_over(nic, batch)

    def _hand_over(self, nic: NicSocket, batch: Sequence[OutgoingDatagram]) -> None:
        now_ns = time.time_ns()
        sent, n = 0, len(batch)
        while sent < n:
            done = _libc.sendmmsg(nic.fd, ctypes.c_void_p(self._out.address + sent * 64), n - sent, MSG_DONTWAIT)
            if done <= 0:
                break
            for item in batch[sent : sent + done]:
                if item.on_departure:
                    item.on_departure(now_ns)
                    nic.await_stamp(item.on_departure)
            sent += done
        self._counters.add("sent", n=sent)
        if sent < n:
            number = ctypes.get_errno()
            self._counters.add("unsent", errno.errorcode.get(number, str(number)), n - sent)
            nic.restart_stamps()
            self._check_device(nic, number)

    def _check_device(self, nic: NicSocket, number: int) -> None:
        """A socket whose device was removed never works again; one whose device is down does."""
        if number in (errno.ENODEV, errno.ENXIO):
            nic.close()
            self._counters.add("nic-away")


def _addresses(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    rows = np.arange(len(array), dtype=np.uint64)
    return np.uint64(array.ctypes.data) + rows * np.uint64(array.strides[0])
