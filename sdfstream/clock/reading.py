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
    age_ns = raw_ns - h.raw_ns
    elapsed_ns = age_ns + int(age_ns * h.raw_rate)
    gap_ns = 0
    if h.realtime:
        gap_ns = realtime_ns - h.at_ns - elapsed_ns
        elapsed_ns += gap_ns
        if gap_ns < 0:
            gap_ns = -gap_ns
    if h.healthy and 0 <= age_ns <= h.fresh_ns:
        bound_ns = h.err_ns + int(age_ns * h.grow)
        if gap_ns <= bound_ns + GAP_NS:
            bound_ns += gap_ns
            corrected_ns = h.at_ns + elapsed_ns - h.offset_ns - int(elapsed_ns * h.skew)
            return tuple.__new__(
                Now, (corrected_ns, corrected_ns - bound_ns, corrected_ns + bound_ns, "synced", age_ns)
            )
    return _evaluate_unhealthy(h, age_ns, elapsed_ns, gap_ns, boot)


def _evaluate_unhealthy(h: PreparedPage, age_ns: int, elapsed_ns: int, gap_ns: int, boot: bytes) -> Now:
    """As `evaluate`, for a page that is old, unhealthy, or far from the oscillator."""
    page = h.page
    if page.boot != boot or age_ns < -page.fresh_ns:
        raise ClockError("other-boot")
    if page.status in ("unsynced", "faulty", "stepped"):
        raise ClockError(page.status)
    if age_ns > page.void_ns:
        raise ClockError("void", f"{age_ns / 1e9:.0f} s")
    late_ns = max(0, age_ns - page.fresh_ns)
    bound_ns = page.err_ns + int((abs(age_ns) - late_ns) * h.grow + late_ns * page.hold_ppb * 1e-9)
    if gap_ns > bound_ns + GAP_NS:
        raise ClockError("stepped", f"by {gap_ns / 1e3:.0f} µs in {age_ns / 1e9:.3f} s")
    bound_ns += gap_ns
    corrected_ns = h.at_ns + elapsed_ns - h.offset_ns - int(elapsed_ns * h.skew)
    return Now(
        corrected_ns, corrected_ns - bound_ns, corrected_ns + bound_ns, "stale" if late_ns else page.status, age_ns
    )
