"""Two producers that speak for one host, two hosts with one NIC address: what they measure is attributed wrongly.

A run of an agent is known by its boot id. After a restart the new run goes on where the former ended; of that one only
rows come that waited on disk, read before the new run began. Two producers at once differ from that in one of two ways:

- the earlier run comes back, again and again, with readings later than the later run's first one (`_RETURNS` times in
  `_WINDOW_NS`): both read clocks that agree;
- both keep pace with the bus for `_PACE_NS`: their clocks need not agree. What waited on disk comes faster.

Where the bus tells producers apart (`bus.link`) the second one is refused, and what the link says of it is taken here.
NICs' addresses are those that agents with ``mesh: auto`` announce; two planes may use one address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.detect.detections import Detection, symptom
from sdfstream.detect.instant import Instant
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.mesh import HostHere
from sdfstream.records.producer import RefusedProducer
from sdfstream.records.units import NS_PER_S

_MOST_HOSTS: Final = 65_536
_MOST_RUNS: Final = 8
"""Of a host; the one unseen for longest goes."""
_RETURNS: Final = 5
_WINDOW_NS: Final = 10 * NS_PER_S
_LATER_NS: Final = NS_PER_S
_PACE_NS: Final = 10 * NS_PER_S
_OFF_PACE_NS: Final = 3 * NS_PER_S
_SEEN_NS: Final = 5 * NS_PER_S
"""A producer unseen for longer than this has stopped."""
_HOLD_NS: Final = 10 * NS_PER_S


@dataclass(slots=True)
class _Run:
    first_at_ns: int
    first_reading_ns: int
    pace_at_ns: int
    """Bus time since when it has kept pace with the bus, and its reading then."""
    pace_reading_ns: int
    last_at_ns: int


@dataclass(slots=True)
class _Host:
    runs: dict[str, _Run] = field(default_factory=dict)
    last: str = ""
    """The run whose message came last."""
    returns_at_ns: list[int] = field(default_factory=list)
    returned: tuple[str, str] = ("", "")
    """The run that came back, and the later one."""


class ProducerDetector:
    """Runs of every host's agent, refused producers, and the addresses that NICs have."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._refused: dict[str, tuple[RefusedProducer, int, int]] = {}
        """Host → what the link said, bus time of the first and of the last time."""
        self._addresses: dict[str, dict[str, tuple[str, int]]] = {}
        """Host → address and plane → (NIC, bus time since when)."""
        self._seen_at_ns: dict[str, int] = {}
        """Host → its last announcement or message."""

    def take(self, host: str, boot_id: str, reading_ns: int | None, at_ns: int) -> None:
        """Take that run `boot_id` of a host's agent published what it read at `reading_ns`, its own clock."""
        if host in self._addresses:
            self._seen_at_ns[host] = at_ns
        known = self._hosts.get(host)
        if known is None:
            if not boot_id or reading_ns is None or len(self._hosts) >= _MOST_HOSTS:
                return
            known = self._hosts[host] = _Host()
        if not boot_id or reading_ns is None:
            return
        run = known.runs.get(boot_id)
        if run is None:
            run = self._new(known, boot_id, reading_ns, at_ns)
        lag_ns = (at_ns - run.pace_at_ns) - (reading_ns - run.pace_reading_ns)
        if abs(lag_ns) > _OFF_PACE_NS or at_ns - run.last_at_ns > _SEEN_NS:
            run.pace_at_ns, run.pace_reading_ns = at_ns, reading_ns
        run.last_at_ns = at_ns
        if known.last != boot_id:
            self._came_back(known, boot_id, run, reading_ns, at_ns)
            known.last = boot_id

    def take_refused(self, refused: RefusedProducer, at_ns: int) -> None:
        """Take that the link refuses a second producer."""
        before = self._refused.get(refused.host)
        since_ns = before[1] if before is not None and at_ns - before[2] <= _SEEN_NS else at_ns
        if before is not None or len(self._refused) < _MOST_HOSTS:
            self._refused[refused.host] = (refused, since_ns, at_ns)

    def take_host(self, here: HostHere, at_ns: int) -> None:
        """Take the addresses that a host's NICs have now."""
        if here.host not in self._addresses and len(self._addresses) >= _MOST_HOSTS:
            return
        before = self._addresses.get(here.host, {})
        named = {f"{nic.address} {nic.plane or ''}": nic.id for nic in here.nics if _is_unique(nic.address)}
        self._addresses[here.host] = {a: before.get(a, (nic, at_ns)) for a, nic in named.items()}
        self._seen_at_ns[here.host] = at_ns

    def detections(self, now: Instant) -> list[Detection]:
        """Hosts with two producers, and NICs with one address."""
        now_ns = now.now_ns
        self._refused = {h: r for h, r in self._refused.items() if now_ns - r[2] <= _SEEN_NS}
        found = [self._refused_detection(*refused) for _, refused in sorted(self._refused.items())]
        found += [d for host in sorted(self._hosts) if host not in self._refused for d in self._doubled(host, now_ns)]
        return found + list(self._shared_addresses(now_ns))

    def _new(self, known: _Host, boot_id: str, reading_ns: int, at_ns: int) -> _Run:
        if len(known.runs) >= _MOST_RUNS:
            del known.runs[min(known.runs, key=lambda boot: known.runs[boot].last_at_ns)]
        run = known.runs[boot_id] = _Run(at_ns, reading_ns, at_ns, reading_ns, at_ns)
        return run

    def _came_back(self, known: _Host, boot_id: str, run: _Run, reading_ns: int, at_ns: int) -> None:
        """Note that a run spoke after another one that began later, of what it read after that one began."""
        for name, other in known.runs.items():
            lately = at_ns - other.last_at_ns <= _WINDOW_NS
            if lately and other.first_at_ns > run.first_at_ns and reading_ns > other.first_reading_ns + _LATER_NS:
                known.returns_at_ns = [*known.returns_at_ns[1 - _RETURNS :], at_ns]
                known.returned = (boot_id, name)
                return

    def _doubled(self, host: str, now_ns: int) -> Iterator[Detection]:
        known = self._hosts[host]
        if len(known.runs) < 2:
            return
        pace = sorted(
            (run.pace_at_ns, boot)
            for boot, run in known.runs.items()
            if now_ns - run.last_at_ns <= _SEEN_NS and run.last_at_ns - run.pace_at_ns >= _PACE_NS
        )
        returns = known.returns_at_ns
        if len(returns) == _RETURNS and now_ns - returns[0] <= _WINDOW_NS:
            first, second = known.returned
            since_ns = known.runs[second].first_at_ns if second in known.runs else returns[0]
        elif len(pace) >= 2:
            (_, first), (since_ns, second) = pace[:2]
        else:
            return
        yield _of_host(
            host, since_ns, f"runs {first[:16]} and {second[:16]} of an agent publish as {host} at once", "bus"
        )

    @staticmethod
    def _refused_detection(refused: RefusedProducer, since_ns: int, _: int) -> Detection:
        detail = f"{refused.refused} publishes as {refused.host}, for which {refused.owner} does; it is refused"
        return _of_host(refused.host, since_ns, detail, "link")

    def _shared_addresses(self, now_ns: int) -> Iterator[Detection]:
        """NICs of hosts that publish now, with an address that another such host announces too."""
        holders: dict[str, list[tuple[str, int]]] = {}
        for host, addresses in sorted(self._addresses.items()):
            if now_ns - self._seen_at_ns[host] <= _SEEN_NS:
                for address, holder in addresses.items():
                    holders.setdefault(address, []).append(holder)
        for address, nics in sorted(holders.items()):
            if len(nics) > 1:
                yield _of_address(address.partition(" ")[0], nics)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "hosts": {
                host: {
                    "runs": {
                        boot: [r.first_at_ns, r.first_reading_ns, r.pace_at_ns, r.pace_reading_ns, r.last_at_ns]
                        for boot, r in known.runs.items()
                    },
                    "last": known.last,
                    "returns": known.returns_at_ns,
                    "returned": list(known.returned),
                }
                for host, known in self._hosts.items()
            },
            "refused": {h: [r.refused, r.owner, since, last] for h, (r, since, last) in self._refused.items()},
            "addresses": {h: {a: list(nic) for a, nic in x.items()} for h, x in self._addresses.items()},
            "seen": self._seen_at_ns,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._hosts = {
            host: _Host(
                {b: _Run(*r) for b, r in x["runs"].items()}, x["last"], list(x["returns"]), tuple(x["returned"])
            )
            for host, x in state["hosts"].items()
        }
        self._refused = {
            h: (RefusedProducer(h, refused, owner), since, last)
            for h, (refused, owner, since, last) in state["refused"].items()
        }
        self._addresses = {
            h: {a: (str(nic), int(since)) for a, (nic, since) in x.items()} for h, x in state["addresses"].items()
        }
        self._seen_at_ns = dict(state["seen"])


def _is_unique(address: str) -> bool:
    """Whether an address means one interface wherever it is used."""
    ip = ipaddress.ip_address(address)
    return not (ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast)


def _of_host(host: str, since_ns: int, detail: str, where: str) -> Detection:
    subject = Subject("host", host)
    evidence = (Evidence("producers", 2.0, "producers", where, 1.0),)
    return Detection("duplicate-host", subject, since_ns, "naming", 0.95, evidence, hold_ns=_HOLD_NS, detail=detail)


def _of_address(address: str, nics: list[tuple[str, int]]) -> Detection:
    since_ns = max(since for _, since in nics)
    names = [nic for nic, _ in nics]
    return Detection(
        "duplicate-address",
        Subject("nic", names[0]),
        since_ns,
        "naming",
        0.95,
        (Evidence("nics-with-the-address", float(len(names)), "NICs", address, 1.0),),
        suspects=tuple((name, 1.0) for name in names[:20]),
        symptoms=tuple(symptom("duplicate-address", Subject("nic", name), since_ns) for name in names[1:20]),
        hold_ns=_HOLD_NS,
        detail=f"{' and '.join(names[:4])} all announce {address}",
    )
