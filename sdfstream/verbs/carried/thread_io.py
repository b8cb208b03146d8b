"""The thread that carries an agent's queue pairs: devices come and go, passes are made, what was found is handed on.

Calls of pyverbs hold the interpreter's lock, so this thread makes short ones: posting a packet, reading completions, a
bounded number a pass. It waits in `poll`, on the completion channels; a queue that stamps in hardware has none that
pyverbs can arm and is looked at every few milliseconds, which falsifies no stamp. Two calls take longer, once for a
device: to open it, and to make an address handle, for which the kernel resolves the neighbour; a far end has been met
over TCP right before, so its neighbour is known by then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from functools import partial
from typing import Final

from sdfstream.agent.priority_io import follow_in_priority
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters
from sdfstream.verbs.carried.askers_io import Askers
from sdfstream.verbs.carried.devices_io import Devices
from sdfstream.verbs.carried.host_io import ROCEV2, CarriedHost, Order

_log = logging.getLogger("sdfstream.agent")

_ASSESS_NS: Final = 40 * NS_PER_MS
_EVERY_NS: Final = NS_PER_S
_LOOK_NS: Final = 2 * NS_PER_MS
"""How often queues are looked at that cannot wake the thread, while there are any."""
_LONGEST_NS: Final = 50 * NS_PER_MS
_CARE_NS: Final = 200 * NS_PER_MS
"""Between two looks at far ends, ports and waiting sessions."""
_REST_S: Final = 0.05
"""After a pass that failed: what fails again must not take a core."""
_CLOSE_S: Final = 5.0


class RoceThread:
    """RoCEv2 sessions of an agent's hosts (`RoceProbes`).

    Parameters
    ----------
    config : AgentConfig
        With its RoCEv2 sessions.
    devices : Devices
    survey_s : float
        Between two looks for devices that came or went.
    """

    def __init__(self, config: AgentConfig, devices: Devices, survey_s: float = 1.0) -> None:
        self.counters = Counters("rdma")
        self._config = config
        self._orders: deque[Order] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._askers = Askers(config.rdma_meeting_port, self.order)
        self._survey_ns, self._survey_at_ns = int(survey_s * NS_PER_S), 0
        self._assess_at_ns = self._rows_at_ns = self._every_at_ns = self._care_at_ns = 0
        self._found: Order = bool
        self._port_changed: Order = bool
        self._helper = self.counters.troubles.helper("rdma")
        self._failed = False
        self._stop = threading.Event()
        self._hosts = {
            host.host: CarriedHost(config, host, devices, self._askers, self.order, self.counters, self._on_port)
            for host in config.hosts
            if ROCEV2 in config.transports or any(s.transport == ROCEV2 for s in host.sessions)
        }
        self._thread = threading.Thread(target=self._run, name="rdma", daemon=True)

    def host(self, name: str) -> CarriedHost | None:
        """One host's; None: it has no such sessions and answers none."""
        return self._hosts.get(name)

    def start(self, found: Order, port_changed: Order) -> None:
        """Begin; the thread calls `found` when a path has changed its state, `port_changed` when a port has."""
        self._found, self._port_changed = found, port_changed
        self._thread.start()

    def order(self, call: Order) -> None:
        """Have a call made by the thread; any thread may."""
        self._orders.append(call)
        with contextlib.suppress(OSError):  # it is full, so the thread wakes anyway; or all has ended
            os.write(self._wake_write, b"x")

    def all_counters(self) -> dict[str, int]:
        """All counters of queue pairs and engines."""
        total = self.counters.as_dict()
        for host in self._hosts.values():
            for name, n in host.all_counters().items():
                key = f"{ROCEV2}.{name}"
                total[key] = total.get(key, 0) + n
        return total

    def close(self) -> None:
        """End the thread; one that hangs in a driver is left to the process's end."""
        self._stop.set()
        self.order(bool)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)
        self._askers.close()
        if not self._thread.is_alive() and self._wake_write >= 0:
            ends, self._wake_write = (self._wake_read, self._wake_write), -1
            for end in ends:
                os.close(end)

    # --- in the thread ---

    def _on_port(self) -> None:
        self._port_changed()

    def _run(self) -> None:
        follow_in_priority()
        try:
            while not self._stop.is_set():
                self._pass(time.monotonic_ns())
                self._wait(time.monotonic_ns())
        except BaseException as error:
            self._helper.end(error)
            _log.exception("the thread of the RDMA devices ended")
        finally:
            for host in self._hosts.values():
                host.close(time.monotonic_ns())

    def _pass(self, now_ns: int) -> None:
        """Everything that is due now."""
        self._helper.begin(now_ns / NS_PER_S)
        for _ in range(len(self._orders)):
            self._orders.popleft()()
        if now_ns >= self._survey_at_ns:
            self._survey_at_ns = now_ns + self._survey_ns
            for host in self._hosts.values():
                host.survey(now_ns)
        for host in self._hosts.values():
            for name, nic in list(host.open.items()):
                self._guarded(host, name, partial(nic.turn, time.monotonic_ns()), now_ns)
        if now_ns >= self._assess_at_ns:
            self._assess_at_ns = now_ns + _ASSESS_NS
            self._hand_over(now_ns)
        self._helper.rest()

    def _hand_over(self, now_ns: int) -> None:
        rows, every = now_ns >= self._rows_at_ns, now_ns >= self._every_at_ns
        self._rows_at_ns = now_ns + self._config.flush_ms * NS_PER_MS if rows else self._rows_at_ns
        self._every_at_ns = now_ns + _EVERY_NS if every else self._every_at_ns
        care = now_ns >= self._care_at_ns
        self._care_at_ns = now_ns + _CARE_NS if care else self._care_at_ns
        for host in self._hosts.values():
            if care:
                host.look(now_ns)
            host.hand_over(now_ns, rows=rows, every=every)
        if any(host.has_changes for host in self._hosts.values()):
            self._found()

    def _guarded(self, host: CarriedHost, name: str, work: Order, now_ns: int) -> None:
        """A pass of one NIC: its device may go in the middle of it, and no packet may end the others' probing."""
        try:
            work()
        except UnavailableError as error:
            host.leave(name, str(error), now_ns)
        except Exception as error:  # of a packet, or of pyverbs, whose own errors mean that the device is going
            self.counters.add("failed", type(error).__name__)
            if not self._failed:
                self._failed = True
                _log.error("%s: a pass failed; from now on this is only counted", name, exc_info=error)
            self._stop.wait(_REST_S)

    def _wait(self, now_ns: int) -> None:
        """Until something completes, a probe is due or an order comes."""
        until_ns = now_ns + _LONGEST_NS
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        by_fd: dict[int, tuple[CarriedHost, str, Order]] = {}
        for host in self._hosts.values():
            for name, nic in host.open.items():
                until_ns = min(until_ns, nic.next_due_ns())
                for endpoint in nic.endpoints():
                    if endpoint.wakes:
                        by_fd[endpoint.wake_fd] = host, name, endpoint.rearm
                    else:
                        until_ns = min(until_ns, now_ns + _LOOK_NS)
                    if endpoint.events_fd >= 0:
                        poll.register(endpoint.events_fd, select.POLLIN)
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(max(0.0, (until_ns - now_ns) / NS_PER_MS)):
            if fd == self._wake_read:
                os.read(self._wake_read, 4096)
            elif fd in by_fd:
                self._guarded(*by_fd[fd], now_ns)


def carrier_of(config: AgentConfig) -> RoceThread:
    """What carries the RoCEv2 sessions of an agent on this machine."""
    from sdfstream.verbs.carried.devices_io import MachineDevices

    return RoceThread(config, MachineDevices())
