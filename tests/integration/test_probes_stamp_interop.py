"""Against another implementation, on loopback: the Rust program stamp-suite (``cargo install stamp-suite``; MIT).

Runs when ``SDFSTREAM_STAMP_SUITE`` names its binary; nothing of it is part of sdfstream. Written for 1.0.0, whose
Class of Service layout is RFC 8972's (0.8.0 had its own).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_MS, StampKind

BINARY = os.environ.get("SDFSTREAM_STAMP_SUITE", "")
pytestmark = pytest.mark.skipif(
    not Path(BINARY).is_file(), reason="SDFSTREAM_STAMP_SUITE names no stamp-suite binary (cargo install stamp-suite)"
)
KEY = bytes(range(32))
LOCAL = "127.0.0.1"
IP_RECVTTL = 12  # linux/in.h; the socket module of Python 3.11 lacks it
AUTH = pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])


class Udp:
    """One UDP socket that speaks datagram batches."""

    def __init__(self, port: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        self.socket.bind((LOCAL, port))
        self.socket.settimeout(0.01)
        self.port = int(self.socket.getsockname()[1])

    def send(self, sent: ToSend) -> TxStamps:
        user_ns = time.time_ns()
        for i in range(len(sent.length)):
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sent.tos[i]))
            address = (socket.inet_ntoa(sent.address[i, 12:].tobytes()), int(sent.port[i]))
            self.socket.sendto(sent.data[i, : int(sent.length[i])].tobytes(), address)
        n = len(sent.length)
        at = np.full(n, user_ns)
        return TxStamps(sent.token, at, np.full(n, StampKind.KERNEL, dtype=np.uint8), at)

    def receive(self) -> Received | None:
        try:
            payload, control, _, (address, port) = self.socket.recvmsg(2048, 256)
        except TimeoutError:
            return None
        seen = {kind: int.from_bytes(value[:4], "little") for _, kind, value in control}
        data = np.zeros((1, 2048), dtype=np.uint8)
        data[0, : len(payload)] = np.frombuffer(payload, dtype=np.uint8)
        now = time.time_ns()
        return Received(
            data=data, length=np.array([len(payload)], np.int32), socket=np.zeros(1, np.int32),
            address=np.frombuffer(address_octets(address), np.uint8).reshape(1, 16), port=np.array([port], np.uint16),
            at_ns=np.array([now]), kind=np.array([StampKind.KERNEL], np.uint8), user_at_ns=now,
            tos=np.array([seen.get(socket.IP_TOS, 0)], np.uint8), ttl=np.array([seen.get(socket.IP_TTL, 0)], np.uint8),
        )  # fmt: skip

    def close(self) -> None:
        self.socket.close()


@contextmanager
def foreign(*arguments: str, key: bytes | None) -> Iterator[subprocess.Popen[str]]:
    mode = [] if key is None else ["--auth-mode", "A"]
    env = {**os.environ, **({} if key is None else {"STAMP_HMAC_KEY": key.hex()})}
    process = subprocess.Popen(
        [BINARY, *arguments, *mode], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOCAL, 0))
        return int(probe.getsockname()[1])


def answers_at(port: int, key: bytes | None) -> bool:
    """Whether a reflector is up: any answer to a bare, in authenticated mode signed, probe."""
    import hashlib
    import hmac

    head = struct.pack(">IQHH28x", 0, 0, 1, 0) if key is None else struct.pack(">I12xQHH68x", 0, 0, 1, 0)
    payload = head if key is None else head + hmac.new(key, head, hashlib.sha256).digest()[:16]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.1)
        probe.connect((LOCAL, port))
        try:
            probe.send(payload)
            return len(probe.recv(2048)) == len(payload)
        except OSError:
            time.sleep(0.05)
            return False


@AUTH
@pytest.mark.parametrize("stateful", [True, False], ids=["stateful", "stateless"])
def test_our_sender_and_their_reflector(key: bytes | None, stateful: bool) -> None:
    port, udp = free_port(), Udp()
    session = SessionConfig("ha/r0", "hb/r0", LOCAL, port, (udp.port,), dscp=46, size_bytes=250, rate_hz=50.0)
    host = HostConfig("ha", (NicConfig("ha/r0", "lo", LOCAL),), (session,))
    arguments = ["-i", "-S", LOCAL, "-o", str(port), *(["--stateful-reflector"] if stateful else [])]
    with foreign(*arguments, key=key):
        deadline = time.monotonic() + 10
        while not answers_at(port, key):
            assert time.monotonic() < deadline, "the reflector does not answer"
        start = time.monotonic_ns()
        sender = SessionSender(host, {("ha/r0", udp.port): 0}, np.random.default_rng(1), start, hmac_key=key)
        while (now := time.monotonic_ns()) < start + 600 * NS_PER_MS:
            sender.take_tx_stamps(udp.send(sender.due(now, time.time_ns())))
            while (answer := udp.receive()) is not None:
                sender.take_answers(answer, time.monotonic_ns())
        batch = sender.rows(time.monotonic_ns() + 2_000 * NS_PER_MS)
    udp.close()
    assert batch is not None
    assert sender.counters.total("refused") == 0, sender.counters.as_dict()
    rows = [r for r in batch.to_pylist() if r["t4_ns"] is not None]
    assert len(rows) >= 20
    assert batch.num_rows - len(rows) <= 1
    for r in rows:
        assert (r["dscp_fwd"], r["ecn_fwd"], r["dscp_rev"], r["ecn_rev"]) == (46, 2, 46, 2)
        assert (r["ttl_fwd"], r["size_bytes"]) == (64, 250)
        assert r["t1_ns"] < r["t2_ns"] <= r["t3_ns"] < r["t4_ns"]
        assert r["t2_kind"] == StampKind.KERNEL
    followed = sum(r["t3_kind"] == StampKind.KERNEL for r in rows)
    # a stateless reflector must leave the follow-up zero
    assert followed >= len(rows) - 3 if stateful else followed == 0


@AUTH
def test_their_sender_and_our_reflector(key: bytes | None) -> None:
    udp = Udp()
    host = HostConfig("hb", (NicConfig("hb/r0", "lo", LOCAL),))
    reflector = SessionReflector(host, {0: "hb/r0"}, {LOCAL: KnownSender("ha/r0")}, hmac_key=key)
    arguments = ["-r", LOCAL, "-S", LOCAL, "-p", str(udp.port), "-c", "20", "-d", "20ms", "-L", "1", "--ssid", "77",
                 "--cos", "--dscp", "46", "--ecn", "2", "--timestamp-info", "--follow-up-telemetry",
                 "--direct-measurement", "--extra-padding", "33", "-R", "--output-format", "json"]  # fmt: skip
    lengths: list[tuple[int, int]] = []
    with foreign(*arguments, key=key) as process:
        deadline = time.monotonic() + 15
        while process.poll() is None:
            assert time.monotonic() < deadline
            if (probe := udp.receive()) is None:
                continue
            answers = reflector.answer(probe, time.monotonic_ns())
            reflector.seal(answers, time.time_ns())
            reflector.take_tx_stamps(udp.send(answers))
            lengths.append((int(probe.length[0]), int(answers.length[0])))
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
    udp.close()
    assert reflector.counters.as_dict() == {"reflector.answered": 20}
    assert all(came == went for came, went in lengths)
    result = json.loads(out.strip().splitlines()[-1])
    assert result["packets_received"] == 20, (out, err)
    tlvs = result["measurements"]["tlv_validation"]
    assert tlvs["rejected_replies"] == 0
    assert tlvs["hmac"]["verified"] == (0 if key is None else 20)
    # Extra Padding, Timestamp Information, Class of Service, Follow-Up Telemetry; Direct Measurement we do not know
    unrecognized = {kind: seen["flags"]["unrecognized"] for kind, seen in tlvs["by_type"].items()}
    assert {k: n for k, n in unrecognized.items() if k != "8"} == {"1": 0, "3": 0, "4": 0, "5": 20, "7": 0}
    assert unrecognized.get("8", 0) == 0
