"""The seam between a job's process and what carries its packets: in C (`engine.plane_io`) or in Python (`plane_io`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sdfstream.emulator.process_rows import Rows
from sdfstream.qpcontrol.rules import Steerable


class DataPlane(Protocol):
    """Carries the datagrams of all ranks: windows, pacing, retransmission, reassembly, collectives."""

    name: str
    """What carries them, for logs and figures: ``C`` or ``Python``."""

    @property
    def is_done(self) -> bool:
        """Whether every rank has done its last collective."""

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to send; `changed` is called in the loop's thread when the job is done or the plane has failed."""

    def check(self) -> None:
        """Once a second: reopen the NICs that went away; raises what the plane has failed of."""

    def stop(self) -> None:
        """Send and receive no more, and close the sockets."""

    def close(self) -> None:
        """Free the rest; nothing else may be called then."""

    def sender(self, index: int) -> Steerable:
        """The sending end of the plan's queue pair of this index; a change takes effect at once."""

    def stats(self) -> dict[str, Any]:
        """Figures since the start, plain JSON."""

    def qps(self) -> list[dict[str, Any]]:
        """The figures of each queue pair, in the plan's order."""

    def take_rows(self) -> Rows:
        """The chunks carried since the last call."""
