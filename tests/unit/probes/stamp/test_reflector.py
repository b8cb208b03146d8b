"""The reflector alone: sessions, follow-ups, limits, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sdfstream.probes.config import HostConfig
from sdfstream.probes.stamp import inbound, packet
from sdfstream.probes.stamp.datagrams import Received, ToSend, TxStamps, address_octets
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.packet import OPEN, fields
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S
from tests.wire import EPOCH, SOCKET_B, A, datagrams, host_a, host_b, reflector_of, sender_of, tx_stamps_of


def probe(seq: int = 0, *, port: int = 50_001, ssid: int = 1, rows: int = 1, **more: object) -> Received:
    template = sender_of(host_a(dscp=46)).due(NS_PER_S, EPOCH)
    payload = bytearray(template.data[0, : int(template.length[0])])
    payload[0:4] = seq.to_bytes(4, "big")
    payload[14:16] = ssid.to_bytes(2, "big")
    return datagrams([bytes(payload)] * rows, socket=SOCKET_B, address=A, port=port, **more)  # type: ignore[arg-type]


def follow_up(answers: ToSend, row: int = 0) -> tuple[int, int]:
    """(sequence number, ns) told in the answer; (0, ABSENT) when nothing is."""
    seq = int.from_bytes(answers.data[row, 48:52].tobytes(), "big")
    word = int.from_bytes(answers.data[row, 52:60].tobytes(), "big")
    return (seq, int(packet.ns_of_ntp(np.array([word], dtype=np.uint64))[0])) if word else (0, ABSENT_NS)


def together(*batches: Received) -> Received:
    joined = {
        f.name: np.concatenate([getattr(b, f.name) for b in batches])
        for f in dataclasses.fields(Received)
        if f.name != "user_at_ns"
    }
    return Received(**joined, user_at_ns=batches[0].user_at_ns)


class TestFollowUp:
    def test_each_follow_up_is_sent_once_in_order(self) -> None:
        reflector = reflector_of(host_b())
        for seq in range(3):
            reflector.take_tx_stamps(tx_stamps_of(reflector.answer(probe(seq), seq), EPOCH + 100 + seq))
        # 0 was told with 1, and 1 with 2
        assert follow_up(reflector.answer(probe(3), 3)) == (2, EPOCH + 102)

    def test_two_probes_in_one_batch(self) -> None:
        reflector = reflector_of(host_b())
        answers = reflector.answer(together(probe(0), probe(1), probe(2)), 0)
        assert [follow_up(answers, i) for i in range(3)] == [(0, ABSENT_NS)] * 3
        at = EPOCH + np.arange(3)
        reflector.take_tx_stamps(TxStamps(answers.token, at, np.ones(3, np.uint8), at))
        answers = reflector.answer(together(probe(3), probe(4)), 1)
        assert [follow_up(answers, i) for i in range(2)] == [(0, EPOCH), (1, EPOCH + 1)]
        assert follow_up(reflector.answer(probe(5), 2)) == (2, EPOCH + 2)
        # nothing new: the last is repeated, which harms nobody
        assert follow_up(reflector.answer(probe(6), 3)) == (2, EPOCH + 2)

    def test_only_the_latest_few_are_stored(self) -> None:
        reflector = reflector_of(host_b())
        for seq in range(3):
            batch = together(*(probe(seq * 3 + i) for i in range(3)))
            answers = reflector.answer(batch, seq)
            at = EPOCH + seq * 3 + np.arange(3)
            if seq < 2:
                reflector.take_tx_stamps(TxStamps(answers.token, at, np.ones(3, np.uint8), at))
        sent_follow_ups = [follow_up(reflector.answer(probe(20 + i), 9))[0] for i in range(4)]
        assert sent_follow_ups == [5, 5, 5, 5]

    def test_an_answer_is_named_by_its_own_number_not_by_its_probes(self) -> None:
        reflector = reflector_of(host_b())
        for seq in (40, 50):
            answers = reflector.answer(probe(seq), 0)
            reflector.take_tx_stamps(tx_stamps_of(answers, EPOCH + seq))
        head = fields(answers.data, OPEN.answer)
        assert (head["seq"].tolist(), head["sender_seq"].tolist()) == ([1], [50])
        assert follow_up(reflector.answer(probe(60), 1)) == (1, EPOCH + 50)

    def test_a_stateless_reflector_copies_numbers_and_sends_no_follow_up(self) -> None:
        reflector = reflector_of(host_b(), stateful=False)
        reflector.take_tx_stamps(tx_stamps_of(reflector.answer(probe(40), 0), EPOCH))
        answers = reflector.answer(probe(41), 0)
        assert fields(answers.data, OPEN.answer)["seq"].tolist() == [41]
        assert answers.token.tolist() == [-1]
        assert follow_up(answers) == (0, ABSENT_NS)

    def test_sessions_do_not_mix(self) -> None:
        reflector = reflector_of(host_b())
        kinds = [{"port": 1}, {"port": 2}, {"ssid": 2}]
        for i, kind in enumerate(kinds):
            reflector.take_tx_stamps(tx_stamps_of(reflector.answer(probe(7, **kind), 0), EPOCH + i))  # type: ignore[arg-type]
        sent_follow_ups = [follow_up(reflector.answer(probe(8, **kind), 1)) for kind in kinds]  # type: ignore[arg-type]
        assert sent_follow_ups == [(0, EPOCH), (0, EPOCH + 1), (0, EPOCH + 2)]

    @pytest.mark.parametrize(("kind", "at"), [(0, EPOCH), (255, EPOCH), (1, ABSENT_NS)])
    def test_only_true_sending_times_become_follow_ups(self, kind: int, at: int) -> None:
        reflector = reflector_of(host_b())
        stamps = tx_stamps_of(reflector.answer(probe(0), 0), EPOCH)
        reflector.take_tx_stamps(
            dataclasses.replace(stamps, at_ns=np.array([at]), kind=np.array([kind], dtype=np.uint8))
        )
        assert follow_up(reflector.answer(probe(1), 0)) == (0, ABSENT_NS)

    def test_tokens_of_others_change_nothing(self) -> None:
        reflector = reflector_of(host_b())
        reflector.answer(probe(0), 0)
        tokens = np.array([-1, 0, 1 << 40, 5 << 32, np.iinfo(np.int64).max])
        reflector.take_tx_stamps(TxStamps(tokens, np.full(5, EPOCH), np.ones(5, np.uint8), np.full(5, EPOCH)))
        assert follow_up(reflector.answer(probe(1), 0)) == (0, ABSENT_NS)


class TestLimits:
    def test_never_more_octets_than_came(self) -> None:
        reflector = reflector_of(host_b())
        payloads = [bytes(n) for n in range(0, 200)]
        answers = reflector.answer(datagrams(payloads, socket=SOCKET_B, address=A, port=9), 0)
        assert answers.length.tolist() == list(range(44, 200))
        assert answers.data.shape[1] >= answers.length.max()
        assert reflector.counters.get("refused", "short") == 44

    def test_packets_per_second(self) -> None:
        reflector = reflector_of(host_b(), limits=ReflectorLimits(max_pps=1_000))
        sent = sum(len(reflector.answer(probe(0, rows=50), now * NS_PER_MS).length) for now in range(0, 2_000, 10))
        # 100 at once, then 1 000 a second for two seconds
        assert 2_050 <= sent <= 2_110
        assert reflector.counters.get("refused", "rate") == 200 * 50 - sent

    def test_a_clock_that_goes_back_grants_nothing(self) -> None:
        reflector = reflector_of(host_b(), limits=ReflectorLimits(max_pps=1_000))
        assert len(reflector.answer(probe(rows=200), NS_PER_S).length) == 100
        assert len(reflector.answer(probe(rows=200), 0).length) == 0

    def test_the_session_table_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inbound, "CAPACITY", 8)
        reflector = reflector_of(host_b())
        many = together(*(probe(0, port=p) for p in range(1, 21)))
        answers = reflector.answer(many, 0)
        assert len(answers.length) == 20
        assert (answers.token >= 0).sum() == 8
        assert reflector.counters.get("shed", "session") == 12
        # a session long silent gives way, and its late stamp is not taken for the new one's
        later = reflector.answer(probe(3, port=99), inbound.IDLE_NS + 1)
        assert int(later.token[0]) >= 0
        assert len(set(answers.token.tolist()) & set(later.token.tolist())) == 0
        reflector.take_tx_stamps(tx_stamps_of(answers, EPOCH))
        assert follow_up(reflector.answer(probe(4, port=99), inbound.IDLE_NS + 2)) == (0, ABSENT_NS)

    def test_no_row_is_given_away_twice_in_a_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inbound, "CAPACITY", 4)
        monkeypatch.setattr(inbound, "SOURCE_ROWS", 2)
        senders = {f"10.0.0.{i}": KnownSender(f"h{i}/r0") for i in range(1, 6)}
        reflector = SessionReflector(host_b(), {SOCKET_B: "hb/r0"}, senders)

        def answered(now_ns: int, *sources: tuple[int, int]) -> list[int]:
            batches = [
                datagrams([bytes(44)], socket=SOCKET_B, address=f"10.0.0.{host}", port=port) for host, port in sources
            ]
            tokens: list[int] = reflector.answer(together(*batches), now_ns).token.tolist()
            return tokens

        answered(0, (2, 1), (2, 2))
        answered(1, (1, 1), (1, 2))
        # the table is full: 3 takes a row of 2, 1 one of its own, 3 the other of 2, and 4 what is left
        tokens = answered(2, (3, 1), (1, 3), (3, 2), (4, 1))
        assert min(tokens) >= 0
        assert sorted(token >> 32 & 0xFFFF for token in tokens) == [0, 1, 2, 3]

    def test_a_flood_of_new_sources_is_taken_up_in_batches(self) -> None:
        reflector = reflector_of(host_b(), limits=ReflectorLimits(strangers=True, stranger_pps=10_000))
        ports = list(range(2_001, 3_001))
        batch = datagrams([bytes(44)] * 1_000, socket=SOCKET_B, address="192.0.2.1", port=ports)
        assert (reflector.answer(batch, 0).token >= 0).sum() == inbound.NEW_PER_CALL


def test_answers_leave_by_the_socket_they_came_in_by() -> None:
    host = HostConfig("hb", ())
    reflector = SessionReflector(host, {0: "hb/r0", 1: "hb/r1"}, {A: KnownSender("ha/r0")})
    batch = together(probe(0), probe(1), probe(2), probe(3))
    batch.socket[:] = [1, 0, 1, 0]
    answers = reflector.answer(batch, 0)
    assert answers.socket.tolist() == [0, 0, 1, 1]
    head = fields(answers.data, OPEN.answer)
    assert head["sender_seq"].tolist() == [1, 3, 0, 2]
    assert head["seq"].tolist() == [0, 1, 0, 1]
    assert (answers.address == np.frombuffer(address_octets(A), dtype=np.uint8)).all()
    assert answers.port.tolist() == [50_001] * 4


def test_t2_without_a_stamp_is_user_space() -> None:
    batch = dataclasses.replace(probe(), at_ns=np.array([ABSENT_NS]))
    answers = reflector_of(host_b()).answer(batch, 0)
    assert packet.ns_of_ntp(fields(answers.data, OPEN.answer)["t2"]).tolist() == [batch.user_at_ns]
    assert answers.data[0, 77] == 3


def test_ptp_stamps_when_asked_for() -> None:
    error = packet.error_estimate(1e3, ptp=True, synced=True)
    reflector = reflector_of(host_b(), error=error)
    answers = reflector.answer(probe(), 0)
    reflector.seal(answers, EPOCH + 77)
    head = fields(answers.data, OPEN.answer)
    assert head["error"].tolist() == [error]
    assert packet.ns_of_ptp(head["t2"]).tolist() == [EPOCH]
    assert packet.ns_of_ptp(head["t3"]).tolist() == [EPOCH + 77]


def test_the_input_is_not_changed() -> None:
    batch = probe()
    before = {f.name: np.copy(getattr(batch, f.name)) for f in dataclasses.fields(batch)}
    reflector_of(host_b()).answer(batch, 0)
    for name, value in before.items():
        assert np.array_equal(getattr(batch, name), value), name


def test_a_wrong_hmac_is_dropped_silently() -> None:
    good = sender_of(host_a(), hmac_key=b"right").due(NS_PER_S, EPOCH)
    payloads = [bytes(good.data[i, : int(good.length[i])]) for i in range(2)]
    for at in (0, 50, 100):
        bad = bytearray(payloads[0])
        bad[at] ^= 1
        batch = datagrams([bytes(bad), payloads[1]], socket=SOCKET_B, address=A, port=9)
        reflector = reflector_of(host_b(), hmac_key=b"right")
        assert len(reflector.answer(batch, 0).length) == 1
        assert reflector.counters.get("refused", "hmac") == 1
