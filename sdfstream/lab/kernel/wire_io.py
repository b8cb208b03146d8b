"""The two engines that drop and mark packets: eBPF with its maps, or nf_tables where bpf(2) is not allowed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, Protocol

from sdfstream.errors import LabUnavailableError
from sdfstream.lab.kernel import bpf_io, nft, queues
from sdfstream.lab.kernel.namespaces_io import Namespaces
from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.kernel.wire import COUNTS_BYTES, RULE_BYTES, Counts, PortRule, program
from sdfstream.lab.plan import FabricPlan, Port
from sdfstream.lab.spec import FabricSpec

_MEAN_FRAME_BYTES = 1_200
"""Frame size at which the packet-rate marker takes a link for full."""


class Wire(Protocol):
    """Drops and marks the packets a port sends; hosts' packets are treated at their leaf's ingress."""

    name: ClassVar[Literal["ebpf", "nft"]]
    gives: ClassVar[str]
    """What the lab lacks without this engine."""

    def __init__(self, plan: FabricPlan, namespaces: Namespaces) -> None:
        """Take what the engine needs; LabUnavailableError where that is not allowed."""

    def marks(self, spec: FabricSpec) -> bool:
        """Whether it can set CE in this fabric's packets."""

    def attach(self, ports: Sequence[tuple[Port, Port]]) -> list[KernelRequest]:
        """Requests, for the node of the first of each (own, far) pair, that put the engine on those ports."""

    def set_rules(self, plan: FabricPlan, rules: dict[int, PortRule]) -> None:
        """Apply these rules from now on, by sending port."""

    def counts(self, ifindex: int) -> Counts:
        """Packets dropped and marked of a sending port."""

    def detach(self, ifindexes: Iterable[int]) -> None:
        """These cables are about to be moved: forget what holds on to their ends."""

    def close(self) -> None:
        """Let go."""


class EbpfWire:
    """One program for every egress, one for the leaves' host-side ingress; switched through a map in microseconds."""

    name: ClassVar[Literal["ebpf", "nft"]] = "ebpf"
    gives: ClassVar[str] = "CE marks by true backlog (eBPF)"

    def __init__(self, plan: FabricPlan, namespaces: Namespaces) -> None:
        entries = 2 * len(plan.cables)
        with contextlib.ExitStack() as undo:
            try:
                self._rules = undo.enter_context(bpf_io.HashMap(RULE_BYTES, entries))
                self._counts = undo.enter_context(bpf_io.HashMap(COUNTS_BYTES, entries))
                for ifindex in plan.by_ifindex:
                    self._counts.set(ifindex, bytes(COUNTS_BYTES))
                self._egress = self._load(plan, key_offset=0)
                undo.callback(os.close, self._egress)
                # The plan numbers a host's port one below its leaf's.
                self._ingress = self._load(plan, key_offset=-1)
                undo.callback(os.close, self._ingress)
            except OSError as error:
                raise LabUnavailableError(str(error.strerror)) from error
            self._open = undo.pop_all()

    def _load(self, plan: FabricPlan, key_offset: int) -> int:
        offsets = bpf_io.kernel_offsets()
        code = program(offsets, self._rules.fd, self._counts.fd, plan.spec.ip_version, key_offset)
        return bpf_io.load_program(code)

    def marks(self, spec: FabricSpec) -> bool:
        """In any."""
        return True

    def attach(self, ports: Sequence[tuple[Port, Port]]) -> list[KernelRequest]:
        """A hook and its programs on every port."""
        requests = [queues.classifier_hook(own.ifindex) for own, _ in ports]
        requests += [queues.program(own.ifindex, self._egress, ingress=False) for own, _ in ports]
        from_hosts = [own for own, far in ports if far.end != far.node]
        return requests + [queues.program(own.ifindex, self._ingress, ingress=True) for own in from_hosts]

    def set_rules(self, plan: FabricPlan, rules: dict[int, PortRule]) -> None:
        """Write the map entries."""
        for ifindex, rule in rules.items():
            self._rules.set(ifindex, rule.packed())

    def counts(self, ifindex: int) -> Counts:
        """Read the map entry."""
        return Counts.unpacked(self._counts.get(ifindex))

    def detach(self, ifindexes: Iterable[int]) -> None:
        """Nothing: programs go with the hook when an interface is moved, and map entries stay right."""

    def close(self) -> None:
        """Attached programs and their maps go with the interfaces."""
        self._open.close()


class NftWire:
    """A table per port, replaced as a whole in one transaction of about a millisecond."""

    name: ClassVar[Literal["ebpf", "nft"]] = "nft"
    gives: ClassVar[str] = "black holes, gray loss and CE marks (nf_tables)"

    def __init__(self, plan: FabricPlan, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._tables: dict[int, Port] = {}

    def marks(self, spec: FabricSpec) -> bool:
        """Only in IPv4: the traffic class of IPv6 is not on a byte boundary."""
        return spec.ip_version == 4

    def attach(self, ports: Sequence[tuple[Port, Port]]) -> list[KernelRequest]:
        """Nothing beforehand: tables come with their first rule."""
        return []

    def set_rules(self, plan: FabricPlan, rules: dict[int, PortRule]) -> None:
        """Replace the tables of these ports."""
        for ifindex, rule in rules.items():
            own, far = plan.by_ifindex[ifindex]
            ingress = own.end != own.node
            hooked = far if ingress else own
            marks = rule.ce_threshold_bytes and self.marks(plan.spec)
            requests = nft.replace_table(
                ifindex,
                hooked.device,
                ingress=ingress,
                loss=rule.loss,
                ce_over_pps=plan.spec.rate_bps // 8 // _MEAN_FRAME_BYTES if marks else 0,
                existed=ifindex in self._tables,
            )
            self._namespaces.netfilter(hooked.node).commit(requests, *nft.begin_and_end())
            self._tables[ifindex] = hooked

    def counts(self, ifindex: int) -> Counts:
        """Counters since the table was last replaced."""
        if ifindex not in self._tables:
            return Counts()
        bodies = self._namespaces.netfilter(self._tables[ifindex].node).ask(nft.get_rules(ifindex))
        found = dict(nft.counted(body) for body in bodies)
        return Counts(found.get("dropped", 0), found.get("marked", 0))

    def detach(self, ifindexes: Iterable[int]) -> None:
        """Delete their tables."""
        for ifindex in ifindexes:
            if hooked := self._tables.pop(ifindex, None):
                self._namespaces.netfilter(hooked.node).commit([nft.delete_table(ifindex)], *nft.begin_and_end())

    def close(self) -> None:
        """The tables go with their namespaces."""


def start(
    plan: FabricPlan,
    namespaces: Namespaces,
    rules: dict[int, PortRule],
    *,
    engines: Sequence[type[Wire]] = (EbpfWire, NftWire),
) -> tuple[Wire | None, list[str]]:
    """The first engine that this machine allows, attached to every router port, with its first rules set.

    Parameters
    ----------
    plan : FabricPlan
        Of a fabric whose cables are in place.
    namespaces : Namespaces
        Of that fabric.
    rules : dict of int to PortRule
        First rules by sending port.
    engines : sequence of Wire types, the preferred one first

    Returns
    -------
    wire : Wire or None
        None when nothing here can drop or mark packets.
    reasons : list of str
        Why a better engine is not used.
    """
    reasons = []
    for engine in engines:
        try:
            wire = engine(plan, namespaces)
        except LabUnavailableError as error:
            reasons.append(f"{engine.gives}: {error}")
            continue
        try:
            for node in (*plan.spec.leaf_names, *plan.spec.spine_names):
                pairs = [(port, cable.far(port)) for port, cable in plan.ports[node]]
                namespaces.route(node).apply(wire.attach(pairs))
            # Without first rules an empty one shows whether rules are possible at all.
            wire.set_rules(plan, rules or {plan.cables[-1].a.ifindex: PortRule()})
        except LabUnavailableError as error:
            wire.close()
            reasons.append(f"{engine.gives}: {error}")
        else:
            return wire, reasons
    return None, reasons
