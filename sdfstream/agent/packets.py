"""The seam between a host of the agent and what carries its packets: the numpy engines, or the packet engine in C.

`HostAgent` decides which sessions run, which NICs are there and what is published. A `HostPackets` sends the probes,
answers those of others, matches, assesses and writes rows; it knows no bus and no NIC survey. `NumpyPackets`
(`numpy_packets_io`) works when the agent's loop calls it; an implementation with a thread of its own (`self_driven`)
works all the time, and is only asked what it has found.

`RoceProbes` is the seam to what carries RoCEv2 sessions beside these (`sdfstream.verbs.carried`), always in a thread of
its own: no call there waits, for a device or for anything else. An agent without it, or on a machine without RDMA, runs
its UDP sessions and says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from sdfstream.agent.commands.orders import HostOrders
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.net.socket_io import OpenError, ProbeSocket
from sdfstream.probes.stamp.known_senders import KnownSender
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.trace.trace_io import ProbingSockets, TracedPaths
from sdfstream.records.units import Float64s, Int64s
from sdfstream.stats import Counters


class SocketSlots(Protocol):
    """The sockets of one role, opened and closed with their NICs (`SocketTable`); slot i is one NIC and port."""

    @property
    def slots(self) -> tuple[tuple[NicConfig, int], ...]:
        """NIC and port of each slot."""

    @property
    def sockets(self) -> list[ProbeSocket | None]:
        """The open sockets, by slot."""

    @property
    def wanted(self) -> list[bool]:
        """Which slots are to be open while their NIC is there."""

    @property
    def suspects(self) -> set[int]:
        """Slots that failed as if their NIC had gone; cleared by who has looked."""

    def make(self, slots: Sequence[int]) -> list[ProbeSocket | OpenError]:
        """Sockets for these slots, all of one NIC, or why there is none; changes nothing, any thread may call it."""

    def adopt(self, slot: int, opened: ProbeSocket) -> None:
        """Use `opened` in `slot` from now on."""

    def close(self, slot: int) -> None:
        """Close the socket of `slot`, if it is open."""


class SendingSlots(SocketSlots, ProbingSockets, Protocol):
    """The senders' sockets, from which paths are traced, too."""

    @property
    def sockets(self) -> list[ProbeSocket | None]:
        """The open sockets, by slot."""


class HostPackets(TracedPaths, Protocol):
    """Packets of one host. Times named `now_ns` are the steady clock."""

    @property
    def self_driven(self) -> bool:
        """Whether it works by itself: `send_due`, `read_answers` and `reflect` are not called then."""

    @property
    def has_changes(self) -> bool:
        """Whether `liveness` has changes to tell of."""

    @property
    def orders(self) -> HostOrders | None:
        """What orders moves by itself once a path is found dead; None: nothing does."""

    @property
    def senders(self) -> SendingSlots:
        """Sockets that send probes and receive their answers."""

    @property
    def reflectors(self) -> SocketSlots:
        """Sockets that answer the probes of others."""

    @property
    def paths(self) -> Paths:
        """The table of paths: the configured ones, which never change, then those of sessions that come and go."""

    @property
    def configured_paths(self) -> int:
        """How many of the paths never change."""

    def probed(self) -> dict[tuple[str, str, int, int], int]:
        """(src, dst, source port, DSCP) of the paths that are probed now to their numbers."""

    def probed_intervals_ns(self) -> Float64s:
        """(paths,) probe intervals; infinite for paths that are not probed any more."""

    def change_sessions(
        self, begin: Mapping[int, SessionConfig], end: Sequence[int], now_ns: int, *, liveness_ms: int, in_step: bool
    ) -> None:
        """Begin and end sessions, by slot (`SessionSender.change_sessions`)."""

    def nic_usable(self, nic: str, usable: bool, now_ns: int) -> None:
        """A NIC can or cannot send and receive."""

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """Answer these senders and networks from now on, instead of those of `group` before."""

    def arriving_pps(self, ports: range) -> float:
        """Probes that arrive per second from named senders over these source ports."""

    def liveness(self, now_ns: int, system_ns: int, *, complete: bool) -> list[dict[str, Any]]:
        """Entries of the liveness event: paths that changed state since the last call, or all (`complete`)."""

    def steady_since_ns(self) -> Int64s:
        """(paths,) steady clock of the last change of state; silent: of the last answer."""

    def rows(self, now_ns: int) -> list[pa.RecordBatch]:
        """Rows of the exchanges that finished since the last call."""

    def counters(self) -> dict[str, int]:
        """Counters of stages "sender" and "reflector"."""

    def send_due(self, now_ns: int) -> None:
        """Send the probes that are due."""

    def read_answers(self, due_at_ns: int) -> bool:
        """Take TX stamps and answers; whether there were answers. `due_at_ns` (system clock): when this was due."""

    def reflect(self) -> bool:
        """Answer the probes that have arrived; whether there were any."""

    def arrivals_fd(self) -> int:
        """Readable when probes have arrived, for `reflect`."""

    def longest_rest_ns(self) -> int:
        """How long `reflect` may rest so that fast probes do not wait; 0: no limit."""

    def close(self) -> None:
        """Close all sockets."""


MakePackets = Callable[[AgentConfig, HostConfig, Mapping[tuple[str, int], int], int, Counters], HostPackets]
"""Config, host, sockets by NIC id and source port, seed and the sockets' counters to what carries a host's packets."""


class RoceHost(Protocol):
    """RoCEv2 sessions of one host."""

    @property
    def devices(self) -> Mapping[str, str]:
        """NIC id to RDMA device of those that answer, or did when their device was last there."""

    @property
    def has_changes(self) -> bool:
        """Whether `liveness` has changes to tell of."""

    def plan(self, sessions: Sequence[SessionConfig]) -> None:
        """Probe these beside the configured sessions from now on, as the mesh plan says."""

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> None:
        """Answer these senders and networks from now on, instead of those of `group` before."""

    def rows(self) -> list[pa.RecordBatch]:
        """Rows of the exchanges that finished since the last call."""

    def liveness(self, *, complete: bool) -> list[dict[str, Any]]:
        """Entries of the liveness event: paths that changed state since the last call, or all (`complete`)."""


class RoceProbes(Protocol):
    """RoCEv2 sessions of all hosts of an agent."""

    @property
    def counters(self) -> Counters:
        """Of queue pairs and meetings, with what is wrong with them."""

    def host(self, name: str) -> RoceHost | None:
        """One host's; None: it has no such sessions and answers none."""

    def start(self, found: Callable[[], object], port_changed: Callable[[], object]) -> None:
        """Begin; its thread calls `found` when a path has changed its state, `port_changed` when a port has."""

    def all_counters(self) -> dict[str, int]:
        """All counters of queue pairs and engines."""

    def close(self) -> None:
        """End it; waits for what is being done, a few seconds at most."""


RoceOf = Callable[[AgentConfig], RoceProbes]
"""Makes what carries the RoCEv2 sessions of an agent."""
