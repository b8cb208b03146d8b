"""The data plane in C: a thread without the interpreter's lock carries the packets; Python opens the sockets and asks.

The thread wakes when something has arrived or is due, and rests `REST_NS` after each pass: packets of all queue pairs
that are due by then leave together, and a wake costs as much as several packets.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sdfstream.emulator.engine import engine_io, layouts
from sdfstream.emulator.process_nic_io import Enter, NicSocket
from sdfstream.emulator.process_rows import Rows
from sdfstream.emulator.rank_plan import JobPlan
from sdfstream.errors import UnavailableError
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

REST_NS: Final = 4 * NS_PER_MS
"""An acknowledgement comes two or three rests after its packet, within the least retransmission time-out of 30 ms. With
2 ms the jobs of the demo take a third more CPU time."""


class EnginePlane:
    """A `DataPlane` in C.

    Parameters
    ----------
    plan : JobPlan
    run : int
    enter : Enter

    Raises
    ------
    ConfigError, UnavailableError
        There is no library, or a NIC cannot be used.
    """

    name = "C"

    def __init__(self, plan: JobPlan, run: int, enter: Enter) -> None:
        self._plan = plan
        self._nics: list[NicSocket] = []
        self._back = 0
        self._last: tuple[Any, Any, engine_io.Records] | None = None
        self._thread: threading.Thread | None = None
        self._eventfd = -1
        self._shell: Any = None
        self._job = engine_io.NativeJob(plan, run, time.monotonic_ns())
        self._library = self._job.library
        try:
            for endpoint in plan.nics:
                try:
                    self._nics.append(NicSocket(endpoint, run, enter))
                except OSError as error:
                    raise UnavailableError(f"{endpoint.nic}: {error.strerror}") from error
            self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            addresses = b"".join(nic.address for nic in self._nics)
            self._shell = self._library.je_shell_new(
                self._job.address, len(self._nics), addresses, REST_NS, self._eventfd
            )
            if not self._shell:
                raise UnavailableError("the data plane in C finds no descriptors")
        except BaseException:
            self.stop()
            self.close()
            raise
        for rank, nic in enumerate(self._nics):
            self._library.je_shell_adopt(self._shell, rank, nic.fd)

    @property
    def is_done(self) -> bool:
        """Whether every rank has done its last collective."""
        return bool(self._reports()[1]["done"])

    def start(self, changed: Callable[[], None]) -> None:
        """Run the thread."""

        def notified() -> None:
            os.eventfd_read(self._eventfd)
            changed()

        asyncio.get_running_loop().add_reader(self._eventfd, notified)
        self._thread = threading.Thread(target=self._library.je_shell_run, args=(self._shell,), name="data plane")
        self._thread.start()

    def check(self) -> None:
        """Close the sockets of NICs that went away, and open them again where that is possible."""
        for rank, nic in enumerate(self._nics if self._shell else []):
            if not self._library.je_shell_is_away(self._shell, rank):
                continue
            try:
                nic.open()
            except (OSError, UnavailableError):
                continue
            self._library.je_shell_adopt(self._shell, rank, nic.fd)
            self._back += 1

    def stop(self) -> None:
        """End the thread, and close the sockets."""
        if self._thread is not None:
            asyncio.get_running_loop().remove_reader(self._eventfd)
            self._library.je_shell_stop(self._shell)
            self._thread.join()
            self._thread = None
        for rank, nic in enumerate(self._nics):
            if self._shell:
                self._library.je_shell_adopt(self._shell, rank, -1)
            nic.close()

    def close(self) -> None:
        """Free what C holds; the last figures stay, since a connection that is still open may ask for them."""
        if self._shell:
            self._last = self._reports()
            self._library.je_shell_free(self._shell)
            self._shell = None
        self._job.close()
        if self._eventfd >= 0:
            os.close(self._eventfd)
            self._eventfd = -1

    def sender(self, index: int) -> _Steered:
        """The sending end of a queue pair."""
        return _Steered(self, index)

    def stats(self) -> dict[str, Any]:
        """Figures since the start."""
        own, report, qps = self._reports()
        late_ms = float(own["latest_ns"]) / NS_PER_MS
        return {"worst_pass_ms": late_ms, **engine_io.stats(self._plan, report, qps, self._counters(own))}

    def qps(self) -> list[dict[str, Any]]:
        """The figures of each queue pair."""
        own, report, qps = self._reports()
        return list(engine_io.stats(self._plan, report, qps, self._counters(own))["qps"])

    def take_rows(self) -> Rows:
        """The chunks carried since the last call."""
        if not self._shell:
            return []
        return engine_io.take_rows(self._plan, self._library.je_shell_take_rows, self._shell)

    def report(self, index: int) -> Any:
        """What is known of a queue pair (`layouts.QP_REPORT`)."""
        return self._reports()[2][index]

    def steer(self, index: int, path: int) -> None:
        """Move a queue pair, and send at once what is due on the new path."""
        if self._shell:
            self._library.je_shell_steer(self._shell, index, path)

    def limit(self, index: int, rate_bps: int | None) -> None:
        """Limit a queue pair; None: not any more."""
        if self._shell:
            self._library.je_shell_limit(self._shell, index, rate_bps or 0)

    def _reports(self) -> tuple[Any, Any, engine_io.Records]:
        if self._last is not None:
            return self._last
        own = np.zeros(1, dtype=layouts.SHELL_REPORT)
        report, qps = engine_io.empty_reports(self._plan)
        self._library.je_shell_reported(self._shell, own.ctypes.data, report.ctypes.data, qps.ctypes.data)
        return own[0], report[0], qps

    def _counters(self, own: Any) -> Counters:
        """What the sockets met, as `JobNet` counts it."""
        counters = Counters("job")
        counters.add("received", n=int(own["received"]))
        counters.add("sent", n=int(own["sent"]))
        counters.add("refused", "length", int(own["bad_length"]))
        counters.add("nic-away", n=int(own["away"]))
        counters.add("nic-back", n=self._back)
        counters.add("unsent", "nic-away", int(own["unsent_away"]))
        for number in np.flatnonzero(own["unsent"]).tolist():
            counters.add("unsent", errno.errorcode.get(number, str(number)), int(own["unsent"][number]))
        return counters


class _Steered:
    """A queue pair's sending end as commands see it."""

    def __init__(self, plane: EnginePlane, index: int) -> None:
        self._plane = plane
        self._index = index

    @property
    def path(self) -> int:
        """Source port now."""
        return int(self._plane.report(self._index)["path"])

    @property
    def rate_bps(self) -> int | None:
        """Limit in force."""
        return int(self._plane.report(self._index)["rate_bps"]) or None

    @rate_bps.setter
    def rate_bps(self, rate_bps: int | None) -> None:
        self._plane.limit(self._index, rate_bps)

    def steer(self, path: int, _now_ns: int) -> None:
        """Move, and send at once the packets due on the new path."""
        self._plane.steer(self._index, path)
