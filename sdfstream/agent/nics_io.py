"""NICs come and go: survey them, close the sockets of those that are away, open them again when they are back.

A NIC is usable when its namespace, its device (switched on) and its address are all there and its reflecting socket
could be opened. A source port that another program has now (any may be given it as its ephemeral port) costs only its
own paths; it is tried again at every survey.

A device that left and came back between two surveys has another interface index (or namespace), so its sockets are
opened afresh, too.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sdfstream.agent.packets import SocketSlots
from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net.socket_io import OpenError, ProbeSocket, presence
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")


@dataclass(slots=True)
class NicSurvey:
    """What was found at one NIC, and the sockets that were opened."""

    nic: NicConfig
    identity: tuple[object, int] | None = None
    """Its namespace and interface index; None: it cannot be used."""
    mtu_bytes: int | None = None
    """Of its device; None: it cannot be used, or its MTU cannot be read."""
    error: OpenError | None = None
    opened: list[tuple[SocketSlots, int, ProbeSocket | OpenError]] = field(default_factory=list)

    def discard(self) -> None:
        """Close the sockets: the survey is not applied."""
        for _, _, made in self.opened:
            if isinstance(made, ProbeSocket):
                made.sock.close()


class NicMonitor:
    """The NICs of one host and the sockets on them.

    `survey` returns the slow half of the work, which enters namespaces and opens sockets and may run in another thread,
    so that probing goes on; `apply` takes its result.

    Parameters
    ----------
    nics : sequence of NicConfig
    senders, reflectors : SocketSlots
        Every wanted slot on one of `nics` is opened and closed with it.
    counters : Counters
        Gets ``nic-away``, ``nic-back`` and ``port-taken``.
    """

    def __init__(
        self, nics: Sequence[NicConfig], senders: SocketSlots, reflectors: SocketSlots, counters: Counters
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
        """Senders' slots whose port another program has."""
        self._counters = counters
        self._present: dict[str, tuple[object, int]] = {}
        self._why: dict[str, str] = {}
        self._mtu_bytes: dict[str, int] = {}
        self.again = False
        """The last survey left something to do at once."""

    def start(self) -> list[tuple[str, bool]]:
        """Open the sockets of the NICs that are present; NIC ids and whether each is usable.

        Raises
        ------
        ConfigError, UnavailableError
            A NIC is present but its sockets can never be opened (port taken or reserved, …).
        """
        self._apply(self.survey()(), strict=True)
        return [(nic.nic, nic.nic in self._present) for nic in self._nics]

    def suspected(self) -> bool:
        """Whether some socket failed as if its NIC had gone; forgets the suspicion."""
        found = any(t.suspects for t in self._tables)
        for table in self._tables:
            table.suspects.clear()
        return found

    def want(self, slots: Sequence[int], wanted: bool) -> None:
        """Whether these slots of the senders are to be open: closed at once, opened by the next survey."""
        for slot in slots:
            self._senders.wanted[slot] = wanted
            if not wanted:
                self._senders.close(slot)
                self._taken.discard(slot)

    def is_present(self, nic: str) -> bool:
        """Whether this NIC could be used at the last survey."""
        return nic in self._present

    def mtu_bytes(self, nic: str) -> int | None:
        """MTU of this NIC's device at the last survey that found it; None: not known."""
        return self._mtu_bytes.get(nic)

    def settled(self, slots: Sequence[int]) -> bool:
        """Whether each of these slots of the senders is open, or cannot be now."""
        senders = self._senders
        return all(
            senders.sockets[s] is not None or s in self._taken or senders.slots[s][0].nic not in self._present
            for s in slots
        )

    def survey(self) -> Callable[[], list[NicSurvey]]:
        """The slow half of a survey, for any thread: it changes nothing here."""
        asked = [(nic, self._present.get(nic.nic), self._closed(nic)) for nic in self._nics]
        return lambda: [_survey_nic(nic, before, closed) for nic, before, closed in asked]

    def apply(self, surveys: Sequence[NicSurvey]) -> list[tuple[str, bool]]:
        """Take a survey; the changes, in order: (NIC id, usable).

        A NIC that was replaced is first not usable, and usable after another survey (`again`).
        """
        return self._apply(surveys, strict=False)

    def _closed(self, nic: NicConfig) -> list[tuple[SocketSlots, int]]:
        return [(t, slot) for t, slot in self._slots[nic.nic] if t.wanted[slot] and t.sockets[slot] is None]

    def _apply(self, surveys: Sequence[NicSurvey], *, strict: bool) -> list[tuple[str, bool]]:
        self.again = False
        changes: list[tuple[str, bool]] = []
        for i, survey in enumerate(surveys):
            try:
                changes += [(survey.nic.nic, usable) for usable in self._take(survey)]
            except (ConfigError, UnavailableError) as error:
                if strict:
                    for rest in surveys[i:]:
                        rest.discard()
                    raise
                changes += [(survey.nic.nic, usable) for usable in self._lost(survey.nic, str(error))]
            except OSError as error:
                why = error.strerror or str(error) or type(error).__name__
                changes += [(survey.nic.nic, usable) for usable in self._lost(survey.nic, why)]
            finally:
                self._discard_unwanted(survey)
        return changes

    def _take(self, survey: NicSurvey) -> list[bool]:
        before = self._present.get(survey.nic.nic)
        if survey.error is not None:
            raise survey.error
        if before is not None and survey.identity != before:
            self.again = True
            return self._lost(survey.nic, "it was replaced")
        for table, slot, opened in survey.opened:
            if table is self._senders:
                self._take_sender(slot, opened)
            elif isinstance(opened, Exception):
                raise _explained(opened, table, slot)
            elif table.wanted[slot] and table.sockets[slot] is None:
                table.adopt(slot, opened)
        if survey.mtu_bytes is not None:
            self._mtu_bytes[survey.nic.nic] = survey.mtu_bytes
        if survey.identity is None or before is not None:
            return []
        self._present[survey.nic.nic] = survey.identity
        if self._why.pop(survey.nic.nic, None) is not None:
            self._counters.add("nic-back")
            _log.warning("%s is back", survey.nic.nic)
        return [True]

    def _take_sender(self, slot: int, opened: ProbeSocket | OpenError) -> None:
        """Take a source port; a taken one is logged once and tried again later."""
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

    def _discard_unwanted(self, survey: NicSurvey) -> None:
        """Close the sockets that are not used."""
        survey.opened = [(t, slot, o) for t, slot, o in survey.opened if t.sockets[slot] is not o]
        survey.discard()

    def _lost(self, nic: NicConfig, why: str) -> list[bool]:
        """Close the NIC's sockets; logged once."""
        for table, slot in self._slots[nic.nic]:
            table.close(slot)
            if table is self._senders:
                self._taken.discard(slot)
        if self._why.get(nic.nic) is None:
            self._counters.add("nic-away")
            _log.warning("%s cannot be used: %s", nic.nic, why)
        self._why[nic.nic] = why
        return [False] if self._present.pop(nic.nic, None) is not None else []


def _survey_nic(
    nic: NicConfig, before: tuple[object, int] | None, closed: Sequence[tuple[SocketSlots, int]]
) -> NicSurvey:
    """Survey one NIC, and open its closed sockets if it is present."""
    survey = NicSurvey(nic)
    try:
        survey.identity, survey.mtu_bytes = presence(nic)
        if before is None or survey.identity == before:
            for table in dict.fromkeys(t for t, _ in closed):
                slots = [slot for t, slot in closed if t is table]
                survey.opened += [(table, slot, o) for slot, o in zip(slots, table.make(slots), strict=True)]
    except (OSError, ConfigError, UnavailableError) as error:
        survey.error = error
    return survey


def _explained(error: OpenError, table: SocketSlots, slot: int) -> OpenError:
    """The error of a reflecting socket that could not be opened, with a sentence for people."""
    nic, port = table.slots[slot]
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        explained = ConfigError(f"{nic.nic}: UDP port {port} is taken on {nic.device}")
        explained.__cause__ = error
        return explained
    return error
