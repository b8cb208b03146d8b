"""Faults that run by themselves: flapping links, and cross traffic that ends after a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sdfstream.errors import ConfigError, SdfError
from sdfstream.lab import traffic
from sdfstream.lab.faults import Fault, effects
from sdfstream.lab.faults_io import Faults
from sdfstream.lab.network_io import LabNetwork
from sdfstream.lab.plan import FabricPlan
from sdfstream.lab.traffic_io import Traffic

_MAX_TIMES = 10_000


class TimedFaults:
    """Runs of flaps and cross traffic, one thread each; healing a fault ends its run."""

    def __init__(self, network: LabNetwork, faults: Faults) -> None:
        self._network = network
        self._faults = faults
        faults.before_heal.append(self._end_run)
        self._stop_events: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._traffic: dict[str, Traffic] = {}

    def flap(self, target: str, times: int, period_s: float, down_s: float | None, end: str | None) -> Fault:
        """See `Fabric.flap`."""
        down_s = period_s / 2 if down_s is None else down_s
        if not (1 <= times <= _MAX_TIMES and 0.001 <= down_s < period_s):
            raise ConfigError(
                f"flap: times 1..{_MAX_TIMES} and 0.001 <= down_s < period_s, not {times}, {down_s}, {period_s}"
            )
        faults = self._faults
        with self._network.lock:
            effect = effects(self._network.plan, "flap", target, 1.0, end)
            parameters: dict[str, Any] = {"times": times, "period_s": period_s, "down_s": down_s, "transitions": []}
            fault = faults.record("flap", target, parameters)
            faults.write_truth()

        def down() -> None:
            parameters["transitions"].append({"at_ns": time.time_ns(), "state": "down"})
            faults.hold(fault, effect)

        def up() -> None:
            parameters["transitions"].append({"at_ns": time.time_ns(), "state": "up"})
            faults.release(fault)

        steps = [(i * period_s + offset_s, do) for i in range(times) for offset_s, do in ((0.0, down), (down_s, up))]
        self._start(fault, steps)
        return fault

    def congest(self, target: str, load: float, seconds: float | None, dscp: int, flows: int) -> Fault:
        """See `Fabric.congest`."""
        network = self._network
        if not 0 <= dscp <= 63:
            raise ConfigError(f"dscp must be 0..63, not {dscp}")
        with network.lock:
            plan = network.plan

            def route(src: str, dst: str, port: int) -> list[str]:
                return network.path(src, dst, port, traffic.DISCARD_PORT)

            loads = [traffic.plan_load(plan, route, one, load, dscp, flows) for one in _directions(plan, target)]
            running = Traffic(plan, network.namespaces, loads, seconds)
            fault = self._faults.record("congestion", target, traffic.truth(loads))
            self._traffic[fault.id] = running
            self._faults.write_truth()
        if seconds:
            self._start(fault, [(seconds, lambda: None)])
        return fault

    def _end_run(self, fault: Fault) -> None:
        """`fault` is about to be healed: end its run and record what was truly sent."""
        self._threads.pop(fault.id, None)
        if event := self._stop_events.pop(fault.id, None):
            event.set()
        if running := self._traffic.pop(fault.id, None):
            fault.parameters["sent"] = running.stop()

    def stop(self) -> None:
        """End every run and wait for its thread."""
        with self._network.lock:
            threads = list(self._threads.values())
            for event in self._stop_events.values():
                event.set()
        for thread in threads:
            thread.join()
        with self._network.lock:
            for running in self._traffic.values():
                running.stop()
            self._traffic.clear()

    def _start(self, fault: Fault, steps: list[tuple[float, Callable[[], None]]]) -> None:
        event = threading.Event()
        thread = threading.Thread(target=self._run, args=(fault, steps, event), name=f"lab-{fault.id}", daemon=True)
        self._stop_events[fault.id], self._threads[fault.id] = event, thread
        thread.start()

    def _run(self, fault: Fault, steps: list[tuple[float, Callable[[], None]]], event: threading.Event) -> None:
        start = time.monotonic()
        for at_s, do in steps:
            event.wait(max(0.0, start + at_s - time.monotonic()))
            with self._network.lock:
                if event.is_set():
                    return
                try:
                    do()
                except SdfError as error:
                    fault.parameters["ended_by"] = str(error)
                    break
        with self._network.lock:
            if not event.is_set():
                self._faults.heal(fault.id)


def _directions(plan: FabricPlan, target: str) -> list[str]:
    if target in plan.by_direction:
        return [target]
    if target in plan.by_link and plan.by_link[target].is_fabric:
        a, b = plan.by_link[target].a.end, plan.by_link[target].b.end
        return [f"{a}->{b}", f"{b}->{a}"]
    if target in plan.by_nic:
        return [f"{plan.by_nic[target].b.end}->{target}"]
    raise ConfigError(f"congestion needs a link (l0--s1), a direction (l0->s1) or a NIC (h03/r1), not {target!r}")
