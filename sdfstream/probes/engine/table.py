"""The table of probe paths as the packet engine reads it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.stamp.paths import Paths
from sdfstream.records.units import NS_PER_MS


def path_records(
    paths: Paths,
    nics: Mapping[str, int],
    *,
    liveness_ms: int,
    host: int = 0,
    step: int = 0,
    generation: int = 0,
) -> Records:
    """(p,) `layouts.PATH` of all paths of a table.

    Parameters
    ----------
    paths : Paths
    nics : NIC id to the engine's number of it
    liveness_ms : int
        A path is silent after this or three intervals, whichever is longer.
    host : int
        The engine's number of the host, whose clock the probes show.
    step : int
        Not 0: all these paths are probed at the same instants, with all others of this number.
    generation : int
        Comes back in rows and events; another one than before means that another session has the path.
    """
    records = np.zeros(len(paths), dtype=layouts.PATH)
    records["interval_ns"] = paths.interval_ns
    records["liveness_ns"] = liveness_ms * NS_PER_MS
    records["socket"] = paths.socket
    records["length_octets"] = paths.length
    records["ssid"] = paths.session + 1
    records["port"] = paths.port
    records["host"] = host
    records["nic"] = [nics[paths.sessions[i].src] for i in paths.session]
    records["step"] = step
    records["generation"] = generation
    records["tos"] = paths.tos
    records["prompt"] = paths.prompt
    records["address"] = paths.address
    return records
