"""Actuator for flows of unmodified programs: their source port is rewritten at the device; see `kernel_flow`.

One table ``sdfstream`` in each namespace, made when the first flow there is to be counted or moved, with hooks on the
devices concerned only; traffic of other devices is not touched. What is moved stays moved when the agent ends; a table
in which nothing is moved is removed then. A table that an earlier run left is taken up as it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sdfstream.agent.commands import kernel_flow as kf
from sdfstream.agent.commands.actuator import ActuatorAnswer, ActuatorRequest
from sdfstream.agent.commands.nftables_io import Nftables
from sdfstream.errors import UnavailableError
from sdfstream.records.fabric import QueuePair
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.control")

MIRROR_NS: Final = 20 * NS_PER_MS
"""How often the receiving host looks which port its flows come from."""
IDLE_NS: Final = 3_000 * NS_PER_MS
"""A moved port from which nothing came for this long is used no more."""
RETRY_NS: Final = 1_000 * NS_PER_MS
"""How often what could not be taken from the kernel is tried again."""


_Lists: TypeAlias = dict[tuple[str | None, str], dict[str, kf.Count]]
"""Sets as they were listed: by namespace and suffix, counts by key."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """Device, address and namespace of one of the agent's NICs."""

    device: str
    address: str
    netns: str | None


_FlowKey = tuple[str, str]


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
                self.must(kf.table())
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
        self._starting: Mapping[_FlowKey, QueuePair] = {}
        self._ending: Mapping[_FlowKey, QueuePair] = {}
        self._leaving: dict[tuple[str, str, str], QueuePair] = {}
        """Flows that are gone and still translated: by end, job and QP id."""
        self._let_go_at_ns = 0

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
        if self._leaving and now_ns >= self._let_go_at_ns:
            self._let_go_at_ns = now_ns + RETRY_NS
            self._let_go()
        if now_ns >= self._mirror_at_ns and any(space.peers for space in self._spaces.values()):
            self._mirror_at_ns = now_ns + MIRROR_NS
            for space in self._spaces.values():
                try:
                    self._mirror(space, now_ns)
                except UnavailableError as error:
                    self.counters.add("kernel", "mirror-failed")
                    _log.warning("answers of moved flows may go the old way: %s", error)
        return []

    def see(self, starting: Mapping[_FlowKey, QueuePair], ending: Mapping[_FlowKey, QueuePair]) -> None:
        """Exactly these kernel flows start and end here now, by job and QP id; what is gone is translated no more.

        The next flow by the same ports is another one, and its far end knows nothing of the old one's moves. What
        the kernel refuses is tried again every second, as `answers` is called.
        """
        started = {
            ("sent", *key): q for key, q in self._starting.items() if key not in starting and q.src in self._nics
        }
        ended = {("received", *key): q for key, q in self._ending.items() if key not in ending and q.dst in self._nics}
        self._starting, self._ending = starting, ending
        self._leaving |= started | ended
        self._let_go()

    def count(self, sent: Iterable[QueuePair], received: Iterable[QueuePair] = ()) -> None:
        """Count the bytes of exactly these kernel flows that start here, and of those that end here.

        UnavailableError says why that cannot be; one whose sender's address is not known costs the others nothing.
        """
        self._count("sent", [(q.src, [self._ends(q)]) for q in sent if q.src in self._nics])
        here = [q for q in received if q.dst in self._nics]
        arriving = [(q.dst, [self._ends(q).by(port) for port in _ports(q)]) for q in here if self._source(q)]
        self._count("arrived", arriving)
        for unknown in (q for q in here if not self._source(q)):
            self._ends(unknown)  # says so

    def sent(self, pairs: Iterable[QueuePair]) -> dict[str, kf.Count]:
        """What has left of each of these flows since it was counted, by QP id."""
        lists: _Lists = {}
        found = {}
        for pair in pairs:
            count = self._counts("sent", pair.src, lists, self._ends(pair)) if pair.src in self._nics else None
            if count is not None:
                found[pair.qp] = count
        return found

    def received(self, pairs: Iterable[QueuePair]) -> dict[str, dict[int, kf.Count]]:
        """What has arrived of each of these flows since it was counted, by QP id and the source port it came from."""
        lists: _Lists = {}
        found: dict[str, dict[int, kf.Count]] = {}
        for pair in (q for q in pairs if q.dst in self._nics and self._source(q)):
            flow = self._ends(pair)
            counts = {port: self._counts("arrived", pair.dst, lists, flow.by(port)) for port in _ports(pair)}
            found[pair.qp] = {port: count for port, count in counts.items() if count is not None}
        return {qp: counts for qp, counts in found.items() if counts}

    def close(self) -> None:
        """Leave what is moved as it is."""
        for space in self._spaces.values():
            space.close()
        self._spaces.clear()

    def _count(self, name: str, flows: Iterable[tuple[str, list[kf.Ends]]]) -> None:
        """Have set `name` hold exactly these flows, each at a NIC of this agent."""
        wanted: dict[str | None, list[kf.Ends]] = {}
        for nic, ends in flows:
            wanted.setdefault(self._nics[nic].netns, []).extend(ends)
            self._space(nic)
        for netns, space in self._spaces.items():
            here = wanted.get(netns, [])
            space.uncount(name, [f for known, f in list(space.counted) if known == name and f not in here])
            space.count(name, here)

    def _counts(self, name: str, nic: str, lists: _Lists, flow: kf.Ends) -> kf.Count | None:
        """Of one five-tuple at a NIC; each set is listed once for all of `lists`."""
        netns = self._nics[nic].netns
        if netns not in self._spaces:
            return None
        if (netns, flow.suffix) not in lists:
            lists[netns, flow.suffix] = self._spaces[netns].counts(name, flow.suffix)
        return lists[netns, flow.suffix].get(flow.key)

    def _let_go(self) -> None:
        """Translate what is gone no more; one that the kernel refuses costs the others nothing."""
        for (end, job, qp), pair in list(self._leaving.items()):
            try:
                if end == "sent":
                    self._space(pair.src).change(kf.let_go(self._ends(pair), _ports(pair)))
                else:
                    self._release(pair)
            except UnavailableError as error:
                if not self.counters.get("kernel", "let-go-failed"):
                    _log.warning("a flow that is gone is still translated, tried again every second: %s", error)
                self.counters.add("kernel", "let-go-failed")
            else:
                del self._leaving[end, job, qp]

    def _release(self, pair: QueuePair) -> None:
        """A flow that ended here comes from no other port any more."""
        space = self._space(pair.dst)
        known = space.peers.get(pair.qp)
        if known is not None:
            self._unready(space, known)
            del space.peers[pair.qp]

    def _leaves_no_more(self, end: str, pair: QueuePair) -> None:
        """Another flow by the same ports: what it is given now must not be taken from it with what the old one had."""
        same = [key for key, q in self._leaving.items() if key[0] == end and _tuple(q) == _tuple(pair)]
        for key in same:
            del self._leaving[key]

    def _move(self, request: ActuatorRequest) -> ActuatorAnswer:
        assert request.path is not None
        space, flow = self._space(request.qp.src), self._ends(request.qp)
        before = space.elements.of.get(("out", flow.suffix, flow.key), flow.source_port)
        space.change(kf.moved(flow, request.path))
        self._leaves_no_more("sent", request.qp)
        return ActuatorAnswer(request.id, True, "", {"path": before}, {"path": request.path})

    def _peer(self, request: ActuatorRequest, now_ns: int) -> ActuatorAnswer:
        space, flow = self._space(request.qp.dst), self._ends(request.qp)
        known = space.peers.get(request.qp.qp)
        if request.do == "undo":
            return self._forget(request, space, known, now_ns)
        self._leaves_no_more("received", request.qp)
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
        KernelFlowActuator._unready(space, known)
        del space.peers[request.qp.qp]
        return ActuatorAnswer(request.id, True)

    @staticmethod
    def _unready(space: _Space, known: _Peer) -> None:
        """What comes from the flow's other ports is its own no more, and answers go where it began."""
        flow = known.flow
        space.change(kf.ready(flow, known.paths, on=False) | kf.mirrored(flow, flow.source_port))
        space.uncount("came", [flow.by(p) for p in (flow.source_port, *known.paths)])

    @staticmethod
    def _mirror(space: _Space, now_ns: int) -> None:
        """Let answers go to the port that most of the flow came from since the last look, of equals the new one."""
        lists = {suffix: space.counts("came", suffix) for suffix in {p.flow.suffix for p in space.peers.values()}}
        for peer in space.peers.values():
            keys = {path: peer.flow.by(path).key for path in (peer.flow.source_port, *peer.paths)}
            counts = lists[peer.flow.suffix]
            packets = {path: counts[key].packets if key in counts else 0 for path, key in keys.items()}
            more = kf.grown(peer.packets, packets)
            peer.packets.update(packets)
            peer.received_at_ns.update(dict.fromkeys(more, now_ns))
            newest = kf.newest_port(more, peer.now)
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

    def _source(self, pair: QueuePair) -> str:
        """The address that a flow comes from; empty: not known."""
        return self._address_of(pair.src) or pair.src_address

    def _ends(self, pair: QueuePair) -> kf.Ends:
        source = self._source(pair)
        if not source:
            raise UnavailableError(f"the address of {pair.src} is not known")
        return kf.Ends(pair.protocol, source, pair.dst_address, pair.path, pair.dst_port)


def _tuple(pair: QueuePair) -> tuple[str, str, int, str, int]:
    """What tells a flow from others in the kernel, as its program sends it."""
    return pair.protocol, pair.src, pair.path, pair.dst_address, pair.dst_port


def _ports(pair: QueuePair) -> tuple[int, ...]:
    """Source ports that a flow may arrive from."""
    return (pair.path, *(port for port in pair.alternates if port != pair.path))
