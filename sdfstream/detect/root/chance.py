"""What gray loss brings about by chance: a slow path on which a few probes in a row are lost looks silent.

Of hundreds of paths over a link that loses a tenth, each probed once a second, one loses four in a row every few
seconds. So a silent path that surely crosses what is known to lose is its symptom, as long as so many losses in a row
are likely at that share. A path that is silent for longer has a cause of its own: a hash bucket, an access list.

Where packets are sprayed a silent path is laid to a switch, by whichever of its links; there one that may cross what
loses is its symptom, and so are a few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.detect.gray.dead_uplink import SPRAYED
from sdfstream.detect.gray.spines import between_leaves, is_one_of_spines
from sdfstream.detect.root.queues import all_cross

_RAREST = 1e-9
"""A run of losses that is rarer at one probe is not laid to chance: a fleet sends some 1e9 over a link in a day."""


def silences(loss: Detection, silent: Detection, cabling: Cabling) -> bool:
    """Whether the silence of single paths may be chance, where an element is known to lose."""
    if loss.kind != "loss" or not silent.missed:
        return False
    sprayed = _sprayed(silent.sessions, cabling)
    if not (silent.kind == "path-down" or sprayed):
        return False
    shares = {e.what: e.value for e in loss.evidence}
    share = shares.get(f"{SPRAYED}-high", shares.get("loss-share-high", 0.0))
    missed = silent.missed * (len(silent.sessions) if sprayed else 1)
    if share <= 0.0 or missed * np.log(min(share, 1.0)) < np.log(_RAREST):
        return False
    if sprayed:
        slots = list(silent.sessions)
        if is_one_of_spines(cabling.topology, loss.subject):
            return bool(between_leaves(cabling, cabling.sessions.count)[slots].all())
        return bool(np.isin(cabling.element[slots], cabling.numbers(loss.directions)).any(axis=(1, 2)).all())
    return all_cross(loss.directions, silent.sessions, cabling)


def _sprayed(sessions: Sequence[int], cabling: Cabling) -> bool:
    dscp = cabling.sessions.table["dscp"]
    return bool(sessions) and all(cabling.traced.is_sprayed(int(dscp[slot])) for slot in sessions)
