"""NICs come and go: watch them, close the sockets of those that are away, open them again when they are back.

A NIC is usable when its namespace, its device (switched on) and its address are all there and its reflecting socket
could be opened. A source port that somebody else has just now (any program may be given it as its ephemeral port)
costs only its own paths; it is tried again at every look.

A device that left and came back between two looks has another interface index (or namespace), so its sockets are
opened afresh, too.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.socket_io import OpenError, ProbeSocket, presence
from sdfstream.probes.net.socket_table_io import SocketTable
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")


@dataclass(slots=True)
class Look:
    """What was found at one NIC, and the sockets that were made on the way."""

    nic: NicConfig
    now: tuple[object, int] | None = None
    """What identifies it; None: it cannot be used."""
    error: OpenError | None = None
    made: list[tuple[SocketTable, int, ProbeSocket | OpenError]] = field(default_factory=list)

    def discard(self) -> None:
        """Close what was made: nobody wants it any more."""
        for _, _, opened in self.made:
            if isinstance(opened, ProbeSocket):
                opened.sock.close()


class NicWatch:
    """The NICs of one host and the sockets on them.

    A look has two parts: `survey` gives the slow one, which enters namespaces and opens sockets and may run in another
    thread, so that probing goes on; `apply` takes its result.

    Parameters
    ----------
    nics : sequence of NicConfig
    senders, reflectors : SocketTable
        Every wanted slot on one of `nics` is opened and closed with it.
    counters : Counters
        Gets ``nic-away``, ``nic-back`` and ``port-taken``.
    """

    def __init__(
        self, nics: Sequence[NicConfig], senders: SocketTable, reflectors: SocketTable, counters: Counters
    ) -> None:
        tables = (reflectors, senders)
        self._nics = tuple(nics)
        self._slots = {
            nic.nic: [(t, slot) for t in tables for slot, (mine, _) in enumerate(t.slots) if mine.nic == nic.nic]
            for nic in nics
        }
        self._tables = tables
        self._senders = senders
        self._taken: set[int] = set()
        """Senders' slots whose port somebody else has."""
        self._counters = counters
        self._there: dict[str, tuple[object, int]] = {}
        self._why: dict[str, str] = {}
        self.again = False
        """The last look left something to do at once."""

    @property
    def away(self) -> dict[str, str]:
        """NICs that cannot be used now, and why."""
        return dict(self._why)

    def start(self) -> list[tuple[str, bool]]:
        """Open what is there; NIC ids and whether each is usable.

        Raises
        ------
        ConfigError, UnavailableError
            A NIC is there but its sockets can never be opened (port taken or reserved, …).
        """
        self._apply(self.survey()(), strict=True)
        return [(nic.nic, nic.nic in self._there) for nic in self._nics]

    def suspected(self) -> bool:
        """Whether some socket failed as if its NIC had gone; forgets the suspicion."""
        found = any(t.suspects for t in self._tables)
        for table in self._tables:
            table.suspects.clear()
        return found

    def want(self, slots: Sequence[int], wanted: bool) -> None:
        """Whether these slots of the senders are to be open: closed here and now, opened by the next look."""
        for slot in slots:
            self._senders.wanted[slot] = wanted
            if not wanted:
                self._senders.close(slot)
                self._taken.discard(slot)

    def is_there(self, nic: str) -> bool:
        """Whether this NIC could be used at the last look."""
        return nic in self._there

    def settled(self, slots: Sequence[int]) -> bool:
        """Whether each of these slots of the senders is open, or cannot be now."""
        senders = self._senders
        return all(
            senders.sockets[s] is not None or s in self._taken or senders.slots[s][0].nic not in self._there
            for s in slots
        )

    def survey(self) -> Callable[[], list[Look]]:
        """The slow part of a look, for any thread: it changes nothing here."""
        asked = [(nic, self._there.get(nic.nic), self._closed(nic)) for nic in self._nics]
        return lambda: [_look(nic, before, closed) for nic, before, closed in asked]

    def apply(self, looks: Sequence[Look]) -> list[tuple[str, bool]]:
        """Take what a survey found; what changed, in order: (NIC id, usable).

        A NIC that was replaced shows as not usable, and usable after another look (`again`).
        """
        return self._apply(looks, strict=False)

    def look(self) -> list[tuple[str, bool]]:
        """Survey and apply in one go."""
        changes = self.apply(self.survey()())
        return changes + self.apply(self.survey()()) if self.again else changes

    def _closed(self, nic: NicConfig) -> list[tuple[SocketTable, int]]:
        return [(t, slot) for t, slot in self._slots[nic.nic] if t.wanted[slot] and t.sockets[slot] is None]

    def _apply(self, looks: Sequence[Look], *, strict: bool) -> list[tuple[str, bool]]:
        self.again = False
        changes: list[tuple[str, bool]] = []
        for i, look in enumerate(looks):
            try:
                changes += [(look.nic.nic, usable) for usable in self._take(look)]
            except (ConfigError, UnavailableError) as error:
                if strict:
                    for rest in looks[i:]:
                        rest.discard()
                    raise
                changes += [(look.nic.nic, usable) for usable in self._lost(look.nic, str(error))]
            except OSError as error:
                changes += [(look.nic.nic, usable) for usable in self._lost(look.nic, os.strerror(error.errno or 0))]
            finally:
                self._discard_unwanted(look)
        return changes

    def _take(self, look: Look) -> list[bool]:
        before = self._there.get(look.nic.nic)
        if look.error is not None:
            raise look.error
        if before is not None and look.now != before:
            self.again = True
            return self._lost(look.nic, "it was replaced")
        for table, slot, opened in look.made:
            if table is self._senders:
                self._take_sender(slot, opened)
            elif isinstance(opened, Exception):
                raise _told(opened, table, slot)
            elif table.wanted[slot] and table.sockets[slot] is None:
                table.adopt(slot, opened)
        if look.now is None or before is not None:
            return []
        self._there[look.nic.nic] = look.now
        if self._why.pop(look.nic.nic, None) is not None:
            self._counters.add("nic-back")
            _log.warning("%s is back", look.nic.nic)
        return [True]

    def _take_sender(self, slot: int, opened: ProbeSocket | OpenError) -> None:
        """Take a source port; one that is taken is said once and tried again later."""
        nic, port = self._senders.slots[slot]
        if isinstance(opened, Exception):
            if not isinstance(opened, OSError) or opened.errno != errno.EADDRINUSE:
                raise opened
            if slot not in self._taken:
                self._taken.add(slot)
                self._counters.add("port-taken")
                _log.warning("%s: source port %d is taken; its paths wait for it", nic.nic, port)
        elif self._senders.wanted[slot] and self._senders.sockets[slot] is None:
            self._senders.adopt(slot, opened)
            if slot in self._taken:
                self._taken.discard(slot)
                _log.warning("%s: source port %d is free again", nic.nic, port)

    def _discard_unwanted(self, look: Look) -> None:
        """Close what was made and is not used."""
        look.made = [(t, slot, o) for t, slot, o in look.made if t.sockets[slot] is not o]
        look.discard()

    def _lost(self, nic: NicConfig, why: str) -> list[bool]:
        """Close the NIC's sockets; says so once."""
        for table, slot in self._slots[nic.nic]:
            table.close(slot)
            if table is self._senders:
                self._taken.discard(slot)
        if self._why.get(nic.nic) is None:
            self._counters.add("nic-away")
            _log.warning("%s cannot be used: %s", nic.nic, why)
        self._why[nic.nic] = why
        return [False] if self._there.pop(nic.nic, None) is not None else []


def _look(nic: NicConfig, before: tuple[object, int] | None, closed: Sequence[tuple[SocketTable, int]]) -> Look:
    """Look at one NIC, and open its closed sockets if it is there."""
    look = Look(nic)
    try:
        look.now = presence(nic)
        if before is None or look.now == before:
            for table in dict.fromkeys(t for t, _ in closed):
                slots = [slot for t, slot in closed if t is table]
                look.made += [(table, slot, o) for slot, o in zip(slots, table.make(slots), strict=True)]
    except (OSError, ConfigError, UnavailableError) as error:
        look.error = error
    return look


def _told(error: OpenError, table: SocketTable, slot: int) -> OpenError:
    """Why a reflecting socket could not be opened, as a person understands it."""
    nic, port = table.slots[slot]
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        told = ConfigError(f"{nic.nic}: UDP port {port} is taken on {nic.device}")
        told.__cause__ = error
        return told
    return error
