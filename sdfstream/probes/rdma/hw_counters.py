"""Counters of RDMA ports: each vendor's names for what all of them count.

A counter that a device lacks is absent, never 0. Names as in the
kernel's drivers (mlx5 ``counters.c``, bnxt_re ``hw_counters.c``, irdma ``verbs.c``, efa ``efa_verbs.c``, rxe
``rxe_hw_counters.c``); none of them was read from hardware by us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sdfstream.errors import FormatError
from sdfstream.probes.ports.reading import count
from sdfstream.stats import Counters

NAMES: Final[dict[str, tuple[str, ...]]] = {
    # what: the names that vendors have for it; the first that is there counts
    "timeouts": ("local_ack_timeout_err", "to_retransmits", "retrans_timeout_events"),
    "retries": ("completer_retry_err",),
    "retransmitted_packets": ("RetransSegs", "tcpRetransSegs", "retrans_pkts"),
    "out_of_sequence": ("out_of_sequence", "oos_drop_count", "out_of_seq_request"),
    "sequence_naks": ("packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err"),
    "receiver_not_ready": ("rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err"),
    "retries_exhausted": ("max_retry_exceeded", "retry_exceeded_err", "req_transport_retries_exceeded"),
    "duplicates": ("duplicate_request", "dup_req"),
    "ce_received": ("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd"),
    "cnp_sent": ("np_cnp_sent", "tx_cnp_pkts", "cnpSent"),
    "cnp_handled": ("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"),
    "no_buffer": ("out_of_buffer", "rx_out_of_buffer"),
    "bad_checksums": ("rx_icrc_encapsulated",),
}
"""``timeouts``: acknowledgements that did not come in time; ``retries``: of whatever cause."""


def common_counters(texts: Mapping[str, str | None], refused: Counters) -> dict[str, int]:
    """What is counted, by common name, from the texts of ``hw_counters`` or the figures of ``rdma statistic``.

    Texts that are no counts ("N/A", empty, negative, longer than 64 bits) are refused and counted, and the counter is
    absent.
    """
    found: dict[str, int] = {}
    for name, theirs in NAMES.items():
        file = next((file for file in theirs if file in texts), None)
        if file is None:
            continue
        text = texts[file]
        try:
            if text is None:
                raise FormatError("unreadable")
            found[name] = count(text, 64)
        except FormatError as error:
            refused.add("refused", f"{name}.{error.reason}")
    return found
