"""The numpy Session-Sender and the packet engine driven by the same calls: every result is compared on the spot.

Between them and one reflector lies a network without rules: what was sent can be answered at any later call, more than
once, damaged, or never; stamps come late or not at all; clocks step; processes stall; NICs and sessions come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import ABSENT_NS, StampKind
from tests.engine_sender import EngineSender, SplitMix
from tests.wire import EPOCH, datagrams

NICS = (
    NicConfig("ha/r0", "r0", "10.0.0.1", plane="backend"),
    NicConfig("ha/r1", "r1", "10.0.0.2"),
    NicConfig("ha/r2", "r2", "fd00::1"),
)
FAR = {"ha/r0": "10.0.1.1", "ha/r1": "10.0.1.2", "ha/r2": "fd00::2"}
PORTS = (50_001, 50_002, 50_003, 50_004)
OCTETS = {nic.nic: address_octets(nic.address) for nic in NICS}
SOCKETS = {(nic.nic, port): 4 * i + j for i, nic in enumerate(NICS) for j, port in enumerate(PORTS)}
ENDS = {socket: end for end, socket in SOCKETS.items()}


def session(nic: int, ports: Sequence[int], rate_hz: float, **more: object) -> SessionConfig:
    src = NICS[nic].nic
    return SessionConfig(src, f"hb/r{nic}", FAR[src], source_ports=tuple(ports), rate_hz=rate_hz, **more)  # type: ignore[arg-type]


CONFIGURED = (
    session(0, PORTS[:2], 16.0, dscp=46),
    session(0, PORTS[:1], 10.0, dscp=10, ecn=2),  # without SSID its answers cannot be told from the first's
    session(1, PORTS[2:4], 100.0, size_bytes=160),
    session(2, PORTS[:1], 33.0),
)
CHANGING = (
    session(1, PORTS[:2], 100.0),
    session(0, PORTS[2:], 100.0, dscp=46),
    session(2, PORTS[1:3], 100.0, size_bytes=150),
)
"""Of one shape, so that any of them may have any slot."""


@dataclass(slots=True)
class Flight:
    """A probe on its path, with its token at either sender."""

    tokens: tuple[int, int]
    answer: bytes
    socket: int
    address: str
    port: int
    sent_at_ns: int


class Twins:
    """Both senders and their reflector; a mismatch is an assertion."""

    def __init__(
        self,
        seed: int,
        key: bytes | None = None,
        *,
        clock: VirtualClock | None = None,
        error: int | None = None,
        liveness_ms: int = 100,
    ) -> None:
        host = HostConfig("ha", NICS, CONFIGURED, virtual_clock=clock)
        more = {"hmac_key": key, "error": error, "liveness_ms": liveness_ms}
        self.now_ns = 10**12
        self.system_ns = EPOCH
        self.numpy = SessionSender(host, SOCKETS, SplitMix(seed), self.now_ns, **more)  # type: ignore[arg-type]
        self.engine = EngineSender(host, SOCKETS, seed, self.now_ns, **more)  # type: ignore[arg-type]
        known = {nic.address: KnownSender(nic.nic) for nic in NICS}
        self.reflector = SessionReflector(HostConfig("hb", ()), {0: "hb/r0"}, known, hmac_key=key)
        self.flights: list[Flight] = []

    def advance(self, ns: int) -> None:
        self.now_ns += ns
        self.system_ns += ns

    def probe(self) -> int:
        """Send what is due, and let the reflector answer it; how many."""
        assert self.numpy.next_due_ns() == self.engine.next_due_ns()
        expected = self.numpy.due(self.now_ns, self.system_ns)
        got = self.engine.due(self.now_ns, self.system_ns)
        for name in ("length", "socket", "address", "port", "tos"):
            assert np.array_equal(getattr(expected, name), getattr(got, name)), name
        tokens = list(zip(expected.token.tolist(), got.token.tolist(), strict=True))
        for i, length in enumerate(expected.length.tolist()):
            assert expected.data[i, :length].tobytes() == got.data[i, :length].tobytes()
        if tokens:
            self._reflect(expected, tokens)
        return len(tokens)

    def _reflect(self, sent: ToSend, tokens: list[tuple[int, int]]) -> None:
        """Let the reflector answer, and put the answers aside."""
        n, at_ns = len(tokens), self.system_ns + 20_000
        payloads = [bytes(sent.data[i, : sent.length[i]]) for i in range(n)]
        source = [ENDS[socket] for socket in sent.socket.tolist()]
        probes = datagrams(payloads, socket=0, address="10.0.0.0", port=[port for _, port in source], at_ns=at_ns)
        probes.address = np.frombuffer(b"".join(OCTETS[nic] for nic, _ in source), np.uint8).reshape(-1, 16)
        answers = self.reflector.answer(probes, self.now_ns)
        self.reflector.seal(answers, at_ns + 10_000)
        stamps = TxStamps(
            answers.token,
            np.full(n, at_ns + 15_000),
            np.full(n, StampKind.KERNEL, np.uint8),
            np.full(n, at_ns + 9_000),
        )
        self.reflector.take_tx_stamps(stamps)
        assert len(answers.length) == n
        for i, (nic, _) in enumerate(source):
            octets = bytes(answers.data[i, : answers.length[i]])
            socket, port = int(sent.socket[i]), int(sent.port[i])
            self.flights.append(Flight(tokens[i], octets, socket, FAR[nic], port, self.system_ns))

    def stamp(self, flights: Sequence[Flight], kind: int, at_ns: int, handed: bool) -> None:
        """A TX stamp of each flight."""
        n = len(flights)
        columns = (np.full(n, at_ns), np.full(n, kind, np.uint8), np.full(n, at_ns - 5_000 if handed else ABSENT_NS))
        for sender, which in ((self.numpy, 0), (self.engine, 1)):
            sender.take_tx_stamps(TxStamps(np.array([f.tokens[which] for f in flights], np.int64), *columns))

    def unsent(self, flights: Sequence[Flight]) -> None:
        """These never left."""
        self.numpy.unsent(np.array([f.tokens[0] for f in flights], np.int64))
        self.engine.unsent(np.array([f.tokens[1] for f in flights], np.int64))

    def answer(
        self,
        flights: Sequence[Flight],
        *,
        kind: int = StampKind.KERNEL,
        damage: Callable[[bytes], bytes] = lambda octets: octets,
        due_at_ns: int = 0,
        **columns: int,
    ) -> None:
        """Answers of these flights arrive; one call of the numpy sender for each that repeats one of the batch."""
        batches = [list(flights)] if len({id(f) for f in flights}) == len(flights) else [[f] for f in flights]
        for batch in batches:
            if batch:
                received = self._received(batch, kind, damage)
                received = replace(received, **{k: np.full_like(getattr(received, k), v) for k, v in columns.items()})
                self.numpy.take_answers(received, self.now_ns, due_at_ns)
                self.engine.take_answers(received, self.now_ns, due_at_ns)

    def _received(self, flights: list[Flight], kind: int, damage: Callable[[bytes], bytes]) -> Received:
        payloads = [damage(f.answer) for f in flights]
        received = datagrams(payloads, socket=0, address="10.0.0.0", port=862, kind=kind, at_ns=self.system_ns - 7_000)
        address = np.frombuffer(b"".join(address_octets(f.address) for f in flights), np.uint8).reshape(-1, 16)
        return replace(
            received,
            socket=np.array([f.socket for f in flights], np.int32),
            address=address,
            port=np.array([f.port for f in flights], np.uint16),
        )

    def change(self, begin: dict[int, SessionConfig], end: list[int], in_step: bool, liveness_ms: int) -> None:
        """Begin and end sessions in slots."""
        for sender in (self.numpy, self.engine):
            sender.change_sessions(begin, end, self.now_ns, liveness_ms=liveness_ms, in_step=in_step)

    def nic_usable(self, nic: str, usable: bool) -> None:
        for sender in (self.numpy, self.engine):
            sender.nic_usable(nic, usable, self.now_ns)

    def finish(self) -> int:
        """Rows of both; how many."""
        expected, got = self.numpy.rows(self.now_ns), self.engine.rows(self.now_ns)
        if expected is None or got is None:
            assert expected is got
            return 0
        for name, one, other in zip(expected.schema.names, expected.columns, got.columns, strict=True):
            assert one.to_pylist() == other.to_pylist(), name
        assert expected.equals(got)
        return expected.num_rows

    def assess(self, complete: bool = False) -> int:
        """Liveness of both; how many entries."""
        expected = self.numpy.liveness(self.now_ns, self.system_ns, complete=complete)
        got = self.engine.liveness(self.now_ns, self.system_ns, complete=complete)
        assert expected == got
        return len(expected)

    def compare_state(self) -> None:
        """All that Python may read of them between calls."""
        n = len(self.numpy.paths)
        reports = self.engine.engine.reports[:n]
        liveness = self.numpy.path_liveness
        assert np.array_equal(reports["state"], liveness.state)
        assert np.array_equal(reports["since_ns"], liveness.since_at)
        assert np.array_equal(reports["last_received_ns"], self.numpy.last_received_at_ns)
        assert np.array_equal(reports["ttl_fwd"], self.numpy.ttl_fwd)
        assert self.numpy.next_due_ns() == self.engine.next_due_ns()
        own = {"rows.written"}
        expected = {k.removeprefix("sender."): v for k, v in self.numpy.counters.as_dict().items() if v}
        assert expected == {k: v for k, v in self.engine.counters.items() if k not in own}
