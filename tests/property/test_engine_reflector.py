"""Laws: the packet engine's reflector answers, numbers, follows up, counts and reports as the numpy reflector does."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.config import HostConfig, NicConfig, VirtualClock
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.stamp import inbound, packet
from sdfstream.probes.stamp.datagrams import LONGEST_PAYLOAD, Received, ToSend, TxStamps, address_octets
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools
from tests.fixtures.engine_packets import Codec
from tests.fixtures.stamp_packets import KEY, a_packet
from tests.wire import EPOCH

WIDTH = LONGEST_PAYLOAD
SOCKETS = {0: "hb/r0", 1: "hb/r1", 4: "hb/r0"}
OWN = ("10.0.1.1", "fd00::b", "127.0.0.9")
KNOWN = ("10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.3", "::ffff:10.9.9.9")
OTHERS = (*OWN, "192.0.2.7", "198.51.100.3", "2001:db8::5", "224.0.0.1", "255.255.255.255", "0.0.0.0", "127.0.0.1",
          "::", "::1", "ff02::1")  # fmt: skip
NETWORKS = ("198.51.100.0/24", "2001:db8::/32", "0.0.0.0/0")


class Both:
    """One reflector of each kind, asked the same."""

    def __init__(self, rng: random.Random, key: bytes | None, clock: VirtualClock | None) -> None:
        self.rng = rng
        self.key = key
        nics = tuple(NicConfig(f"hb/r{i}", f"r{i}", a) for i, a in enumerate(OWN[: rng.choice([2, 3])]))
        host = HostConfig("hb", nics, virtual_clock=clock)
        limits = ReflectorLimits(
            port=rng.choice([862, 4_000]),
            networks=tuple(rng.sample(NETWORKS, rng.randrange(2))),
            strangers=rng.random() < 0.5,
            max_pps=rng.choice([200_000.0, 300.0, 1.0]),
            source_pps=rng.choice([20_000.0, 100.0, 33.3]),
            stranger_pps=rng.choice([1_000.0, 20.0]),
        )
        classes: Bools | None = None
        if rng.random() < 0.5:
            classes = np.array([rng.random() < 0.5 for _ in range(64)])
        ptp = rng.random() < 0.3
        common: dict[str, Any] = {
            "limits": limits,
            "hmac_key": key,
            "salt": rng.getrandbits(64),
            "liveness_ms": rng.choice([100, 1_000]),
            "error": packet.error_estimate(1e3, ptp=ptp),
            "sync": rng.randrange(6),
            "stateful": rng.random() < 0.9,
            "classes": classes,
        }
        senders = self.senders()
        self.reference = SessionReflector(host, SOCKETS, senders, **common)
        self.engine = PacketReflector(host, SOCKETS, senders, **common)
        self.now_ns = rng.choice([0, 10**12])
        self.codec = Codec(key, common["error"])
        self.sent: list[TxStamps] = []
        self.seq = 0
        self.known_share = rng.choice([0.95, 0.5])

    def senders(self) -> dict[str, KnownSender]:
        """Some known senders."""
        some = self.rng.sample(KNOWN, self.rng.randrange(len(KNOWN) + 1))
        return {a: KnownSender(f"h{self.rng.randrange(3)}/r0", self.rng.choice([0, 0, 700])) for a in some}

    def payload(self) -> bytes:
        """A probe of ours, or any packet."""
        if self.rng.random() < 0.3:
            return a_packet(self.rng, self.key)
        self.seq += self.rng.choice([0, 1, 1, 1, 2, 70_000, -1])
        return self.codec.probe(
            self.seq & 0xFFFF_FFFF,
            self.rng.getrandbits(64),
            ssid=self.rng.choice([0, 1, 1, 2]),
            length_octets=self.codec.octets(self.rng.choice([0, 0, 150, 150, 1_252, 8_972])),
            dscp1=self.rng.choice([0, 0, 46]),
            ec1=self.rng.choice([2, 2, 3]),
        )

    def batch(self, n: int, ports: int) -> Received:
        """Datagrams of many sources, as they come: by socket."""
        rng = self.rng
        payloads = [self.payload() for _ in range(n)]
        data = np.full((n, WIDTH), 0xEE, dtype=np.uint8)
        for row, payload in zip(data, payloads, strict=True):
            row[: len(payload)] = np.frombuffer(payload[:WIDTH], dtype=np.uint8)
        addresses = [rng.choice(KNOWN) if rng.random() < self.known_share else rng.choice(OTHERS) for _ in range(n)]
        odd = [0, 700, 862, 4_000]
        return Received(
            data=data,
            length=np.array([len(p) for p in payloads], dtype=np.int32),
            socket=np.array(sorted(rng.choice([*SOCKETS, 0, 3]) for _ in range(n)), dtype=np.int32),
            address=np.frombuffer(b"".join(map(address_octets, addresses)), dtype=np.uint8).reshape(n, 16),
            port=np.array([rng.choice(odd) if rng.random() < 0.05 else 50_000 + rng.randrange(ports)
                           for _ in range(n)], dtype=np.uint16),
            at_ns=np.array([ABSENT_NS if rng.random() < 0.1 else self.system_ns() for _ in range(n)], dtype=np.int64),
            kind=np.array([rng.choice([1, 1, 1, 0, 2, 255]) for _ in range(n)], dtype=np.uint8),
            user_at_ns=self.system_ns(),
            tos=np.array([rng.choice([0, 2, 46 << 2 | 1, rng.randrange(256)]) for _ in range(n)], dtype=np.uint8),
            ttl=np.array([rng.randrange(256) for _ in range(n)], dtype=np.uint8),
        )  # fmt: skip

    def system_ns(self) -> int:
        """About now."""
        return EPOCH + self.now_ns + self.rng.randrange(-10 * NS_PER_MS, 10 * NS_PER_MS)

    def answer(self) -> None:
        """Both answer alike, before and after they are sealed."""
        batch = self.batch(self.rng.choice([0, 1, 1, 2, 5, 20, 60]), self.rng.choice([1, 3, 400]))
        wanted, made = self.reference.answer(batch, self.now_ns), self.engine.answer(batch, self.now_ns)
        same(wanted, made)
        at_ns = self.system_ns()
        self.reference.seal(wanted, at_ns)
        self.engine.seal(made, at_ns)
        same(wanted, made)
        n = len(wanted.token)
        if n:
            kinds = np.array([self.rng.choice([1, 1, 2, 0, 255]) for _ in range(n)], dtype=np.uint8)
            left = np.array([at_ns + i for i in range(n)], dtype=np.int64)
            self.sent.append(TxStamps(wanted.token, left, kinds, left))

    def stamps(self) -> None:
        """Stamps come late, twice, and for nothing."""
        while self.sent and self.rng.random() < 0.8:
            stamps = self.sent.pop(self.rng.randrange(len(self.sent)))
            self.reference.take_tx_stamps(stamps)
            self.engine.take_tx_stamps(stamps)

    def turn(self) -> None:
        """One thing, then a check of all that both say."""
        rng = self.rng
        self.now_ns += rng.choice([0, 1, NS_PER_MS, 20 * NS_PER_MS, 300 * NS_PER_MS, 11 * NS_PER_S])
        if rng.random() < 0.002:
            self.now_ns += 601 * NS_PER_S
        which = rng.random()
        if which < 0.7:
            self.answer()
        elif which < 0.85:
            self.stamps()
        elif which < 0.9:
            known = (rng.choice(["configuration", "plan"]), self.senders(), rng.sample(NETWORKS[:2], rng.randrange(3)))
            self.reference.know(*known)
            self.engine.know(*known)
        elif which < 0.94:
            usable = (rng.choice(["hb/r0", "hb/r1"]), rng.random() < 0.6, self.now_ns)
            self.reference.nic_usable(*usable)
            self.engine.nic_usable(*usable)
        system_ns, complete = self.system_ns(), rng.random() < 0.1
        wanted = self.reference.liveness(self.now_ns, system_ns, complete=complete)
        assert self.engine.liveness(self.now_ns, system_ns, complete=complete) == wanted
        watched = self.engine.inbound_paths()
        assert watched["interval_ns"].tolist() == self.reference.path_liveness.interval_ns.tolist()
        assert watched["state"].tolist() == self.reference.path_liveness.state.tolist()
        assert self.engine.senders == list(self.reference.senders)
        ports = range(50_000, 50_010)
        assert self.engine.arriving_pps(ports) == self.reference.arriving_pps(ports)
        assert self.engine.follow_up_due_ns(self.now_ns) == self.reference.follow_up_due_ns(self.now_ns)
        assert self.engine.counters.as_dict() == self.reference.counters.as_dict()


def same(wanted: ToSend, made: ToSend) -> None:
    """Equal answers, octet for octet."""
    octets = [
        [bytes(row[:n]).hex() for row, n in zip(one.data, one.length.tolist(), strict=True)] for one in (wanted, made)
    ]
    assert octets[1] == octets[0]
    for name in ("length", "socket", "port", "tos", "token"):
        assert getattr(made, name).tolist() == getattr(wanted, name).tolist(), name
    assert made.address.tobytes() == wanted.address.tobytes()


LIMITS = st.sampled_from([{}, {"CAPACITY": 16, "STRANGER_ROWS": 4, "SOURCE_ROWS": 6, "NEW_PER_CALL": 8},
                          {"CAPACITY": 5, "STRANGER_ROWS": 2, "SOURCE_ROWS": 3, "NEW_PER_CALL": 2}])  # fmt: skip
CLOCKS = st.sampled_from(
    [None, None, None, VirtualClock(offset_ns=1e6, skew_ppb=20_000.5, wander_ns_per_sqrt_s=100.0, epoch_at_ns=EPOCH)]
)


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
@given(seed=st.integers(0, 2**32), limits=LIMITS, clock=CLOCKS)
@settings(max_examples=20)
def test_both_reflectors_do_the_same(
    key: bytes | None, seed: int, limits: dict[str, int], clock: VirtualClock | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(inbound, name, value)
        both = Both(random.Random(seed), key, clock)
        for _ in range(40):
            both.turn()
        both.engine.close()
