"""The table of a host's probe paths: one row per session and source port, everything that never changes.

The configured paths come first, sorted by sending socket; those of watch and planned sessions follow by session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as columns_of
from typing import Any, Final

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.probes.config import SessionConfig
from sdfstream.probes.stamp import tlv
from sdfstream.probes.stamp.datagrams import UInt64s, address_octets, is_ipv4
from sdfstream.probes.stamp.packet import Mode, UInt16s, fields
from sdfstream.records.fabric import host_of
from sdfstream.records.units import NS_PER_S, Bools, Int32s, Int64s, UInt8s

MAX_SESSIONS: Final = 65_535
"""SSIDs are 16 bits and 0 means none."""
MAX_RATE_HZ: Final = 100_000.0
_IP_BYTES: Final = {True: 20, False: 40}
_AROUND_BYTES: Final = {"udp": 8, "rocev2": 8 + 12 + 8 + 4 + 4}
"""Octets of a packet between the IP header and the payload, and behind that: UDP alone; for RoCEv2 UDP, the base and
datagram transport headers, immediate data and the invariant checksum.
"""


@dataclass(frozen=True, slots=True)
class Paths:
    """p paths of s sessions. Arrays are (p,) unless said otherwise."""

    sessions: tuple[SessionConfig, ...]
    session: Int64s
    """Index into `sessions`; the SSID is one more."""
    socket: Int32s
    """The shell's index of the socket that sends the probes of this path and receives their answers."""
    source_port: UInt16s
    interval_ns: Int64s
    prompt: Bools
    """Rows that wait for no follow-up."""
    address: UInt8s
    """(p, 16) the reflector's."""
    words: tuple[UInt64s, UInt64s]
    """The same as two words, for comparison."""
    port: UInt16s
    """The reflector's UDP port."""
    tos: UInt8s
    length: Int32s
    """Payload, octets."""
    size_bytes: UInt16s
    """IP packet."""
    template: UInt8s
    """(s, width) probe packets without sequence number, time stamp and what Extra Padding holds, which is zeros."""

    def __len__(self) -> int:
        return len(self.session)

    def packets(self, path: Int64s) -> UInt8s:
        """(n, width) a probe packet of each `path`, by their templates, as wide as the longest needs."""
        head = self.template[self.session[path]]
        longest = int(self.length[path].max(initial=0))
        if longest <= head.shape[1]:
            return head
        data = np.zeros((len(path), longest), dtype=np.uint8)
        data[:, : head.shape[1]] = head
        return data


def build(
    sessions: Sequence[SessionConfig],
    sockets: Mapping[tuple[str, int], int],
    mode: Mode,
    *,
    first: int = 0,
    by_socket: bool = True,
) -> Paths:
    """The paths of a host's sessions.

    Parameters
    ----------
    sessions : sequence of SessionConfig
    sockets : (NIC id, source port) to the shell's socket index
    mode : Mode
    first : int
        Number of the first session, where this is the continuation of another table (see `joined`).
    by_socket : bool
        Sort the paths by sending socket; else they stay in the order of the sessions and their ports.

    Raises
    ------
    ConfigError
        Too many sessions, a source port without a socket, a bad address or rate.
    """
    if first + len(sessions) > MAX_SESSIONS:
        raise ConfigError(f"{first + len(sessions)} sessions, at most {MAX_SESSIONS}")
    for session_config in sessions:
        _check(session_config)
    rows = [(_socket(sockets, s, port), number, port) for number, s in enumerate(sessions) for port in s.source_ports]
    table = np.array(sorted(rows) if by_socket else rows, dtype=np.int64).reshape(-1, 3)
    session = table[:, 1].copy()
    lengths = np.array([_payload(s, mode) for s in sessions], dtype=np.int32)
    address = _address_table(sessions)[session]
    words = address.view(np.uint64)
    overhead = np.array([_overhead_bytes(s) for s in sessions], dtype=np.int32)
    return Paths(
        sessions=tuple(sessions),
        session=session + first,
        socket=table[:, 0].astype(np.int32),
        source_port=table[:, 2].astype(np.uint16),
        interval_ns=np.array([_interval_ns(s) for s in sessions], dtype=np.int64)[session],
        prompt=np.array([s.prompt for s in sessions], dtype=np.bool_)[session],
        address=address,
        words=(words[:, 0].copy(), words[:, 1].copy()),
        port=np.array([s.dst_port for s in sessions], dtype=np.uint16)[session],
        tos=np.array([s.dscp << 2 | s.ecn for s in sessions], dtype=np.uint8)[session],
        length=lengths[session],
        size_bytes=(lengths + overhead).astype(np.uint16)[session],
        template=_templates(sessions, lengths, mode, first),
    )


def joined(paths: Paths, more: Paths) -> Paths:
    """`paths` and behind them `more`, whose sessions are numbered on from those of `paths`."""
    width = max(paths.template.shape[1], more.template.shape[1])
    template = np.zeros((len(paths.sessions) + len(more.sessions), width), dtype=np.uint8)
    template[: len(paths.sessions), : paths.template.shape[1]] = paths.template
    template[len(paths.sessions) :, : more.template.shape[1]] = more.template
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(paths, name), getattr(more, name)])
        for name in (f.name for f in columns_of(Paths))
        if isinstance(getattr(paths, name), np.ndarray) and name != "template"
    }
    arrays["words"] = tuple(np.concatenate(pair) for pair in zip(paths.words, more.words, strict=True))
    return replace(paths, sessions=paths.sessions + more.sessions, template=template, **arrays)


def _check(s: SessionConfig) -> None:
    """Refuse what would not fit the packet's fields."""
    limits = {
        "dscp": (s.dscp, 63),
        "ecn": (s.ecn, 3),
        "dst_port": (s.dst_port, 65_535),
        "size_bytes": (s.size_bytes, 65_535),
        **{f"source_ports[{i}]": (port, 65_535) for i, port in enumerate(s.source_ports)},
    }
    for name, (value, most) in limits.items():
        if not 0 <= value <= most:
            raise ConfigError(f"session {s.src} to {s.dst}: {name} must lie in 0..{most}, not {value}")
    if s.transport not in _AROUND_BYTES:
        raise ConfigError(
            f"session {s.src} to {s.dst}: transport {s.transport!r} is none of {', '.join(_AROUND_BYTES)}"
        )
    if not 0 < s.rate_hz <= MAX_RATE_HZ:
        raise ConfigError(f"session {s.src} to {s.dst}: rate_hz must lie in (0, {MAX_RATE_HZ:g}], not {s.rate_hz}")


def _socket(sockets: Mapping[tuple[str, int], int], s: SessionConfig, port: int) -> int:
    try:
        return sockets[s.src, port]
    except KeyError:
        raise ConfigError(f"session {s.src} to {s.dst}: no socket for source port {port}") from None


def _address_table(sessions: Sequence[SessionConfig]) -> UInt8s:
    """(s, 16) reflectors' addresses."""
    return np.frombuffer(b"".join(address_octets(s.dst_address) for s in sessions), dtype=np.uint8).reshape(-1, 16)


def _interval_ns(s: SessionConfig) -> int:
    return round(NS_PER_S / s.rate_hz)


def _overhead_bytes(s: SessionConfig) -> int:
    """Of the IP packet, what is not payload."""
    return _IP_BYTES[is_ipv4(s.dst_address)] + _AROUND_BYTES[s.transport]


def _payload(s: SessionConfig, mode: Mode) -> int:
    return min(tlv.payload_bytes(mode, s.size_bytes - _overhead_bytes(s)), 65_507)


def _templates(sessions: Sequence[SessionConfig], lengths: Int32s, mode: Mode, first: int) -> UInt8s:
    width = min(int(lengths.max(initial=mode.base_bytes)), tlv.least_payload_bytes(mode) + tlv.HEADER_BYTES)
    template = np.zeros((len(sessions), width), dtype=np.uint8)
    for number, s in enumerate(sessions):
        tlv.write_template(template[number], mode, int(lengths[number]), s.dscp, s.ecn)
    fields(template, mode.probe)["ssid"] = np.arange(first + 1, first + len(sessions) + 1)
    return template


def clock_of_far_end(s: SessionConfig, *, hardware: bool) -> str:
    """Clock id of t2 and t3: the far NIC for hardware stamps; for others as configured, else the far host."""
    return s.dst if hardware else s.clock_dst or host_of(s.dst)
