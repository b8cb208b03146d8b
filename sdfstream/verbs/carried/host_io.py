"""RoCEv2 sessions of one host of an agent: the seam's side, which the loop calls, and the thread's side.

The loop's calls leave orders for the thread and take what lies in the mail. The thread opens a NIC's device when it
finds one, closes it when it is gone, and has its far ends met.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from sdfstream.verbs.carried.askers_io import Askers, CallerAdmission
from sdfstream.verbs.carried.devices_io import Devices
from sdfstream.verbs.carried.mail import HostMail
from sdfstream.verbs.carried.nic_io import NicSetup, RoceNic
from sdfstream.verbs.probing.device_events import PortChange
from sdfstream.verbs.probing.meeting_io import Meetings
from sdfstream.verbs.probing.ud_endpoint_io import UdAddress

_log = logging.getLogger("sdfstream.agent")

_DRAIN_NS: Final = 3 * NS_PER_S
"""The last probes of a device that is gone have timed out by then, and their rows are written."""

ROCEV2: Final = "rocev2"

Order = Callable[[], object]


class CarriedHost:
    """RoCEv2 sessions of one host (`RoceHost`).

    Parameters
    ----------
    config : AgentConfig
        With its RoCEv2 sessions.
    host : HostConfig
        One of `config.hosts`.
    devices : Devices
    askers : Askers
    order : callable
        Has a call made by the thread; any thread may use it.
    counters : Counters
        Gets ``device-opened``, ``device-away``, ``port-changes``; troubles by NIC.
    port_changed : callable
        Called by the thread when a port did.
    """

    def __init__(
        self,
        config: AgentConfig,
        host: HostConfig,
        devices: Devices,
        askers: Askers,
        order: Callable[[Order], None],
        counters: Counters,
        port_changed: Callable[[], None],
    ) -> None:
        self._config, self._host, self._machine, self._askers = config, host, devices, askers
        self._order, self._counters, self._port_changed = order, counters, port_changed
        self.mail = HostMail(counters)
        self._seed = secrets.randbits(64)
        self._admission = CallerAdmission(config, host, self._seed)
        self._groups: dict[str, tuple[Mapping[str, KnownSender], tuple[str, ...]]] = {}
        self._sessions = [s for s in host.sessions if s.transport == ROCEV2]
        self._planned: list[SessionConfig] = []
        sources = {s.src for s in self._sessions}
        self._needed = {n.nic for n in host.nics if n.nic in sources or n.rdma_device}
        everywhere = ROCEV2 in config.transports
        self._nics: list[NicConfig] = [n for n in host.nics if everywhere or n.nic in self._needed]
        self.open: dict[str, RoceNic] = {}
        self._listening: dict[str, Meetings] = {}
        self._left: list[tuple[int, RoceNic]] = []
        self._gone_counters: dict[str, int] = {}
        self._said: dict[str, str] = {}

    # --- the loop's side ---

    @property
    def devices(self) -> Mapping[str, str]:
        """NIC id to RDMA device of those that answer, or did when their device was last there.

        One that is away stays: a plan is not drawn anew for a driver that is loaded again.
        """
        return self.mail.devices

    @property
    def has_changes(self) -> bool:
        """Whether `liveness` has changes to tell of."""
        return self.mail.has_changes

    def plan(self, sessions: Sequence[SessionConfig]) -> None:
        """Probe these beside the configured sessions from now on."""
        wanted = list(sessions)
        self._order(lambda: self._plan(wanted))

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """Answer these senders and networks from now on, instead of those of `group` before."""
        taken = dict(senders), tuple(networks)
        self._order(lambda: self._know(group, *taken))

    def rows(self) -> list[pa.RecordBatch]:
        """Rows of the exchanges that finished since the last call."""
        return self.mail.rows()

    def liveness(self, *, complete: bool) -> list[dict[str, Any]]:
        """Entries of paths that changed state since the last call, or of all."""
        return self.mail.changes(complete=complete)

    # --- the thread's side ---

    def _plan(self, sessions: list[SessionConfig]) -> None:
        self._planned = sessions
        for name in list(self.open):
            self._want(name)

    def _know(self, group: str, senders: Mapping[str, KnownSender], networks: tuple[str, ...]) -> None:
        self._groups[group] = senders, networks
        self._admission.know(group, senders, networks)
        for nic in self.open.values():
            nic.know(group, senders, networks)

    def survey(self, now_ns: int) -> None:
        """Open the devices that are there, leave those that are gone, meet far ends that are due."""
        present = self._machine.refresh()
        for config in self._nics:
            nic = self.open.get(config.nic)
            if nic is None:
                self._try(config, now_ns)
            elif nic.choice.device not in present:
                self.leave(config.nic, f"RDMA device {nic.choice.device} is gone", now_ns)
        self._left = [(until_ns, nic) for until_ns, nic in self._left if now_ns < until_ns]
        without = not self.open and not self._needed
        if without and self._nics:
            self._trouble("devices", f"no NIC of {self._host.host} has an RDMA device: {self._why()}")
        else:
            self._counters.troubles.end(f"{self._host.host} devices")

    def _why(self) -> str:
        return next(iter(self._said.values()), "none was found")

    def _try(self, config: NicConfig, now_ns: int) -> None:
        choice = self._machine.choose(config)
        if isinstance(choice, str):
            self._cannot(config.nic, choice)
            return
        setup = NicSetup(self._config, self._host, config, self._seed, self._on_change)
        nic = None
        try:
            nic = RoceNic(choice, setup, self._groups, self._machine.open)
            self._listen(nic, config)
        except UnavailableError as error:
            if nic is not None:
                nic.leave(now_ns)
            self._cannot(config.nic, str(error))
            return
        self.open[config.nic] = nic
        self._said.pop(config.nic, None)
        self._counters.add("device-opened")
        self._counters.troubles.end(config.nic)
        _log.info("%s: RoCEv2 sessions over %s, GID %d", config.nic, choice.device, choice.gid_index)
        self._report_devices()
        self._want(config.nic)

    def _listen(self, nic: RoceNic, config: NicConfig) -> None:
        def take() -> None:
            for end in meetings.arrived():
                nic.arrived(end)

        meetings = Meetings(
            config.address, self._config.rdma_meeting_port, nic.end, self._admission.admits, lambda: self._order(take)
        )
        self._listening[config.nic] = meetings

    def _cannot(self, nic: str, why: str) -> None:
        """A NIC has no queue pairs, for this reason: a trouble where sessions or settings name it."""
        if self._said.get(nic) != why:
            self._said[nic] = why
            (_log.warning if nic in self._needed else _log.info)("%s has no RoCEv2 sessions: %s", nic, why)
        if nic in self._needed:
            self._counters.troubles.begin(nic, f"its RoCEv2 sessions do not run: {why}")

    def _trouble(self, what: str, why: str) -> None:
        self._counters.troubles.begin(f"{self._host.host} {what}", why)

    def _want(self, name: str) -> None:
        now_ns = time.monotonic_ns()
        configured = [s for s in self._sessions if s.src == name]
        planned = [s for s in self._planned if s.src == name]
        try:
            self.open[name].want(configured, planned, now_ns)
        except UnavailableError as error:
            self.leave(name, str(error), now_ns)

    def leave(self, name: str, why: str, now_ns: int) -> None:
        """A NIC's device is gone: its paths are unknown, and it is looked for from now on."""
        nic = self.open.pop(name)
        self._listening.pop(name).close()
        self._put_states(nic.leave(now_ns), now_ns)
        self._left.append((now_ns + _DRAIN_NS, nic))
        for counters in nic.counters():
            for counter, n in counters.items():
                self._gone_counters[counter] = self._gone_counters.get(counter, 0) + n
        self._counters.add("device-away")
        self._cannot(name, why)
        self._port_changed()

    def look(self, now_ns: int) -> None:
        """Now and then: far ends that are due, silent or cannot be met; sessions that waited."""
        for name, nic in list(self.open.items()):
            try:
                nic.look(now_ns)
            except UnavailableError as error:
                self.leave(name, str(error), now_ns)
                continue
            own, address = nic.asking_end, nic.setup.nic.address
            for far in nic.peers.due(now_ns) if own is not None else ():
                assert own is not None
                self._askers.ask(far, own, address, _met(nic, far))
            self._report_unmet(name, nic.peers.unmet(now_ns))

    def _report_unmet(self, name: str, unmet: Mapping[str, str]) -> None:
        what = f"{name} peers"
        if not unmet:
            self._counters.troubles.end(what)
            return
        address, why = next(iter(sorted(unmet.items())))
        more = f" and {len(unmet) - 1} more" if len(unmet) > 1 else ""
        self._counters.troubles.begin(what, f"not met by TCP, so not probed by RoCEv2: {address} ({why}){more}")

    def hand_over(self, now_ns: int, *, rows: bool, every: bool) -> None:
        """Put what was found into the mail."""
        nics = list(self.open.values())
        changes = [entry for nic in nics for entry in nic.liveness(now_ns, complete=False)]
        if changes or every:
            self._put_states(changes, now_ns)
        if rows:
            for nic in (*nics, *(nic for _, nic in self._left)):
                if (batch := nic.rows(now_ns)) is not None:
                    self.mail.put_rows(batch)

    def _put_states(self, changes: Sequence[dict[str, Any]], now_ns: int) -> None:
        every = [entry for nic in self.open.values() for entry in nic.liveness(now_ns, complete=True)]
        self.mail.put_states(changes, every)

    def _report_devices(self) -> None:
        found = {name: nic.choice.device for name, nic in self.open.items()}
        self.mail.devices = MappingProxyType({**self.mail.devices, **found})

    def _on_change(self, change: PortChange) -> None:
        self._counters.add("port-changes")
        text = "can be used" if change.usable else "cannot be used"
        _log.warning("%s: RDMA port %s/%d %s: %s", self._host.host, change.device, change.port, text, change.why)
        self._port_changed()

    def all_counters(self) -> dict[str, int]:
        """Of the engines, those of devices that are gone included."""
        total = dict(self._gone_counters)
        found = [c for nic in list(self.open.values()) for c in nic.counters()]
        found += [meetings.counters.as_dict() for meetings in list(self._listening.values())]
        for counters in found:
            for name, n in counters.items():
                total[name] = total.get(name, 0) + n
        return total

    def close(self, now_ns: int) -> None:
        """Close all queue pairs."""
        for name in list(self.open):
            self._listening.pop(name).close()
            self.open.pop(name).leave(now_ns)


def _met(nic: RoceNic, far: str) -> Callable[[UdAddress | None, str], None]:
    def met(found: UdAddress | None, why: str) -> None:
        if found is not None:
            nic.peers.met(far, found, time.monotonic_ns())
        else:
            nic.peers.failed(far, why, time.monotonic_ns())

    return met
