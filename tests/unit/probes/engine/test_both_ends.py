"""Sender and reflector of the packet engine, joined by a wire, against the numpy ones joined by the same wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.probes.config import VirtualClock
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_S
from tests.fixtures.engine_sender import EngineSender, SplitMix
from tests.wire import EPOCH, SOCKET_B, A, Wire, host_a, host_b, sockets_of

PORTS = tuple(range(50_001, 50_009))
KEY = b"a key"


def rows(sender: Any, reflector: Any, seed: int) -> tuple[pa.Table, list[bytes]]:
    """Rows of half a second in which packets are lost in both directions, and the octets of the answers."""
    rng = np.random.default_rng(seed)
    wire = Wire(
        sender,
        reflector,
        drop_forward=lambda sent: rng.random(len(sent.token)) < 0.1,
        drop_reverse=lambda sent: rng.random(len(sent.token)) < 0.1,
    )
    wire.run(NS_PER_S // 2)
    batches = [b for b in [sender.rows(n * NS_PER_S) for n in (1, 2, 20, 21)] if b is not None]
    octets = [bytes(row[:n]) for b in wire.answers for row, n in zip(b.data, b.length.tolist(), strict=True)]
    return pa.Table.from_batches(batches), octets


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
@pytest.mark.parametrize("seed", range(2))
def test_rows_and_octets_are_those_of_the_numpy_engines(key: bytes | None, seed: int) -> None:
    host = host_a(ports=PORTS, rate_hz=50.0, dscp=46)
    there = host_b(VirtualClock(offset_ns=-3e6, skew_ppb=7_000.25, epoch_at_ns=EPOCH))
    ends = ({SOCKET_B: "hb/r0"}, {A: KnownSender("ha/r0")})
    numbers: Any = SplitMix(seed)
    wanted = rows(
        SessionSender(host, sockets_of(host), numbers, 0, hmac_key=key),
        SessionReflector(there, *ends, hmac_key=key), seed,
    )  # fmt: skip
    made = rows(
        EngineSender(host, sockets_of(host), seed, 0, hmac_key=key),
        PacketReflector(there, *ends, hmac_key=key), seed,
    )  # fmt: skip
    assert made[0].num_rows > 120
    assert made[0].equals(wanted[0])
    assert made[1] == wanted[1]
