"""Columns of ``sdf.raw.probe.v1``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sdfstream.records.field import NAME, column

_KIND: Final = "0 user space, 1 kernel, 2 NIC hardware, 255 none"
_SEQ_REV: Final = (
    "Number that the reflector gave its answer (RFC 8762 section 4.3): of a stateful one its own count of this "
    "session's answers, from 0; of a stateless one a copy of `seq`. Null: no answer, or not known."
)

PROBE_COLUMNS: Final = pa.schema(
    [
        column("src", NAME, "NIC id of the Session-Sender"),
        column("dst", NAME, "NIC id of the Session-Reflector"),
        column("clock_src", NAME, "clock that made t1 and t4"),
        column("clock_dst", NAME, "clock that made t2 and t3"),
        column("transport", NAME, "udp, rocev2, ib"),
        column("path", pa.uint32(), "path selector (UDP source port)"),
        column("seq", pa.uint32(), "sequence number"),
        column("t1_ns", pa.int64(), "probe leaves the sender", unit="ns since epoch, clock_src"),
        column("t2_ns", pa.int64(), "arrives at the reflector", unit="ns since epoch, clock_dst", null=True),
        column("t3_ns", pa.int64(), "leaves the reflector", unit="ns since epoch, clock_dst", null=True),
        column("t4_ns", pa.int64(), "answer arrives", unit="ns since epoch, clock_src", null=True),
        *(column(f"t{i}_kind", pa.uint8(), _KIND) for i in (1, 2, 3, 4)),
        column("dscp_sent", pa.uint8(), "DSCP as sent"),
        column("ecn_sent", pa.uint8(), "ECN as sent: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE"),
        column("dscp_fwd", pa.uint8(), "DSCP on arrival at the reflector", null=True),
        column("ecn_fwd", pa.uint8(), "ECN on arrival at the reflector", null=True),
        column("dscp_rev", pa.uint8(), "DSCP on arrival at the sender", null=True),
        column("ecn_rev", pa.uint8(), "ECN on arrival at the sender", null=True),
        column("size_bytes", pa.uint16(), "IP packet size", unit="bytes"),
        column("ttl_fwd", pa.uint8(), "TTL or hop limit on arrival at the reflector", null=True),
        column("ttl_rev", pa.uint8(), "TTL or hop limit on arrival at the sender", null=True),
        column("tx_host_ns", pa.int32(), "delay inside the sending host: kernel − user", unit="ns", null=True),
        column("rx_host_ns", pa.int32(), "delay inside the receiving host: user − kernel", unit="ns", null=True),
        column("plane", NAME, "backend, frontend, …", null=True),
        column("seq_rev", pa.uint32(), _SEQ_REV, null=True),
    ]
)
