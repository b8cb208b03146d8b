r"""UTC as one more clock, from the hosts that something else keeps at it: slow, robust, and apart from the mesh.

The mesh knows nothing of UTC and needs none: one-way delays are differences of its own clocks. Hosts that follow time
servers (NTP, PTP, GPS) read UTC, each to within a promised bound E (``sync.utc_err_ns``), which is a thousand
times coarser than the mesh. So UTC is read off the finished time line, and nothing goes back into it.

With :math:`p_h` the position of disciplined host h on the internal line and :math:`\epsilon_h` its bound there, UTC
lies in each interval :math:`p_h \pm (E + \epsilon_h)` of a host that keeps its promise. While at most
:math:`f = \lfloor (n-1)/2 \rfloor` of n do not, it lies between *lo*, the (n−f)-th smallest lower end, and *hi*, the
(n−f)-th largest upper end (Marzullo). Their middle m (the median, for equal bounds) is followed slowly:

.. math:: \dot u = \rho + \mathrm{clip}((m - u) / \tau, \pm L), \qquad
    \mathrm{err} = (hi - lo) / 2 + |m - u|,

:math:`\rho` the median of the hosts' rates, each averaged over half an hour. A host that steps, joins or leaves moves m
no further than the others allow, and u by L at most. With no host left u goes on at :math:`\rho` and the bound grows.

Signs. The row's ``offset_ns`` = UTC − reference. From a clock's reading to UTC, through the reference:

    corrected = reading − offset − skew · (reading − at)          (the clock's row; time of the reference)
    utc = corrected + offset_utc + skew_utc · (corrected − (at_utc − offset_utc))   (the row of ``utc``)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.errors import ConfigError
from sdfstream.records.hostclock import RESERVED
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync.reference import Ensemble, Named, ReferenceState

TAU_S: Final = 300.0
"""τ. Shorter: every swing of an NTP daemon shows in UTC; longer: a wrong start stays longer (in the bound, too)."""
SLEW_PPB: Final = 500.0
"""L: a microsecond in two seconds. What a daemon itself may do to a clock is a thousand times as much."""
_YOUNG: Final = 10.0
"""For its first τ it may go so many times as fast, and follows all the sooner: what it began with is one moment's."""
_SOONEST_S: Final = 10.0
RATE_TAU_S: Final = 1800.0
"""Over so long each host's rate is averaged: a swing of 100 µs then bends the rate by 0.06 ppm."""
HOLD_PPB: Final = 1_000.0
"""Without a host: how much faster than it was UTC may run, measured by the mesh; a room's temperature makes as much."""
PATIENCE_NS: Final = 300 * NS_PER_S
"""Hosts that contradict their own earlier readings for so long were wrong then: begin anew."""
_SYNCED, _UNSYNCED = 0, 2


def check(clocks: Sequence[str]) -> None:
    """Refuse names that cannot be disciplined clocks; raises ConfigError."""
    for i, name in enumerate(clocks):
        if not name.strip() or name in RESERVED:
            raise ConfigError(f"sync.utc_clocks.{i}: {name!r} is no clock id.")
        if name in clocks[:i]:
            raise ConfigError(f"sync.utc_clocks.{i}: {name} stands twice.")


class Utc(NamedTuple):
    """UTC at one instant of internal time, placed as a clock is: `base_ns` + `offset_ns` (+ the instant)."""

    base_ns: int
    offset_ns: float
    skew_ppb: float
    """ppb, on the internal line."""
    err_ns: float
    """|true − this| is at most this while most of the hosts keep their promise."""
    n: int
    """Disciplined hosts that live."""
    status: int
    """0 synced, 2 unsynced (index into `publish.STATUSES`)."""


class UtcTie:
    """Follows the disciplined hosts.

    Parameters
    ----------
    clocks : sequence of str
        Their clock ids (``sync.utc_clocks``); none: `step` is not to be called.
    err_ns : float
        E.
    unknown_err_ns : float
        The bound before any of them lives; the widest published.
    counters : Counters
        Gets ``utc-restarted``.
    """

    def __init__(self, clocks: Sequence[str], err_ns: float, unknown_err_ns: float, counters: Counters) -> None:
        self._clocks = Named(clocks)
        self._promised_ns = err_ns
        self._unknown_ns = unknown_err_ns
        self._counters = counters
        self._base_ns = 0
        self._at: float | None = None
        """Instant of the position; None: no host has lived yet."""
        self._position = self._rate = self._pull = 0.0
        self._age_s = 0.0
        """How long it has followed hosts."""
        self._rates: dict[str, list[float]] = {}
        """Of each host that lived: mean rate on the internal line, ppb, and over how many seconds."""
        self._err_ns = unknown_err_ns
        self._followed_at = 0.0
        self._contradicted_since: float | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to follow."""
        return bool(self._clocks.wanted)

    def step(
        self, names: Sequence[str], live: Bools, ensemble: Ensemble, err_ns: Float64s, reference: ReferenceState
    ) -> Utc:
        """Go on to the bank's instant.

        Parameters
        ----------
        names : sequence of str
            Clock ids by number.
        live : (clocks,) bool
            Synced as of now.
        bank : Bank
            Now; not changed.
        err_ns : (clocks,) float64
            Bound of each clock's difference to the reference.
        reference : ReferenceState
            Now.
        """
        hosts = np.array([i for i in self._clocks.among(names) if live[i]], dtype=np.int64)
        if self._at is None and not hosts.size:
            return Utc(reference.base_ns, reference.offset_ns, reference.skew_ppb, self._unknown_ns, 0, _UNSYNCED)
        dt_s = (
            0.0 if self._at is None else (ensemble.at_ns - self._at) / NS_PER_S
        )  # rows' instants may go back a little
        self._position += (self._rate + self._pull) * dt_s
        if not hosts.size:
            self._at, self._pull = ensemble.at_ns, 0.0
            grown = HOLD_PPB * max(ensemble.at_ns - self._followed_at, 0.0) / NS_PER_S
            return self._state(min(self._err_ns + grown, self._unknown_ns), 0, _UNSYNCED)
        if self._at is None:
            self._begin(hosts, ensemble, err_ns[hosts])
        self._average([names[i] for i in hosts.tolist()], ensemble.skew_ppb[hosts].tolist(), max(dt_s, 0.0))
        self._follow(hosts, ensemble, err_ns[hosts])
        return self._state(min(self._err_ns, self._unknown_ns), hosts.size, _SYNCED)

    def _begin(self, hosts: Int64s, ensemble: Ensemble, err_ns: Float64s) -> None:
        middle = hosts[np.argsort(ensemble.base_ns[hosts], kind="stable")[hosts.size // 2]]
        self._base_ns = int(ensemble.base_ns[middle])
        self._position = self._middle(hosts, ensemble, err_ns)[0]
        self._age_s, self._contradicted_since = 0.0, None

    def _average(self, hosts: Sequence[str], skew_ppb: Sequence[float], dt_s: float) -> None:
        """Take in the hosts' rates. Averaged each by itself, a daemon's swings cancel; those of a median would not."""
        self._age_s += dt_s
        means = []
        for name, skew in zip(hosts, skew_ppb, strict=True):
            mean = self._rates.setdefault(name, [skew, 0.0])
            mean[1] = min(mean[1] + dt_s, RATE_TAU_S)
            mean[0] += dt_s / max(mean[1], dt_s, 1e-3) * (skew - mean[0])
            means.append(mean[0])
        self._rate = float(np.median(means))

    def _middle(self, hosts: Int64s, ensemble: Ensemble, err_ns: Float64s) -> tuple[float, float]:
        """The middle of where UTC can be, and half the width of that."""
        p = (ensemble.base_ns[hosts] - self._base_ns) + ensemble.offset_ns[hosts]
        half = self._promised_ns + err_ns
        agreeing = hosts.size - (hosts.size - 1) // 2
        low, high = np.sort(p - half)[agreeing - 1], np.sort(p + half)[hosts.size - agreeing]
        width = float(high - low) / 2.0
        # no majority agrees: UTC is anywhere between those that do not, and as far outside as each may be off
        return float(low + high) / 2.0, width if width >= 0.0 else 2.0 * float(half.max()) - width

    def _follow(self, hosts: Int64s, ensemble: Ensemble, err_ns: Float64s) -> None:
        middle, half = self._middle(hosts, ensemble, err_ns)
        gap = middle - self._position
        if self._contradicts(gap, half, ensemble.at_ns):
            self._counters.add("utc-restarted")
            self._begin(hosts, ensemble, err_ns)
            middle, half = self._middle(hosts, ensemble, err_ns)
            gap = middle - self._position
        limit = SLEW_PPB * (_YOUNG if self._age_s < TAU_S else 1.0)
        self._pull = float(np.clip(gap / np.clip(self._age_s, _SOONEST_S, TAU_S), -limit, limit))
        self._at, self._followed_at, self._err_ns = ensemble.at_ns, ensemble.at_ns, half + abs(gap)

    def _contradicts(self, gap: float, half: float, at_ns: float) -> bool:
        """Whether the hosts have lastingly been outside twice their own bound around the followed position."""
        if abs(gap) <= 2.0 * half:
            self._contradicted_since = None
            return False
        if self._contradicted_since is None:
            self._contradicted_since = at_ns
        return at_ns - self._contradicted_since >= PATIENCE_NS

    def _state(self, err_ns: float, n: int, status: int) -> Utc:
        return Utc(self._base_ns, self._position, self._rate + self._pull, err_ns, n, status)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {name: deepcopy(getattr(self, f"_{name}")) for name in _FIELDS}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `snapshot` gave, made under the same settings."""
        for name in _FIELDS:
            setattr(self, f"_{name}", deepcopy(state[name]))


_FIELDS: Final = (
    "base_ns",
    "at",
    "position",
    "rate",
    "pull",
    "age_s",
    "rates",
    "err_ns",
    "followed_at",
    "contradicted_since",
)
