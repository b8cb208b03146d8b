"""The structures of `reflector.h` as numpy dtypes."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.probes.engine.layouts import DATAGRAM

LIMITS: Final = np.dtype(
    [
        ("max_pps", "f8"),
        ("source_pps", "f8"),
        ("stranger_pps", "f8"),
        ("salt", "u8"),
        ("port", "u2"),
        ("strangers", "?"),
        ("on_loopback", "?"),
        ("most_senders", "u4"),
        ("most_networks", "u4"),
        ("most_own", "u4"),
    ],
    align=True,
)
SESSION_LIMITS: Final = np.dtype(
    [("capacity", "u4"), ("stranger_rows", "u4"), ("source_rows", "u4"), ("new_per_call", "u4")], align=True
)
ANSWERING: Final = np.dtype([("classes", "u8"), ("sync", "u1")], align=True)
CONFIG: Final = np.dtype(
    [
        ("limits", LIMITS),
        ("sessions", SESSION_LIMITS),
        ("answering", ANSWERING),
        ("most_sockets", "u4"),
        ("error", "u2"),
        ("stateful", "?"),
        ("liveness_ns", "i8"),
        ("key", "u8"),
        ("key_octets", "u8"),
        ("own", "u8"),
    ],
    align=True,
)
CLOCK: Final = np.dtype(
    [
        ("offset_ns", "i8"),
        ("skew_micro_ppb", "i8"),
        ("epoch_at_ns", "i8"),
        ("first_knot", "i8"),
        ("knots_ns", "u8"),
        ("knots", "u8"),
        ("wrong", "?"),
    ],
    align=True,
)
KNOWN_SENDER: Final = np.dtype([("address", "u1", (16,)), ("nic", "u4"), ("port", "u2")], align=True)
NETWORK: Final = np.dtype([("network", "u1", (16,)), ("mask", "u1", (16,))], align=True)
REPLY: Final = np.dtype([("token", "i8"), ("reason", "u1"), ("tos", "u1"), ("pad", "u1", (6,))], align=True)
CHANGE: Final = np.dtype([("path", "u4"), ("state", "u4"), ("since_ns", "i8"), ("interval_ns", "i8")], align=True)
INBOUND_PATH: Final = np.dtype(
    [
        ("nic", "u4"),
        ("sender", "u4"),
        ("port", "u2"),
        ("dscp", "u1"),
        ("next", "u4"),
        ("sessions", "u4"),
        ("address", "u1", (16,)),
        ("interval_ns", "i8"),
        ("quiet_ns", "i8"),
        ("last_received_ns", "i8"),
        ("since_ns", "i8"),
        ("reported_since_ns", "i8"),
        ("state", "u1"),
        ("reported", "u1"),
        ("usable", "?"),
        ("listed", "?"),
    ],
    align=True,
)
REASONS: Final = 21
"""Of `pe_reason`, with PE_GOOD."""
COUNTS: Final = np.dtype([("answered", "u8"), ("shed_sessions", "u8"), ("refused", "u8", (REASONS,))], align=True)

STRUCTURES: Final = {
    "pe_reflector_config": CONFIG,
    "pe_reflector_counts": COUNTS,
    "pe_known_sender": KNOWN_SENDER,
    "pe_network": NETWORK,
    "pe_clock": CLOCK,
    "pe_datagram": DATAGRAM,
    "pe_reply": REPLY,
    "pe_inbound_change": CHANGE,
    "pe_inbound_path": INBOUND_PATH,
}
"""Name in C to layout here; `reflector_io` compares their sizes."""
