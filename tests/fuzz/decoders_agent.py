"""Targets: what an agent and a job's process take from the network, from files and from sockets."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sdfstream.agent.commands import journal
from sdfstream.agent.commands.executor import Executor
from sdfstream.agent.commands.qp_socket_io import read_answer
from sdfstream.agent.jobmap.drop_file import read_file
from sdfstream.agent.jobmap.jobmap import JobMap
from sdfstream.agent.planned import PlannedSessions
from sdfstream.agent.slots import SessionSlots
from sdfstream.agent.spill import segment
from sdfstream.clock import page
from sdfstream.errors import FormatError
from sdfstream.probes.net import cmsg, icmp, netlink
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.probes.trace import packets
from sdfstream.qpcontrol.rules import QpControl, QpTarget, RefusedError
from sdfstream.records.mesh import host_here, host_plan
from sdfstream.records.message import Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from tests.fixtures import clock_pages, control, host_plans, jobs
from tests.fuzz import mutate
from tests.fuzz.batches import Batches
from tests.fuzz.target import Inputs, Target, altered_json, altered_values, damaged_bytes
from tests.fuzz.values import EVERYBODY, Draw
from tests.unit.agent.commands.test_executor import Bench
from tests.wire import EPOCH, SOCKET_A, SOCKET_B, A, B, Wire, datagrams, host_a, host_b, reflector_of, sender_of

DATAGRAMS = 128
"""In one batch."""
KEY = b"a key"


def targets() -> Iterator[Target]:
    """All of them."""
    for name, key in (("open", None), ("hmac", KEY)):
        probes, answers = _exchange(key)
        yield Target(f"stamp reflector {name}", _datagrams(probes), _reflector(key), each=DATAGRAMS)
        yield Target(f"stamp sender {name}", _datagrams(answers), _sender(key), each=DATAGRAMS)
    yield from _orders()
    yield from _files()
    yield from _kernel()


# -- STAMP --------------------------------------------------------------------------------------------------------


def _exchange(key: bytes | None) -> tuple[list[bytes], list[bytes]]:
    """Probes and answers of some exchanges, with all TLVs."""
    wire = Wire(sender_of(host_a(), hmac_key=key), reflector_of(host_b(), hmac_key=key))
    taken: list[bytes] = []
    real = wire.sender.take_answers

    def take(batch: Any, now_ns: int) -> None:
        taken.extend(bytes(batch.data[i, : int(batch.length[i])]) for i in range(len(batch.length)))
        real(batch, now_ns)

    wire.sender.take_answers = take  # type: ignore[method-assign, assignment]
    wire.run(NS_PER_S // 2)
    sent = sender_of(host_a(), hmac_key=key).due(NS_PER_S, EPOCH)
    return [bytes(sent.data[i, : int(sent.length[i])]) for i in range(len(sent.length))], taken


def _datagrams(sound: list[bytes]) -> Inputs:
    def inputs(draw: Draw) -> Iterator[list[bytes]]:
        rng = draw.rng
        while True:
            yield [_datagram(draw, rng.choice(sound), rng.choice(sound))[:4096] for _ in range(DATAGRAMS)]

    return inputs


def _datagram(draw: Draw, one: bytes, other: bytes) -> bytes:
    if draw.chance(0.4) and len(one) > 48:  # the TLVs are where the rules are
        return one[:44] + mutate.damaged(draw.rng, one[44:], other[44:])
    return mutate.damaged(draw.rng, one, other) if draw.chance(0.9) else one


def _reflector(key: bytes | None) -> Callable[[], Callable[[list[bytes]], None]]:
    def make() -> Callable[[list[bytes]], None]:
        reflector: SessionReflector = reflector_of(host_b(), hmac_key=key)
        rng, at = random.Random(1), iter(range(0, 1 << 62, 10**6))

        def feed(batch: list[bytes]) -> None:
            now_ns = next(at)
            ports = [rng.randrange(65_536) for _ in batch]
            received = datagrams(batch, socket=SOCKET_B, address=A, port=ports, width=rng.choice((44, 172, 256, 1500)))
            answers = reflector.answer(received, now_ns)
            reflector.seal(answers, EPOCH + now_ns)
            assert len(answers.length) <= len(batch), "more answers than probes"
            assert int(answers.length.sum()) <= int(received.length.sum()), "answers are longer than probes"
            reflector.liveness(now_ns, EPOCH + now_ns, complete=True)

        return feed

    return make


def _sender(key: bytes | None) -> Callable[[], Callable[[list[bytes]], None]]:
    def make() -> Callable[[list[bytes]], None]:
        sender: SessionSender = sender_of(host_a(), hmac_key=key)
        rng, at = random.Random(1), iter(range(NS_PER_S, 1 << 62, 10**7))

        def feed(batch: list[bytes]) -> None:
            now_ns = next(at)
            sender.due(now_ns, EPOCH + now_ns)
            width = rng.choice((44, 172, 256, 1500))
            received = datagrams(batch, socket=SOCKET_A, address=B, port=862, width=width, at_ns=EPOCH + now_ns)
            received.socket[:] = [rng.choice((SOCKET_A, SOCKET_A + 1, 77)) for _ in batch]
            sender.take_answers(received, now_ns)
            rows = sender.rows(now_ns)
            if rows is not None:
                rows.validate(full=True)
            sender.liveness(now_ns, EPOCH + now_ns, complete=True)

        return feed

    return make


# -- commands, plans, jobs ----------------------------------------------------------------------------------------


def _orders() -> Iterator[Target]:
    bench = Bench()
    made, now_ns = bench.controller, bench.now_ns
    data = [
        {key: value for key, value in message.body.data.items() if key not in ("key_id", "signature")}
        for message in (made.failover("f", now_ns), made.steer("s", now_ns), made.throttle("t", now_ns))
    ]
    yield Target("commands, unsigned", altered_values(*data), _executor(signed=False), lasts=300)
    yield Target("commands, well signed", altered_values(*data), _executor(signed=True), lasts=300)
    yield Target("queue pair's process", altered_values(*data), _qp_control, (RefusedError, FormatError, ValueError))
    plan = host_plans.plan([host_plans.session(), host_plans.session("h2/r0")]).as_data()
    plain = json.loads(json.dumps(plan))
    yield Target("mesh plan", altered_values(plain), _planned)
    here = {"host": "h0", "nics": [{"id": "h0/r0", "address": "10.0.0.1", "clock": "h0"}], "budget_pps": 100.0}
    yield Target("mesh host", altered_values(here), lambda: lambda value: _nothing(host_here(_mapping(value))))


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError("data", "not an object")  # the codec lets nothing else through
    return value


def _executor(*, signed: bool) -> Callable[[], Callable[[Any], None]]:
    def make() -> Callable[[Any], None]:
        bench = Bench()

        def feed(value: Any) -> None:
            data = _mapping(value)
            message = bench.controller.message(data, bench.now_ns, signed=signed)
            bench.say(message)
            bench.wait(5)

        return feed

    return make


def _qp_control() -> Callable[[Any], None]:
    class Sender:
        path, rate_bps = 50_001, None

        def steer(self, path: int, now_ns: int) -> None:
            self.path = path

    targets_ = {f"{control.SRC}#1": QpTarget(f"{control.SRC}#1", control.PATHS, None, Sender())}
    rules = QpControl(KeyRing([control.SIGNER.public]), "job1", targets_)
    now_ns = iter(range(10 * NS_PER_S, 1 << 62, 10**6))

    def feed(value: Any) -> None:
        at_ns = next(now_ns)
        data = _mapping(value)
        try:
            command = control.SIGNER.sign(data)
        except FormatError:
            command = data
        request = {"do": "set", "command": command, "ttl_ms": 1000, "choice": {"path": 50_002}}
        request |= data if at_ns % 3 == 0 else {}
        rules.set(request, "h0", control.BUS_NS + at_ns, at_ns)
        rules.expire(at_ns)

    return feed


def _planned() -> Callable[[Any], None]:
    found = PlannedSessions("h0", host_plans.CONFIG, host_plans.NICS, (), Counters("io"), SessionSlots())
    now_ns = iter(range(10 * NS_PER_S, 1 << 62, NS_PER_S))

    def feed(value: Any) -> None:
        found.take(host_plan(_mapping(value)))
        found.change(next(now_ns))

    return feed


# -- files and sockets --------------------------------------------------------------------------------------------


def _files() -> Iterator[Target]:
    file = json.loads(jobs.file(qps=[jobs.pair(jobs.KERNEL), jobs.pair(jobs.PAIR)], control="/s"))
    yield Target("job file", altered_json(file), _job_file)
    yield Target("job answer", altered_values(jobs.answer(jobs.PAIR, receives=(jobs.BACK,))), _job_answer)
    answer = altered_json({"ok": True, "before": {"path": 1}, "after": {"path": 2}}, {"error": "no"})
    yield Target("queue pair's answer", answer, lambda: lambda raw: _nothing(read_answer(1, raw)))
    bench = Bench()
    bench.say(bench.controller.failover("f", bench.now_ns))
    record = json.loads(json.dumps(journal.record(bench.executor, bench.now_ns, "b1")))
    yield Target("agent's journal", altered_values(record), _journal)
    batch = Batches(Draw(random.Random(1), EVERYBODY)).one(PROBE, 5)
    spilt = segment.encode(Output(PROBE.name, "h00", batch, "b", 3))
    yield Target("spill record", damaged_bytes(spilt), lambda: lambda raw: _nothing(segment.decode(raw)))
    yield Target("spill segment", damaged_bytes(spilt * 3), lambda: lambda raw: _nothing(segment.scan(raw)))
    whole = page.encode(clock_pages.PAGE, 2)
    yield Target("clock page", damaged_bytes(whole), lambda: lambda raw: _nothing(page.decode(raw)))


def _job_file() -> Callable[[bytes], None]:
    found = JobMap({"h00"})
    at = iter(range(0, 1 << 62, NS_PER_S))

    def feed(raw: bytes) -> None:
        now_ns = next(at)
        found.take_files({"train-7@h00.json": raw}, now_ns)
        found.events(now_ns, now_ns + 5)
        read_file("train-7@h00.json", raw)

    return feed


def _job_answer() -> Callable[[Any], None]:
    found = JobMap({"h00"})
    found.take_files({"train-7@h00.json": jobs.file(control="/s")}, 0)
    at = iter(range(NS_PER_S, 1 << 62, NS_PER_S))

    def feed(value: Any) -> None:
        now_ns = next(at)
        found.take_answer("train-7@h00", _mapping(value), now_ns)
        found.events(now_ns, now_ns + 5)

    return feed


def _journal() -> Callable[[Any], None]:
    def feed(value: Any) -> None:
        executor = Executor(["h0"], control.KEYS)
        journal.resume(executor, _mapping(value), 10 * NS_PER_S, "b1")
        executor.attach("h0", control.FakeSlots())
        for later in range(3):
            executor.on_liveness("h0", (11 + later) * NS_PER_S)
            executor.drain()
        json.dumps(journal.record(executor, 15 * NS_PER_S, "b1"))

    return feed


# -- what the kernel passes on ------------------------------------------------------------------------------------


def _kernel() -> Iterator[Target]:
    flow = packets.FiveTuple(packets.UDP, bytes(10) + b"\xff\xff\x0a\0\0\1", bytes(10) + b"\xff\xff\x0a\0\0\2", 5, 6)
    quoted = packets.packet(flow, 0, 1, 77)
    outer = packets.packet(flow, 0, 64, 1)[:20]
    message = outer + b"\x0b\0" + bytes(6) + quoted
    yield Target("traced answer", damaged_bytes(message), lambda: lambda raw: _nothing(packets.quote4(raw)))
    six = b"\x03\0" + bytes(6) + b"\x60" + bytes(5) + b"\x11\1" + bytes(32) + b"\0\5\0\6" + bytes(12)
    yield Target("traced answer v6", damaged_bytes(six), lambda: lambda raw: _nothing(packets.quote6(raw, bytes(16))))
    yield Target("icmp error", damaged_bytes(quoted), lambda: _icmp)
    link = netlink.request(16, 1, netlink.attribute(3, b"eth0\0") + netlink.nested(5, netlink.u32(1, 5)))
    yield Target("netlink", damaged_bytes(link * 2), lambda: _netlink)
    yield Target("control messages", damaged_bytes(bytes(64)), _control)


def _icmp(raw: bytes) -> None:
    error, name = (raw + bytes(64))[:16], (bytes(reversed(raw)) + bytes(64))[:28]
    icmp.icmp_error(1, error, name, name[::-1], raw)


def _netlink(raw: bytes) -> None:
    for one in netlink.packets(raw):
        _nothing(one.error)
        netlink.attributes(one.body)


def _control() -> Callable[[bytes], None]:
    reader = cmsg.ControlReader()

    def feed(raw: bytes) -> None:
        width = 64
        data = np.frombuffer((raw * 9 + bytes(width * 8))[: width * 8], np.uint8).reshape(8, width).copy()
        reader.read(data, np.full(8, min(len(raw), width), np.uint32))

    return feed


def _nothing(value: object) -> None:
    """What came out does not matter."""
