"""What the reflector does to TLVs of any arrangement, and what the sender takes from them (RFC 8972 section 4)."""

from __future__ import annotations

import hashlib
import hmac
import struct

import numpy as np
import pytest

from sdfstream.probes.stamp import exchanges, tlv
from sdfstream.probes.stamp.packet import AUTHENTICATED, OPEN, Mac, Mode, fields
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.stats import Counters
from tests.wire import A, datagrams, host_b, reflector_of

KEY = b"k" * 32
BASE = {False: 44, True: 112}


def one(kind: int, value: bytes, flags: int = 0x80) -> bytes:
    return struct.pack(">BBH", flags, kind, len(value)) + value


def signed(message: bytes) -> bytes:
    return hmac.new(KEY, message, hashlib.sha256).digest()[:16]


def probe(tlvs: bytes, *, key: bytes | None = None, sign: bool = True) -> bytes:
    """A probe with these TLVs; in authenticated mode with the HMAC TLV behind them where `sign`."""
    if key is None:
        return struct.pack(">IQHH28x", 9, 1 << 40, 0x0101, 77) + tlvs
    head = struct.pack(">I12xQHH68x", 9, 1 << 40, 0x0101, 77)
    mac_tlv = one(8, signed(head[:4] + tlvs)) if sign else b""
    return head + signed(head) + tlvs + mac_tlv


def answered(payload: bytes, key: bytes | None = None, reflector: SessionReflector | None = None) -> tuple[bytes, int]:
    """TLVs of the answer, and the TOS octet it leaves with."""
    reflector = reflector or reflector_of(host_b(), hmac_key=key)
    answers = reflector.answer(datagrams([payload], socket=0, address=A, port=5_000, tos=10 << 2 | 2), 0)
    reflector.seal(answers, 1_790_000_000_000_000_000)
    assert int(answers.length[0]) == len(payload)
    return bytes(answers.data[0, BASE[key is not None] : len(payload)]), int(answers.tos[0])


def test_unknown_types_are_copied_with_u() -> None:
    unknown = one(5, b"\1" * 12, 0) + one(200, b"abc", 0) + one(10, b"")
    tlvs, _ = answered(probe(unknown + one(1, b"pad")))
    assert tlvs == one(5, b"\1" * 12) + one(200, b"abc") + one(10, b"") + one(1, b"pad", 0)


def test_a_known_type_at_any_position_is_filled_in() -> None:
    tlvs, tos = answered(probe(one(200, b"xy") + one(4, bytes.fromhex("b8000000")) + one(3, b"\0\0\0\0")))
    assert tlvs == one(200, b"xy") + one(4, bytes.fromhex("b8a83000"), 0) + one(3, bytes([5, 2, 5, 3]), 0)
    assert tos == 46 << 2


@pytest.mark.parametrize("length", [0, 3, 5, 8])
def test_a_wrong_length_is_malformed_and_ends_the_processing(length: int) -> None:
    behind = one(4, bytes(4)) + bytes(8)
    wrong = one(3, b"\0" * length) + behind
    tlvs, tos = answered(probe(wrong))
    assert tlvs[0] == tlv.M
    assert tlvs[1:] == wrong[1:]
    assert tos == 10 << 2


def test_a_malformed_follow_up_is_zeroed() -> None:
    tlvs, _ = answered(probe(one(7, b"\7" * 20) + one(1, b"")))
    assert tlvs == one(7, bytes(12) + b"\7" * 8, tlv.M) + one(1, b"")
    tlvs, _ = answered(probe(struct.pack(">BBH", 0x80, 7, 16) + b"\7" * 5))
    assert tlvs == struct.pack(">BBH", tlv.M, 7, 16) + bytes(5)


def test_a_length_beyond_the_packet_is_malformed() -> None:
    good = one(1, b"12")
    reaching = struct.pack(">BBH", 0x80, 200, 9) + b"12345678"
    tlvs, _ = answered(probe(good + reaching))
    assert tlvs[0] == 0
    assert tlvs[6] == tlv.U | tlv.M
    assert tlvs[7:] == reaching[1:]


@pytest.mark.parametrize("rest", [b"\x80", b"\x80\x01", b"\x80\x01\x00"])
def test_less_than_a_header_is_copied(rest: bytes) -> None:
    tlvs, _ = answered(probe(one(1, b"") + rest))
    assert tlvs == one(1, b"", 0) + rest


def test_padding_of_a_sender_without_tlvs_is_copied_untouched() -> None:
    assert answered(probe(b"\0" * 40))[0] == b"\0" * 40


def test_a_second_tlv_of_one_type_is_not_processed() -> None:
    tlvs, tos = answered(probe(one(4, bytes.fromhex("28000000")) + one(4, bytes.fromhex("b8000000"))))
    assert tlvs == one(4, bytes.fromhex("28a83000"), 0) + one(4, bytes.fromhex("b8000000"))
    assert tos == 10 << 2


def test_more_tlvs_than_are_looked_at_are_copied() -> None:
    many = one(1, b"") * (tlv.MAX_TLVS + 3)
    assert answered(probe(many))[0] == one(1, b"", 0) * tlv.MAX_TLVS + one(1, b"") * 3


def test_a_class_that_policy_refuses() -> None:
    classes = np.ones(64, dtype=bool)
    classes[46] = False
    reflector = reflector_of(host_b(), classes=classes)
    tlvs, tos = answered(probe(one(4, bytes.fromhex("b8008000"))), reflector=reflector)
    # DSCP1 46, DSCP2 10, EC2 2, RPD 0b01, EC1 2, RPE 0b11
    assert tlvs == one(4, bytes.fromhex("b8a9b000"), 0)
    assert tos == 10 << 2 | 2


def test_no_answer_is_sent_with_ce() -> None:
    tlvs, tos = answered(probe(one(4, bytes.fromhex("2800c000"))))
    assert tlvs == one(4, bytes.fromhex("28a8e000"), 0)
    assert tos == 10 << 2


def test_without_class_of_service_the_answer_keeps_the_class_and_is_not_ect() -> None:
    assert answered(probe(b""))[1] == 10 << 2


class TestIntegrity:
    def test_a_right_hmac_is_renewed(self) -> None:
        tlvs, _ = answered(probe(one(3, bytes(4)) + one(99, b"zz"), key=KEY), KEY)
        filled = one(3, bytes([5, 2, 5, 3]), 0) + one(99, b"zz")
        assert tlvs == filled + one(8, signed(struct.pack(">I", 0) + filled), 0)

    @pytest.mark.parametrize("flip", [0, 4, 11, 19])
    def test_a_wrong_hmac_sends_all_back_with_i(self, flip: int) -> None:
        broken = bytearray(probe(one(3, bytes(4)), key=KEY))
        broken[112 + flip] ^= 1
        tlvs, tos = answered(bytes(broken), KEY)
        sent = bytes(broken[112:])
        if flip:  # with the flags changed nothing else is
            assert tlvs[0] == tlvs[8] == tlv.U | tlv.I
            assert tlvs[1:8] == sent[1:8]
            assert tlvs[9:] == sent[9:]
        assert tlvs[0] & tlv.I
        assert tos == 10 << 2

    def test_a_missing_hmac_is_a_wrong_one(self) -> None:
        tlvs, _ = answered(probe(one(3, bytes(4)), key=KEY, sign=False), KEY)
        assert tlvs == one(3, bytes(4), tlv.U | tlv.I)

    def test_padding_alone_needs_none(self) -> None:
        assert answered(probe(one(1, b"1234"), key=KEY, sign=False), KEY)[0] == one(1, b"1234", 0)

    def test_padding_may_follow(self) -> None:
        tlvs, _ = answered(probe(one(3, bytes(4)), key=KEY) + one(1, b"12"), KEY)
        assert tlvs[0] == 0
        assert tlvs[-6:] == one(1, b"12", 0)

    def test_anything_else_must_not_follow(self) -> None:
        tlvs, _ = answered(probe(one(3, bytes(4)), key=KEY) + one(99, b"12"), KEY)
        assert [tlvs[0], tlvs[8], tlvs[28]] == [tlv.U | tlv.I] * 3

    def test_one_that_cannot_be_verified_without_a_key_has_failed(self) -> None:
        tlvs, _ = answered(probe(one(3, bytes(4)) + one(8, bytes(16))))
        assert tlvs == one(3, bytes(4), tlv.U | tlv.I) + one(8, bytes(16), tlv.U | tlv.I)


class TestSenderReads:
    def read(self, tlvs: bytes, mode: Mode = OPEN, key: bytes | None = None) -> np.void:
        data = np.zeros((1, 400), dtype=np.uint8)
        payload = bytes(mode.base_bytes) + tlvs
        data[0, : len(payload)] = np.frombuffer(payload, dtype=np.uint8)
        mac = None if key is None else Mac(key)
        read = exchanges.AnswerTlvs(mode, mac, Counters("t")).octets(data, np.array([len(payload)], dtype=np.int32))
        return fields(read, tlv.EXTENSION)[0]

    COS = one(4, bytes.fromhex("bae80000"), 0)
    TI = one(3, bytes([1, 2, 1, 2]), 0)

    def test_any_arrangement(self) -> None:
        found = self.read(self.TI + one(99, b"abc", 0x80) + self.COS)
        assert (found["cos"], found["method_in"], found["fu_head"]) == (0xBAE80000, 2, 0)

    def test_flagged_ones_are_not_used(self) -> None:
        found = self.read(one(4, bytes(4), tlv.U) + self.TI)
        assert found["cos_head"] == 0
        assert found["ti_head"] != 0

    def test_reserved_flag_bits_are_ignored(self) -> None:
        assert self.read(one(4, bytes(4), 0x1F) + self.TI)["cos_head"] == tlv.COS_HEAD

    def test_nothing_behind_a_malformed_one_is_used(self) -> None:
        found = self.read(self.COS + one(99, b"", tlv.M) + self.TI)
        assert found["cos_head"] != 0
        assert found["ti_head"] == 0

    def test_i_on_any_discards_all(self) -> None:
        found = self.read(self.COS + one(99, b"", tlv.I) + self.TI)
        assert found["cos_head"] == found["ti_head"] == 0

    def test_an_answer_without_tlvs(self) -> None:
        assert self.read(b"")["cos_head"] == 0

    @pytest.mark.parametrize("good", [True, False])
    def test_hmac(self, good: bool) -> None:
        mac_tlv = one(8, signed(bytes(4) + self.COS + (b"" if good else b"x")), 0)
        found = self.read(self.COS + mac_tlv, AUTHENTICATED, KEY)
        assert bool(found["cos_head"]) is good
