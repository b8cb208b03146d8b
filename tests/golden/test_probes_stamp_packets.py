"""Packets octet by octet, written from the RFCs' figures by hand; HMACs recomputed here with the standard library."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig
from sdfstream.records.units import NS_PER_S, StampKind
from tests.wire import EPOCH, A, Wire, datagrams, host_b, reflector_of, sender_of, tx_stamps_of

KEY = b"0123456789abcdef0123456789abcdef"
# EPOCH is 1 790 000 000 s: NTP seconds 3 998 988 800 = 0xee5bba00
SECONDS = "ee5bba00"
ERROR = "0f84"  # S=0 Z=0 scale 15 multiplier 132: 132 · 2^-17 s >= 1 ms


def mac(*parts: bytes) -> bytes:
    return hmac.new(KEY, b"".join(parts), hashlib.sha256).digest()[:16]


def parts(text: str) -> bytes:
    return bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()).replace(" ", ""))


def one_session(**more: object) -> HostConfig:
    session = SessionConfig("ha/r0", "hb/r0", "10.0.1.1", source_ports=(50_001,), dscp=46, **more)  # type: ignore[arg-type]
    return HostConfig("ha", (NicConfig("ha/r0", "r0", A),), (session,))


PROBE_TLVS = """
    80 07 0010  00000000 0000000000000000 00 000000   # Follow-Up Telemetry, U set
    80 04 0004  b8 00 80 00                           # Class of Service: DSCP1 46, EC1 ECT(0)
    80 03 0004  00 00 00 00                           # Timestamp Information
"""
ANSWER_TLVS = """
    00 07 0010  00000000 0000000000000000 00 000000   # nothing to follow up yet
    00 04 0004  ba e8 b0 00   # DSCP1 46, DSCP2 46, EC2 ECT(0), RPD 0, EC1 ECT(0), RPE done
    00 03 0004  05 02 05 03   # free-running clock; T2 by the kernel (SW local), T3 by user space (control plane)
"""


def first_probe(key: bytes | None) -> bytes:
    sender = sender_of(one_session(), hmac_key=key)
    sent = sender.due(NS_PER_S // 16, EPOCH + NS_PER_S // 2)
    assert len(sent.token) == 1
    assert int(sent.tos[0]) == 46 << 2 | 2
    return bytes(sent.data[0, : int(sent.length[0])])


def reflected(probe: bytes, key: bytes | None, **more: object) -> bytes:
    reflector = reflector_of(host_b(), hmac_key=key)
    received = datagrams([probe], socket=0, address=A, port=50_001, at_ns=EPOCH + NS_PER_S, tos=46 << 2 | 2, **more)  # type: ignore[arg-type]
    answers = reflector.answer(received, 0)
    reflector.seal(answers, EPOCH + NS_PER_S + NS_PER_S // 4)
    assert len(answers.length) == 1
    return bytes(answers.data[0, : int(answers.length[0])])


def test_open_probe() -> None:
    head = f"00000000 {SECONDS}80000000 {ERROR} 0001" + "00" * 28
    padding = "80 01 0010" + "00" * 16
    assert first_probe(None) == parts(head) + parts(PROBE_TLVS) + parts(padding)


def test_authenticated_probe() -> None:
    head = parts("00000000" + "00" * 12 + f"{SECONDS}80000000 {ERROR} 0001" + "00" * 68)
    assert len(head) == 96
    tlvs = parts(PROBE_TLVS)
    wanted = head + mac(head) + tlvs + parts("80 08 0010") + mac(head[:4], tlvs)
    assert first_probe(KEY) == wanted


ANSWER_BASE = f"""
    00000000 ee5bba0140000000 {ERROR} 0001     # sequence number copied, T3, error estimate, SSID
    ee5bba0100000000                           # T2
    00000000 ee5bba0080000000 {ERROR} 0000     # sender's sequence number, T1, error estimate
    3f 000000                                  # TTL 63 on arrival
"""


def test_open_answer() -> None:
    wanted = parts(ANSWER_BASE) + parts(ANSWER_TLVS) + parts("00 01 0010" + "00" * 16)
    assert reflected(first_probe(None), None) == wanted


def test_authenticated_answer() -> None:
    head = parts(
        f"""00000000 {"00" * 12} ee5bba0140000000 {ERROR} 0001 00000000
        ee5bba0100000000 {"00" * 8} 00000000 {"00" * 12} ee5bba0080000000 {ERROR} {"00" * 6}
        3f {"00" * 15}"""
    )
    tlvs = parts(ANSWER_TLVS)
    wanted = head + mac(head) + tlvs + parts("00 08 0010") + mac(head[:4], tlvs)
    assert reflected(first_probe(KEY), KEY) == wanted


@pytest.mark.parametrize("ecn", [0, 2])
def test_class_of_service_of_an_rfc_8972_sender(ecn: int) -> None:
    """DSCP1 = 46, seen 46 and ECT(0): ba e8, then RPE "done" in what such a sender ignores as reserved."""
    probe = parts(f"00000007 {SECONDS}00000000 0101 0000" + "00" * 28 + "80 04 0004 b8 00 00 00")
    received = datagrams([probe], socket=0, address=A, port=50_001, tos=46 << 2 | ecn)
    answers = reflector_of(host_b()).answer(received, 0)
    assert bytes(answers.data[0, 44:52]) == parts(f"00 04 0004 ba {0xE0 | ecn << 2:02x} 30 00")
    assert int(answers.tos[0]) == 46 << 2


def test_follow_up_in_the_second_answer() -> None:
    wire = Wire(sender_of(one_session()), reflector_of(host_b()))
    wire.run(NS_PER_S // 5)
    first, second = wire.answers[0], wire.answers[1]
    t1 = EPOCH + int(wire.sender._exchanges.sent_at[0]) + 7_000
    true_t3 = t1 + wire.forward_ns + wire.turn_ns
    fraction = -(-((true_t3 % NS_PER_S) << 32) // NS_PER_S)  # rounded up
    seconds = true_t3 // NS_PER_S + 2_208_988_800
    assert bytes(first.data[0, 44:64]).hex() == "00070010" + "00" * 16
    assert bytes(second.data[0, 44:64]).hex() == f"00070010 00000000 {seconds:08x}{fraction:08x} 02000000".replace(
        " ", ""
    )


def test_hardware_stamps_are_told_as_hw_assist() -> None:
    reflector = reflector_of(host_b())
    probe = first_probe(None)
    received = datagrams([probe], socket=0, address=A, port=50_001, kind=StampKind.HARDWARE)
    reflector.take_tx_stamps(tx_stamps_of(reflector.answer(received, 0), EPOCH + 5, StampKind.HARDWARE))
    answers = reflector.answer(received, 1)
    assert bytes(answers.data[0, 76:80]).hex() == "05010503"
    assert bytes(answers.data[0, 60:64]).hex() == "01000000"
    assert np.array_equal(answers.length, [len(probe)])
