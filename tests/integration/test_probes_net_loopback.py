"""The socket shell over loopback: stamps, ids, addresses, TOS, TTL; no root needed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from sdfstream.probes.net.socket_table_io import SocketTable
from sdfstream.probes.stamp.datagrams import SENT_TTL, address_octets
from sdfstream.records.units import StampKind
from tests.fixtures.datagrams import lo, open_table, to_send, wait, warm_up


@pytest.fixture(params=["v4", "v6", "both"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[SocketTable, SocketTable, list[str]]]:
    addresses = {"v4": ["127.0.0.2", "127.0.0.3"], "v6": ["::1"], "both": ["127.0.0.2", "::1"]}[request.param]
    sender = open_table(*((lo(a), 0) for a in addresses))
    receiver = open_table(*((lo(a), 0) for a in addresses))
    warm_up([sender, receiver], [(i, a, port_of(receiver, i)) for i, a in enumerate(addresses)])
    yield sender, receiver, addresses
    sender.close_all()
    receiver.close_all()


def port_of(table: SocketTable, slot: int) -> int:
    opened = table.sockets[slot]
    assert opened is not None
    return opened.port


def test_a_batch_arrives_whole_with_kernel_stamps(pair: tuple[SocketTable, SocketTable, list[str]]) -> None:
    sender, receiver, addresses = pair
    rows = [(i, a, port_of(receiver, i), 0xB8 | i) for i, a in enumerate(addresses) for _ in range(20)]
    batch = to_send(rows)
    assert len(sender.send(batch)) == 0
    stamps = wait(sender.read_tx_stamps)
    received = wait(receiver.receive)
    assert sorted(stamps.token.tolist()) == batch.token.tolist()
    assert (stamps.kind == StampKind.KERNEL).all()
    assert (received.kind == StampKind.KERNEL).all()
    assert (received.ttl == SENT_TTL).all()
    order = np.lexsort((received.data[:, 0], received.socket))
    assert received.socket[order].tolist() == batch.socket.tolist()
    assert received.tos[order].tolist() == batch.tos.tolist()
    assert received.length.tolist() == batch.length.tolist()
    assert received.address[order].tobytes() == b"".join(address_octets(addresses[r[0]]) for r in rows)
    assert received.port[order].tolist() == [port_of(sender, r[0]) for r in rows]
    # The stamp of each token precedes the arrival of that very row: the ids were matched right.
    gone = dict(zip(stamps.token.tolist(), stamps.at_ns.tolist(), strict=True))
    sent_rows = received.data[:, :4].copy().view("<u4")[:, 0] + 1000
    delay = received.at_ns - np.array([gone[t] for t in sent_rows.tolist()])
    assert (delay > 0).all()
    assert (stamps.at_ns >= stamps.user_at_ns).all()
    assert (received.at_ns <= received.user_at_ns).all()


def test_more_than_all_buffers_hold_loses_no_stamp(pair: tuple[SocketTable, SocketTable, list[str]]) -> None:
    sender, receiver, addresses = pair
    tokens: list[int] = []
    for _ in range(3):
        assert len(sender.send(to_send([(0, addresses[0], port_of(receiver, 0), 0)] * 1500))) == 0
        while (stamps := sender.read_tx_stamps()) is not None:
            tokens += stamps.token.tolist()
        while receiver.receive() is not None:
            pass
    assert sorted(tokens) == sorted(list(range(1000, 2500)) * 3)
    assert sender.counters.as_dict() == {}


def test_a_datagram_longer_than_the_buffer_has_its_true_length() -> None:
    sender, receiver = open_table((lo("127.0.0.2"), 0)), open_table((lo("127.0.0.2"), 0), width=64)
    sender.send(to_send([(0, "127.0.0.2", port_of(receiver, 0), 0)], payload=b"y" * 1000))
    received = wait(receiver.receive)
    assert received.length.tolist() == [1000]
    assert received.data.shape[1] < 1000
    sender.close_all()
    receiver.close_all()


def test_rows_of_a_closed_slot_never_left() -> None:
    table = open_table((lo("127.0.0.2"), 0), (lo("127.0.0.3"), 0))
    table.close(0)
    unsent = table.send(to_send([(0, "127.0.0.2", 9, 0), (1, "127.0.0.2", port_of(table, 1), 0)]))
    assert unsent.tolist() == [1000]
    assert wait(table.read_tx_stamps).token.tolist() == [1001]
    assert table.counters.get("unsent", "nic-away") == 1
    table.close_all()


def test_a_row_the_kernel_refuses_is_left_out_and_the_ids_still_match() -> None:
    table = open_table((lo("127.0.0.2"), 0))
    sink = open_table((lo("127.0.0.2"), 0))
    port = port_of(sink, 0)
    warm_up([table, sink], [(0, "127.0.0.2", port)])
    rows = [(0, "127.0.0.2", port, 0), (0, "255.255.255.255", port, 0), (0, "127.0.0.2", port, 0)]
    assert table.send(to_send(rows)).tolist() == [1001]
    stamps = wait(table.read_tx_stamps)
    assert sorted(stamps.token.tolist()) == [1000, 1002]
    received = wait(sink.receive)
    gone = dict(zip(stamps.token.tolist(), stamps.at_ns.tolist(), strict=True))
    for row, at_ns in zip(received.data[:, 0].tolist(), received.at_ns.tolist(), strict=True):
        assert 0 < at_ns - gone[1000 + row] < 5_000_000
    assert table.counters.as_dict() == {"io.unsent.eacces": 1}
    table.close_all()
    sink.close_all()


def test_datagrams_of_foreign_senders_are_received(pair: tuple[SocketTable, SocketTable, list[str]]) -> None:
    _, receiver, addresses = pair
    v6 = ":" in addresses[0]
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as foreign:
        foreign.sendto(b"", (addresses[0], port_of(receiver, 0)))
        foreign.sendto(b"abc", (addresses[0], port_of(receiver, 0)))
        received = wait(receiver.receive)
    assert received.length.tolist() == [0, 3]
    assert bytes(received.data[1, :3]) == b"abc"
