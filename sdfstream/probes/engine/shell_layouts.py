"""The structures and numbers of `shell.h`."""

from __future__ import annotations

from typing import Final

import numpy as np

ABI: Final = 2
REALTIME: Final = 1
OLD_WAIT: Final = 2
SENDER: Final = 1
REFLECTOR: Final = 2
ROWS: Final = 64
"""Datagrams of a socket a turn."""
ERRNOS: Final = 136
BINS: Final = 160
NO_MOVE: Final = 0xFFFF_FFFF
MOST_MOVES: Final = 4

COUNTERS: Final = (
    "turns",
    "wakes",
    "rests",
    "rests.forced",
    "received",
    "sent",
    "refused.wrong-rail",
    "refused.wrong-address",
    "refused.control",
    "stamps",
    "stamps-unmatched",
    "icmp",
    "icmp-ignored",
    "unsent.nic-away",
    "shed.inbound",
    "orders",
    "orders.unprepared",
    "orders.failed",
    "unsent.limited",
)
"""In the order of `pe_shell_counter`; behind them lie those by errno."""
BY_ERRNO: Final = ("unsent", "receive-failed", "socket-error")
HISTOGRAMS: Final = ("late", "turn", "answer")
PRIORITIES: Final = ("normal", "nice", "real-time")

CONFIG: Final = np.dtype(
    [
        ("octets", "u4"),
        ("flags", "u4"),
        ("most_sockets", "u4"),
        ("most_hosts", "u4"),
        ("most_orders", "u4"),
        ("most_links", "u4"),
        ("link_octets", "u4"),
        ("width_octets", "u4"),
        ("inbound_capacity", "u4"),
        ("command_words", "u4"),
        ("rest_ns", "i8"),
        ("rest_most_ns", "i8"),
        ("rest_late_ns", "i8"),
        ("finish_ns", "i8"),
        ("inbound_ns", "i8"),
    ],
    align=True,
)
ADOPTION: Final = np.dtype(
    [
        ("fd", "i4"),
        ("interface", "u4"),
        ("host", "u4"),
        ("number", "u4"),
        ("nic", "u4"),
        ("stamp_room", "u4"),
        ("control_octets", "u4"),
        ("role", "u1"),
        ("kind", "u1"),
        ("v6", "u1"),
        ("pad", "u1"),
        ("address", "u1", (16,)),
        ("control", "u1", (64,)),
    ],
    align=True,
)
LIMITED: Final = np.dtype(
    [("slot", "u4"), ("port", "u2"), ("tos", "u1"), ("ttl", "u1"), ("address", "u1", (16,)), ("octets", "u4")],
    align=True,
)
MOVE: Final = np.dtype([("link", "u4"), ("octets", "u4"), ("data", "u8")], align=True)
ICMP: Final = np.dtype(
    [
        ("slot", "u4"),
        ("port", "u2"),
        ("type", "u1"),
        ("code", "u1"),
        ("v6", "u1"),
        ("quote_octets", "u1"),
        ("pad", "u1", (2,)),
        ("destination", "u1", (16,)),
        ("offender", "u1", (16,)),
        ("quote", "u1", (64,)),
        ("more", "u1", (4,)),
    ],
    align=True,
)
INBOUND: Final = np.dtype(
    [
        ("host", "u4"),
        ("path", "u4"),
        ("nic", "u4"),
        ("sender", "u4"),
        ("port", "u2"),
        ("dscp", "u1"),
        ("state", "u1"),
        ("complete", "u1"),
        ("pad", "u1", (3,)),
        ("address", "u1", (16,)),
        ("at_ns", "i8"),
        ("since_ns", "i8"),
        ("interval_ns", "i8"),
    ],
    align=True,
)
REPORT: Final = np.dtype(
    [
        ("cpu_ns", "i8"),
        ("began_ns", "i8"),
        ("turned_ns", "i8"),
        ("priority", "i4"),
        ("priority_error", "i4"),
        ("running", "i4"),
        ("resting", "i4"),
    ],
    align=True,
)
CONTROL: Final = np.dtype(
    [
        ("at_ns", "i8"),
        ("interface", "u4"),
        ("error_at", "u4"),
        ("kind", "u1"),
        ("tos", "u1"),
        ("ttl", "u1"),
        ("pad", "u1", (5,)),
        ("destination", "u1", (16,)),
    ],
    align=True,
)

STRUCTURES: Final = {
    "pe_shell_config": CONFIG,
    "pe_adoption": ADOPTION,
    "pe_limited": LIMITED,
    "pe_move": MOVE,
    "pe_icmp": ICMP,
    "pe_inbound_event": INBOUND,
    "pe_shell_report": REPORT,
    "pe_control": CONTROL,
}
"""Name in C to layout here; `shell_library_io` compares their sizes."""
