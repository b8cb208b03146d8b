"""The sender alone: pacing, matching, refusals, stamps of every kind."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.errors import ConfigError
from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp import tlv
from sdfstream.probes.stamp.datagrams import Received, TxStamps, address_octets
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, StampKind
from tests.wire import EPOCH, SOCKET_A, A, B, Wire, datagrams, host_a, host_b, reflector_of, sender_of, tx_stamps_of


def exchange(**more: object) -> tuple[Wire, Received]:
    """One probe sent and reflected, its answer not yet handed to the sender."""
    wire = Wire(sender_of(host_a(ports=(50_001,)), **more), reflector_of(host_b(), **more))
    taken: list[Received] = []
    real = wire.sender.take_answers
    wire.sender.take_answers = lambda batch, now_ns: taken.append(batch)  # type: ignore[method-assign]
    wire.run(NS_PER_S // 16)
    wire.sender.take_answers = real  # type: ignore[method-assign]
    return wire, taken[0]


def rows_of(sender: SessionSender, now_ns: int) -> list[dict]:
    batch = sender.rows(now_ns)
    return [] if batch is None else batch.to_pylist()


def refused(sender: SessionSender) -> dict[str, int]:
    return {k.removeprefix("sender.refused."): n for k, n in sender.counters.as_dict().items() if ".refused." in k}


class TestPacing:
    def test_rate_and_jitter(self) -> None:
        sender = sender_of(host_a(rate_hz=100.0, ports=(50_001,)))
        times = []
        while (now := sender.next_due_ns()) < 20 * NS_PER_S:
            assert len(sender.due(now, EPOCH + now).token) == 1
            times.append(now)
        gaps = np.diff(times)
        assert gaps.min() >= 7_500_000
        assert gaps.max() <= 12_500_000
        assert abs(gaps.mean() - 10_000_000) < 200_000
        assert gaps.std() > 1_000_000

    def test_first_probes_are_spread_over_one_interval(self) -> None:
        sender = sender_of(host_a(rate_hz=10.0, ports=tuple(range(50_000, 50_200))))
        assert 60 <= len(sender.due(50 * NS_PER_MS, EPOCH).token) <= 140
        sender.due(100 * NS_PER_MS, EPOCH)
        assert sender.counters.get("sent") >= 200

    def test_a_stall_is_not_made_up_for(self) -> None:
        sender = sender_of(host_a(rate_hz=100.0, ports=(50_001,)))
        assert len(sender.due(5 * NS_PER_S, EPOCH).token) == 1
        assert len(sender.due(5 * NS_PER_S + NS_PER_MS, EPOCH).token) == 0

    def test_datagrams_are_sorted_by_socket(self) -> None:
        sessions = tuple(
            SessionConfig(f"ha/r{n % 3}", f"h{n}/r0", f"10.0.{n}.1", source_ports=(50_002, 50_001)) for n in range(9)
        )
        host = HostConfig("ha", tuple(NicConfig(f"ha/r{i}", f"r{i}", f"10.1.0.{i}") for i in range(3)), sessions)
        sockets = {(f"ha/r{n}", p): 10 * (p % 2) + n for n in range(3) for p in (50_001, 50_002)}
        sent = SessionSender(host, sockets, np.random.default_rng(3), 0).due(NS_PER_S, EPOCH)
        assert len(sent.token) == 18
        assert (np.diff(sent.socket) >= 0).all()
        assert len(set(sent.token.tolist())) == 18

    def test_a_host_without_sessions(self) -> None:
        sender = SessionSender(HostConfig("ha", ()), {}, np.random.default_rng(1), 0)
        assert len(sender.due(NS_PER_S, EPOCH).token) == 0
        assert sender.next_due_ns() == np.iinfo(np.int64).max
        assert sender.rows(NS_PER_S) is None
        assert sender.liveness(NS_PER_S, EPOCH, complete=True) == []
        wire, answer = exchange()
        sender.take_answers(answer, NS_PER_S)
        assert refused(sender) == {"unknown-session": 1}
        assert refused(wire.sender) == {}


class TestRefusals:
    def check(self, change: dict[str, object], reason: str, **more: object) -> None:
        wire, answer = exchange(**more)
        wire.sender.take_answers(dataclasses.replace(answer, **change), NS_PER_S // 16)
        assert refused(wire.sender) == {reason: 1}
        # nothing was touched: the true answer is still taken
        wire.sender.take_answers(answer, NS_PER_S // 16)
        assert wire.sender.counters.get("answered") == 1

    def test_short(self) -> None:
        self.check({"length": np.array([43], dtype=np.int32)}, "short")

    def test_oversized(self) -> None:
        self.check({"length": np.array([257], dtype=np.int32)}, "oversized")

    def test_unknown_socket(self) -> None:
        self.check({"socket": np.array([99], dtype=np.int32)}, "unknown-session")

    def test_another_port(self) -> None:
        self.check({"port": np.array([863], dtype=np.uint16)}, "wrong-reflector")

    def test_another_address(self) -> None:
        _, answer = exchange()
        other = answer.address.copy()
        other[0, 15] ^= 1
        self.check({"address": other}, "wrong-reflector")

    def edited(self, at: int, more: dict[str, object] | None = None) -> dict[str, object]:
        _, answer = exchange(**(more or {}))
        data = answer.data.copy()
        data[0, at] ^= 0x40
        return {"data": data}

    def test_another_ssid(self) -> None:
        self.check(self.edited(15), "unknown-session")

    def test_a_number_never_sent(self) -> None:
        self.check(self.edited(25), "unknown-exchange")

    def test_another_time_stamp(self) -> None:
        self.check(self.edited(35), "echo")

    @pytest.mark.parametrize("at", [0, 20, 40, 95, 96, 111])
    def test_a_wrong_hmac(self, at: int) -> None:
        key = {"hmac_key": b"secret"}
        self.check(self.edited(at, key), "hmac", **key)

    def test_a_copy(self) -> None:
        wire, answer = exchange()
        for _ in range(3):
            wire.sender.take_answers(answer, NS_PER_S // 16)
        assert refused(wire.sender) == {"duplicate": 2}
        assert len(rows_of(wire.sender, NS_PER_S)) == 1
        wire.sender.take_answers(answer, NS_PER_S)
        assert refused(wire.sender) == {"duplicate": 3}

    def test_an_answer_that_came_in_time_and_was_read_late(self) -> None:
        wire, answer = exchange()
        assert wire.sender.rows(NS_PER_S // 16) is None
        # the process stalls for two seconds; its flush comes first, then it reads the socket
        assert wire.sender.rows(2 * NS_PER_S) is None
        wire.sender.take_answers(answer, 2 * NS_PER_S)
        assert wire.sender.rows(3 * NS_PER_S) is None
        (row,) = rows_of(wire.sender, 4 * NS_PER_S)
        assert row["t4_ns"] == answer.at_ns[0]

    def test_too_late(self) -> None:
        wire, answer = exchange()
        late = dataclasses.replace(answer, at_ns=answer.at_ns + NS_PER_S)
        wire.sender.take_answers(late, 2 * NS_PER_S)
        assert refused(wire.sender) == {"late": 1}
        (row,) = rows_of(wire.sender, 2 * NS_PER_S)
        assert row["t4_ns"] is None
        wire.sender.take_answers(answer, 2 * NS_PER_S)
        assert refused(wire.sender) == {"late": 2}


class TestStamps:
    def test_without_kernel_stamps_the_row_says_user_space(self) -> None:
        wire = Wire(sender_of(host_a(ports=(50_001,))), reflector_of(host_b()), stamps=False)
        wire.run(NS_PER_S // 16)
        (row,) = rows_of(wire.sender, NS_PER_S)
        assert (row["t1_kind"], row["t3_kind"], row["tx_host_ns"]) == (0, 0, None)
        assert row["t4_kind"] == 1

    def test_an_answer_without_stamp(self) -> None:
        wire, answer = exchange()
        bare = dataclasses.replace(answer, at_ns=np.array([ABSENT_NS]), kind=np.array([255], dtype=np.uint8))
        wire.sender.take_answers(bare, NS_PER_S // 16)
        (row,) = rows_of(wire.sender, NS_PER_S)
        assert (row["t4_ns"], row["t4_kind"], row["rx_host_ns"]) == (answer.user_at_ns, 0, None)

    def hardware(self, t4_kind: int) -> dict:
        wire, answer = exchange()
        token = wire.sender._exchanges.slot(np.zeros(1, np.int64), np.zeros(1, np.int64))
        phc = 1_000_000
        kernel_first = TxStamps(
            token.repeat(2), np.array([EPOCH + 7, phc]), np.array([1, 2], np.uint8), np.full(2, EPOCH)
        )
        wire.sender.take_tx_stamps(kernel_first)
        at = phc + 500 if t4_kind == StampKind.HARDWARE else EPOCH + 500
        kinds = np.array([t4_kind], dtype=np.uint8)
        wire.sender.take_answers(dataclasses.replace(answer, at_ns=np.array([at]), kind=kinds), NS_PER_S // 16)
        (row,) = rows_of(wire.sender, NS_PER_S)
        return row

    def test_hardware_stamps_are_the_nics_clock(self) -> None:
        row = self.hardware(StampKind.HARDWARE)
        assert (row["clock_src"], row["t1_ns"], row["t4_ns"]) == ("ha/r0", 1_000_000, 1_000_500)
        assert (row["t1_kind"], row["t4_kind"], row["tx_host_ns"], row["rx_host_ns"]) == (2, 2, None, None)

    def test_one_hardware_stamp_alone_is_not_used(self) -> None:
        row = self.hardware(StampKind.KERNEL)
        assert (row["clock_src"], row["t1_ns"], row["t1_kind"], row["t4_kind"]) == ("ha", EPOCH, 0, 1)

    def test_stamps_for_nothing_are_counted(self) -> None:
        sender = sender_of(host_a())
        tokens = np.array([-1, 5, 1 << 62, np.iinfo(np.int64).max])
        sender.take_tx_stamps(TxStamps(tokens, np.full(4, EPOCH), np.ones(4, np.uint8), np.full(4, EPOCH)))
        assert refused(sender) == {"late-stamp": 4}

    def test_a_probe_that_never_left_is_no_row(self) -> None:
        sender = sender_of(host_a())
        sent = sender.due(NS_PER_S // 8, EPOCH)
        sender.unsent(sent.token)
        assert sender.rows(5 * NS_PER_S) is None
        assert sender.counters.get("unsent") == len(sent.token) == 2


class TestPeers:
    @pytest.mark.parametrize("reserved_flag", [0, 1])
    def test_a_reflector_that_adds_tlvs(self, reserved_flag: int) -> None:
        """An answer may be longer than all our probes; what lies behind them is walked, not beyond the buffer."""
        wire, batch = exchange()
        n = int(batch.length[0])
        more = bytes.fromhex("00630004 00000000 00630004 00000000".replace(" ", ""))
        batch.data[0, n : n + len(more)] = np.frombuffer(more, dtype=np.uint8)
        batch.data[0, 44] |= reserved_flag
        batch.length[0] += len(more)
        wire.sender.take_answers(batch, NS_PER_S // 16)
        assert wire.sender.counters.get("answered") == 1
        (row,) = rows_of(wire.sender, 3 * NS_PER_S)
        assert row["dscp_fwd"] == 0

    def test_what_an_answer_says_depends_on_no_other_of_its_batch(self) -> None:
        """A flag on padding puts all TLVs in doubt, alone as beside an answer in another arrangement."""
        for beside in (False, True):
            wire, batch = exchange()
            padding_at = 80
            batch.data[0, padding_at] |= tlv.I
            if beside:
                odd = datagrams([bytes(44)], socket=SOCKET_A, address=B, port=862)
                names = [f.name for f in dataclasses.fields(Received) if f.name != "user_at_ns"]
                joined = {n: np.concatenate([getattr(batch, n), getattr(odd, n)]) for n in names}
                batch = Received(**joined, user_at_ns=batch.user_at_ns)
            wire.sender.take_answers(batch, NS_PER_S // 16)
            assert wire.sender.counters.get("refused", "tlv-integrity") == 1
            assert rows_of(wire.sender, 3 * NS_PER_S)[0]["dscp_fwd"] is None

    def test_a_reflector_that_knows_no_ssid(self) -> None:
        wire, answer = exchange()
        data = answer.data.copy()
        data[0, 14:16] = 0
        wire.sender.take_answers(dataclasses.replace(answer, data=data), NS_PER_S // 16)
        assert wire.sender.counters.get("answered") == 1

    def test_without_ssid_two_sessions_to_one_reflector_cannot_be_distinguished(self) -> None:
        sessions = tuple(SessionConfig("ha/r0", "hb/r0", B, source_ports=(50_001,), dscp=d) for d in (0, 46))
        host = dataclasses.replace(host_a(), sessions=sessions)
        wire = Wire(sender_of(host), reflector_of(host_b()))
        wire.run(NS_PER_S // 16)
        fresh = sender_of(host)
        fresh.due(NS_PER_S // 16, EPOCH)
        data = wire.answers[0].data.copy()
        data[:, 14:16] = 0
        fresh.take_answers(dataclasses.replace(wire.answers[0], data=data), NS_PER_S // 16)
        assert set(refused(fresh)) == {"unknown-session"}

    def test_a_stateful_reflector_numbers_answers_itself(self) -> None:
        wire = Wire(sender_of(host_a(ports=(50_001,))), reflector_of(host_b()))
        real = wire.sender.take_answers
        shift = 1_000

        def renumbered(batch: Received, now_ns: int) -> None:
            data = batch.data.copy()
            for row in data:
                row[0:4] = np.frombuffer((int.from_bytes(row[0:4], "big") + shift).to_bytes(4, "big"), np.uint8)
                if row[48:60].any() or row[60]:
                    stated = int.from_bytes(row[48:52], "big") + shift
                    row[48:52] = np.frombuffer(stated.to_bytes(4, "big"), np.uint8)
            real(dataclasses.replace(batch, data=data), now_ns)

        wire.sender.take_answers = renumbered  # type: ignore[method-assign]
        wire.run(NS_PER_S)
        rows = rows_of(wire.sender, 2 * NS_PER_S)
        assert len(rows) >= 14
        assert [r["t3_kind"] for r in rows] == [1] * (len(rows) - 1) + [0]

    def test_a_reflector_older_than_rfc_8972(self) -> None:
        """It copies the TLVs as they are: U stays set, nothing of them may be used."""
        wire, answer = exchange()
        data = answer.data.copy()
        data[0, [44, 64, 72]] = 0x80
        wire.sender.take_answers(dataclasses.replace(answer, data=data), NS_PER_S // 16)
        (row,) = rows_of(wire.sender, NS_PER_S)
        assert (row["dscp_fwd"], row["ecn_fwd"], row["t2_kind"], row["t3_kind"]) == (None, None, 0, 0)
        assert row["t4_ns"] is not None

    def test_ipv6(self) -> None:
        session = SessionConfig("ha/r0", "hb/r0", "fd00::2", source_ports=(50_001,), size_bytes=200)
        host = HostConfig("ha", (NicConfig("ha/r0", "r0", "fd00::1"),), (session,))
        sender = SessionSender(host, {("ha/r0", 50_001): SOCKET_A}, np.random.default_rng(1), 0)
        sent = sender.due(NS_PER_S, EPOCH)
        assert sent.address[0].tobytes().hex() == "fd000000000000000000000000000002"
        assert sent.length.tolist() == [152]
        sender.take_tx_stamps(tx_stamps_of(sent, EPOCH))
        (row,) = rows_of(sender, 3 * NS_PER_S)
        assert row["size_bytes"] == 200


@pytest.mark.parametrize(("wanted", "got"), [(0, 108), (108, 108), (109, 112), (112, 112), (113, 113), (1500, 1500)])
def test_probe_sizes(wanted: int, got: int) -> None:
    sender = sender_of(host_a(size_bytes=wanted))
    sent = sender.due(NS_PER_S, EPOCH)
    assert (sent.length + 28).tolist() == [got, got]
    assert sent.data.shape[1] >= got - 28
    source = np.frombuffer(address_octets(A) * 2, np.uint8).reshape(2, 16)
    answers = reflector_of(host_b()).answer(
        Received(sent.data, sent.length, np.zeros(2, np.int32), source, np.full(2, 50_001, np.uint16),
                 np.full(2, EPOCH), np.ones(2, np.uint8), EPOCH, sent.tos, sent.tos), 0,
    )  # fmt: skip
    assert answers.length.tolist() == sent.length.tolist()


def test_a_ring_that_overflows_counts_what_it_sheds() -> None:
    sender = sender_of(host_a(rate_hz=1000.0, ports=(50_001,)))
    depth = len(sender._exchanges)
    now = 0
    for _ in range(depth + 10):
        now = max(now + NS_PER_MS, sender.next_due_ns())
        sender.due(now, EPOCH + now)
    assert sender.counters.get("shed", "ring") == 10
    batch = sender.rows(now)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows >= depth - 10


@pytest.mark.parametrize(
    ("session", "text"),
    [
        ({"dst_address": "10.0.0"}, "is not an IP address"),
        ({"rate_hz": 0.0}, "rate_hz must lie in"),
        ({"size_bytes": 70_000}, "size_bytes must lie in"),
        ({"dscp": 64}, "dscp must lie in 0..63, not 64"),
        ({"ecn": -1}, "ecn must lie in 0..3"),
        ({"dst_port": 65_536}, "dst_port must lie in"),
        ({"source_ports": (70_000,)}, "source_ports.0. must lie in"),
        ({"source_ports": (1,)}, "no socket for source port 1"),
    ],
)
def test_wrong_settings_are_sentences(session: dict, text: str) -> None:
    one = dataclasses.replace(host_a().sessions[0], **session)
    host = dataclasses.replace(host_a(), sessions=(one,))
    with pytest.raises(ConfigError, match=text):
        SessionSender(host, {("ha/r0", 50_001): 0, ("ha/r0", 50_002): 1}, np.random.default_rng(1), 0)
