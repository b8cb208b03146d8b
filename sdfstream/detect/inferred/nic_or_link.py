"""A NIC that nothing reaches beside an inferred link of its switch: all its paths may cross that link by chance."""

from __future__ import annotations

from collections.abc import Sequence

from sdfstream.detect.inferred.hidden import CABLE, HiddenElement, fit


def takes_nic(nic: str, sick_paths: int, without: Sequence[HiddenElement], with_it: Sequence[HiddenElement]) -> bool:
    """Whether one inferred link explains the sick paths of `nic` and of its neighbours better than link and NIC do.

    None does where the NIC is cut off from a neighbour at the same switch too: that path crosses no link.

    Parameters
    ----------
    nic : str
    sick_paths : int
        Of the NIC; none of its paths is well.
    without, with_it : sequence of HiddenElement
        What explains the sick paths of all others; of all others and the NIC.
    """
    for link in without:
        if nic not in link.nics:
            continue
        rival = next((x for x in with_it if x.subject == link.subject), None)
        if rival is None or rival.rows.size < link.rows.size + sick_paths:
            continue
        beside = fit(link.rows.size, link.crossed) + CABLE  # the NIC's own paths fit a dead NIC exactly
        if fit(rival.rows.size, rival.crossed) > beside:
            return True
    return False
