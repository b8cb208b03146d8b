"""A process of the pipeline on its own troubles: looked at every second, for status and health, and published.

A finding ``pipeline-degraded`` opens with each trouble and resolves with it. It is not made by detect, since it may be
detect that does not get on. Statements are committed as a task (`bus.task`), in one transaction with the note of what
is open (`own_findings`): each is on the bus once, also where its outcome was not known, and a process that follows one
of the same name reads there what it left open. The task is opened for that at the start, and while anything is open.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sdfstream.bus import Bus
from sdfstream.bus.task import Task, Work
from sdfstream.errors import FormatError, SdfError
from sdfstream.runtime.own_troubles import POLL_S, OngoingTrouble, OwnTroubles
from sdfstream.serve import own_findings
from sdfstream.serve.own_findings import INHERITED_S, OpenFinding
from sdfstream.stats import HasCounters

_log = logging.getLogger("sdfstream.serve")

_PUBLISH_S: Final = 5.0
"""A look waits so long for the bus; publishing goes on meanwhile, and the next look asks how it ended."""
_AGAIN_S: Final = 30.0
"""After a bus that did not take a finding: it is away, or this process's role may not write findings (archive)."""
_OWNS_S: Final = 30.0
"""So often a process with open findings makes sure that no other of its name has taken them for its predecessor's."""
_HANGS_S: Final = 30.0
"""Without a look for so long the process's loop hangs."""
_NOTE: Final = "open"


class SelfReport:
    """Reports the troubles of `counted`, parts of the process `name`, which runs `stage` (with others or alone)."""

    def __init__(self, bus: Bus, stage: str, name: str, counted: Sequence[HasCounters]) -> None:
        self.troubles = OwnTroubles(counted)
        self._bus = bus
        self._process = f"{platform.node() or 'host'}/{name}"
        # a process may open the transactions of its stage
        self._work = Work(f"{stage}/troubles/{self._process}", ())
        self._task: Task | None = None
        self._opened: dict[str, OpenFinding] | None = None
        """What is open on the bus; None: not known."""
        self._inherited: set[str] | None = None
        """Findings of the predecessor whose troubles have not shown again; None: it was not asked for them yet."""
        self._publishing: asyncio.Task[None] | None = None
        self._began_s = self._looked_s = time.monotonic()
        self._committed_s = 0.0
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
            before = self.troubles.ongoing
            await self.look(time.monotonic(), time.time_ns())
            _log_changes(before, self.troubles.ongoing)
            await asyncio.sleep(POLL_S)

    async def look(self, now_s: float, now_ns: int) -> None:
        """Look at the troubles, and publish what changed.

        Publishing is never cut off: what was cancelled may be on the bus all the same.
        """
        self._looked_s = now_s
        self.troubles.look(now_s, now_ns)
        if self._publishing is None:
            if now_s < self._publish_from_s or not self._is_due(now_s):
                return
            self._publishing = asyncio.create_task(self._publish(now_s, now_ns), name="publish-self-report")
        await asyncio.wait({self._publishing}, timeout=_PUBLISH_S)
        if not self._publishing.done():
            return
        publishing, self._publishing = self._publishing, None
        try:
            publishing.result()
        except SdfError as error:
            _log.debug("findings about this process cannot be published: %s", error)
            self._publish_from_s = now_s + _AGAIN_S
            await self._give_up_task()

    async def close(self) -> None:
        """End the publishing that is still under way."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait({self._publishing})
        await self._give_up_task()

    def _is_due(self, now_s: float) -> bool:
        """Whether something has changed, or what is open is not known, or not known any more."""
        if self._opened is None or self._changes(now_s):
            return True
        return bool(self._opened) and now_s - self._committed_s >= _OWNS_S

    def _changes(self, now_s: float) -> list[own_findings.Change]:
        waiting = (self._inherited or set()) - self.troubles.ongoing.keys()
        self._inherited = waiting if now_s - self._began_s < INHERITED_S else set()
        return own_findings.changes(self._opened or {}, self.troubles.ongoing, self._inherited)

    async def _publish(self, now_s: float, now_ns: int) -> None:
        """Say what has changed; errors as `Task.commit`, after which the next task finds what arrived."""
        if self._task is None:
            await self._open_task()
        assert self._task is not None
        changed = self._changes(now_s)
        opened = own_findings.after(self._opened or {}, changed)
        if changed:
            said = [own_findings.output(self._process, change, now_ns) for change in changed]
            await self._task.commit(said, notes={_NOTE: own_findings.pack(opened)}, mark=True)
        elif opened:
            await self._task.commit()
        self._opened, self._committed_s = opened, now_s
        if not opened:
            task, self._task = self._task, None
            await task.close()

    async def _open_task(self) -> None:
        self._task = await self._bus.task(self._work)
        try:
            self._opened = own_findings.unpack(self._task.saved.notes.get(_NOTE, b"[]"))
        except FormatError as error:
            _log.warning("findings that were left open stay so: %s", error)
            self._opened = {}
        if self._inherited is None:
            self._inherited = set(self._opened)

    async def _give_up_task(self) -> None:
        """End the task, whose outcome is not known; the next one reads it."""
        task, self._task, self._opened = self._task, None, None
        if task is not None:
            await task.close()


@asynccontextmanager
async def reporting(bus: Bus, stage: str, name: str, counted: Sequence[HasCounters]) -> AsyncIterator[SelfReport]:
    """Report while the block runs; see `SelfReport`."""
    report = SelfReport(bus, stage, name, counted)
    work = asyncio.create_task(report.run(), name="self-report")
    work.add_done_callback(_log_end)
    try:
        yield report
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await report.close()


def _log_changes(before: Mapping[str, OngoingTrouble], after: Mapping[str, OngoingTrouble]) -> None:
    for what, trouble in after.items():
        if what not in before:
            _log.error("%s: %s", what, trouble.why)
    for what in before.keys() - after.keys():
        _log.warning("%s is well again", what)


def _log_end(work: asyncio.Task[None]) -> None:
    if not work.cancelled() and work.exception() is not None:
        _log.error("the process no longer reports its troubles", exc_info=work.exception())
