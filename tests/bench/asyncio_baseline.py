"""The simple way, to compare with: asyncio that handles one packet at a time, on loopback as ours.

- *plain*: a `DatagramProtocol` that packs and sends, or unpacks, one probe at a time: no stamp, no class, no check;
- *stamped*: the same knowledge as ours has, by ``sendmsg`` and ``recvmsg``: class and source address set per packet,
  kernel sending time read from the error queue, kernel arrival time, class and destination read from control messages.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from dataclasses import dataclass

from sdfstream.probes.net.socket_io import SO_TIMESTAMPING

HEADER = struct.Struct("!IQHHIIQHHB3x")
"""Base STAMP packet: sequence, stamp, error, SSID, and the fields an answer fills."""
SIZE_BYTES = 100
_MSG_ERRQUEUE = 0x2000
_KERNEL_STAMPS = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 11
_ROOM_BYTES = 4 << 20


@dataclass(slots=True)
class Probe:
    """One probe as a simple program keeps it."""

    fields: tuple[int, ...]
    address: tuple[str, int]
    at_ns: int
    tos: int = 0


async def per_packet(rounds: int, packets: int = 200) -> dict[tuple[str, str], list[float]]:
    """kpps per core of each round by (work, how), ``send`` and ``receive``, ``plain`` and ``stamped``."""
    kpps: dict[tuple[str, str], list[float]] = {}
    for how, kind in (("plain", _Plain), ("stamped", _Stamped)):
        endpoint = await kind.open()
        for _ in range(rounds):
            began = time.thread_time()
            for seq in range(packets):
                endpoint.send(HEADER.pack(seq, time.time_ns(), 1, 7, *[0] * 6).ljust(SIZE_BYTES, b"\0"))
            endpoint.left()
            sent = time.thread_time()
            while len(endpoint.got) < packets:  # noqa: ASYNC110 - the loop is what is measured
                await asyncio.sleep(0)
            kpps.setdefault(("send", how), []).append(packets / (sent - began) / 1e3)
            kpps.setdefault(("receive", how), []).append(packets / (time.thread_time() - sent) / 1e3)
            endpoint.got.clear()
        endpoint.close()
    return kpps


class _Plain(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: list[Probe] = []

    @classmethod
    async def open(cls) -> _Plain:
        loop = asyncio.get_running_loop()
        made, self = await loop.create_datagram_endpoint(cls, local_addr=("127.0.0.1", 0))
        self.receiving = made
        self.sending, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=made.get_extra_info("sockname")
        )
        for transport in (self.sending, self.receiving):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
        return self

    def send(self, packet: bytes) -> None:
        self.sending.sendto(packet)

    def left(self) -> None:
        """Nothing is known of when a packet left."""

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.got.append(Probe(HEADER.unpack_from(data), addr, time.time_ns()))

    def close(self) -> None:
        self.sending.close()
        self.receiving.close()


class _Stamped:
    def __init__(self) -> None:
        self.got: list[Probe] = []
        self.sent_at_ns: dict[int, int] = {}
        self.sending, self.receiving = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for one in (self.sending, self.receiving):
            one.setblocking(False)
            one.bind(("127.0.0.1", 0))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
            one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _KERNEL_STAMPS)
        for option in (socket.IP_RECVTOS, 8, 12):  # and IP_PKTINFO, IP_RECVTTL
            self.receiving.setsockopt(socket.IPPROTO_IP, option, 1)
        self._where = self.receiving.getsockname()
        self._info = struct.pack("@i4s4x", socket.if_nametoindex("lo"), socket.inet_aton("127.0.0.1"))

    @classmethod
    async def open(cls) -> _Stamped:
        self = cls()
        asyncio.get_running_loop().add_reader(self.receiving.fileno(), self._receive)
        return self

    def send(self, packet: bytes) -> None:
        tos = struct.pack("@i", 2)
        control = [(socket.IPPROTO_IP, socket.IP_TOS, tos), (socket.IPPROTO_IP, 8, self._info)]
        self.sending.sendmsg([packet], control, 0, self._where)

    def left(self) -> None:
        while True:
            try:
                _, control, _, _ = self.sending.recvmsg(64, 256, _MSG_ERRQUEUE)
            except BlockingIOError:
                return
            at_ns = number = 0
            for _, kind, data in control:
                if kind == SO_TIMESTAMPING:
                    seconds, ns = struct.unpack_from("@qq", data)
                    at_ns = seconds * 1_000_000_000 + ns
                elif len(data) >= 16:
                    number = struct.unpack_from("@I", data, 12)[0]
            self.sent_at_ns[number] = at_ns

    def _receive(self) -> None:
        data, control, _, address = self.receiving.recvmsg(512, 256)
        at_ns = tos = 0
        for _, kind, value in control:
            if kind == SO_TIMESTAMPING:
                seconds, ns = struct.unpack_from("@qq", value)
                at_ns = seconds * 1_000_000_000 + ns
            elif kind == socket.IP_TOS:
                tos = value[0]
        self.got.append(Probe(HEADER.unpack_from(data), address, at_ns, tos))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.receiving.fileno())
        self.sending.close()
        self.receiving.close()
