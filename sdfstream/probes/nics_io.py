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
from collections.abc import Sequence

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net_io import SocketTable
from sdfstream.probes.sockets_io import presence
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")


class NicWatch:
    """The NICs of one host and the sockets on them.

    Parameters
    ----------
    nics : sequence of NicConfig
    senders, reflectors : SocketTable
        Every slot on one of `nics` is opened and closed with it.
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
        self._taken: dict[str, set[int]] = {nic.nic: set() for nic in nics}
        self._counters = counters
        self._there: dict[str, tuple[object, int]] = {}
        self._why: dict[str, str] = {}

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
        for nic in self._nics:
            self._look(nic, strict=True)
        return [(nic.nic, nic.nic in self._there) for nic in self._nics]

    def suspected(self) -> bool:
        """Whether some socket failed as if its NIC had gone; forgets the suspicion."""
        found = any(t.suspects for t in self._tables)
        for table in self._tables:
            table.suspects.clear()
        return found

    def look(self) -> list[tuple[str, bool]]:
        """What changed since the last look, in order: (NIC id, usable).

        A NIC that was replaced shows as not usable, then usable.
        """
        changes: list[tuple[str, bool]] = []
        for nic in self._nics:
            changes += [(nic.nic, usable) for usable in self._look(nic, strict=False)]
        return changes

    def _look(self, nic: NicConfig, *, strict: bool) -> list[bool]:
        before = self._there.get(nic.nic)
        changes = []
        try:
            now = presence(nic)
            if now == before:
                for slot in tuple(self._taken[nic.nic]):
                    self._open_sender(nic, slot)
                return []
            if before is not None:
                changes += self._lost(nic, "it was replaced")
            for table, slot in self._slots[nic.nic]:
                if table is self._senders:
                    self._open_sender(nic, slot)
                else:
                    _open_reflector(table, slot)
        except (ConfigError, UnavailableError) as error:
            if strict:
                raise
            return changes + self._lost(nic, str(error))
        except OSError as error:
            return changes + self._lost(nic, os.strerror(error.errno or 0))
        self._there[nic.nic] = now
        if self._why.pop(nic.nic, None) is not None:
            self._counters.add("nic-back")
            _log.warning("%s is back", nic.nic)
        return [*changes, True]

    def _open_sender(self, nic: NicConfig, slot: int) -> None:
        """Open a source port; one that is taken is said once and tried again later."""
        taken, port = self._taken[nic.nic], self._senders.slots[slot][1]
        try:
            self._senders.open(slot)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if slot not in taken:
                taken.add(slot)
                self._counters.add("port-taken")
                _log.warning("%s: source port %d is taken; its paths wait for it", nic.nic, port)
        else:
            if slot in taken:
                taken.discard(slot)
                _log.warning("%s: source port %d is free again", nic.nic, port)

    def _lost(self, nic: NicConfig, why: str) -> list[bool]:
        """Close the NIC's sockets; says so once."""
        for table, slot in self._slots[nic.nic]:
            table.close(slot)
        self._taken[nic.nic].clear()
        if self._why.get(nic.nic) is None:
            self._counters.add("nic-away")
            _log.warning("%s cannot be used: %s", nic.nic, why)
        self._why[nic.nic] = why
        return [False] if self._there.pop(nic.nic, None) is not None else []


def _open_reflector(table: SocketTable, slot: int) -> None:
    nic, port = table.slots[slot]
    try:
        table.open(slot)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{nic.nic}: UDP port {port} is taken on {nic.device}") from error
        raise
