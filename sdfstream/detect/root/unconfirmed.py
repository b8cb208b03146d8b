"""Silence that ended before its place was sure enough to be told: an outage all the same.

Where two links explain the same silent paths, as between two leaves, blame waits for what tells them apart
(`settling`). An outage of a second is over by then, and too long to be a short gap (`runs.Gaps`): it is told as one,
once it is over.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import MAX_SYMPTOMS
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location
from sdfstream.detect.recent import revived
from sdfstream.detect.root.settling import SURE
from sdfstream.detect.runs import Gap
from sdfstream.records.finding import Subject
from sdfstream.records.units import ABSENT_NS, Int64s

_KINDS = ("link-down", "nic-down")


class UnconfirmedSilences:
    """Places in doubt to which silence is laid now, and of which nothing has been told."""

    def __init__(self, cabling: Cabling) -> None:
        self.cabling = cabling
        self._doubtful: dict[Subject, tuple[int, Location]] = {}
        """Since when paths are silent (bus time), and where they were located when they were most."""
        self._laid_ns = np.empty(0, np.int64)
        """(sessions,) since when each was silent that has been laid to a place, bus time."""

    def ended(self, now: Instant) -> list[Gap]:
        """Outages of such places most of whose paths work again."""
        seen = now.silence.sightings
        located = {x.subject: x for x in now.silence.locations if x.subject.type != "path"}
        for found in located.values():
            self._note(found, seen.since_ns)
        gaps = []
        for subject, (down_ns, found) in list(self._doubtful.items()):
            silent = seen.silent[found.slots]
            lasts = 2 * int(silent.sum()) > silent.size
            if lasts and subject in located and not self._is_reported(subject, now):
                continue
            del self._doubtful[subject]  # told, laid to another place, or over
            if not lasts and not self._is_reported(subject, now) and not now.late[found.slots].any():
                up_ns = int(np.median(seen.back_ns[found.slots[~silent]]))
                gaps.append(self._gap(found, down_ns, max(up_ns, down_ns + 1)))
        return gaps

    def _note(self, found: Location, since_ns: Int64s) -> None:
        """Take what is located now; paths that come back one by one leave the last of them, which are no new outage."""
        slots, former = found.slots, self._doubtful.get(found.subject)
        if self._laid_ns.size < since_ns.size:
            more = np.full(since_ns.size - self._laid_ns.size, ABSENT_NS)
            self._laid_ns = np.append(self._laid_ns, more)
        new = former is not None or 2 * int((self._laid_ns[slots] != since_ns[slots]).sum()) > slots.size
        self._laid_ns[slots] = since_ns[slots]
        doubtful = found.subject.type == "switch" or found.probability < SURE
        if new and doubtful and (former is None or slots.size >= former[1].slots.size):
            began_ns = int(since_ns[slots].min())
            self._doubtful[found.subject] = (began_ns if former is None else min(began_ns, former[0])), found

    def _is_reported(self, subject: Subject, now: Instant) -> bool:
        return any(now.findings.is_open(kind, subject) for kind in _KINDS)

    def _gap(self, found: Location, down_ns: int, up_ns: int) -> Gap:
        paths = (str(self.cabling.sessions.path_id(slot, "fwd")) for slot in found.slots[:MAX_SYMPTOMS].tolist())
        return Gap(found.subject, down_ns, up_ns, found, tuple(paths))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        doubtful = [[down_ns, asdict(found)] for down_ns, found in self._doubtful.values()]
        return {"doubtful": doubtful, "laid_ns": self._laid_ns.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        saved = ((int(down_ns), revived(found)) for down_ns, found in state["doubtful"])
        self._doubtful = {found.subject: (down_ns, found) for down_ns, found in saved}
        self._laid_ns = np.array(state["laid_ns"], np.int64)
