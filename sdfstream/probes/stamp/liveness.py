"""Alive, silent or unknown: the liveness of an agent's paths, assessed as sender and as reflector.

A path is *silent* when nothing was received for ``max(liveness_ms, 3 intervals)`` although at least two probes were
sent in that time (sender); *alive* from the first datagram received; *unknown* at first, while the local NIC cannot
send or receive, and when its session has ended. A reflector does not know the interval of a far sender; the mean gap
between arrivals stands for it.

Only time in which this process was awake counts as quiet: of the time between two assessments a path is charged with
at most a quarter of its limit. So a process that slept (a busy machine, a stopped virtual machine) has read its
sockets, and if need be sent and answered anew, several times before it may call a path silent. Assessments that come
more often than that, as on a healthy machine, are not affected.

All decisions go by the steady clock of the shell; reported times (`since_at_ns`) are the host's clock: for silent the
last reception (or the first probe, when nothing was ever received), for alive the first reception after silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools, Int64s, UInt8s

STATES: Final = ("unknown", "alive", "silent")
UNKNOWN: Final = 0
ALIVE: Final = 1
SILENT: Final = 2

LIMIT_INTERVALS: Final = 3
MIN_MISSED: Final = 2
"""Probes that must have gone unanswered: a stalled sender proves nothing."""
FORGET_NS: Final = 600 * NS_PER_S
"""A reflector drops a path from its report when nothing was received for this long: its sender is gone for good."""
_MIN_ASSESSMENTS: Final = 4
"""Assessments before a path is silent, however long the process sleeps between them."""
_GAP_WEIGHT: Final = 0.125
_AHEAD_LIMIT: Final = 1 << 16
_FIRST_INTERVAL_NS: Final = NS_PER_S
"""What a reflector takes the interval of a path for, until a second probe has come."""

Indices = npt.NDArray[np.integer[Any]]


class PathName(NamedTuple):
    """What an entry of the liveness event says about one path; NIC ids, UDP source port, DSCP as sent."""

    observer: str
    src: str
    dst: str
    transport: str
    path: int
    dscp: int


class PathLiveness:
    """State of many paths in arrays.

    Parameters
    ----------
    role : "sender" or "reflector"
    liveness_ms : int
        The limit, unless three intervals are longer.
    clock : Clock
        The host's clock, for the times reported.
    """

    def __init__(self, role: Literal["sender", "reflector"], liveness_ms: int, clock: Clock) -> None:
        self.role = role
        self.names: list[PathName] = []
        self._default_limit_ns = liveness_ms * NS_PER_MS
        self._clock = clock
        empty = np.empty(0, dtype=np.int64)
        self.interval_ns: Int64s = empty
        self._limit_ns: Int64s = empty
        self._quiet_ns: Int64s = empty
        self._last_received_at: Int64s = empty
        self._first_at: Int64s = empty
        self._since_at: Int64s = empty
        self._missed: Int64s = empty
        self._state: UInt8s = np.empty(0, dtype=np.uint8)
        self._reported: UInt8s = np.empty(0, dtype=np.uint8)
        self._usable: Bools = np.empty(0, dtype=np.bool_)
        self._listed: Bools = np.empty(0, dtype=np.bool_)
        self._reported_since_at: Int64s = empty
        self._assessed_at: int | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def state(self) -> UInt8s:
        """(paths,) UNKNOWN, ALIVE or SILENT as of the last assessment or reception; not to be written to."""
        return self._state

    @property
    def since_at(self) -> Int64s:
        """(paths,) steady clock: in this state since; silent: last reception. Not to be written to."""
        return self._since_at

    def add(
        self, names: Sequence[PathName], interval_ns: Int64s, now_ns: int, *, liveness_ms: int | None = None
    ) -> None:
        """Watch more paths; interval 0: not known yet. `liveness_ms`: a limit of their own."""
        n = len(names)
        self.names.extend(names)

        def grown(array: npt.NDArray[Any], value: int) -> npt.NDArray[Any]:
            return np.concatenate([array, np.full(n, value, dtype=array.dtype)])

        self.interval_ns = np.concatenate([self.interval_ns, np.asarray(interval_ns, dtype=np.int64)])
        self._limit_ns = grown(
            self._limit_ns, self._default_limit_ns if liveness_ms is None else liveness_ms * NS_PER_MS
        )
        self._quiet_ns = grown(self._quiet_ns, 0)
        self._last_received_at = grown(self._last_received_at, ABSENT_NS)
        self._first_at = grown(self._first_at, ABSENT_NS)
        self._since_at = grown(self._since_at, now_ns)
        self._reported_since_at = grown(self._reported_since_at, ABSENT_NS)
        self._missed = grown(self._missed, 0)
        self._state = grown(self._state, UNKNOWN)
        self._reported = grown(self._reported, UNKNOWN)
        self._usable = grown(self._usable, True)
        self._listed = grown(self._listed, True)

    def begin(self, path: Indices, names: Sequence[PathName], usable: bool, now_ns: int) -> None:
        """Paths that had ended begin anew, perhaps under other names."""
        for i, name in zip(path.tolist(), names, strict=True):
            self.names[i] = name
        self._listed[path] = True
        self._reported[path] = UNKNOWN
        self._reported_since_at[path] = ABSENT_NS
        self.set_usable(path, usable, now_ns)

    def end(self, path: Indices, now_ns: int) -> None:
        """These paths are probed no longer: they are unknown, which is reported once, and then no longer listed."""
        self.set_usable(path, False, now_ns)
        self._listed[path] = False

    def sent(self, path: Indices, now_ns: int) -> None:
        """Probes were sent on these paths (each at most once per call)."""
        first = self._first_at[path]
        self._first_at[path] = np.where(first == ABSENT_NS, now_ns, first)
        self._missed[path] += 1

    def unsent(self, path: Indices) -> None:
        """Probes counted by `sent` never left."""
        np.subtract.at(self._missed, path, 1)
        np.maximum(self._missed, 0, out=self._missed)

    def received(self, path: Indices, now_ns: int) -> None:
        """Answers or probes were received on these paths (repeats allowed)."""
        self._last_received_at[path] = now_ns
        self._missed[path] = 0
        self._quiet_ns[path] = 0
        revived = path[self._state[path] != ALIVE]
        if len(revived):
            revived = revived[self._usable[revived]]
            self._state[revived] = ALIVE
            self._since_at[revived] = now_ns

    def arrived(self, path: Indices, ahead: Int64s, now_ns: int) -> None:
        """`received` for a reflector: learns the interval from the time and the `ahead` sequence numbers since before.

        So losses and outages do not look like a slow sender. A repeated, late or far number is not used.
        """
        last_received_at = self._last_received_at[path]
        gap = (now_ns - last_received_at) // np.maximum(ahead, 1)
        known = (last_received_at != ABSENT_NS) & (ahead > 0) & (ahead < _AHEAD_LIMIT)
        old = self.interval_ns[path]
        step = ((gap - old) * _GAP_WEIGHT).astype(np.int64)
        self.interval_ns[path] = np.where(known, np.where(old == 0, gap, old + step), old)
        self.received(path, now_ns)

    def set_usable(self, path: Indices, usable: bool, now_ns: int) -> None:
        """The local NIC of these paths can or cannot send and receive; in both cases nothing is known now."""
        self._usable[path] = usable
        self._state[path] = UNKNOWN
        self._since_at[path] = now_ns
        self._last_received_at[path] = ABSENT_NS
        self._first_at[path] = ABSENT_NS
        self._missed[path] = 0
        self._quiet_ns[path] = 0

    def assess(self, now_ns: int, system_ns: int, *, complete: bool = False) -> list[dict[str, Any]]:
        """Entries for the paths whose state changed since the last call, or for all paths (`complete`).

        Returns
        -------
        list of dict
            observer, role, src, dst, transport, path, dscp, state, since_at_ns (host's clock), interval_ns, missed.
        """
        before_ns = now_ns if self._assessed_at is None else self._assessed_at
        self._assessed_at = now_ns
        if not self.names:
            return []
        last = np.where(self._last_received_at != ABSENT_NS, self._last_received_at, self._first_at)
        self._fall_silent(last, before_ns, now_ns)
        # a path that fell silent and came back between two calls is reported by its new since
        changed = (self._state != self._reported) | (
            (self._reported != UNKNOWN) & (self._since_at != self._reported_since_at)
        )
        if self.role == "reflector":
            recent = (last == ABSENT_NS) | (now_ns - last < FORGET_NS)
            changed &= recent
            listed = (self._listed & recent) | changed
        else:
            listed = self._listed | changed
        chosen = np.flatnonzero(listed if complete else changed)
        self._reported[chosen] = self._state[chosen]
        self._reported_since_at[chosen] = self._since_at[chosen]
        return self._entries(chosen, now_ns, system_ns)

    def _fall_silent(self, last: Int64s, before_ns: int, now_ns: int) -> None:
        """Charge the paths with the time since the call before, and call those silent that were quiet too long."""
        watched = (last != ABSENT_NS) & (self._state != SILENT) & self._usable
        interval = np.where(self.interval_ns > 0, self.interval_ns, _FIRST_INTERVAL_NS)
        limit = np.maximum(self._limit_ns, LIMIT_INTERVALS * interval)
        waited = np.clip(now_ns - np.maximum(last, before_ns), 0, limit // _MIN_ASSESSMENTS)
        self._quiet_ns += np.where(watched, waited, 0)
        quiet = watched & (self._quiet_ns >= limit)
        if self.role == "sender":
            quiet &= self._missed >= MIN_MISSED
        self._state[quiet] = SILENT
        self._since_at[quiet] = last[quiet]

    def _entries(self, chosen: Indices, now_ns: int, system_ns: int) -> list[dict[str, Any]]:
        since = self._clock.reading(self._since_at[chosen] + (system_ns - now_ns))
        changed = zip(
            chosen.tolist(),
            self._state[chosen].tolist(),
            since.tolist(),
            self.interval_ns[chosen].tolist(),
            self._missed[chosen].tolist(),
            strict=True,
        )
        return [
            {
                **self.names[i]._asdict(),
                "role": self.role,
                "state": STATES[state],
                "since_at_ns": since_at,
                "interval_ns": interval,
                "missed": missed,
            }
            for i, state, since_at, interval, missed in changed
        ]


def event_data(
    host: str,
    boot_id: str,
    seen_at_ns: int,
    changes: Sequence[Mapping[str, Any]],
    *,
    complete: bool,
    liveness_ms: int,
    troubles: Sequence[Mapping[str, Any]] = (),
    stopping: bool = False,
) -> dict[str, Any]:
    """The `data` object of one ``sdf.raw.liveness.v1`` event; `seen_at_ns` on the host's (virtual) clock.

    `liveness_ms` is the agent's setting: a reader that does not know it takes a path that was not missed yet for one
    that works. `stopping`: the agent ends in order with this statement.
    """
    data = {
        "host": host,
        "boot_id": boot_id,
        "seen_at_ns": seen_at_ns,
        "complete": complete,
        "limit_ns": liveness_ms * NS_PER_MS,
        "changes": [dict(c) for c in changes],
        "stopping": stopping,
    }
    return data | {"troubles": [dict(t) for t in troubles]} if troubles else data
