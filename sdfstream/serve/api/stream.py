"""What changed, in order: the last events, numbered, for readers that follow and come back. Pure and bounded.

A number says which run of the server counted it, ``<run>-<n>``: a reader of another run, or one that was away for
longer than is retained, is told so (`GAP`) and asks for the lists anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.records.bounds import is_known
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, JOB, MESH, NIC, OUTCOME, OVERRIDE
from sdfstream.serve.api.encoding import encoded

MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 32 << 20
TOPICS: Final[dict[str, str]] = {
    FINDING.name: "finding",
    NIC.name: "nic",
    JOB.name: "job",
    COMMAND.name: "command",
    OUTCOME.name: "outcome",
    OVERRIDE.name: "override",
    MESH.name: "mesh",
}
"""Topic → name of its events."""
GAP: Final = "gap"
"""Name of the event that says that others are missing."""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One event."""

    n: int
    name: str
    data: bytes
    """JSON."""


class ChangeLog:
    """The newest changes."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._changes: deque[LoggedChange] = deque()
        self._bytes = 0
        self._next = 1

    @property
    def newest(self) -> int:
        """Number of the newest change; 0: there was none."""
        return self._next - 1

    def take(self, messages: Iterable[Message]) -> int:
        """Take what the bus carried; how many changes came of it."""
        before = self._next
        for message in messages:
            name = TOPICS.get(message.topic)
            if name is None or not isinstance(message.body, Event) or not is_known(message.topic, message.body.type):
                continue
            data = encoded({"bus_at_ns": message.bus_at_ns, "key": message.key, "data": message.body.data})
            self._changes.append(LoggedChange(self._next, name, data))
            self._bytes += len(data)
            self._next += 1
            while len(self._changes) > MOST_EVENTS or self._bytes > MOST_BYTES:
                self._bytes -= len(self._changes.popleft().data)
        return self._next - before

    def start(self, last_id: str | None) -> tuple[int, bool]:
        """Number behind which a reader goes on that has seen `last_id`, and whether it missed something.

        None: a reader that is new begins with what comes from now on.
        """
        if last_id is None:
            return self.newest, False
        run, _, n = last_id.rpartition("-")
        if run != self.run or not (n.isascii() and n.isdecimal()) or len(n) > 18 or int(n) > self.newest:
            return self.newest, True
        return self.after(int(n))

    def after(self, n: int) -> tuple[int, bool]:
        """As `start`, for a reader of this run that has seen change `n`."""
        oldest = self._changes[0].n if self._changes else self._next
        return (n, False) if n + 1 >= oldest else (oldest - 1, True)

    def since(self, n: int, names: Sequence[str], most: int) -> tuple[list[LoggedChange], int]:
        """Changes behind number `n`, of these names, of the next `most`; and the number of the last looked at."""
        if not self._changes:
            return [], n
        first = max(0, n + 1 - self._changes[0].n)
        looked = [self._changes[i] for i in range(first, min(first + most, len(self._changes)))]
        return [change for change in looked if change.name in names], looked[-1].n if looked else n

    def id_of(self, n: int) -> str:
        """A number as readers give it back."""
        return f"{self.run}-{n}"


def framed(name: str, data: bytes, event_id: str | None = None) -> bytes:
    r"""An event as server-sent events spell it.

    >>> framed("nic", b'{"a":1}', "r-7")
    b'id: r-7\nevent: nic\ndata: {"a":1}\n\n'
    """
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


def gap() -> Any:
    """What a reader is told that missed something."""
    return {"why": "events before this are gone: ask for the lists anew"}
