"""What gray loss brings about by chance: a slow path on which a few probes in a row are lost looks silent.

Of hundreds of paths over a link that loses a tenth, each probed once a second, one loses four in a row every few
seconds. So a silent path that surely crosses what is known to lose is its symptom, as long as so many losses in a row
are likely at that share. A path that is silent for longer has a cause of its own: a hash bucket, an access list.
"""

from __future__ import annotations

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.detect.root.queues import all_cross

_RAREST = 1e-9
"""A run of losses that is rarer at one probe is not laid to chance: a fleet sends some 1e9 over a link in a day."""


def silences(loss: Detection, silent: Detection, cabling: Cabling) -> bool:
    """Whether the silence of single paths may be chance, where an element is known to lose."""
    if loss.kind != "loss" or silent.kind != "path-down" or not silent.missed:
        return False
    share = max((e.value for e in loss.evidence if e.what == "loss-share-high"), default=0.0)
    if share <= 0.0 or silent.missed * np.log(min(share, 1.0)) < np.log(_RAREST):
        return False
    return all_cross(loss.directions, silent.sessions, cabling)
