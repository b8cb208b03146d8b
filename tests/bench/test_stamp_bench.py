"""Build and parse rates of the engines, with and without HMAC, in small and large batches.

Run with ``pytest tests/bench/test_stamp_bench.py --benchmark-enable``; one round is one batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import Received
from sdfstream.probes.stamp.exchanges import SENT
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_S, StampKind
from tests.wire import EPOCH, tx_stamps_of

WIDTH = 2048
"""As wide as a shell's receive buffer may be."""
SIZES = pytest.mark.parametrize("n", [24, 256])
KEYS = pytest.mark.parametrize("key", [None, b"k" * 32], ids=["open", "authenticated"])
NICS = 8


def host(n: int) -> HostConfig:
    sessions = tuple(
        SessionConfig(f"ha/r{i % NICS}", f"hb{i}/r{i % NICS}", f"10.{i % NICS}.{i // NICS}.1", rate_hz=16.0)
        for i in range(n)
    )
    return HostConfig("ha", tuple(NicConfig(f"ha/r{i}", f"r{i}", f"10.9.{i}.1") for i in range(NICS)), sessions)


def sender_of(n: int, key: bytes | None) -> SessionSender:
    sockets = {(f"ha/r{i}", 49_152): i for i in range(NICS)}
    return SessionSender(host(n), sockets, np.random.default_rng(1), 0, hmac_key=key)


def reflector_of(n: int, key: bytes | None) -> SessionReflector:
    """Knows the addresses that `incoming` gives its probes: those that they went to."""
    nics = {i: f"hb/r{i}" for i in range(NICS)}
    known = {s.dst_address: KnownSender(s.dst) for s in host(n).sessions}
    limits = ReflectorLimits(max_pps=1e9, source_pps=1e9)
    return SessionReflector(HostConfig("hb", ()), nics, known, limits=limits, hmac_key=key)


def incoming(sent: Any, port: int) -> Received:
    n = len(sent.length)
    data = np.full((n, WIDTH), 0xEE, dtype=np.uint8)
    data[:, : sent.data.shape[1]] = sent.data
    return Received(
        data=data, length=sent.length, socket=sent.socket, address=sent.address, port=np.full(n, port, np.uint16),
        at_ns=np.full(n, EPOCH), kind=np.full(n, StampKind.KERNEL, np.uint8), user_at_ns=EPOCH + 1, tos=sent.tos,
        ttl=np.full(n, 60, np.uint8),
    )  # fmt: skip


def report(benchmark: Any, n: int) -> None:
    if benchmark.stats:
        benchmark.extra_info["packets_per_s"] = round(n / benchmark.stats.stats.median)
        benchmark.extra_info["us_per_packet"] = round(benchmark.stats.stats.median / n * 1e6, 3)


@SIZES
@KEYS
def test_build_probes(benchmark: Any, n: int, key: bytes | None) -> None:
    sender = sender_of(n, key)

    def round_() -> int:
        sender._next_due[:] = 0
        return len(sender.due(1, EPOCH).token)

    assert benchmark(round_) == n
    report(benchmark, n)


@SIZES
@KEYS
def test_reflect(benchmark: Any, n: int, key: bytes | None) -> None:
    reflector = reflector_of(n, key)
    probes = incoming(sender_of(n, key).due(NS_PER_S, EPOCH), 49_152)

    def round_() -> int:
        answers = reflector.answer(probes, 0)
        reflector.seal(answers, EPOCH)
        return len(answers.length)

    assert benchmark(round_) == n
    report(benchmark, n)


def answered(n: int, key: bytes | None) -> tuple[SessionSender, Received]:
    sender = sender_of(n, key)
    sent = sender.due(NS_PER_S, EPOCH)
    reflector = reflector_of(n, key)
    reflector.take_tx_stamps(tx_stamps_of(reflector.answer(incoming(sent, 49_152), 0), EPOCH))
    answers = reflector.answer(incoming(sent, 49_152), 0)
    reflector.seal(answers, EPOCH)
    back = dataclasses.replace(incoming(answers, 862), address=sent.address)
    sender.take_tx_stamps(tx_stamps_of(sent, EPOCH))
    return sender, back


@SIZES
@KEYS
def test_parse_answers(benchmark: Any, n: int, key: bytes | None) -> None:
    sender, back = answered(n, key)
    state = sender._exchanges.state
    was = state.copy()

    def round_() -> None:
        state[:] = was  # one strided store; every round takes the same answers again
        sender.take_answers(back, NS_PER_S)

    benchmark(round_)
    assert sender.counters.get("answered") % n == 0
    assert sender.counters.total("refused") == 0
    report(benchmark, n)


@SIZES
def test_rows(benchmark: Any, n: int) -> None:
    sender, back = answered(n, None)
    sender.take_answers(back, NS_PER_S)
    state = sender._exchanges.state
    was = state.copy()
    assert (was == SENT).sum() == 0

    def round_() -> int:
        state[:] = was
        batch = sender.rows(2 * NS_PER_S)
        return 0 if batch is None else batch.num_rows

    assert benchmark(round_) == n
    report(benchmark, n)
