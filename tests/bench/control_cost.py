"""What the agent's side of commands costs: ``python -m tests.bench.control_cost``.

64 armed queue pairs of one host, 8 far NICs with 8 watch paths each, 4 spines, 3 alternates a queue pair, a process
behind a real control socket in a thread of its own. Printed, in
CPU time of the agent's thread: a judgement in which nothing changed; one in which a spine
died (all that crosses it moves); from that judgement's begin to the first and to the last byte's being with the kernel.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sdfstream.agent.commands.control_io import AgentControl
from sdfstream.agent.commands.qp_socket_io import QpSocketActuator
from sdfstream.records.command import Command
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND
from tests.fixtures.control import ALIVE, KEYS, SIGNER, SILENT, FakeSlots
from tests.fixtures.qp_process import qp_process

QPS, FAR, PORTS, SPINES = 64, 8, 8, 4
SRC = "h0/r0"


def spine(rng: np.random.Generator) -> int:
    return int(rng.integers(SPINES))


def plant(
    rng: np.random.Generator,
) -> tuple[FakeSlots, list[QueuePair], list[dict[str, Any]], list[tuple[str, int, int]]]:
    """Liveness, queue pairs, the commands that arm them, and which probe crosses which spine."""
    slots = FakeSlots()
    probes = []
    crossing: dict[str, list[list[Any]]] = {}
    for far in range(FAR):
        for port in range(49_600, 49_600 + PORTS):
            out, back = spine(rng), spine(rng)
            slots.set(port, ALIVE, src=SRC, dst=f"h{far + 1}/r0")
            probes.append((f"h{far + 1}/r0", port, out, back))
            for name in (f"up{out}", f"down{out}>{far}", f"back-up{back}<{far}", f"back-down{back}"):
                crossing.setdefault(name, []).append([f"h{far + 1}/r0", port, 0])
    pairs, commands = [], []
    now_ns = time.time_ns()
    for i in range(QPS):
        far = i % FAR
        path = 50_000 + 17 * i
        pair = QueuePair(
            f"{SRC}#{i}", 0, far + 1, SRC, f"h{far + 1}/r0", "10.0.0.9", path, 4791,
            steering="socket", alternates=tuple(range(path + 1, path + 9)),
        )  # fmt: skip
        pairs.append(pair)

        def watch(s: int, far: int = far) -> list[dict[str, Any]]:
            names = (f"up{s}", f"down{s}>{far}", f"back-up{s}<{far}", f"back-down{s}")
            return [{"segment": n, "paths": crossing.get(n, [])} for n in names]

        here = spine(rng)
        others = [s for s in range(SPINES) if s != here]
        data = Command(
            f"f{i}", 1, now_ns, now_ns + 600 * 10**9, "enforce", "failover",
            {"type": "qp", "id": pair.qp, "host": "h0", "job": "j"}, {"path": path},
            {"watch": watch(here), "alternates": [{"path": path + 1 + k, "watch": watch(s)}
                                                  for k, s in enumerate(others)]},
            {"path": path},
        ).as_data()  # fmt: skip
        commands.append(SIGNER.sign(data))
    return slots, pairs, commands, probes


def judgement_us(control: AgentControl) -> float:
    """Processor time of one look at liveness."""
    began = time.thread_time_ns()
    control.on_liveness("h0", time.monotonic_ns())
    return (time.thread_time_ns() - began) / 1e3


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rng = np.random.default_rng(seed)
    slots, pairs, commands, probes = plant(rng)
    with tempfile.TemporaryDirectory() as folder, qp_process(Path(folder), pairs, "j") as process:
        sockets = QpSocketActuator()
        control = AgentControl(["h0"], KEYS, {"socket": sockets}, None, "b")
        control.attach("h0", slots)
        control.take_jobs({"h0": [JobShard("j", "h0", qps=tuple(pairs), control=str(process.path))]})
        began = time.thread_time_ns()
        messages = [
            Message(COMMAND.name, "h0", Event(COMMAND.name, "controller", str(i), 0, d), time.time_ns(), i)
            for i, d in enumerate(commands)
        ]
        control.take_commands(messages)
        armed_us = (time.thread_time_ns() - began) / 1e3 / QPS
        control.on_liveness("h0", time.monotonic_ns())
        gc.freeze()
        quiet = [judgement_us(control) for _ in range(2_000)]
        sent: list[int] = []
        apply = sockets.apply

        def timed(request: Any, now_ns: int) -> Any:
            answer = apply(request, now_ns)
            sent.append(time.thread_time_ns())
            return answer

        sockets.apply = timed  # type: ignore[method-assign]
        for dst, port, out, back in probes:
            if 0 in (out, back):
                slots.set(port, SILENT, src=SRC, dst=dst)
        began = time.thread_time_ns()
        took_us = judgement_us(control)
        figures = {
            "seed": seed,
            "armed_qps": len(control.executor.leases("h0")),
            "accept_us_per_command": round(armed_us, 1),
            "command_bytes": statistics.median(len(json.dumps(c)) for c in commands),
            "quiet_judgement_us": {
                "median": round(statistics.median(quiet), 1), "p99": round(float(np.percentile(quiet, 99)), 1),
            },
            "moves": len(sent),
            "judgement_with_moves_us": round(took_us, 1),
            "first_request_out_us": round((sent[0] - began) / 1e3, 1) if sent else None,
            "last_request_out_us": round((sent[-1] - began) / 1e3, 1) if sent else None,
        }  # fmt: skip
        print(json.dumps(figures))
        control.executor.dirty = False
        sockets.close()


if __name__ == "__main__":
    main()
