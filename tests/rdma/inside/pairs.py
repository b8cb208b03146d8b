"""Two connected ends of a real queue pair in one process, and what is measured on them."""

from __future__ import annotations

import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sdfstream.verbs.endpoint_io import Completion, ConnectionSettings, RcEndpoint
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.live_qp_io import LiveQp
from sdfstream.verbs.stream_io import ChunkReceiver, ChunkSender

SLOTS, SLOT_BYTES = 16, 4096


class Pair:
    """a → b: messages of one slot's size, any number outstanding up to `SLOTS`."""

    def __init__(self, verbs: Verbs, near: str, far: str, settings: ConnectionSettings, shared: Pair | None = None):
        octets = SLOTS * SLOT_BYTES
        self.a = RcEndpoint(verbs, near, octets, None if shared is None else shared.a)
        self.b = RcEndpoint(verbs, far, octets)
        self.settings = settings
        self.connect()
        self.live = LiveQp(verbs, self.a.qp, self.a.context, paced=True)

    def connect(self) -> None:
        self.a.connect(self.b.address, self.settings)
        self.b.connect(self.a.address, self.settings)

    def reset(self) -> None:
        self.a.reset()
        self.b.reset()

    def post(self, count: int) -> None:
        for slot in range(count):
            assert self.b.receive(slot, slot * SLOT_BYTES, SLOT_BYTES) == 0
            assert self.a.send(slot, slot * SLOT_BYTES, SLOT_BYTES) == 0

    def wait(self, count: int, limit_s: float = 20) -> list[Completion]:
        """The sender's next completions."""
        found: list[Completion] = []
        ends_s = time.monotonic() + limit_s
        while len(found) < count and time.monotonic() < ends_s:
            found += self.a.completions()
            self.b.completions()
        return found

    def close(self) -> None:
        self.a.close()
        self.b.close()


class Streams:
    """A stream from rxa0 with its standby on rxa1, and its receiver."""

    def __init__(self, verbs: Verbs, port: int, standby: int, timeout: int = 10, retries: int = 3):
        settings = ConnectionSettings(port, timeout=timeout, retries=retries)
        self.first = Pair(verbs, "rxa0", "rxb0", settings)
        self.second = Pair(verbs, "rxa1", "rxb1", ConnectionSettings(standby), shared=self.first)
        self.pairs = (self.first, self.second)
        self.sender = ChunkSender([p.a for p in self.pairs], [p.live for p in self.pairs], SLOTS, SLOT_BYTES)
        self.receiver = ChunkReceiver([p.b for p in self.pairs], SLOTS, SLOT_BYTES)

    def poll(self) -> int:
        self.receiver.poll()
        return self.sender.poll()

    def run(self, chunks: int, limit_s: float = 20) -> list[bytes]:
        """Send chunks of random octets and wait until all are acknowledged; what was sent."""
        sent: list[bytes] = []
        ends_s = time.monotonic() + limit_s
        while (len(sent) < chunks or not self.sender.is_done) and time.monotonic() < ends_s:
            if len(sent) < chunks:
                payload = os.urandom(2000)
                if self.sender.send(payload):
                    sent.append(payload)
            self.poll()
        assert len(sent) == chunks
        assert self.sender.is_done
        return sent

    def close(self) -> None:
        for pair in reversed(self.pairs):  # the second has the first one's memory
            pair.close()


@contextmanager
def capture(device: str) -> Iterator[list[tuple[int, int]]]:
    """(source port, IP TOS) of RoCEv2 packets that leave by a network device; complete when the block has ended."""
    found: list[tuple[int, int]] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
        sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        sniffer.bind((device, 3))
        sniffer.setblocking(False)
        yield found
        time.sleep(0.02)
        while True:
            try:
                octets, address = sniffer.recvfrom(64)
            except BlockingIOError:
                return
            if address[2] != socket.PACKET_OUTGOING or octets[23] != 17:
                continue
            source, destination = struct.unpack_from("!HH", octets, 34)
            if destination == 4791:
                found.append((source, octets[15]))


def figure(what: str, values: list[float], unit: str = "ms") -> None:
    """Print median and worst, for the host's test to repeat."""
    median, worst = statistics.median(values), max(values)
    print(f"\nfigure {what}: median {median:.2f} {unit}, worst {worst:.2f} {unit}, n {len(values)}")
