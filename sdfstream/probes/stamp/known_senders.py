"""Whom a reflector answers: Session-Senders that it was told of, each at its own rate.

A sender is *known* when the configuration, the mesh plan or a job names its address, or when its address lies in a
network that the settings allow. Everybody else is a stranger: not answered, unless the settings say so, and then at a
small rate for all strangers together. Addresses can be made up, so an answer may go to somebody who asked for none.
Three rules hold for known senders, too:

- a packet that is itself an answer gets none (it carries t2 where a probe has zeros, RFC 8762 section 4.2.1), nor does
  one from a port where a reflector listens: two reflectors would answer each other for ever;
- nothing goes to an address that is not one host's, or is our own;
- each address gets so many answers per second and no more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sdfstream.probes.config import HostConfig
from sdfstream.probes.stamp.datagrams import UInt16s, UInt64s, address_keys, address_octets
from sdfstream.probes.stamp.packet import BatchVerdict
from sdfstream.probes.stamp.rates import SourceBuckets, TokenBucket
from sdfstream.records.units import Bools, Int64s, UInt8s

WELL_KNOWN_PORT: Final = 862
"""Where reflectors listen by default (RFC 8762 section 4.1)."""
MOST: Final = 65_536
"""Known addresses; more of a plan or a job are left out."""
_MAPPED: Final = np.frombuffer(address_octets("0.0.0.0")[:12], dtype=np.uint8)
_TOP: Final = np.iinfo(np.uint64).max


@dataclass(frozen=True, slots=True)
class ReflectorLimits:
    """Whom a reflector answers beside the senders it is told of, and how often."""

    port: int = WELL_KNOWN_PORT
    """The reflector's own UDP port."""
    networks: tuple[str, ...] = ()
    """Senders in these networks are known."""
    strangers: bool = False
    """Answer senders that are not known, too."""
    max_pps: float = 200_000.0
    """Answers per second to all senders together."""
    source_pps: float = 20_000.0
    """Answers per second to one address."""
    stranger_pps: float = 1_000.0
    """Answers per second to all strangers together."""


class KnownSender(NamedTuple):
    """A sender that a reflector was told of."""

    nic: str
    """Its NIC id."""
    port: int = 0
    """UDP port of its own reflector; 0: not known."""


class Admission(NamedTuple):
    """What `KnownSenders.admit` says of n senders."""

    bucket: Int64s
    """(n,)."""
    stranger: Bools
    """(n,)."""
    refused: Mapping[str, Bools]
    """(n,) by reason, a constant of `BatchVerdict`."""


class KnownSenders:
    """The known senders of one host's reflector, their networks and rates.

    Parameters
    ----------
    host : HostConfig
        For its own addresses.
    limits : ReflectorLimits
    salt : int
        See `SourceBuckets`.
    """

    def __init__(self, host: HostConfig, limits: ReflectorLimits, salt: int) -> None:
        self._limits = limits
        self._own = frozenset(address_octets(nic.address) for nic in host.nics)
        self.on_loopback = any(ipaddress.ip_address(nic.address).is_loopback for nic in host.nics)
        self._groups: dict[str, dict[bytes, KnownSender]] = {}
        self._networks: dict[str, list[tuple[UInt64s, UInt64s]]] = {"": _networks(limits.networks)}
        self._buckets = SourceBuckets(limits.source_pps, salt)
        self._strangers = TokenBucket(limits.stranger_pps)
        self.names: dict[bytes, str] = {}
        """NIC id by 16-octet address."""
        self.senders: dict[bytes, KnownSender] = {}
        """Those of all groups by 16-octet address."""
        self._index({})

    def know(self, group: str, senders: Mapping[str, KnownSender], networks: Iterable[str] = ()) -> bool:
        """These senders and networks are known from now on, instead of those of `group` before; whether it is a change.

        Of two groups that name one address the older one counts. Addresses that are not one host's are left out, as is
        what goes beyond `MOST`.
        """
        made = {address_octets(a): sender for a, sender in senders.items() if self._is_one_hosts(a)}
        found = _networks(networks)
        same = made == self._groups.get(group, {}) and _same(found, self._networks.get(group, []))
        if same:
            return False
        self._groups[group], self._networks[group] = made, found
        merged: dict[bytes, KnownSender] = {}
        for one in self._groups.values():
            for address, sender in one.items():
                if len(merged) < MOST:
                    merged.setdefault(address, sender)
        self._index(merged)
        return True

    @property
    def networks(self) -> list[tuple[UInt64s, UInt64s]]:
        """Known networks and their masks, as the two words of an address."""
        return [pair for networks in self._networks.values() for pair in networks]

    def admit(self, address: UInt8s, port: UInt16s) -> Admission:
        """Whether senders, (n,) each, are answered at all, whatever their rate."""
        words = address.view(np.uint64)
        key = address_keys(words, np.zeros(1, dtype=np.uint64))
        sender = self._find(key, words)
        reasons = {BatchVerdict.REFLECTOR_PORT: self._from_reflector(port, sender)}
        stranger = sender < 0
        if stranger.any():
            unnamed = stranger.copy()
            reasons[BatchVerdict.OWN_ADDRESS] = unnamed & self._is_own(address)
            reasons[BatchVerdict.NO_HOST] = unnamed & ~_unicast(address, loopback=self.on_loopback)
            stranger &= ~self._in_networks(words)
            if not self._limits.strangers:
                reasons[BatchVerdict.STRANGER] = stranger
            sender = np.where(unnamed, self._buckets.shared(key), sender)
        return Admission(sender, stranger, reasons)

    def limit(self, bucket: Int64s, stranger: Bools | None, verdict: BatchVerdict, now_ns: int) -> None:
        """Refuse what goes beyond a sender's rate, or that of all strangers (`stranger`; None: nobody is)."""
        good = None if verdict.all_good else np.flatnonzero(verdict.good)
        over = self._buckets.over(bucket if good is None else bucket[good], now_ns)
        if over is not None:
            rows = np.flatnonzero(over)
            verdict.refuse_rows(rows if good is None else good[rows], BatchVerdict.SOURCE_RATE)
        if stranger is not None:
            strangers = np.flatnonzero(verdict.good & stranger)
            granted = self._strangers.granted(len(strangers), now_ns)
            verdict.refuse_rows(strangers[granted:], BatchVerdict.STRANGER_RATE)

    def _index(self, senders: Mapping[bytes, KnownSender]) -> None:
        """Sort the senders by key; the last column stands for everybody else."""
        octets = np.frombuffer(b"".join(senders), dtype=np.uint8).reshape(-1, 16)
        words = octets.view(np.uint64)
        key = address_keys(words, np.zeros(1, dtype=np.uint64))
        order = np.argsort(key, kind="stable")
        self._key = np.append(key[order], np.uint64(_TOP))
        self._words = np.concatenate([words[order], np.zeros((1, 2), dtype=np.uint64)])
        ports = np.array([sender.port for sender in senders.values()], dtype=np.uint16)
        self._port = np.append(ports[order], np.uint16(0))
        self.senders = dict(senders)
        self.names = {address: sender.nic for address, sender in senders.items()}
        self._buckets.resize(len(order))

    def _find(self, key: UInt64s, words: UInt64s) -> Int64s:
        """(n,) row of each sender; −1: it is not one we were told of."""
        row = np.searchsorted(self._key, key)
        known = (self._words[row] == words).all(axis=1)
        known &= row < len(self._key) - 1
        result: Int64s = np.where(known, row, -1)
        return result

    def _from_reflector(self, port: UInt16s, sender: Int64s) -> Bools:
        loops: Bools = (port == self._limits.port) | (port == WELL_KNOWN_PORT) | (port == self._port[sender])
        return loops

    def _in_networks(self, words: UInt64s) -> Bools:
        found = np.zeros(len(words), dtype=np.bool_)
        for network, mask in self.networks:
            found |= ((words & mask) == network).all(axis=1)
        return found

    def _is_own(self, address: UInt8s) -> Bools:
        found = np.zeros(len(address), dtype=np.bool_)
        for own in self._own:
            found |= (address == np.frombuffer(own, dtype=np.uint8)).all(axis=1)
        return found

    def _is_one_hosts(self, address: str) -> bool:
        octets = np.frombuffer(address_octets(address), dtype=np.uint8).reshape(1, 16)
        return bool(_unicast(octets, loopback=self.on_loopback)[0])


def _networks(texts: Iterable[str]) -> list[tuple[UInt64s, UInt64s]]:
    """Network and mask of each, as the two words of an address."""
    found = []
    for text in texts:
        network = ipaddress.ip_network(text)
        mask = network.netmask.packed if network.version == 6 else b"\xff" * 12 + network.netmask.packed
        found.append((_words(address_octets(str(network.network_address))), _words(mask)))
    return found


def _words(octets: bytes) -> UInt64s:
    return np.frombuffer(octets, dtype=np.uint64)


def _same(a: Collection[tuple[UInt64s, UInt64s]], b: Collection[tuple[UInt64s, UInt64s]]) -> bool:
    return [(n.tobytes(), m.tobytes()) for n, m in a] == [(n.tobytes(), m.tobytes()) for n, m in b]


def _unicast(address: UInt8s, *, loopback: bool) -> Bools:
    """(n,) addresses of one host: not multicast, broadcast, reserved or unspecified; loopback's own only there."""
    mapped = (address[:, :12] == _MAPPED).all(axis=1)
    first = address[:, 12]
    bad4 = (first == 0) | (first >= 224) | ((first == 127) & (not loopback))
    low = ~address[:, :15].any(axis=1)  # :: and ::1
    bad6 = (address[:, 0] == 0xFF) | (low & ((address[:, 15] == 0) | (not loopback)))
    result: Bools = ~np.where(mapped, bad4, bad6)
    return result
