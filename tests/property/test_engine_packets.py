"""Laws: the packet engine reads an answer as the numpy sender does, whatever it carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.stamp import exchanges as ex
from sdfstream.probes.stamp import packet, tlv
from sdfstream.probes.stamp.packet import Mac, fields
from sdfstream.stats import Counters
from tests.fixtures.engine_packets import Codec
from tests.fixtures.stamp_packets import KEY, packets

MODES = pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])


def batch(payloads: list[bytes]) -> tuple[Any, Any]:
    """Octets in rows as a receive buffer has them, and their lengths."""
    width = max(len(p) for p in payloads) + 8
    data = np.frombuffer(b"".join(p.ljust(width, b"\xee") for p in payloads), dtype=np.uint8)
    return data.reshape(len(payloads), width), np.array([len(p) for p in payloads], dtype=np.int32)


def reference(payload: bytes, key: bytes | None) -> tuple[str, dict[str, int]]:
    """What the numpy sender makes of one answer."""
    mode, mac = packet.mode_of(key), None if key is None else Mac(key)
    data, length = batch([payload])
    if len(payload) < mode.base_bytes:
        return "short", {}
    if mac is not None and (mac.of_base(data, mode) != data[:, 96:112]).any():
        return "hmac", {}
    counters = Counters("sender")
    raw = np.ascontiguousarray(ex.AnswerTlvs(mode, mac, counters).octets(data, length))
    head, found = fields(data, mode.answer)[0], fields(raw, tlv.EXTENSION)[0]
    told = found["ti_head"] == tlv.TI_HEAD
    method = found["method_in"] if told else tlv.Method.NONE
    classed = bool(found["cos_head"] == tlv.COS_HEAD)
    follows_up = bool(found["fu_head"] == tlv.FU_HEAD and found["fu_at"] != 0)
    one = {name: np.array([head[name]]) for name in ("t2", "t3", "error")}
    fu_at_ns = packet.ns_of(np.array([found["fu_at"]]), one["error"])
    said = {
        "t2_ns": packet.ns_of(one["t2"], one["error"])[0],
        "t3_ns": packet.ns_of(one["t3"], one["error"])[0],
        "t1_word": head["sender_t1"],
        "seq": head["seq"],
        "sender_seq": head["sender_seq"],
        "error": head["error"],
        "ssid": head["ssid"],
        "ttl": head["ttl"],
        "t2_kind": tlv.KIND_OF_METHOD[method],
        "classed": classed,
        "dscp_fwd": found["cos"] >> 20 & 63 if classed else 0,
        "ecn_fwd": found["cos"] >> 18 & 3 if classed else 0,
        "follows_up": follows_up,
        "fu_kind": tlv.KIND_OF_METHOD[found["fu_mode"]] if follows_up else 0,
        "fu_seq": found["fu_seq"] if follows_up else 0,
        "fu_at_ns": fu_at_ns[0] if follows_up else 0,
    }
    doubted = "tlv-integrity" if counters.get("refused", "tlv-integrity") else ""
    return doubted, {name: int(value) for name, value in said.items()}


@MODES
@given(data=st.data())
@settings(max_examples=15)
def test_answers_are_read_alike(key: bytes | None, data: st.DataObject) -> None:
    codec = Codec(key, 0)
    for payload in data.draw(packets(key, 100)):
        assert codec.read(payload) == reference(payload, key), payload.hex()


@MODES
@given(payload=st.binary(min_size=1, max_size=300))
@settings(max_examples=50)
def test_noise_is_read_alike(key: bytes | None, payload: bytes) -> None:
    assert Codec(key, 0).read(payload) == reference(payload, key)


def test_what_is_cut_is_refused() -> None:
    assert Codec(None, 0).read(bytes(100), length=101) == ("oversized", {})


@MODES
@given(data=st.data())
@settings(max_examples=30)
def test_what_an_answer_says_does_not_depend_on_its_batch(key: bytes | None, data: st.DataObject) -> None:
    """The numpy sender's fast path for a whole batch reads as its walk does."""
    mode, mac = packet.mode_of(key), None if key is None else Mac(key)
    payloads = [p for p in data.draw(packets(key, 5)) if len(p) >= mode.base_bytes]
    if not payloads:
        return
    octets, length = batch(payloads)
    together = ex.AnswerTlvs(mode, mac, Counters("sender")).octets(octets, length)
    for row in range(len(payloads)):
        one = slice(row, row + 1)
        alone = ex.AnswerTlvs(mode, mac, Counters("sender")).octets(octets[one], length[one])
        assert usable(together[one]) == usable(alone)


def usable(raw: Any) -> dict[str, bytes]:
    """Octets of the TLVs that may be used."""
    found = fields(np.ascontiguousarray(raw), tlv.EXTENSION)[0]
    heads = {"fu_head": (tlv.FU_HEAD, 4, 20), "cos_head": (tlv.COS_HEAD, 24, 28), "ti_head": (tlv.TI_HEAD, 32, 36)}
    return {name: bytes(raw[0, a:b]) for name, (head, a, b) in heads.items() if found[name] == head}
