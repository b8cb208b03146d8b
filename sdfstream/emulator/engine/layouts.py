"""Structures of `job.h` and `shell.h` as numpy reads and writes them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

ABI: Final = 1
NONE_NS: Final = -(2**63)
"""An instant that is not known (``JE_NO_INSTANT``)."""
ERRNOS: Final = 136

REFUSALS: Final = (
    "", "kind", "magic", "length", "checksum", "malformed", "unknown-qp", "out-of-place", "far-ahead", "doubled",
)  # fmt: skip
"""``je_refusal`` by number; ``doubled`` is counted apart."""

KINDS: Final = ("all-reduce", "all-to-all")
"""``je_collective_kind`` by number."""

CONFIG: Final = np.dtype(
    [
        ("octets", "u4"), ("run", "u4"), ("ranks", "u4"), ("qps", "u4"), ("collective", "u4"), ("elements", "u4"),
        ("chunk_elements", "u4"), ("tos_data", "u1"), ("tos_ack", "u1"), ("pad", "u1", 2), ("collectives", "i8"),
        ("rate_bps", "i8"), ("now_ns", "i8"),
    ]
)  # fmt: skip
QP_PLAN: Final = np.dtype([("number", "u4"), ("rank", "u4"), ("peer", "u4"), ("path", "u4")])
DATAGRAM: Final = np.dtype(
    [
        ("rank", "u4"), ("peer", "u4"), ("port", "u2"), ("tos", "u1"), ("asks", "u1"), ("qp", "u4"), ("chunk", "u4"),
        ("octets", "u4"), ("payload", "u8"),
    ]
)  # fmt: skip
ROW: Final = np.dtype(
    [
        ("qp", "u4"), ("chunk", "u4"), ("collective", "u4"), ("octets", "u4"), ("packets", "u4"),
        ("retransmits", "u4"), ("path", "u4"), ("ce", "u4"), ("sent_at_ns", "i8"), ("acknowledged_at_ns", "i8"),
        ("arrived_at_ns", "i8"), ("completed_at_ns", "i8"),
    ]
)  # fmt: skip
QP_REPORT: Final = np.dtype(
    [
        ("sent_octets", "u8"), ("acknowledged_octets", "u8"), ("retransmits", "u8"), ("time_outs", "u8"),
        ("requester_refused", "u8"), ("duplicates", "u8"), ("responder_refused", "u8"), ("rate_bps", "i8"),
        ("moved_at_ns", "i8"), ("rtt_ns", "i8"), ("window_packets", "f8"), ("path", "u4"), ("pad", "u4"),
    ]
)  # fmt: skip
REPORT: Final = np.dtype(
    [
        ("collectives", "u8"), ("ended", "u8"), ("right", "u8"), ("payload_octets", "u8"), ("rescued", "u8"),
        ("rows_shed", "u8"), ("refusals", "u8", len(REFUSALS)), ("done", "u4"), ("pad", "u4"),
    ]
)  # fmt: skip
SHELL_REPORT: Final = np.dtype(
    [
        ("received", "u8"), ("sent", "u8"), ("bad_length", "u8"), ("away", "u8"), ("unsent_away", "u8"),
        ("unsent", "u8", ERRNOS), ("passes", "u8"), ("latest_ns", "i8"),
    ]
)  # fmt: skip

STRUCTURES: Final[dict[str, np.dtype[Any]]] = {
    "je_config": CONFIG,
    "je_qp_plan": QP_PLAN,
    "je_datagram": DATAGRAM,
    "je_row": ROW,
    "je_qp_report": QP_REPORT,
    "je_report": REPORT,
    "je_shell_report": SHELL_REPORT,
}
