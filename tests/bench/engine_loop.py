"""The packet engine beside a bare C loop with the same system calls, in turns, in one lab of 16 NICs.

Both probe the same paths at the same rates by sockets opened alike, with the same jitter, rest and priority, and
reflect. The bare loop (`bare_loop/loop.c`) does nothing else; the engine, in an agent process that publishes to a bus,
matches, judges liveness and writes rows. The fabric's work is in both: a packet passes up to four routers within the
system call that sends it. CPU per exchange (a probe, its answer, both ends) of the loop's thread, of the engine's
thread and of the agent's whole process.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sdfstream.agent.sessions import sender_sockets
from sdfstream.bus.memory.reader_io import MemorySubscription
from sdfstream.errors import LabUnavailableError
from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig
from sdfstream.probes.engine.build_io import compiled
from sdfstream.probes.engine.shell_records import ShellRoom
from sdfstream.probes.net.socket_io import ProbeSocket, open_probe_sockets
from sdfstream.records.units import NS_PER_S
from tests.bench.agents import agent, taken
from tests.bench.harness import Result, SkippedError, against, main, spread

SPEC = FabricSpec()
MESH = MeshSpec(peers_per_nic=2, cross_rail_peers=1, ports_per_peer=4, rate_hz=12.0, flush_ms=50, trace_interval_s=0.0)
FOLDER = Path(__file__).parent / "bare_loop"
JITTER, PRIORITY = 0.25, 10
SOCKET = np.dtype([("fd", "i4"), ("reflects", "u4"), ("control_octets", "u4"), ("outstanding", "u4"),
                   ("stamps_read_ns", "i8"), ("control", "u1", 64)])  # fmt: skip
PATH = np.dtype([("socket", "u4"), ("octets", "u4"), ("address", "u4"), ("port", "u4"), ("interval_ns", "i8"),
                 ("due_ns", "i8")])  # fmt: skip
COUNTS = np.dtype([("cpu_ns", "i8")] + [(name, "u8") for name in ("probes", "reflected", "answers", "stamps", "turns")])


@dataclass(frozen=True)
class Turn:
    """What one turn of either took."""

    thread_us: float
    """CPU time of the thread that sends, per exchange."""
    process_us: float
    rate: float
    """Exchanges per second."""
    turns: float = 0.0


def measure(result: Result, quick: bool) -> None:
    asyncio.run(_measure(result, turns=2 if quick else 5, seconds=3.0 if quick else 8.0))


async def _measure(result: Result, *, turns: int, seconds: float) -> None:
    try:
        fabric = Fabric.up(replace(SPEC, name=f"bench-{os.getpid()}"))
    except LabUnavailableError as error:
        raise SkippedError(f"no lab on this machine: {error}") from error
    bare: list[Turn] = []
    ours: list[Turn] = []
    with fabric:
        config = fabric.agent_config(MESH)
        for _ in range(turns):
            bare.append(await asyncio.to_thread(bare_turn, config, seconds))
            ours.append(await agent_turn(config, seconds))
    _say(result, bare, ours)


def _say(result: Result, bare: Sequence[Turn], ours: Sequence[Turn]) -> None:
    engine = [own.thread_us / least.thread_us for own, least in zip(ours, bare, strict=True)]
    whole = [own.process_us / least.thread_us for own, least in zip(ours, bare, strict=True)]
    for name, of in (("bare loop", bare), ("engine", ours)):
        median, least, most = spread([t.thread_us for t in of])
        rate = spread([t.rate for t in of])[0]
        result.say(f"{name}: {median:.0f} µs an exchange ({least:.0f}–{most:.0f}), {rate:,.0f} exchanges/s")
    share = spread([t.process_us * t.rate / 1e6 for t in ours])
    median, least, most = spread(engine)
    result.say(
        f"engine ÷ bare loop {median:.2f} ({least:.2f}–{most:.2f}); {against('≤ 1.3', median <= 1.3)}",
        engine_ratio=round(median, 3),
        bare_us=round(spread([t.thread_us for t in bare])[0], 1),
        engine_us=round(spread([t.thread_us for t in ours])[0], 1),
    )
    median = spread(whole)[0]
    result.say(
        f"whole agent, publishing too: {share[0]:.1%} of a core (worst {share[2]:.1%}), {median:.2f} × the bare loop",
        agent_ratio=round(median, 3),
        agent_share=round(share[0], 4),
    )


# --- the bare loop ---


def bare_turn(config: AgentConfig, seconds: float) -> Turn:
    """Probe and reflect by the bare loop."""
    library = ctypes.CDLL(str(compiled(folder=FOLDER)))
    opened, sockets, paths = _laid_out(config)
    counts, room = np.zeros(1, COUNTS), ShellRoom()
    try:
        arguments = (
            ctypes.c_void_p(sockets.ctypes.data), ctypes.c_uint32(len(sockets)),
            ctypes.c_void_p(paths.ctypes.data), ctypes.c_uint32(len(paths)),
            ctypes.c_int64(int(seconds * NS_PER_S)), ctypes.c_int64(room.rest_ns), ctypes.c_int64(room.rest_late_ns),
            ctypes.c_double(JITTER), ctypes.c_int(PRIORITY), ctypes.c_void_p(counts.ctypes.data),
        )  # fmt: skip
        # a thread of its own: it keeps the priority that it asks for
        working = threading.Thread(target=library.bare_run, args=arguments)
        working.start()
        working.join()
    finally:
        for one in opened:
            one.sock.close()
    found = counts[0]
    if found["answers"] < 0.98 * found["probes"]:
        raise RuntimeError(f"the bare loop got {found['answers']} answers to {found['probes']} probes")
    us = float(found["cpu_ns"]) / 1e3 / float(found["probes"])
    return Turn(us, us, float(found["probes"]) / seconds, float(found["turns"]) / seconds)


def _laid_out(config: AgentConfig) -> tuple[list[ProbeSocket], np.ndarray, np.ndarray]:
    """The sockets of every host as an agent opens them, and what the loop is told of them and of the paths."""
    opened: list[ProbeSocket] = []
    reflects: list[bool] = []
    paths: list[tuple[int, ...]] = []
    for host in config.hosts:
        nics = {nic.nic: nic for nic in host.nics}
        first = len(opened)
        sockets = sender_sockets(config, host)
        for src, port in sockets:
            opened.append(_open(nics[src], port))
            reflects.append(False)
        paths += _paths(host, sockets, first)
        for nic in host.nics:
            opened.append(_open(nic, config.reflector_port))
            reflects.append(True)
    rows = np.zeros(len(opened), SOCKET)
    for row, one, answers in zip(rows, opened, reflects, strict=True):
        row["fd"], row["reflects"], row["control_octets"] = one.fd, answers, one.control_bytes
        row["control"][: len(one.control)] = one.control
    return opened, rows, np.array(paths, PATH)


def _open(nic: NicConfig, port: int) -> ProbeSocket:
    (found,) = open_probe_sockets(nic, [port], own_address=False, hardware=False)
    if isinstance(found, Exception):
        raise found
    return found


def _paths(host: HostConfig, sockets: dict[tuple[str, int], int], first: int) -> list[tuple[int, ...]]:
    """One record a path of a host."""
    return [
        (
            first + sockets[s.src, port],
            s.size_bytes,
            int.from_bytes(bytes(map(int, s.dst_address.split("."))), "little"),
            int.from_bytes(s.dst_port.to_bytes(2, "big"), "little"),
            round(NS_PER_S / s.rate_hz),
            0,
        )
        for s in host.sessions
        for port in s.source_ports
    ]


# --- the agent ---


async def agent_turn(config: AgentConfig, seconds: float) -> Turn:
    """Probe and reflect by the packet engine, in an agent that publishes what it finds."""
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as name:
        folder = Path(name)
        async with taken(folder) as (link, rows):
            with agent(config, folder, "agent", link) as pid:
                await _count(rows, 3.0)  # start-up is not what is asked for
                before = _cpu_ns(pid)
                took_s, n = await _count(rows, seconds)
                after = _cpu_ns(pid)
    spent = {task: ns - before.get(task, 0) for task, ns in after.items()}
    engine = max(ns for task, ns in spent.items() if task != pid)
    return Turn(engine / 1e3 / n, sum(spent.values()) / 1e3 / n, n / took_s)


def _cpu_ns(pid: int) -> dict[int, int]:
    """CPU time of every thread of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) for task in tasks}


async def _count(rows: MemorySubscription, seconds: float) -> tuple[float, int]:
    """Take rows for `seconds`; how long it took, and how many."""
    loop = asyncio.get_running_loop()
    began, n = loop.time(), 0
    while (left_s := began + seconds - loop.time()) > 0:
        n += sum(message.rows for message in await rows.read(timeout_s=left_s))
        await rows.commit()
    return loop.time() - began, n


if __name__ == "__main__":
    main("engine_loop", measure)
