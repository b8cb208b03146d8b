"""Whatever arrives: no exception, every refusal counted, the good packets beside it unaffected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.stamp.datagrams import Received, TxStamps
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from tests.wire import EPOCH, SOCKET_A, SOCKET_B, A, B, Wire, datagrams, host_a, host_b, reflector_of, sender_of

KEY = b"a key"
WIDTH = 300


def mangled(good: bytes, rng: np.random.Generator) -> bytes:
    """`good` cut, grown, with flipped bits, with other TLV lengths, or noise."""
    mangling = rng.integers(0, 6)
    if mangling == 0:
        return good[: rng.integers(0, len(good))]
    if mangling == 1:
        return good + rng.bytes(int(rng.integers(1, 400)))
    if mangling == 2:
        return rng.bytes(int(rng.integers(0, 400)))
    data = bytearray(good)
    first = 44 if mangling == 3 else 0
    for _ in range(int(rng.integers(1, 9))):
        data[rng.integers(first, len(data))] ^= 1 << rng.integers(0, 8)
    if mangling == 4:
        data[44:] = rng.integers(0, 9, len(data) - 44, dtype=np.uint8).tobytes()
    return bytes(data)


def counted(counters: dict[str, int], stage: str) -> int:
    """Datagrams accounted for: answered or refused as a whole."""
    aside = {f"{stage}.refused.tlv-integrity", f"{stage}.refused.tlv-malformed", f"{stage}.refused.follow-up"}
    batches = (f"{stage}.answered", f"{stage}.refused.")
    return sum(n for k, n in counters.items() if k.startswith(batches) and k not in aside)


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
def test_reflector(key: bytes | None) -> None:
    rng = np.random.default_rng(20_261_121)
    sent = sender_of(host_a(), hmac_key=key).due(NS_PER_S, EPOCH)
    good = [bytes(sent.data[i, : int(sent.length[i])]) for i in range(2)]
    clean = reflector_of(host_b(), hmac_key=key)
    for turn in range(150):
        reflector = reflector_of(host_b(), hmac_key=key)
        bad = [mangled(good[0], rng) for _ in range(30)]
        index = int(rng.integers(0, 31))
        payloads = [*bad[:index], good[1], *bad[index:]]
        ports = [int(p) for p in rng.integers(1, 65_536, 31)]
        batch = datagrams(payloads, socket=SOCKET_B, address=A, port=ports, width=WIDTH, tos=int(rng.integers(256)))
        answers = reflector.answer(batch, turn)
        reflector.seal(answers, EPOCH + turn)
        assert counted(reflector.counters.as_dict(), "reflector") == 31
        assert (answers.length <= WIDTH).all()
        # nothing that was refused comes back, nothing that comes back has grown
        assert set(answers.length.tolist()) <= set(batch.length.tolist())
        alone = datagrams([good[1]], socket=SOCKET_B, address=A, port=ports[index], width=WIDTH, tos=int(batch.tos[0]))
        wanted = reflector_of(host_b(), hmac_key=key).answer(alone, turn)
        clean.seal(wanted, EPOCH + turn)
        mine = [i for i in range(len(answers.length)) if answers.port[i] == ports[index]]
        assert bytes(wanted.data[0, : int(wanted.length[0])]) in [
            bytes(answers.data[i, : int(answers.length[i])]) for i in mine
        ]


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "authenticated"])
def test_sender(key: bytes | None) -> None:
    rng = np.random.default_rng(8_972)
    for turn in range(60):
        wire = Wire(sender_of(host_a(), seed=turn + 1, hmac_key=key), reflector_of(host_b(), hmac_key=key))
        taken: list[Received] = []
        real = wire.sender.take_answers
        wire.sender.take_answers = lambda batch, now_ns, to=taken: to.append(batch)  # type: ignore[method-assign]
        wire.run(NS_PER_S // 16)
        last = taken[-1]
        good = [bytes(b.data[0, : int(b.length[0])]) for b in (taken[0], last)]
        bad = [mangled(good[0], rng) for _ in range(30)]
        batch = datagrams([*bad, good[1]], socket=int(last.socket[0]), address=B, port=862, width=WIDTH)
        batch.socket[:-1] = rng.choice([SOCKET_A, SOCKET_A + 1, 77], 30)
        real(batch, NS_PER_S // 16)
        assert counted(wire.sender.counters.as_dict(), "sender") == 31
        rows = wire.sender.rows(3 * NS_PER_S)
        assert rows is not None
        rows.validate(full=True)
        answered = [r for r in rows.to_pylist() if r["t4_ns"] is not None]
        assert any(r["path"] == 50_001 + int(last.socket[0]) - SOCKET_A for r in answered)


@given(st.lists(st.binary(max_size=200), max_size=12), st.sampled_from([None, KEY]), st.integers(1, 256))
@settings(max_examples=150, deadline=None)
def test_noise(payloads: list[bytes], key: bytes | None, width: int) -> None:
    sender = sender_of(host_a(), hmac_key=key)
    sender.due(NS_PER_S, EPOCH)
    reflector = reflector_of(host_b(), hmac_key=key)
    for socket, address, port in ((SOCKET_A, B, 862), (SOCKET_B, A, 50_001)):
        batch = datagrams(payloads, socket=socket, address=address, port=port, width=width)
        before = reflector.counters.total("refused")
        answers = reflector.answer(batch, 0)
        reflector.seal(answers, EPOCH)
        refused = reflector.counters.total("refused") - before
        assert len(answers.length) <= len(payloads) <= len(answers.length) + refused
        sender.take_answers(batch, NS_PER_S)
    if payloads:
        assert counted(sender.counters.as_dict(), "sender") == 2 * len(payloads)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(0, 255))
def test_stamps_of_nowhere(tokens: list[int], kind: int) -> None:
    sender, reflector = sender_of(host_a()), reflector_of(host_b())
    sender.due(NS_PER_S, EPOCH)
    n = len(tokens)
    at = np.full(n, ABSENT_NS if kind == 255 else EPOCH)
    stamps = TxStamps(np.array(tokens, dtype=np.int64), at, np.full(n, kind, dtype=np.uint8), at)
    sender.take_tx_stamps(stamps)
    reflector.take_tx_stamps(stamps)
    sender.unsent(stamps.token)
    assert sender.rows(0) is None
