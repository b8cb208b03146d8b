"""Made-up packets at a reflector: reflectors that would answer one another, and tables that would fill up."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from sdfstream.agent.host_io import HostAgent
from sdfstream.lab import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.probes.config import HostConfig, NicConfig
from sdfstream.probes.stamp import inbound
from sdfstream.probes.stamp.datagrams import Received, ToSend, address_octets
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.fixtures.lab import fabric
from tests.wire import EPOCH, SOCKET_B, A, B, Wire, datagrams, host_a, host_b, reflector_of, sender_of

__all__ = ["fabric"]
PROBE = bytes(44)
OPEN_DOOR = ReflectorLimits(strangers=True, stranger_pps=1e9, source_pps=1e9)


def reflector(host: str, address: str, peers: dict[str, int], port: int = 862, **more: object) -> SessionReflector:
    known = {a: KnownSender(f"{a}/r0", p) for a, p in peers.items()}
    config = HostConfig(host, (NicConfig(f"{host}/r0", "r0", address),))
    limits = ReflectorLimits(port=port, **more)  # type: ignore[arg-type]
    return SessionReflector(config, {SOCKET_B: f"{host}/r0"}, known, limits=limits)


def delivered(answers: ToSend, address: str, port: int) -> Received | None:
    """The answers as they reach the far end, from `address` and `port`."""
    payloads = [answers.data[i, :n].tobytes() for i, n in enumerate(answers.length.tolist())]
    return datagrams(payloads, socket=SOCKET_B, address=address, port=port) if payloads else None


def rally(one: SessionReflector, other: SessionReflector, port: int, other_port: int, first: Received) -> int:
    """Packets that two reflectors send when `first`, which says that it comes from `other`, reaches `one`."""
    sent, now = 0, 0
    batch: Received | None = first
    ends = [(one, A, port), (other, B, other_port)]
    for turn in range(200):
        if batch is None:
            break
        engine, address, own = ends[turn % 2]
        answers = engine.answer(batch, now)
        engine.seal(answers, EPOCH)
        sent += len(answers.length)
        batch = delivered(answers, address, own)
        now += NS_PER_MS
    return sent


class TestRallies:
    @pytest.mark.parametrize(("port", "other"), [(862, 862), (8620, 8620), (862, 8620), (8620, 862), (9001, 9002)])
    @pytest.mark.parametrize("knows_ports", [True, False])
    @pytest.mark.parametrize("strangers", [True, False])
    def test_reflectors_do_not_answer_one_another(
        self, port: int, other: int, knows_ports: bool, strangers: bool
    ) -> None:
        peers = ({B: other * knows_ports}, {A: port * knows_ports})
        one, two = (
            reflector(h, a, p, own, strangers=strangers)
            for h, a, p, own in zip("ab", (A, B), peers, (port, other), strict=True)
        )
        sent = rally(one, two, port, other, datagrams([PROBE], socket=SOCKET_B, address=B, port=other))
        assert sent <= 1
        assert sent == 0 or not knows_ports

    def test_a_service_that_sends_everything_back_is_answered_once(self) -> None:
        one = reflector("a", A, {B: 862})
        batch, sent = datagrams([PROBE], socket=SOCKET_B, address=B, port=50_007), 0
        for turn in range(100):
            answers = one.answer(batch, turn)
            one.seal(answers, EPOCH)
            sent += len(answers.length)
            echoed = delivered(answers, B, 50_007)
            if echoed is None:
                break
            batch = echoed
        assert sent == 1
        assert one.counters.get("refused", "answer") == 1

    def test_random_padding_of_a_twamp_light_sender_is_answered(self) -> None:
        padding = np.random.default_rng(1).bytes(64)
        one = reflector("a", A, {B: 862})
        assert (
            len(one.answer(datagrams([PROBE[:14] + padding], socket=SOCKET_B, address=B, port=50_007), 0).length) == 1
        )

    @pytest.mark.parametrize("key", [None, b"k" * 32])
    def test_no_answer_passes_as_a_probe(self, key: bytes | None) -> None:
        sender, one = sender_of(host_a(), hmac_key=key), reflector_of(host_b(), hmac_key=key)
        two = reflector_of(host_b(), hmac_key=key, limits=ReflectorLimits(strangers=True))
        sent = sender.due(NS_PER_S, EPOCH)
        probe = datagrams([sent.data[0, : int(sent.length[0])].tobytes()], socket=SOCKET_B, address=A, port=50_001)
        answers = one.answer(probe, 0)
        one.seal(answers, EPOCH)
        back = delivered(answers, A, 50_001)
        assert back is not None
        assert len(two.answer(back, 0).length) == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("203.0.113.9", "stranger"),
        (B, "own-address"),
        ("255.255.255.255", "no-host"),
        ("224.0.0.1", "no-host"),
        ("127.0.0.1", "no-host"),
        ("0.0.0.0", "no-host"),
        ("ff02::1", "no-host"),
        ("::", "no-host"),
    ],
)
def test_whom_nobody_named_gets_no_answer(source: str, reason: str) -> None:
    probe = datagrams([PROBE], socket=SOCKET_B, address=source, port=50_001)
    for strangers in (False, True):
        one = reflector("hb", B, {A: 862}, strangers=strangers)
        expected = int(strangers and reason == "stranger")
        assert len(one.answer(probe, 0).length) == expected
        if not expected:
            assert one.counters.get("refused", reason) == 1


def flood(one: SessionReflector, addresses: list[str], ports: Iterator[int], packets: int, now_ns: int) -> None:
    for start in range(0, packets, 512):
        n = min(512, packets - start)
        batch = datagrams([PROBE] * n, socket=SOCKET_B, address=A, port=[next(ports) for _ in range(n)])
        names = [addresses[(start + i) % len(addresses)] for i in range(n)]
        octets = b"".join(address_octets(name) for name in names)
        batch.address = np.frombuffer(octets, np.uint8).reshape(n, 16)
        one.answer(batch, now_ns)


def ports() -> Iterator[int]:
    while True:
        yield from range(1_024, 65_536)


def detection_ns(one: SessionReflector, begin_ns: int) -> int:
    """How long after its last probe a known peer at 16 Hz is reported as silent; −1: never."""
    wire = Wire(sender_of(host_a()), one)
    end = begin_ns + 2 * NS_PER_S
    for now in range(begin_ns, end, 5 * NS_PER_MS):
        wire.run(now + 5 * NS_PER_MS, now)
        one.liveness(now, EPOCH + now)
    for now in range(end, end + 10 * NS_PER_S, 10 * NS_PER_MS):
        if any(e["state"] == "silent" and e["src"] == "ha/r0" for e in one.liveness(now, EPOCH + now)):
            return now - end
    return -1


class TestFullTables:
    usual_ns = 1_200 * NS_PER_MS
    """A path is silent after 1 s; the last probe may be an interval old."""

    @pytest.mark.parametrize("strangers", [True, False])
    def test_a_known_peer_is_judged_while_strangers_flood(self, strangers: bool) -> None:
        limits = ReflectorLimits(strangers=strangers, stranger_pps=1e9, max_pps=1e9)
        one = reflector_of(host_b(), limits=limits)
        made_up = [f"198.51.{i >> 8 & 255}.{i & 255}" for i in range(2 * inbound.CAPACITY)]
        flood(one, made_up, ports(), len(made_up), 0)
        assert 0 <= detection_ns(one, NS_PER_MS) <= self.usual_ns

    def test_a_known_peer_is_judged_though_another_peers_address_is_made_up(self) -> None:
        limits = ReflectorLimits(max_pps=1e9, source_pps=1e9)
        many = {f"10.9.{i >> 8}.{i & 255}": KnownSender(f"p{i}/r0") for i in range(256)}
        one = SessionReflector(host_b(), {SOCKET_B: "hb/r0"}, {A: KnownSender("ha/r0"), **many}, limits=limits)
        flood(one, list(many), ports(), 2 * inbound.CAPACITY, 0)
        assert 0 <= detection_ns(one, NS_PER_MS) <= self.usual_ns

    def test_a_session_that_is_under_way_keeps_its_numbers(self) -> None:
        one = reflector_of(host_b(), limits=OPEN_DOOR)
        wire = Wire(sender_of(host_a()), one)
        port = ports()
        for now in range(0, 4 * NS_PER_S, 20 * NS_PER_MS):
            wire.run(now + 20 * NS_PER_MS, now)
            flood(one, ["198.51.100.1", "198.51.100.2"], port, 256, now)
        assert wire.sender.counters.total("refused") == 0
        assert wire.sender.counters.get("answered") >= 100
        assert one._inbound._used <= inbound.STRANGER_ROWS + 2


# --- real packets -------------------------------------------------------------------------------------------------


def spoofed(source: str, source_port: int, to: str, port: int, payload: bytes = PROBE) -> bytes:
    """An IPv4 packet whose source is made up; the kernel fills in the checksum of its header."""
    udp = struct.pack(">HHHH", source_port, port, 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0)
    return head + socket.inet_aton(source) + socket.inet_aton(to) + udp


class ThreeHosts:
    """Agents on two hosts of a lab, whose reflectors are driven here, and a third host that makes up packets."""

    def __init__(self, fabric: Fabric, port: int = 862) -> None:
        mesh = MeshSpec(peers_per_nic=None, rate_hz=1.0, ports_per_peer=1, reflector_port=port, trace_interval_s=0.0)
        self.config = fabric.agent_config(mesh, ["h00", "h01"])
        self.agents = [HostAgent(self.config, host, "boot", 1) for host in self.config.hosts]
        self.addresses = [host.nics[0].address for host in self.config.hosts]
        for agent in self.agents:
            agent.start()
        self.raw = fabric.namespaces.run(
            "h02", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        )

    def close(self) -> None:
        self.raw.close()
        for agent in self.agents:
            agent.close()

    def spoof(self, source_port: int, source: str | None = None) -> None:
        here, there = self.addresses
        self.raw.sendto(spoofed(source or there, source_port, here, self.config.reflector_port), (here, 0))

    def answered(self, seconds: float = 0.5, until: Callable[[], bool] = lambda: False) -> int:
        """Packets that both reflectors sent within `seconds`."""
        before = self._sent()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if not any([agent.packets.reflect() for agent in self.agents]):
                time.sleep(0.001)
        return self._sent() - before

    def refused(self, reason: str) -> int:
        return sum(agent.packets.reflector.counters.get("refused", reason) for agent in self.agents)

    def _sent(self) -> int:
        return sum(agent.packets.reflector.counters.get("answered") for agent in self.agents)


@pytest.fixture
def three(fabric: Fabric) -> Iterator[ThreeHosts]:
    made = ThreeHosts(fabric)
    yield made
    made.close()


@pytest.mark.lab
def test_two_agents_send_nothing_after_the_answered_packet(three: ThreeHosts) -> None:
    for _ in range(64):
        three.spoof(862)
    assert three.answered(5.0, lambda: three.refused("reflector-port") >= 64) == 0
    assert three.refused("reflector-port") == 64
    three.spoof(50_321)  # from a port where no reflector listens: one answer, to a host that did not ask
    assert three.answered(5.0, lambda: three._sent() >= 1) == 1
    assert three.answered(0.5) == 0, "0 packets after the answered one"
    three.spoof(50_321, "198.51.100.7")
    assert three.answered(5.0, lambda: three.refused("stranger") >= 1) == 0
