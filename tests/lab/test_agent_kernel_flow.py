"""Flows of unmodified programs, moved while they run: real packets between two namespaces, nf_tables in both."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from sdfstream.agent.commands import kernel_flow as kf
from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.kernel_flow_io import IDLE_NS, Attachment, KernelFlowActuator, _Space
from sdfstream.agent.commands.kernel_rows import KernelRows
from sdfstream.agent.commands.nftables_io import Nftables
from sdfstream.errors import UnavailableError
from sdfstream.probes.net.netns_io import inside
from sdfstream.records.fabric import QueuePair
from tests.contract import actuators
from tests.contract.actuators import asked
from tests.fixtures.namespaces import Namespaces, namespaces, run

__all__ = ["namespaces"]
pytestmark = pytest.mark.lab
OWN, ALTERNATES, SERVICE = 49_500, (50_011, 50_012), 5201
NEAR, FAR = "10.7.9.1", "10.7.9.2"
NEAR6, FAR6 = "fd07:9::1", "fd07:9::2"


@dataclass
class Pair:
    """Two hosts, an actuator on each, and what a third party sees on the wire between them."""

    net: Namespaces
    near: KernelFlowActuator
    far: KernelFlowActuator
    v6: bool = False
    stop: list[Callable[[], None]] = field(default_factory=list)

    def inside(self, host: str, work: Callable[[], socket.socket]) -> socket.socket:
        return inside(self.net.path(host), work)

    def queue_pair(self, protocol: str) -> QueuePair:
        return QueuePair(
            "a/r0#1", 0, 1, "a/r0", "b/r0", FAR6 if self.v6 else FAR, OWN, SERVICE, protocol,
            transport="udp", steering="kernel", alternates=ALTERNATES,
        )  # fmt: skip


def pair(net: Namespaces, *, v6: bool = False) -> Pair:
    net.add("a", "b")
    net.cable("a", "r0", "b", "r0")
    net.ip("a", f"addr add {NEAR}/24 dev r0", f"addr add {NEAR6}/64 dev r0")
    net.ip("b", f"addr add {FAR}/24 dev r0", f"addr add {FAR6}/64 dev r0")
    try:
        Nftables(net.path("a")).close()
    except UnavailableError as error:
        pytest.skip(f"no nf_tables here: {error}")
    addresses = {"a/r0": NEAR6 if v6 else NEAR, "b/r0": FAR6 if v6 else FAR}

    def actuator(host: str) -> KernelFlowActuator:
        nic = f"{host}/r0"
        return KernelFlowActuator({nic: Attachment("r0", addresses[nic], net.path(host))}, addresses.get)

    return Pair(net, actuator("a"), actuator("b"), v6)


@pytest.fixture(params=["ipv4", "ipv6"])
def both(request: pytest.FixtureRequest, namespaces: Namespaces) -> Iterator[Pair]:
    made = pair(namespaces, v6=request.param == "ipv6")
    yield made
    made.near.close()
    made.far.close()


def ready(both: Pair, qp: QueuePair, *, do: str = "set", number: int = 1) -> ActuatorAnswer:
    request = ActuatorRequest(number, do, qp, "", {}, peer=True, paths=ALTERNATES)
    answer = both.far.apply(request, time.monotonic_ns())
    assert answer is not None
    return answer


def move(both: Pair, qp: QueuePair, path: int) -> ActuatorAnswer:
    answer = both.near.apply(ActuatorRequest(2, "set", qp, "", {}, path), time.monotonic_ns())
    assert answer is not None
    assert answer.ok, answer.why
    return answer


def wire_ports(both: Pair, protocol: str) -> dict[str, int]:
    """Packets by five-tuple as they arrive at the far device."""
    suffix = f"{protocol}{6 if both.v6 else 4}"
    [space] = both.far._spaces.values()
    return {key: count.packets for key, count in space.counts("came", suffix).items()}


def follow(both: Pair, seconds: float = 0.1) -> None:
    """Let the far agent look, as it would at every judgement."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        both.far.answers(time.monotonic_ns())
        time.sleep(0.005)


def udp(both: Pair) -> tuple[socket.socket, socket.socket]:
    """A connected socket at each end: neither takes a packet from a port that it does not know."""
    family = socket.AF_INET6 if both.v6 else socket.AF_INET
    near_at, far_at = (NEAR6, FAR6) if both.v6 else (NEAR, FAR)

    def make(own: tuple[str, int], peer: tuple[str, int]) -> socket.socket:
        made = socket.socket(family, socket.SOCK_DGRAM)
        made.bind(own)
        made.connect(peer)
        made.settimeout(1)
        return made

    near = both.inside("a", lambda: make((near_at, OWN), (far_at, SERVICE)))
    far = both.inside("b", lambda: make((far_at, SERVICE), (near_at, OWN)))
    return near, far


def exchange(near: socket.socket, far: socket.socket, text: bytes) -> None:
    near.send(text)
    assert far.recv(100) == text
    far.send(text[::-1])
    assert near.recv(100) == text[::-1]


def test_a_connected_udp_flow_is_moved_and_notices_nothing(both: Pair) -> None:
    qp = both.queue_pair("udp")
    near, far = udp(both)
    with near, far:
        exchange(near, far, b"before")
        assert ready(both, qp).ok
        exchange(near, far, b"ready")
        follow(both, 0.05)
        for path in (*ALTERNATES, OWN):
            before = move(both, qp, path).before
            assert before["path"] != path
            was = wire_ports(both, "udp")
            exchange(near, far, b"moved")  # answers still go the old way
            follow(both)
            exchange(near, far, b"moved, and mirrored")
            now = wire_ports(both, "udp")
            grown = {key for key in now if now[key] > was.get(key, 0)}
            assert [key.split(" . ")[2] for key in grown] == [str(path)]
            [space] = both.far._spaces.values()
            mirrors = [port for (name, _, _), port in space.elements.of.items() if name == "mirror"]
            assert mirrors == ([path] if path != OWN else [])


def test_a_flow_is_counted_where_it_is_received_whatever_port_it_comes_from(both: Pair) -> None:
    """Payload to the byte, before and after a move; a flow whose sender's address is not known is told, at no cost."""
    qp, rows = replace(both.queue_pair("udp"), counted="received"), KernelRows("b")
    near, far = udp(both)
    with near, far:
        assert ready(both, qp).ok
        with pytest.raises(UnavailableError, match="c/r0"):
            both.far.count([], [replace(qp, qp="c/r0#1", src="c/r0"), qp])
        counts = both.far.received([qp])[qp.qp]
        assert rows.step([("job", qp)], {qp.qp: kf.total(counts.values())}, 1) is None
        for number in range(5):
            exchange(near, far, b"x" * (60 + number))
        move(both, qp, ALTERNATES[0])
        for _ in range(3):
            exchange(near, far, b"y" * 50)
        counts = both.far.received([qp])[qp.qp]
        assert {port: count.packets for port, count in counts.items()} == {OWN: 5, ALTERNATES[0]: 3, ALTERNATES[1]: 0}
        batch = rows.step([("job", qp)], {qp.qp: kf.total(counts.values())}, 2)
        assert batch is not None
        assert batch.column("bytes")[0].as_py() == sum(range(60, 65)) + 3 * 50
        both.far.count([], [])
        assert both.far.received([qp]) == {}


def test_the_receiving_host_forgets_only_what_is_used_no_more(both: Pair) -> None:
    qp = both.queue_pair("udp")
    near, far = udp(both)
    with near, far:
        ready(both, qp)
        follow(both, 0.05)
        move(both, qp, ALTERNATES[0])
        exchange(near, far, b"one")
        follow(both)
        exchange(near, far, b"two")
        follow(both)
        refused = ready(both, qp, do="undo")
        assert (refused.ok, refused.why) == (False, f"the flow still comes from path {ALTERNATES[0]}")
        move(both, qp, OWN)
        exchange(near, far, b"three")
        follow(both)
        [peer] = [p for s in both.far._spaces.values() for p in s.peers.values()]
        peer.received_at_ns = {p: at - IDLE_NS for p, at in peer.received_at_ns.items()}
        assert ready(both, qp, do="undo").ok
        exchange(near, far, b"four")
        assert all(not s.elements.of for s in both.far._spaces.values())


def test_the_next_flow_by_the_same_ports_is_not_translated(both: Pair) -> None:
    """A job ended while its flow was moved, and the next one has the same flow."""
    qp = both.queue_pair("udp")
    both.near.see({("one", qp.qp): qp}, {})
    both.far.see({}, {("one", qp.qp): qp})
    near, far = udp(both)
    with near, far:
        ready(both, qp)
        for path in (ALTERNATES[1], ALTERNATES[0]):
            move(both, qp, path)
            exchange(near, far, b"moved")
            follow(both)
    both.near.see({("two", qp.qp): qp}, {})
    both.far.see({}, {("two", qp.qp): qp})
    assert all(not space.elements.of for end in (both.near, both.far) for space in end._spaces.values())
    near, far = udp(both)
    with near, far:
        exchange(near, far, b"another")


def test_a_flow_that_the_kernel_does_not_let_go_costs_the_others_nothing_and_is_tried_again(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = both.queue_pair("udp")
    second = replace(first, qp="a/r0#2", path=OWN + 1)
    both.near.see({("one", q.qp): q for q in (first, second)}, {})
    for qp in (first, second):
        move(both, qp, ALTERNATES[0])
    [space] = both.near._spaces.values()

    def refused(commands: str) -> None:
        if f" {OWN} . " in commands:
            raise UnavailableError("busy")
        must(commands)

    must = space.must
    with monkeypatch.context() as patched:
        patched.setattr(_Space, "must", lambda _, commands: refused(commands))
        both.near.see({}, {})
    assert {key[2].split(" . ")[2] for key in space.elements.of if key[0] == "out"} == {str(OWN)}
    assert both.near.counters.get("kernel", "let-go-failed") == 1
    both.near.answers(time.monotonic_ns())
    assert not space.elements.of


def test_what_could_not_be_let_go_is_not_taken_from_the_next_flow_by_the_same_ports(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    qp = both.queue_pair("udp")
    both.far.see({}, {("one", qp.qp): qp})
    assert ready(both, qp).ok

    def refused(commands: str) -> None:
        raise UnavailableError("busy")

    with monkeypatch.context() as patched:
        patched.setattr(_Space, "must", lambda _, commands: refused(commands))
        both.far.see({}, {})
        both.far.see({}, {("two", qp.qp): qp})
    assert both.far.counters.get("kernel", "let-go-failed") == 2
    assert ready(both, qp).ok
    both.far.answers(time.monotonic_ns())
    [space] = both.far._spaces.values()
    assert qp.qp in space.peers and any(name == "back" for name, _, _ in space.elements.of)


def test_a_tcp_connection_is_moved_under_load_and_every_byte_arrives(namespaces: Namespaces) -> None:
    both = pair(namespaces)
    qp = both.queue_pair("tcp")
    listener = both.inside("b", lambda: socket.create_server((FAR, SERVICE)))
    assert ready(both, qp).ok
    both.near.count([qp])
    near = both.inside("a", lambda: socket.create_connection((FAR, SERVICE), 5, (NEAR, OWN)))
    far, _ = listener.accept()
    total = 60_000_000
    got: list[int] = []

    def read() -> None:
        n = 0
        while n < total and (piece := far.recv(1 << 16)):
            n += len(piece)
        far.sendall(b"all")
        got.append(n)

    reader = threading.Thread(target=read)
    with listener, near, far:
        reader.start()
        sender = threading.Thread(target=near.sendall, args=(bytes(total),))
        sender.start()
        moves = 0
        while sender.is_alive():
            move(both, qp, ALTERNATES[moves % 2])
            moves += 1
            follow(both, 0.03)
        sender.join()
        near.settimeout(10)
        assert near.recv(10) == b"all"
        reader.join()
        counts = both.near.sent([qp])
    assert got == [total]
    assert moves >= 2
    assert counts[qp.qp].bytes >= total
    ports = {key.split(" . ")[2] for key, packets in wire_ports(both, "tcp").items() if packets}
    assert ports == {str(p) for p in (OWN, *ALTERNATES)}
    both.near.close()
    both.far.close()


class KernelBench:
    limits = False
    control = ""

    def __init__(self, both: Pair) -> None:
        self.both = both
        self.actuator = both.near
        self.qp = both.queue_pair("udp")
        self.next_id = 1

    def path(self) -> int:
        spaces = list(self.both.near._spaces.values())
        return next((port for s in spaces for (name, _, _), port in s.elements.of.items() if name == "out"), OWN)

    def rate(self) -> int | None:
        return None

    def refuse(self) -> None:
        asked(self, path=OWN)
        run("ip", "netns", "exec", self.both.net.full("a"), "nft", "delete", "table", "netdev", kf.TABLE)


@pytest.mark.parametrize("law", actuators.SUITE, ids=lambda law: law.__name__)
def test_every_actuator(law: Callable[[actuators.Bench], None], namespaces: Namespaces) -> None:
    both = pair(namespaces)
    law(KernelBench(both))
    both.near.close()
    both.far.close()


def test_an_agent_that_starts_again_takes_up_what_is_moved_and_leaves_nothing_else(namespaces: Namespaces) -> None:
    both = pair(namespaces)
    qp = both.queue_pair("udp")
    near, far = udp(both)
    with near, far:
        ready(both, qp)
        move(both, qp, ALTERNATES[0])
        both.near.close()  # it is stopped; what is moved stays
        exchange(near, far, b"still moved")
        again = pair_of(both)
        assert move(again, qp, ALTERNATES[1]).before["path"] == ALTERNATES[0]
        exchange(near, far, b"moved on")
        move(again, qp, OWN)
        again.near.close()
        listed = run("ip", "netns", "exec", both.net.full("a"), "nft", "list", "tables")
        assert kf.TABLE not in listed
        exchange(near, far, b"as if nothing had been")
    both.far.close()


def test_a_table_that_an_earlier_version_left_gets_what_it_lacks(namespaces: Namespaces) -> None:
    both = pair(namespaces)
    flow = kf.Ends("udp", FAR, NEAR, OWN, SERVICE)
    left = "\n".join(line for line in kf.table().splitlines() if "set arrived_" not in line)
    nft = Nftables(both.net.path("a"))
    elements = kf.Elements()
    for commands in (left, elements.changes(kf.ready(flow, ALTERNATES))):
        assert nft.run(commands)[1] == ""
    nft.close()
    qp = replace(both.queue_pair("udp"), src="b/r0", dst="a/r0", dst_address=NEAR, counted="received")
    both.near.count([], [qp])
    assert {port: count.packets for port, count in both.near.received([qp])[qp.qp].items()} == dict.fromkeys(
        (OWN, *ALTERNATES), 0
    )
    both.near.close()
    both.far.close()


def pair_of(both: Pair) -> Pair:
    """The near host's agent, started anew."""
    nics = {"a/r0": Attachment("r0", NEAR, both.net.path("a"))}
    return Pair(both.net, KernelFlowActuator(nics, {"a/r0": NEAR, "b/r0": FAR}.get), both.far)


def test_iperf3_is_moved_while_it_runs(namespaces: Namespaces) -> None:
    """The unmodified program: control connection and data flow go on; the data leave by another port."""
    if subprocess.run(["which", "iperf3"], capture_output=True, check=False).returncode:
        pytest.skip("iperf3 is not installed")
    both = pair(namespaces)
    qp = both.queue_pair("tcp")
    in_b = ["ip", "netns", "exec", both.net.full("b")]
    in_a = ["ip", "netns", "exec", both.net.full("a")]
    server = subprocess.Popen([*in_b, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        assert ready(both, qp).ok
        time.sleep(0.5)
        client = subprocess.Popen(
            [*in_a, "iperf3", "-c", FAR, "--cport", str(OWN), "-t", "2", "-b", "20M", "-J"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        follow(both, 0.8)
        move(both, qp, ALTERNATES[0])
        follow(both, 0.8)
        said, _ = client.communicate(timeout=20)
        assert client.returncode == 0, said
        assert wire_ports(both, "tcp")[f"{NEAR} . {FAR} . {ALTERNATES[0]} . {SERVICE}"] > 10
    finally:
        server.terminate()
        server.wait(5)
        both.near.close()
        both.far.close()
