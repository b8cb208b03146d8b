"""What this machine has of RDMA, for people: devices, addresses, queue pairs of all programs, and why there is none."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sdfstream.errors import FormatError, UnavailableError
from sdfstream.probes.rdma import command_io
from sdfstream.probes.rdma.devices_io import has_core, has_user_access, rdma_ports
from sdfstream.probes.rdma.gids import best_entry, index_differs
from sdfstream.probes.rdma.observed_qps import observed_qps
from sdfstream.probes.rdma.presence import RdmaFacts, why_no_device
from sdfstream.stats import Counters
from sdfstream.verbs.library_io import Verbs


def survey(root: str = "/") -> dict[str, Any]:
    """Plain JSON: ``why_none`` (empty: RDMA can be used), ``ports``, ``qps``, ``index_fault``, ``refused``."""
    refused = Counters("rdma")
    ports = rdma_ports(root, refused)
    library = ""
    try:
        Verbs()
    except UnavailableError as error:
        library = str(error)
    facts = RdmaFacts(tuple(dict.fromkeys(p.device for p in ports)), has_core(root), has_user_access(root), library)
    qps, why_no_qps = [], ""
    if ports:
        try:
            qps = observed_qps(command_io.resource_qps(), refused)
        except (UnavailableError, FormatError) as error:
            why_no_qps = str(error)
    return {
        "why_none": why_no_device(facts),
        "library": library or "pyverbs can be loaded",
        "ports": [asdict(p) | {"best_gid": None if (g := best_entry(p.gids)) is None else g.index} for p in ports],
        "index_fault": index_differs({f"{p.device}/{p.port}": p.gids for p in ports}),
        "qps": [asdict(qp) for qp in qps if qp.pid is not None],
        "why_no_qps": why_no_qps,
        "refused": refused.as_dict(),
    }
