"""Corrected time at an instant from a page, with its bound; or a refusal with its reason. No clock, no file.

::

    age        = raw − raw_at                              both CLOCK_MONOTONIC_RAW
    expected   = at + age · (1 + raw rate)                 what the clock should read by the oscillator
    reading    = CLOCK_REALTIME where that is the clock, else `expected`
    gap        = |reading − expected|
    bound      = err + grow · min(|age|, fresh) + hold · max(0, age − fresh) + gap
    corrected  = reading − offset − skew · (reading − at)

The gap is what an NTP daemon, a person or a suspended machine moved the clock by since the estimate. Which of the two
clocks is right is not known yet, so the gap is added to the bound, and beyond ``bound + GAP_NS`` there is no answer.

=============================================  ==========================================================
the page                                       answer
=============================================  ==========================================================
synced, at most ``fresh_ns`` old               ``synced``
holdover (no samples, says sync), as old       ``holdover``; err grows from row to row
synced or holdover, older than ``fresh_ns``    ``stale``; the bound grows by ``hold_ppb`` (the agent stopped)
older than ``void_ns``                         refused: ``void``
unsynced, faulty                               refused: ``unsynced``, ``faulty``
the clock moved too far from the oscillator    refused: ``stepped``, by reader (since the estimate) or writer
of another boot, or from the future            refused: ``other-boot``
=============================================  ==========================================================
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sdfstream.clock.page import Page
from sdfstream.errors import UnavailableError

GAP_NS: Final = 10_000
"""Allowed gap beyond the bound: the two clocks are not read at one instant."""

SENTENCES: Final = {
    "no-page": "no agent writes a page of this clock here",
    "which-clock": "several clocks have a page here; name one",
    "unreadable": "the page cannot be read",
    "torn": "the page is half written; its agent died in the middle of it",
    "void": "the page is too old to say anything; its agent has stopped",
    "unsynced": "this clock is not synchronised (yet)",
    "faulty": "this clock contradicts its peers",
    "stepped": "this clock was moved, and the estimate does not know of it yet",
    "other-boot": "the page is from another boot of this machine, or another machine",
}


class ClockError(UnavailableError):
    """There is no corrected time. `reason` is one of the keys of `SENTENCES`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{SENTENCES[reason]} ({reason}{', ' + detail if detail else ''})")
        self.reason = reason


class Now(NamedTuple):
    """An instant on the shared timeline: the truth lies within [earliest, latest], at 99.9 %."""

    corrected_ns: int
    """Best estimate, ns since the Unix epoch, the reference clock's time."""
    earliest_ns: int
    latest_ns: int
    status: str
    """synced, holdover, stale."""
    age_ns: int
    """Since the instant that the estimate is for."""

    @property
    def err_ns(self) -> int:
        """Half the width of the interval."""
        return self.latest_ns - self.corrected_ns


class PreparedPage(NamedTuple):
    """A page prepared for many readings: rates as fractions."""

    sequence: int
    page: Page
    at_ns: int
    raw_ns: int
    offset_ns: int
    err_ns: int
    skew: float
    raw_rate: float
    grow: float
    fresh_ns: int
    realtime: bool
    healthy: bool
    """Of this boot, and synced."""


def prepare(page: Page, sequence: int, boot: bytes) -> PreparedPage:
    """`page` prepared on a machine whose boot id is `boot`."""
    return PreparedPage(
        sequence, page, page.at_ns, page.raw_ns, page.offset_ns, page.err_ns, page.skew_ppb * 1e-9,
        page.raw_ppb * 1e-9, page.grow_ppb * 1e-9, page.fresh_ns, page.realtime,
        page.status == "synced" and page.boot == boot,
    )  # fmt: skip


def evaluate(h: PreparedPage, realtime_ns: int, raw_ns: int, boot: bytes) -> Now:
    """Corrected time at an instant at which CLOCK_REALTIME and CLOCK_MONOTONIC_RAW read so; `boot`: the machine's.

    Raises
    ------
    ClockError
        See the table above.

    Notes
    -----
    Differences are taken in integers and only then multiplied by rates, so no absolute time is ever a float; what is
    cut off is less than 3 ns, which the writer's ``err_ns`` includes.
    """
    age = raw_ns - h.raw_ns
    elapsed = age + int(age * h.raw_rate)
    gap = 0
    if h.realtime:
        gap = realtime_ns - h.at_ns - elapsed
        elapsed += gap
        if gap < 0:
            gap = -gap
    if h.healthy and 0 <= age <= h.fresh_ns:
        bound = h.err_ns + int(age * h.grow)
        if gap <= bound + GAP_NS:
            bound += gap
            corrected = h.at_ns + elapsed - h.offset_ns - int(elapsed * h.skew)
            return tuple.__new__(Now, (corrected, corrected - bound, corrected + bound, "synced", age))
    return _evaluate_unhealthy(h, age, elapsed, gap, boot)


def _evaluate_unhealthy(h: PreparedPage, age: int, elapsed: int, gap: int, boot: bytes) -> Now:
    """As `evaluate`, for a page that is old, unhealthy, or far from the oscillator."""
    page = h.page
    if page.boot != boot or age < -page.fresh_ns:
        raise ClockError("other-boot")
    if page.status in ("unsynced", "faulty", "stepped"):
        raise ClockError(page.status)
    if age > page.void_ns:
        raise ClockError("void", f"{age / 1e9:.0f} s")
    late = max(0, age - page.fresh_ns)
    bound = page.err_ns + int((abs(age) - late) * h.grow + late * page.hold_ppb * 1e-9)
    if gap > bound + GAP_NS:
        raise ClockError("stepped", f"by {gap / 1e3:.0f} µs in {age / 1e9:.3f} s")
    bound += gap
    corrected = h.at_ns + elapsed - h.offset_ns - int(elapsed * h.skew)
    return Now(corrected, corrected - bound, corrected + bound, "stale" if late else page.status, age)
