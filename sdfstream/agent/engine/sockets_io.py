"""The sockets of a host whose packets the packet engine carries: opened here, used and closed by its shell."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from sdfstream.agent.engine.thread_io import EngineThread
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.icmp import IcmpError
from sdfstream.probes.net.socket_io import OpenError, ProbeSocket, open_probe_sockets
from sdfstream.probes.net.socket_table_io import devices_with_several_addresses


class EngineSockets:
    """The sockets of one role of a host, which the shell uses (`packets.SocketSlots`).

    Parameters
    ----------
    thread : EngineThread
    slots : sequence of (NicConfig, port)
    first : int
        The shell's number of slot 0.
    adoption : callable
        Slot to what else the shell is told of its socket.
    hardware : bool
        Ask the NICs for stamps.
    """

    def __init__(
        self,
        thread: EngineThread,
        slots: Sequence[tuple[NicConfig, int]],
        first: int,
        adoption: Callable[[int], dict[str, int]],
        *,
        hardware: bool,
    ) -> None:
        self.slots = tuple(slots)
        self.sockets: list[ProbeSocket | None] = [None] * len(slots)
        self.wanted = [True] * len(slots)
        self.found_suspects: set[int] = set()
        self._thread = thread
        self._first = first
        self._adoption = adoption
        self._hardware = hardware
        self._own_address = devices_with_several_addresses(slots)
        self._errors: deque[IcmpError] = deque(maxlen=256)

    @property
    def suspects(self) -> set[int]:
        """Slots that failed as if their NIC had gone."""
        self._thread.collect_sockets()
        return self.found_suspects

    def suspect(self, number: int) -> None:
        """The shell's slot `number` failed; it may be another table's."""
        if 0 <= number - self._first < len(self.slots):
            self.found_suspects.add(number - self._first)

    def make(self, slots: Sequence[int]) -> list[ProbeSocket | OpenError]:
        """Sockets for these slots, all of one NIC, or why there is none; changes nothing, so any thread may call it."""
        nic = self.slots[slots[0]][0]
        own_address = (nic.netns, nic.device) in self._own_address
        ports = [self.slots[slot][1] for slot in slots]
        return open_probe_sockets(nic, ports, own_address=own_address, hardware=self._hardware)

    def adopt(self, slot: int, opened: ProbeSocket) -> None:
        """Send and receive by `opened` from now on."""
        self.close(slot)
        self.sockets[slot] = opened
        more = self._adoption(slot)
        self._thread.submit(lambda: self._thread.shell.adopt(self._first + slot, opened, **more))

    def close(self, slot: int) -> None:
        """Close the socket of `slot`, if it is open: the shell does that once it uses it no longer."""
        if self.sockets[slot] is not None:
            self.sockets[slot] = None
            self._thread.submit(self._thread.shell.close_socket, self._first + slot)
            self._thread.settle_sockets()

    def send_limited(self, slot: int, address: bytes, port: int, payload: bytes, tos: int, ttl: int) -> bool:
        """Send one datagram with its own TTL; False when it is known not to go."""
        if self.sockets[slot] is None:
            return False
        self._thread.submit(self._thread.shell.send_limited, self._first + slot, address, port, payload, tos, ttl)
        return True

    def take_error(self, error: IcmpError) -> None:
        """An ICMP error of some slot of the shell."""
        if 0 <= error.slot - self._first < len(self.slots):
            self._errors.append(replace(error, slot=error.slot - self._first))

    def take_icmp(self) -> list[IcmpError]:
        """ICMP errors since the last call."""
        self._thread.collect_sockets()
        taken = list(self._errors)
        self._errors.clear()
        return taken
