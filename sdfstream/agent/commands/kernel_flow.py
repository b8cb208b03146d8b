"""Steering a flow whose program cannot change its own port: the commands for nf_tables, and its answers.

A connected socket accepts packets only from the port that it knows, at both ends. So a flow that leaves with another
source port needs help at both: ::

    sender's host                                             receiver's host
    socket :own ──► out: source own→new ──► (fabric) ──► back: source new→own ──► socket
    socket :own ◄── in: destination new→own ◄── (fabric) ◄── mirror: destination own→new ◄── socket

Each arrow is one map in the netdev family, hooked at the device itself, so neither routing nor connection tracking
sees the fabric's side. *in* and *back* are harmless before anything is moved: no packet carries the new port. *mirror*
follows what comes in: the receiver's host answers to the port that the data last came from, so nobody has to time
both ends. Hence the order: first the receiving host (``part: peer``) is made ready for all ports that may come, then
the sender moves, and may move on and back, alone; last the receiving host forgets, once nothing comes from those ports.

Known limits: ICMP errors about a moved flow quote the new port and do not reach the socket; fragments behind the first
carry no port and are not translated; a moved flow keeps its port when the agent dies, which is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from sdfstream import strict_json
from sdfstream.errors import FormatError

TABLE: Final = "sdfstream"
MAPS: Final = ("out", "in", "back", "mirror")
COUNTED: Final = ("sent", "came", "arrived")
"""Sets with counters: of flows that leave, by their program's port; of flows that arrive, by the port they carry, to
follow them (`came`) and to tell their throughput (`arrived`)."""
_SIZE: Final = 16_384
_FAMILIES: Final = {4: ("ip", "ipv4_addr"), 6: ("ip6", "ipv6_addr")}


class Ends(NamedTuple):
    """A five-tuple as its packets carry it."""

    protocol: str
    """``udp`` or ``tcp``."""
    source: str
    """Address."""
    destination: str
    source_port: int
    destination_port: int

    @property
    def suffix(self) -> str:
        """Of the maps and sets of its protocol."""
        return f"{self.protocol}{ip_address(self.source).version}"

    @property
    def key(self) -> str:
        """As an element."""
        return f"{self.source} . {self.destination} . {self.source_port} . {self.destination_port}"

    @property
    def answers(self) -> Ends:
        """What comes back."""
        return Ends(self.protocol, self.destination, self.source, self.destination_port, self.source_port)

    def by(self, source_port: int) -> Ends:
        """The same flow with another source port."""
        return self._replace(source_port=source_port)


@dataclass(slots=True)
class Elements:
    """What a table's maps hold, as far as this agent put it there: (map, protocol and family, key) to port."""

    of: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def changes(self, wanted: Mapping[tuple[str, str, str], int | None]) -> str:
        """The commands, one transaction, that make `wanted` so (None: no element); empty when all is so."""
        lines = []
        for (name, suffix, key), port in wanted.items():
            known = self.of.get((name, suffix, key))
            if known == port:
                continue
            if known is not None:
                lines.append(f"delete element netdev {TABLE} {name}_{suffix} {{ {key} }}")
            if port is not None:
                lines.append(f"add element netdev {TABLE} {name}_{suffix} {{ {key} : {port} }}")
        return "\n".join(lines)

    def take(self, wanted: Mapping[tuple[str, str, str], int | None]) -> None:
        """`changes` were made."""
        for element, port in wanted.items():
            if port is None:
                self.of.pop(element, None)
            else:
                self.of[element] = port


def table() -> str:
    """The table without chains; one that is there already gets what it lacks (an earlier version's)."""
    lines = [f"table netdev {TABLE} {{"]
    for version, (_, kind) in _FAMILIES.items():
        key = f"{kind} . {kind} . inet_service . inet_service"
        for protocol in ("udp", "tcp"):
            lines += [f" map {m}_{protocol}{version} {{ type {key} : inet_service; size {_SIZE}; }}" for m in MAPS]
            lines += [f" set {s}_{protocol}{version} {{ type {key}; size {_SIZE}; counter; }}" for s in COUNTED]
    return "\n".join([*lines, "}"])


def chains(device: str) -> str:
    """The chains of one device, with their rules."""
    egress, ingress = [], []
    for version, (family, _) in _FAMILIES.items():
        for protocol in ("udp", "tcp"):
            suffix = f"{protocol}{version}"
            key = f"{family} saddr . {family} daddr . {protocol} sport . {protocol} dport"
            egress += [
                f"{key} @sent_{suffix}",
                f"{protocol} sport set {key} map @out_{suffix}",
                f"{protocol} dport set {key} map @mirror_{suffix}",
            ]
            ingress += [
                f"{key} @came_{suffix}",
                f"{key} @arrived_{suffix}",
                f"{protocol} sport set {key} map @back_{suffix}",
                f"{protocol} dport set {key} map @in_{suffix}",
            ]
    return "\n".join(
        [
            f"table netdev {TABLE} {{",
            *_chain(f"out_{_plain(device)}", "egress", device, egress),
            *_chain(f"in_{_plain(device)}", "ingress", device, ingress),
            "}",
        ]
    )


def _chain(name: str, hook: str, device: str, rules: Iterable[str]) -> list[str]:
    head = f'  type filter hook {hook} device "{device}" priority 0; policy accept;'
    return [f" chain {name} {{", head, *(f"  {rule}" for rule in rules), " }"]


def _plain(device: str) -> str:
    """A device's name within a chain's: letters and digits, others as their number."""
    return "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}" for c in device)


def moved(flow: Ends, path: int) -> dict[tuple[str, str, str], int | None]:
    """At the sender's host: `flow`, as its program sends it, leaves with source port `path`."""
    wanted: dict[tuple[str, str, str], int | None] = {
        ("out", flow.suffix, flow.key): None if path == flow.source_port else path
    }
    if path != flow.source_port:  # answers to an earlier port may still be in transit, so those stay
        wanted["in", flow.suffix, flow.by(path).answers.key] = flow.source_port
    return wanted


def let_go(flow: Ends, paths: Iterable[int]) -> dict[tuple[str, str, str], int | None]:
    """At the sender's host: nothing of `flow`, which could be moved to `paths`, is translated any more."""
    answers: dict[tuple[str, str, str], int | None] = {
        ("in", flow.suffix, flow.by(path).answers.key): None for path in paths
    }
    return {**answers, ("out", flow.suffix, flow.key): None}


def ready(flow: Ends, paths: Iterable[int], *, on: bool = True) -> dict[tuple[str, str, str], int | None]:
    """At the receiver's host: `flow` may come from any of `paths`, or no more."""
    port = flow.source_port if on else None
    return {("back", flow.suffix, flow.by(path).key): port for path in paths if path != flow.source_port}


def mirrored(flow: Ends, path: int) -> dict[tuple[str, str, str], int | None]:
    """At the receiver's host: `flow` comes from `path` now, so its answers go there."""
    return {("mirror", flow.suffix, flow.answers.key): None if path == flow.source_port else path}


def counted(flows: Iterable[Ends], name: str, *, on: bool = True) -> str:
    """Commands to count these five-tuples in set `name`, or no more."""
    verb = "add" if on else "delete"
    return "\n".join(f"{verb} element netdev {TABLE} {name}_{f.suffix} {{ {f.key} }}" for f in flows)


class Count(NamedTuple):
    """Of one five-tuple."""

    packets: int
    bytes: int


def total(counts: Iterable[Count]) -> Count:
    """Of several together."""
    each = list(counts)
    return Count(sum(c.packets for c in each), sum(c.bytes for c in each))


def grown(before: Mapping[int, int], packets: Mapping[int, int]) -> dict[int, int]:
    """Packets by source port since `before`, of the ports from which any came; a port's first count is its beginning.

    >>> grown({50_001: 7, 50_002: 3}, {50_001: 9, 50_002: 3, 50_003: 5})
    {50001: 2}
    """
    return {port: n - before[port] for port, n in packets.items() if n > before.get(port, n)}


def newest_port(more: Mapping[int, int], present: int) -> int:
    """The port that most of a flow came from, of equals the new one; `present` where nothing came."""
    return max(more, key=lambda port: (more[port], port != present), default=present)


def read_counts(text: str) -> dict[str, Count]:
    """Counters by key, from nft's JSON listing of a set; what cannot be read is absent."""
    counts = {}
    for entry in _elements(text):
        body = entry.get("elem") if isinstance(entry, Mapping) else None
        if isinstance(body, Mapping) and (key := _key(body.get("val"))) is not None:
            counter = body.get("counter")
            if isinstance(counter, Mapping):
                counts[key] = Count(int(counter.get("packets", 0)), int(counter.get("bytes", 0)))
    return counts


def read_ports(text: str) -> dict[str, int]:
    """Ports by key, from nft's JSON listing of a map."""
    ports = {}
    for entry in _elements(text):
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], int):
            key = _key(entry[0])
            if key is not None:
                ports[key] = entry[1]
    return ports


def _elements(text: str) -> list[Any]:
    try:
        listed = strict_json.loads(text)["nftables"]
        found = [entry.get("set") or entry.get("map") for entry in listed]
        return [element for each in found if each for element in each.get("elem", ())]
    except (FormatError, KeyError, TypeError, AttributeError):
        return []


def _key(value: Any) -> str | None:
    fields = value.get("concat") if isinstance(value, Mapping) else None
    return " . ".join(map(str, fields)) if isinstance(fields, list) and len(fields) == 4 else None
