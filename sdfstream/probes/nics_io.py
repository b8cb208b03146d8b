"""NICs come and go: watch them, close the sockets of those that are away, open them again when they are back.

A NIC is usable when its namespace, its device (switched on) and its address are all there and its sockets could be
opened. A device that left and came back between two looks has another interface index (or namespace), so its sockets
are opened afresh, too.
"""

from __future__ import annotations

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
    tables : sequence of SocketTable
        Every slot on one of `nics` is opened and closed with it.
    counters : Counters
        Gets ``nic-away`` and ``nic-back``.
    """

    def __init__(self, nics: Sequence[NicConfig], tables: Sequence[SocketTable], counters: Counters) -> None:
        self._nics = tuple(nics)
        self._slots = {
            nic.nic: [(t, slot) for t in tables for slot, (mine, _) in enumerate(t.slots) if mine.nic == nic.nic]
            for nic in nics
        }
        self._tables = tuple(tables)
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
                return []
            if before is not None:
                changes += self._lost(nic, "it was replaced")
            for table, slot in self._slots[nic.nic]:
                table.open(slot)
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

    def _lost(self, nic: NicConfig, why: str) -> list[bool]:
        """Close the NIC's sockets; says so once."""
        for table, slot in self._slots[nic.nic]:
            table.close(slot)
        if self._why.get(nic.nic) is None:
            self._counters.add("nic-away")
            _log.warning("%s cannot be used: %s", nic.nic, why)
        self._why[nic.nic] = why
        return [False] if self._there.pop(nic.nic, None) is not None else []
