"""Packets per second and core through the shipped socket shells and engines, beside per-packet asyncio.

Over loopback, the kernel's work included: sending takes a packet all the way into the receiving socket. CPU time of
the one thread that works; what lies between (the far end's work) is not counted.

- *send*: one ``sendmmsg`` a socket with class and source address per packet and stamps asked for (`SocketTable.send`);
- *probe*: that, and building the probes before (`SessionSender.due`), and reading and matching every kernel sending
  time after it (`SocketTable.read_tx_stamps`, `SessionSender.take_tx_stamps`);
- *receive and parse*: ``recvmmsg`` of answers with kernel stamps, address and class, checked, parsed and matched to
  their probes (`SocketTable.receive`, `SessionSender.take_answers`);
- *reflect*: receive, parse, answer, and learn when the answers left;
- per-packet asyncio beside them: see `asyncio_baseline`.
"""

from __future__ import annotations

import asyncio
import time

import numpy as np

from sdfstream.probes.config import HostConfig, NicConfig, SessionConfig
from sdfstream.probes.net.socket_table_io import SocketTable
from sdfstream.probes.stamp.known_senders import KnownSender, ReflectorLimits
from sdfstream.probes.stamp.reflector import SessionReflector
from sdfstream.probes.stamp.sender import SessionSender
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from tests.bench.asyncio_baseline import per_packet
from tests.bench.harness import Result, against, main, spread
from tests.fixtures.datagrams import open_all

NICS, PEERS, PORTS = 8, 16, 8
"""1,024 paths over 64 sending sockets: one round fills the shell's buffer once."""
RATE_HZ = 16.0
KINDS = {"receive": 800, "send": 250, "probe": None, "reflect": None}
"""What is measured, and the goal in kpps per core."""


class Mesh:
    """One sending and one reflecting host on loopback, driven by hand with a made-up steady clock."""

    def __init__(self, per_socket_ports: int = PORTS) -> None:
        near = tuple(NicConfig(f"ha/r{i}", "lo", f"127.0.81.{i + 1}") for i in range(NICS))
        far = tuple(NicConfig(f"hb/r{i}", "lo", f"127.0.82.{i + 1}") for i in range(PEERS))
        self.reflecting = SocketTable([(n, 0) for n in far], width=512, hardware=False, counters=Counters("io"))
        open_all(self.reflecting)
        ports = tuple(range(21_000, 21_000 + per_socket_ports))
        sessions = tuple(
            SessionConfig(n.nic, f.nic, f.address, self.port(i), ports, rate_hz=RATE_HZ)
            for n in near
            for i, f in enumerate(far)
        )
        host = HostConfig("ha", near, sessions)
        pairs = sorted({(s.src, p) for s in sessions for p in s.source_ports})
        of = {n.nic: n for n in near}
        self.sending = SocketTable(
            [(of[nic], port) for nic, port in pairs], width=512, hardware=False, counters=Counters("io")
        )
        open_all(self.sending)
        self.sender = SessionSender(host, {p: i for i, p in enumerate(pairs)}, np.random.default_rng(1), 0)
        known = {n.address: KnownSender(n.nic) for n in near}
        self.reflector = SessionReflector(
            HostConfig("hb", far),
            {i: f.nic for i, f in enumerate(far)},
            known,
            limits=ReflectorLimits(max_pps=1e9, source_pps=1e9),
        )
        self.now_ns = 0

    def port(self, slot: int) -> int:
        opened = self.reflecting.sockets[slot]
        assert opened is not None
        return opened.port

    def close(self) -> None:
        self.sending.close_all()
        self.reflecting.close_all()

    def send(self) -> dict[str, tuple[int, float]]:
        """Packets and CPU seconds of sending, and of the whole probe."""
        began = time.thread_time()
        batch = self.sender.due(self.now_ns, time.time_ns())
        built = time.thread_time()
        self.sending.send(batch)
        sent = time.thread_time()
        while (stamps := self.sending.read_tx_stamps()) is not None:
            self.sender.take_tx_stamps(stamps)
        n = len(batch.length)
        return {"send": (n, sent - built), "probe": (n, time.thread_time() - began)}

    def reflect(self) -> dict[str, tuple[int, float]]:
        n, began = 0, time.thread_time()
        while (received := self.reflecting.receive()) is not None:
            answers = self.reflector.answer(received, self.now_ns)
            if len(answers.length):
                self.reflector.seal(answers, time.time_ns())
                self.reflecting.send(answers)
                n += len(answers.length)
            while (stamps := self.reflecting.read_tx_stamps()) is not None:
                self.reflector.take_tx_stamps(stamps)
        return {"reflect": (n, time.thread_time() - began)}

    def hear(self) -> dict[str, tuple[int, float]]:
        n, began = 0, time.thread_time()
        while (received := self.sending.receive()) is not None:
            self.sender.take_answers(received, self.now_ns)
            n += len(received.length)
        return {"receive": (n, time.thread_time() - began)}

    def next_round(self) -> None:
        self.now_ns += int(NS_PER_S / RATE_HZ * 1.6)
        self.sender.rows(self.now_ns)


def engines(rounds: int) -> dict[str, list[float]]:
    """kpps of each round, by kind of work."""
    mesh = Mesh()
    kpps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        for number in range(rounds + 10):  # the first ones warm up
            for kind, (n, cpu_s) in (mesh.send() | mesh.reflect() | mesh.hear()).items():
                if number >= 10 and n >= 256:
                    kpps[kind].append(n / cpu_s / 1e3)
            mesh.next_round()
        answered, sent = mesh.sender.counters.get("answered"), mesh.sender.counters.get("sent")
        assert answered > 0.99 * sent, (answered, sent)
    finally:
        mesh.close()
    return kpps


def measure(result: Result, quick: bool) -> None:
    rounds = 40 if quick else 200
    ours: dict[str, list[float]] = {kind: [] for kind in KINDS}
    theirs: dict[tuple[str, str], list[float]] = {}
    for _ in range(4):  # in turn, so that all see the same machine
        for kind, kpps in engines(rounds // 4).items():
            ours[kind] += kpps
        for how, found in asyncio.run(per_packet(rounds // 4)).items():
            theirs.setdefault(how, []).extend(found)
    for kind, goal in KINDS.items():
        median, worst, best = spread(ours[kind])
        line = f"{kind:<8}{median:6.0f} kpps/core median, {worst:.0f} worst, {best:.0f} best"
        figures = {f"{kind}_kpps": round(median), f"{kind}_worst_kpps": round(worst), f"{kind}_best_kpps": round(best)}
        for (other, how), found in theirs.items():
            if other == kind:
                base = spread(found)[0]
                line += f"; {how} asyncio {base:.0f} ({median / base:.1f} ×)"
                figures[f"{kind}_asyncio_{how}_kpps"] = round(base)
        if goal:
            line += f"; {against(f'≥ {goal}', median >= goal)}"
        result.say(line, **figures)


if __name__ == "__main__":
    main("shells", measure)
