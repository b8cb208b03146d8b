"""The structures of `engine.h` as numpy dtypes, so that whole batches cross the border without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import ABSENT_NS

Records = npt.NDArray[np.void]
"""(n,) structured array of one of the layouts below."""

ABI: Final = 4
NONE: Final = 0xFFFF_FFFF
"""A path that is not probed, an alternate that there is not."""
NEVER_NS: Final = np.iinfo(np.int64).max
LONGEST_KEY_BYTES: Final = 64

ROW_ANSWERED: Final = 1
ROW_CLASSED: Final = 2

EVENT_LIVENESS: Final = 1
EVENT_ORDER: Final = 2
EVENT_STRANDED: Final = 3
EVENT_NO_ROOM: Final = 4

CONFIG: Final = np.dtype(
    [
        ("octets", "u4"),
        ("most_paths", "u4"),
        ("most_exchanges", "u4"),
        ("row_capacity", "u4"),
        ("event_capacity", "u4"),
        ("most_hosts", "u4"),
        ("most_nics", "u4"),
        ("most_segments", "u4"),
        ("most_routes", "u4"),
        ("most_links", "u4"),
        ("most_orders", "u4"),
        ("command_words", "u4"),
        ("width_octets", "u4"),
        ("error", "u2"),
        ("key_octets", "u2"),
        ("key", "u1", (LONGEST_KEY_BYTES,)),
        ("seed", "u8"),
    ],
    align=True,
)
PATH: Final = np.dtype(
    [
        ("interval_ns", "i8"),
        ("liveness_ns", "i8"),
        ("socket", "u4"),
        ("length_octets", "u4"),
        ("ssid", "u2"),
        ("port", "u2"),
        ("host", "u2"),
        ("nic", "u2"),
        ("step", "u2"),
        ("generation", "u2"),
        ("tos", "u1"),
        ("prompt", "u1"),
        ("pad", "u1", (2,)),
        ("address", "u1", (16,)),
    ],
    align=True,
)
OUT: Final = np.dtype(
    [
        ("data", "u8"),
        ("room_octets", "u4"),
        ("length_octets", "u4"),
        ("token", "u8"),
        ("socket", "u4"),
        ("path", "u4"),
        ("port", "u2"),
        ("tos", "u1"),
        ("pad", "u1", (5,)),
        ("address", "u1", (16,)),
    ],
    align=True,
)
ROW: Final = np.dtype(
    [
        ("path", "u4"),
        ("seq", "u4"),
        ("t1_ns", "i8"),
        ("t2_ns", "i8"),
        ("t3_ns", "i8"),
        ("t4_ns", "i8"),
        ("tx_host_ns", "i4"),
        ("rx_host_ns", "i4"),
        ("t1_kind", "u1"),
        ("t2_kind", "u1"),
        ("t3_kind", "u1"),
        ("t4_kind", "u1"),
        ("ttl_fwd", "u1"),
        ("ttl_rev", "u1"),
        ("tos_fwd", "u1"),
        ("tos_rev", "u1"),
        ("seq_rev", "u4"),
        ("generation", "u2"),
        ("flags", "u2"),
    ],
    align=True,
)
EVENT: Final = np.dtype(
    [
        ("path", "u4"),
        ("kind", "u1"),
        ("state", "u1"),
        ("generation", "u2"),
        ("at_ns", "i8"),
        ("since_ns", "i8"),
        ("missed", "u4"),
        ("pad", "u4"),
    ],
    align=True,
)
REPORT: Final = np.dtype(
    [
        ("since_ns", "i8"),
        ("last_received_ns", "i8"),
        ("missed", "u4"),
        ("state", "u1"),
        ("ttl_fwd", "u1"),
        ("pad", "u1", (2,)),
    ],
    align=True,
)
ROUTE_REPORT: Final = np.dtype([("clean_since_ns", "i8"), ("verdict", "u1"), ("pad", "u1", (7,))], align=True)
DATAGRAM: Final = np.dtype(
    [
        ("data", "u8"),
        ("length_octets", "u4"),
        ("room_octets", "u4"),
        ("socket", "u4"),
        ("port", "u2"),
        ("tos", "u1"),
        ("ttl", "u1"),
        ("kind", "u1"),
        ("address", "u1", (16,)),
        ("at_ns", "i8"),
        ("user_at_ns", "i8"),
    ],
    align=True,
)
ROW_NAMES: Final = np.dtype(
    [("indices", "u8"), ("offsets", "u8"), ("text", "u8"), ("entries", "u4"), ("pad", "u4")], align=True
)
ROW_HOST: Final = np.dtype(
    [
        ("first_path", "u4"),
        ("paths", "u4"),
        ("source_port", "u8"),
        ("size_bytes", "u8"),
        ("tos", "u8"),
        ("names", ROW_NAMES, (6,)),
    ],
    align=True,
)
ARROW_ARRAY: Final = np.dtype(
    [
        ("length", "i8"),
        ("null_count", "i8"),
        ("offset", "i8"),
        ("n_buffers", "i8"),
        ("n_children", "i8"),
        ("buffers", "u8"),
        ("children", "u8"),
        ("dictionary", "u8"),
        ("release", "u8"),
        ("private_data", "u8"),
    ],
    align=True,
)
"""`struct ArrowArray` of the Arrow C data interface."""
RING_HEADER_BYTES: Final = 256

STRUCTURES: Final = {
    "pe_config": CONFIG,
    "pe_path": PATH,
    "pe_out": OUT,
    "pe_row": ROW,
    "pe_event": EVENT,
    "pe_report": REPORT,
    "pe_route_report": ROUTE_REPORT,
    "pe_datagram": DATAGRAM,
    "pe_row_names": ROW_NAMES,
    "pe_row_host": ROW_HOST,
    "ArrowArray": ARROW_ARRAY,
}
"""Name in C to layout here; `library_io` compares their sizes."""

assert np.iinfo(np.int64).min == ABSENT_NS


def joined(views: Sequence[Records]) -> Records:
    """The records of `views`, at least one of them, behind one another: a copy.

    Of one view alone: `np.concatenate` first compares the layouts field by field, which takes longer than the copy.
    """
    filled = [view for view in views if len(view)] or [views[0]]
    return np.concatenate(filled) if len(filled) > 1 else filled[0].copy()
