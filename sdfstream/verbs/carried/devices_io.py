"""The RDMA devices of this machine, for an agent's NICs; pyverbs is loaded with the first endpoint."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, Protocol

from sdfstream.errors import UnavailableError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.rdma.choice import DeviceChoice, choose
from sdfstream.probes.rdma.devices_io import RdmaPort, has_core, opened_by_programs, rdma_ports
from sdfstream.stats import Counters
from sdfstream.verbs.library_io import Verbs
from sdfstream.verbs.probing.session_io import MOST_BYTES
from sdfstream.verbs.probing.ud_endpoint_io import UdEndpoint

_KEY_BITS: Final = 31
_ROOT: Final = "/"


class Devices(Protocol):
    """What an agent's queue pairs are made on."""

    def refresh(self) -> frozenset[str]:
        """Devices that programs can open now; `choose` goes by them until the next call."""

    def choose(self, nic: NicConfig) -> DeviceChoice | str:
        """A NIC's device; a sentence: it has none, and why."""

    def open(self, choice: DeviceChoice, ports: Sequence[int]) -> UdEndpoint:
        """An endpoint with a key of its own. UnavailableError: it cannot be had."""


class MachineDevices:
    """Those in sysfs, by pyverbs."""

    def __init__(self) -> None:
        self._verbs: Verbs | None = None
        self._refused = Counters("rdma")
        self._present: frozenset[str] = frozenset()
        self._ports: list[RdmaPort] | None = None
        """None: not read since `refresh`; their tables are many small files."""

    def refresh(self) -> frozenset[str]:
        """Devices that programs can open now; `choose` goes by them until the next call."""
        self._present, self._ports = opened_by_programs(_ROOT), None
        return self._present

    def choose(self, nic: NicConfig) -> DeviceChoice | str:
        """A NIC's device; a sentence: it has none, and why."""
        if nic.netns is not None:
            return f"{nic.nic} lies in a network namespace of its own: RDMA devices are used in the agent's alone"
        if not has_core(_ROOT):
            return "this machine has no RDMA device: the kernel's RDMA core is not loaded"
        if self._ports is None:
            self._ports = [port for port in rdma_ports(_ROOT, self._refused) if port.device in self._present]
        return choose(self._ports, nic.device, nic.address, nic.rdma_device)

    def open(self, choice: DeviceChoice, ports: Sequence[int]) -> UdEndpoint:
        """An endpoint with a key of its own."""
        if self._verbs is None:
            self._verbs = Verbs()
        key = secrets.randbits(_KEY_BITS)
        try:
            return UdEndpoint(
                self._verbs, choice.device, MOST_BYTES, key, ports, port=choice.port, gid_index=choice.gid_index
            )
        except self._verbs.error as error:  # a port that vanished while it was being opened
            raise UnavailableError(f"RDMA device {choice.device}: {error}") from error
