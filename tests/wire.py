"""A made-up wire that joins a Session-Sender and a Session-Reflector without sockets.

One steady clock and one system clock (`EPOCH` apart); a delay for each direction; loss, copies and late packets by
choice of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_S, StampKind

EPOCH = 1_790_000_000 * NS_PER_S
WIDTH = 256
A, B = "10.0.0.1", "10.0.1.1"
SOCKET_A, SOCKET_B = 3, 0


def host_a(rate_hz: float = 16.0, ports: tuple[int, ...] = (50_001, 50_002), **session: object) -> HostConfig:
    one = SessionConfig("ha/r0", "hb/r0", B, source_ports=ports, rate_hz=rate_hz, **session)  # type: ignore[arg-type]
    return HostConfig("ha", (NicConfig("ha/r0", "r0", A, plane="backend"),), (one,))


def host_b(clock: VirtualClock | None = None) -> HostConfig:
    return HostConfig("hb", (NicConfig("hb/r0", "r0", B),), virtual_clock=clock)


def sockets_of(host: HostConfig) -> dict[tuple[str, int], int]:
    keys = sorted({(s.src, p) for s in host.sessions for p in s.source_ports})
    return {key: SOCKET_A + i for i, key in enumerate(keys)}


def sender_of(host: HostConfig, seed: int = 1, **more: object) -> SessionSender:
    return SessionSender(host, sockets_of(host), np.random.default_rng(seed), 0, **more)  # type: ignore[arg-type]


def reflector_of(host: HostConfig, **more: object) -> SessionReflector:
    return SessionReflector(host, {SOCKET_B: "hb/r0"}, {A: KnownSender("ha/r0")}, **more)  # type: ignore[arg-type]


def datagrams(
    payloads: list[bytes],
    *,
    socket: int,
    address: str,
    port: int | list[int],
    at_ns: int = EPOCH,
    tos: int = 2,
    kind: int = StampKind.KERNEL,
    ttl: int = 63,
    width: int = WIDTH,
) -> Received:
    n = len(payloads)
    data = np.full((n, width), 0xEE, dtype=np.uint8)
    for i, payload in enumerate(payloads):
        cut = payload[:width]
        data[i, : len(cut)] = np.frombuffer(cut, dtype=np.uint8)
    return Received(
        data=data,
        length=np.array([len(p) for p in payloads], dtype=np.int32),
        socket=np.full(n, socket, dtype=np.int32),
        address=np.frombuffer(address_octets(address) * n, dtype=np.uint8).reshape(n, 16),
        port=np.full(n, port, dtype=np.uint16) if isinstance(port, int) else np.array(port, dtype=np.uint16),
        at_ns=np.full(n, at_ns, dtype=np.int64),
        kind=np.full(n, kind, dtype=np.uint8),
        user_at_ns=at_ns + 20_000,
        tos=np.full(n, tos, dtype=np.uint8),
        ttl=np.full(n, ttl, dtype=np.uint8),
    )  # fmt: skip


def arriving(sent: ToSend, rows: np.ndarray, at_ns: np.ndarray, *, socket: np.ndarray, address: str,
             port: np.ndarray, tos: np.ndarray | None = None) -> Received:  # fmt: skip
    """What the far end receives of `sent`."""
    n = len(rows)
    data = np.full((n, WIDTH), 0xEE, dtype=np.uint8)
    data[:, : sent.data.shape[1]] = sent.data[rows]
    return Received(
        data=data,
        length=sent.length[rows],
        socket=socket.astype(np.int32),
        address=np.frombuffer(address_octets(address) * n, dtype=np.uint8).reshape(n, 16),
        port=port.astype(np.uint16),
        at_ns=at_ns,
        kind=np.full(n, StampKind.KERNEL, dtype=np.uint8),
        user_at_ns=int(at_ns.max(initial=EPOCH)) + 20_000,
        tos=sent.tos[rows] if tos is None else tos,
        ttl=np.full(n, 62, dtype=np.uint8),
    )


def tx_stamps_of(sent: ToSend, at_ns: int, kind: int = StampKind.KERNEL) -> TxStamps:
    n = len(sent.token)
    return TxStamps(
        token=sent.token,
        at_ns=np.full(n, at_ns, dtype=np.int64),
        kind=np.full(n, kind, dtype=np.uint8),
        user_at_ns=np.full(n, at_ns - 5_000, dtype=np.int64),
    )


@dataclass
class Wire:
    """Moves everything between the two engines; times are fixed so that rows can be checked to the ns."""

    sender: SessionSender
    reflector: SessionReflector
    forward_ns: int = 10_000
    reverse_ns: int = 15_000
    turn_ns: int = 40_000
    """From arrival at the reflector to the answer's true departure."""
    drop_forward: Callable[[ToSend], np.ndarray] = lambda s: np.zeros(len(s.token), dtype=bool)
    drop_reverse: Callable[[ToSend], np.ndarray] = lambda s: np.zeros(len(s.token), dtype=bool)
    remark: Callable[[np.ndarray], np.ndarray] = lambda tos: tos
    stamps: bool = True
    answers: list[Received] = field(default_factory=list)
    """Every batch of answers that was handed to the sender."""

    def step(self, now_ns: int) -> int:
        """Send what is due, reflect, return; the number of probes sent."""
        sent = self.sender.due(now_ns, EPOCH + now_ns)
        if not len(sent.token):
            return 0
        t1 = EPOCH + now_ns + 7_000
        if self.stamps:
            self.sender.take_tx_stamps(tx_stamps_of(sent, t1))
        rows = np.flatnonzero(~self.drop_forward(sent))
        ports = np.array([p for (_, p), s in sorted(self.sender._sockets.items(), key=lambda x: x[1])])
        t2 = np.full(len(rows), t1 + self.forward_ns, dtype=np.int64)
        source = ports[sent.socket[rows] - SOCKET_A]
        probes = arriving(sent, rows, t2, socket=np.full(len(rows), SOCKET_B), address=A, port=source,
                          tos=self.remark(sent.tos[rows]))  # fmt: skip
        answers = self.reflector.answer(probes, now_ns)
        t3 = t1 + self.forward_ns + self.turn_ns
        self.reflector.seal(answers, t3 - 9_000)
        if self.stamps:
            self.reflector.take_tx_stamps(tx_stamps_of(answers, t3))
        back = np.flatnonzero(~self.drop_reverse(answers))
        home = np.searchsorted(ports, answers.port[back]) + SOCKET_A
        t4 = np.full(len(back), t3 + self.reverse_ns, dtype=np.int64)
        batch = arriving(answers, back, t4, socket=home, address=B, port=np.full(len(back), 862))
        self.answers.append(batch)
        self.sender.take_answers(batch, now_ns + 1_000_000)
        return len(sent.token)

    def run(self, until_ns: int, start_ns: int = 0) -> int:
        """Step whenever something is due; the number of probes sent."""
        n, now = 0, start_ns
        while now < until_ns:
            n += self.step(now)
            now = max(now + 1_000_000, self.sender.next_due_ns())
        return n
