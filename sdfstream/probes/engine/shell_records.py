"""What goes to the packet engine's shell and what comes back, as records of `shell_layouts` and as plain objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdfstream.probes.engine import shell_layouts as layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.net.icmp import IcmpError
from sdfstream.records.units import NS_PER_MS


@dataclass(frozen=True, slots=True)
class ShellRoom:
    """How much a shell holds, and when it works. Memory is taken once and costs what is used of it."""

    sockets: int = 1_024
    hosts: int = 64
    orders: int = 4_096
    links: int = 256
    """Connections that orders are given by."""
    link_bytes: int = 1 << 18
    """Of an order, so much may wait until its connection takes it."""
    width_bytes: int = 1_472
    """Longest UDP payload."""
    inbound: int = 1 << 14
    """Changes of inbound paths until they are taken; a complete report of all hosts must fit."""
    command_words: int = 1 << 16
    rest_ns: int = NS_PER_MS
    """A rest lasts until so long after its turn's wake; 0: none is taken."""
    rest_most_ns: int = 5 * NS_PER_MS
    """Where no path is quick, a rest lasts at most until then, and probes leave by at most so much early."""
    rest_late_ns: int = NS_PER_MS // 2
    """By so much a rest may make a due probe late: more of them then leave in one turn."""
    finish_ns: int = 20 * NS_PER_MS
    """Pause between two writings of rows."""
    inbound_ns: int = 50 * NS_PER_MS
    """Pause between two assessments of inbound paths."""


@dataclass(frozen=True, slots=True)
class ShellReport:
    """How the engine's thread does."""

    cpu_ns: int
    """CPU time of the thread."""
    began_ns: int
    """Steady clock: when it began."""
    turned_ns: int
    """Steady clock: its latest turn."""
    priority: str
    """One of `shell_layouts.PRIORITIES`."""
    refused: str
    """Why it is no better; empty: it is the best."""
    running: bool
    resting: bool
    """There are so many turns a second that rests are taken."""


def config_record(room: ShellRoom, flags: int) -> Records:
    """`room` as the shell reads it."""
    config = np.zeros(1, dtype=layouts.CONFIG)
    values = {
        "octets": layouts.CONFIG.itemsize,
        "flags": flags,
        "most_sockets": room.sockets,
        "most_hosts": room.hosts,
        "most_orders": room.orders,
        "most_links": room.links,
        "link_octets": room.link_bytes,
        "width_octets": room.width_bytes,
        "inbound_capacity": room.inbound,
        "command_words": room.command_words,
        "rest_ns": room.rest_ns,
        "rest_most_ns": max(room.rest_ns, room.rest_most_ns) if room.rest_ns else 0,
        "rest_late_ns": room.rest_late_ns,
        "finish_ns": room.finish_ns,
        "inbound_ns": room.inbound_ns,
    }
    for name, value in values.items():
        config[name] = value
    return config


def icmp_error_of(record: np.void) -> IcmpError:
    """An ICMP error, as the shell stored it."""
    return IcmpError(
        slot=int(record["slot"]),
        destination=record["destination"].tobytes(),
        port=int(record["port"]),
        offender=record["offender"].tobytes(),
        type=int(record["type"]),
        code=int(record["code"]),
        v6=bool(record["v6"]),
        quote=record["quote"][: record["quote_octets"]].tobytes(),
    )
