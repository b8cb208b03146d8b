"""A process of the pipeline on its own troubles: looked at every second, for status and health, and published.

A finding ``pipeline-degraded`` opens with each trouble and resolves with it. It is not made by detect, since it may be
detect that does not get on.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sdfstream.bus import Bus
from sdfstream.detect.detections import remedy
from sdfstream.errors import SdfError
from sdfstream.records.finding import Evidence, Finding, Status, Subject
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import FINDING
from sdfstream.runtime.own_troubles import POLL_S, OngoingTrouble, OwnTroubles
from sdfstream.stats import HasCounters

_log = logging.getLogger("sdfstream.serve")

_PUBLISH_S: Final = 5.0
_AGAIN_S: Final = 30.0
"""After a bus that did not take a finding: it is away, or this process's role may not write findings (archive)."""
_HANGS_S: Final = 30.0
"""Without a look for so long the process's loop hangs."""


class SelfReport:
    """Reports the troubles of `counted`, parts of the process `name`."""

    def __init__(self, bus: Bus, name: str, counted: Sequence[HasCounters]) -> None:
        self.troubles = OwnTroubles(counted)
        self._bus = bus
        self._process = f"{platform.node() or 'host'}/{name}"
        self._published: dict[str, OngoingTrouble] = {}
        self._looked_s = time.monotonic()
        self._publish_from_s = 0.0
        """A bus that refused is not asked before this."""

    def sentences(self) -> list[str]:
        """What is wrong, for ``/health``, which another thread serves: also that the loop hangs."""
        hangs_s = time.monotonic() - self._looked_s
        own = [f"the process's loop has not come round for {hangs_s:.0f} s"] if hangs_s > _HANGS_S else []
        return [*own, *self.troubles.sentences()]

    async def run(self) -> None:
        """Look and publish for ever."""
        while True:
            self._looked_s = time.monotonic()
            before = self.troubles.ongoing
            self.troubles.look(self._looked_s, time.time_ns())
            _log_changes(before, self.troubles.ongoing)
            if self._looked_s >= self._publish_from_s:
                await self._publish()
            await asyncio.sleep(POLL_S)

    async def _publish(self) -> None:
        """Open, update or resolve a finding of each trouble that is not as it was published."""
        for status, trouble in self._changes():
            try:
                async with asyncio.timeout(_PUBLISH_S):
                    await self._bus.publish([self._output(status, trouble)])
            except (SdfError, TimeoutError) as error:
                _log.debug("a finding about this process cannot be published: %s", error)
                self._publish_from_s = self._looked_s + _AGAIN_S
                return
            if status == "resolved":
                del self._published[trouble.what]
            else:
                self._published[trouble.what] = trouble

    def _changes(self) -> list[tuple[Status, OngoingTrouble]]:
        ongoing, published = self.troubles.ongoing, self._published
        opened: list[tuple[Status, OngoingTrouble]] = [
            ("open", t) for what, t in ongoing.items() if what not in published
        ]
        opened += [("update", t) for what, t in ongoing.items() if what in published and published[what].why != t.why]
        return opened + [("resolved", t) for what, t in published.items() if what not in ongoing]

    def _output(self, status: Status, trouble: OngoingTrouble) -> Output:
        now_ns = time.time_ns()
        subject = Subject("process", f"{self._process} {trouble.what}")
        key = hashlib.sha256(f"pipeline-degraded|{subject.id}|{trouble.since_at_ns}".encode()).hexdigest()[:16]
        finding = Finding(
            id=key,
            kind="pipeline-degraded",
            severity="warning",
            status=status,
            subject=subject,
            since_at_ns=trouble.since_at_ns,
            seen_at_ns=now_ns,
            cause="software",
            confidence=1.0,
            evidence=(Evidence("troubles", 1.0, "1", self._process, 0.0),),
            remedy=remedy("pipeline-degraded", subject),
            resolved_at_ns=now_ns if status == "resolved" else None,
            detail=trouble.why,
        )
        return Output(FINDING.name, key, Event(FINDING.name, "pipeline", f"{key}-{now_ns}", now_ns, finding.as_data()))


@asynccontextmanager
async def reporting(bus: Bus, name: str, counted: Sequence[HasCounters]) -> AsyncIterator[SelfReport]:
    """Report while the block runs."""
    report = SelfReport(bus, name, counted)
    work = asyncio.create_task(report.run(), name="self-report")
    work.add_done_callback(_log_end)
    try:
        yield report
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _log_changes(before: Mapping[str, OngoingTrouble], after: Mapping[str, OngoingTrouble]) -> None:
    for what, trouble in after.items():
        if what not in before:
            _log.error("%s: %s", what, trouble.why)
    for what in before.keys() - after.keys():
        _log.warning("%s is well again", what)


def _log_end(work: asyncio.Task[None]) -> None:
    if not work.cancelled() and work.exception() is not None:
        _log.error("the process no longer reports its troubles", exc_info=work.exception())
