"""Actuator for flows of unmodified programs: their source port is rewritten at the device; see `kernel_flow`.

One table ``sdfstream`` in each namespace, made when the first flow there is to be counted or moved, with hooks on the
devices concerned only; traffic of other devices is not touched. What is moved stays moved when the agent ends; a table
in which nothing is moved is removed then. A table that an earlier run left is taken up as it stands.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sdfstream.agent.commands import kernel_flow as kf
from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.kernel_rows import KernelRows
from sdfstream.agent.commands.nftables_io import Nftables
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.message import Output
from sdfstream.records.topics import QP
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.control")

MIRROR_NS: Final = 20 * NS_PER_MS
"""How often the receiving host looks which port its flows come from."""
IDLE_NS: Final = 3_000 * NS_PER_MS
"""A moved port from which nothing came for this long is used no more."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """Device, address and namespace of one of the agent's NICs."""

    device: str
    address: str
    netns: str | None


@dataclass(slots=True)
class _Peer:
    """A flow that ends here and may come from several ports."""

    flow: kf.Ends
    paths: tuple[int, ...]
    now: int
    """The port that it came from last."""
    packets: dict[int, int] = field(default_factory=dict)
    received_at_ns: dict[int, int] = field(default_factory=dict)


class _Space:
    """The table of one namespace."""

    def __init__(self, netns: str | None) -> None:
        self.nft = Nftables(netns)
        self.elements = kf.Elements()
        self.devices: set[str] = set()
        self.counted: dict[tuple[str, kf.Ends], None] = {}
        self.peers: dict[str, _Peer] = {}
        self._take_up()

    def _take_up(self) -> None:
        """Know what an earlier run left, or make a fresh table."""
        _, error = self.nft.run(f"list table netdev {kf.TABLE}")
        if not error:
            for name in kf.MAPS:
                for suffix in ("udp4", "tcp4", "udp6", "tcp6"):
                    said, _ = self.nft.run(f"list map netdev {kf.TABLE} {name}_{suffix}")
                    self.elements.of |= {(name, suffix, key): port for key, port in kf.read_ports(said).items()}
            if self.elements.of:
                return
            self.nft.run(f"delete table netdev {kf.TABLE}")
        self.must(kf.table())

    def hook(self, device: str) -> None:
        """See the packets of `device`."""
        if device not in self.devices:
            chains = kf.chains(device)
            names = [line.split()[1] for line in chains.splitlines() if line.startswith(" chain")]
            # replaced at one stroke, if left by an earlier run: in a gap packets of moved flows would pass as they are
            anew = "\n".join([*(f"delete chain netdev {kf.TABLE} {name}" for name in names), chains])
            if self.nft.run(anew)[1]:
                self.must(chains)
            self.devices.add(device)

    def count(self, name: str, flows: Iterable[kf.Ends]) -> None:
        """Count these five-tuples."""
        fresh = [f for f in flows if (name, f) not in self.counted]
        if fresh:
            self.must(kf.counted(fresh, name))
            self.counted |= dict.fromkeys((name, f) for f in fresh)

    def uncount(self, name: str, flows: Iterable[kf.Ends]) -> None:
        """Count these no more."""
        known = [f for f in flows if (name, f) in self.counted]
        if known:
            self.nft.run(kf.counted(known, name, on=False))
            for flow in known:
                del self.counted[name, flow]

    def counts(self, name: str, suffix: str) -> dict[str, kf.Count]:
        """By key."""
        return kf.read_counts(self.nft.run(f"list set netdev {kf.TABLE} {name}_{suffix}")[0])

    def change(self, wanted: Mapping[tuple[str, str, str], int | None]) -> None:
        """One transaction."""
        commands = self.elements.changes(wanted)
        if commands:
            self.must(commands)
            self.elements.take(wanted)

    def must(self, commands: str) -> None:
        """Have it done; UnavailableError says why not."""
        _, error = self.nft.run(commands)
        if error:
            raise UnavailableError(error)

    def close(self) -> None:
        """Leave the table only if something is moved."""
        if not any(name in ("out", "mirror", "back") for name, _, _ in self.elements.of):
            self.nft.run(f"delete table netdev {kf.TABLE}")
        self.nft.close()


class KernelFlowActuator:
    """Actuator over nf_tables.

    Parameters
    ----------
    nics : mapping of NIC id to Attachment
        The agent's own NICs.
    address_of : callable
        Address of any NIC; None: not known.
    """

    def __init__(
        self,
        nics: Mapping[str, Attachment],
        address_of: Callable[[str], str | None],
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters("control")
        self._nics = nics
        self._address_of = address_of
        self._spaces: dict[str | None, _Space] = {}
        self._mirror_at_ns = 0

    def apply(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer | None:
        """Done, or not, when this returns."""
        try:
            if request.peer:
                return self._peer(request, now_ns)
            if request.path is None:
                return ActuatorAnswer(request.id, False, "a kernel flow is not limited: only its path can be changed")
            return self._move(request)
        except UnavailableError as error:
            self.counters.add("kernel", "failed")
            return ActuatorAnswer(request.id, False, f"nf_tables: {error}")

    def answers(self, now_ns: int) -> list[ActuatorAnswer]:
        """All were given at once; answers of flows that end here follow the ports that these come from."""
        if now_ns >= self._mirror_at_ns and any(space.peers for space in self._spaces.values()):
            self._mirror_at_ns = now_ns + MIRROR_NS
            for space in self._spaces.values():
                try:
                    self._mirror(space, now_ns)
                except UnavailableError as error:
                    self.counters.add("kernel", "mirror-failed")
                    _log.warning("answers of moved flows may go the old way: %s", error)
        return []

    def count(self, pairs: Iterable[QueuePair]) -> None:
        """Count the bytes of exactly these kernel flows that start here; UnavailableError says why that cannot be."""
        wanted: dict[str | None, list[kf.Ends]] = {}
        for pair in pairs:
            if pair.src in self._nics:
                wanted.setdefault(self._nics[pair.src].netns, []).append(self._ends(pair))
                self._space(pair.src)
        for netns, space in self._spaces.items():
            flows = wanted.get(netns, [])
            space.uncount("sent", [f for name, f in list(space.counted) if name == "sent" and f not in flows])
            space.count("sent", flows)

    def sent(self, pairs: Iterable[QueuePair]) -> dict[str, kf.Count]:
        """What has left of each of these flows since it was counted, by QP id."""
        pairs = [q for q in pairs if q.src in self._nics and self._nics[q.src].netns in self._spaces]
        lists: dict[tuple[str | None, str], dict[str, kf.Count]] = {}
        found = {}
        for pair in pairs:
            flow, netns = self._ends(pair), self._nics[pair.src].netns
            if (netns, flow.suffix) not in lists:
                lists[netns, flow.suffix] = self._spaces[netns].counts("sent", flow.suffix)
            count = lists[netns, flow.suffix].get(flow.key)
            if count is not None:
                found[pair.qp] = count
        return found

    def close(self) -> None:
        """Leave what is moved as it is."""
        for space in self._spaces.values():
            space.close()
        self._spaces.clear()

    def _move(self, request: ActuatorRequest) -> ActuatorAnswer:
        assert request.path is not None
        space, flow = self._space(request.qp.src), self._ends(request.qp)
        before = space.elements.of.get(("out", flow.suffix, flow.key), flow.source_port)
        space.change(kf.moved(flow, request.path))
        return ActuatorAnswer(request.id, True, "", {"path": before}, {"path": request.path})

    def _peer(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer:
        space, flow = self._space(request.qp.dst), self._ends(request.qp)
        known = space.peers.get(request.qp.qp)
        if request.do == "undo":
            return self._forget(request, space, known, now_ns)
        if known is not None:
            gone = [p for p in known.paths if p not in request.paths]
            busy = [p for p in gone if now_ns - known.received_at_ns.get(p, now_ns - IDLE_NS) < IDLE_NS]
            if busy:
                return ActuatorAnswer(request.id, False, f"the flow still comes from path {busy[0]}")
            space.change(kf.ready(flow, gone, on=False))
        space.count("came", [flow.by(p) for p in (flow.source_port, *request.paths)])
        space.change(kf.ready(flow, request.paths))
        now = space.elements.of.get(("mirror", flow.suffix, flow.answers.key), flow.source_port)
        space.peers[request.qp.qp] = _Peer(flow, request.paths, now if known is None else known.now)
        return ActuatorAnswer(request.id, True, "", {}, {"paths": list(request.paths)})

    @staticmethod
    def _forget(request: ActuatorRequest, space: _Space, known: _Peer | None, now_ns: int) -> ActuatorAnswer:
        if known is None:
            return ActuatorAnswer(request.id, True)
        busy = [p for p in known.paths if now_ns - known.received_at_ns.get(p, now_ns - IDLE_NS) < IDLE_NS]
        if busy:
            return ActuatorAnswer(request.id, False, f"the flow still comes from path {busy[0]}")
        flow = known.flow
        space.change(kf.ready(flow, known.paths, on=False) | kf.mirrored(flow, flow.source_port))
        space.uncount("came", [flow.by(p) for p in (flow.source_port, *known.paths)])
        del space.peers[request.qp.qp]
        return ActuatorAnswer(request.id, True)

    @staticmethod
    def _mirror(space: _Space, now_ns: int) -> None:
        """Let answers go to the port that most of the flow came from since the last look, of equals the new one."""
        lists = {suffix: space.counts("came", suffix) for suffix in {p.flow.suffix for p in space.peers.values()}}
        for peer in space.peers.values():
            grown: dict[int, int] = {}
            for path in (peer.flow.source_port, *peer.paths):
                count = lists[peer.flow.suffix].get(peer.flow.by(path).key)
                packets = 0 if count is None else count.packets
                if packets > peer.packets.get(path, packets):
                    grown[path] = packets - peer.packets[path]
                    peer.received_at_ns[path] = now_ns
                peer.packets[path] = packets
            newest = max(grown, key=lambda p: (grown[p], p != peer.now), default=peer.now)
            if newest != peer.now:
                space.change(kf.mirrored(peer.flow, newest))
                peer.now = newest

    def _space(self, nic: str) -> _Space:
        attachment = self._nics.get(nic)
        if attachment is None:
            raise UnavailableError(f"{nic} is no NIC of this agent")
        if attachment.netns not in self._spaces:
            self._spaces[attachment.netns] = _Space(attachment.netns)
        space = self._spaces[attachment.netns]
        space.hook(attachment.device)
        return space

    def _ends(self, pair: QueuePair) -> kf.Ends:
        source = self._address_of(pair.src)
        if source is None:
            raise UnavailableError(f"the address of {pair.src} is not known")
        return kf.Ends(pair.protocol, source, pair.dst_address, pair.path, pair.dst_port)


_log = logging.getLogger("sdfstream.control")
_ROWS_NS: Final = 100 * NS_PER_MS


class KernelFlows:
    """Those with ``steering: kernel`` that start on the agent's hosts.

    Parameters
    ----------
    config : AgentConfig
    address_of : callable
        Of any NIC; None: not known.
    """

    def __init__(self, config: AgentConfig, address_of: Callable[[str], str | None]) -> None:
        nics = {n.nic: Attachment(n.device, n.address, n.netns) for h in config.hosts for n in h.nics}
        self.actuator = KernelFlowActuator(nics, address_of)
        self._flows: dict[str, list[tuple[str, QueuePair]]] = {}
        self._moved: Mapping[str, int] = {}
        self._rows = {h.host: KernelRows(h.host) for h in config.hosts}
        self._clocks = {h.host: Clock(h.virtual_clock) for h in config.hosts}
        self._due_ns = dict.fromkeys(self._rows, 0)
        self._failed = ""

    def flows(self, shards: Mapping[str, Iterable[JobShard]], moved: Mapping[str, int]) -> None:
        """The job map; `moved` is looked at again whenever rows are made."""
        self._moved = moved
        self._flows = {
            host: [(shard.job, q) for shard in each for q in shard.qps if q.steering == "kernel"]
            for host, each in shards.items()
        }
        try:
            self.actuator.count([q for each in self._flows.values() for _, q in each])
        except UnavailableError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("kernel flows can neither be counted nor moved here: %s", error)

    def rows(self, host: str, now_ns: int) -> list[Output]:
        """What the host's kernel flows carried since the last time, every 100 ms."""
        flows = self._flows.get(host)
        if not flows or now_ns < self._due_ns[host]:
            return []
        self._due_ns[host] = now_ns + _ROWS_NS
        counts = self.actuator.sent(q for _, q in flows)
        here = [(job, replace(q, path=self._moved.get(q.qp, q.path))) for job, q in flows]
        batch = self._rows[host].step(here, counts, self._clocks[host].at(time.time_ns()))
        return [] if batch is None else [Output(QP.name, host, batch)]
