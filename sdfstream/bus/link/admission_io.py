"""What the link lets onto the bus: messages of agents' topics, each from the process that speaks for its host.

Whatever else is refused: counted by reason, and whole in ``<topic>.dlq``. A message that is refused for its process is
also reported on the topology topic, once a second and host, so that it becomes a finding (`detect.producers`).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from sdfstream.bus import Bus, codec, dead_letters, producers
from sdfstream.bus.known_streams import KnownStreams
from sdfstream.bus.link.frames import Head
from sdfstream.bus.link.owners import HostOwners, Process
from sdfstream.bus.link.peer_io import runs
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output
from sdfstream.records.producer import MOST_CHARACTERS, PRODUCER_TYPE, RefusedProducer
from sdfstream.records.topics import QP, TOPOLOGY
from sdfstream.stats import Counters

_REPORT_EVERY_S: Final = 1.0
_MOST_HOSTS: Final = 4096
NOT_OF_AGENTS: Final = "topic-not-agents"


class Admission:
    """Lets messages onto `bus`.

    Parameters
    ----------
    bus : Bus
    topics : collection of str, optional
        Those that clients may write; None: all.
    counters : Counters
        Of the server: ``received``, ``refused`` (``foreign-host``, ``topic-not-agents``); the bus counts what it
        cannot read.
    """

    def __init__(self, bus: Bus, topics: Collection[str] | None, counters: Counters) -> None:
        self.owners = HostOwners(runs)
        self._bus = bus
        self._topics = topics
        self._counters = counters
        self._reported_s: dict[str, float] = {}
        self._known = KnownStreams()

    async def take(self, process: Process, head: Head, payload: bytes) -> None:
        """Publish a message of `process`, or set it aside with the reason."""
        if self._topics is not None and head.topic not in self._topics:
            await self._set_aside(head, payload, FormatError(NOT_OF_AGENTS, f"no agent writes {head.topic[:100]}"))
            return
        try:
            decoded = codec.decode_own(head.topic, head.headers, payload, head.key, self._known)
            host = producers.speaker(head.topic, head.key, decoded.body)
        except FormatError as error:
            await self._refuse(head, payload, error)
            return
        # beside the agent every job's process writes rows of its queue pairs
        other = self.owners.other(host, process) if host is not None and head.topic != QP.name else None
        if other is not None and host is not None:
            await self._report(host, process, other)
            detail = f"{process} speaks for {host[:100]!r}, for which {other} does"
            await self._set_aside(head, payload, FormatError(producers.REASON, detail))
            return
        output = Output(head.topic, head.key, decoded.body, decoded.boot_id, decoded.batch_seq)
        try:
            if decoded.refused_rows:  # the bus counts them and sets the message aside beside the others
                raise FormatError("null-rows")
            await self._bus.publish([output])
        except FormatError as error:
            await self._refuse(head, payload, error)

    async def _refuse(self, head: Head, payload: bytes, error: FormatError) -> None:
        """Set aside what speaks of a foreign host; give the bus what it refuses itself."""
        if error.reason == producers.REASON:
            await self._set_aside(head, payload, error)
        else:
            await self._bus.publish_bytes(head.topic, head.key, head.headers, payload)

    async def _set_aside(self, head: Head, payload: bytes, error: FormatError) -> None:
        self._counters.add("refused", error.reason)
        with suppress(FormatError):  # a message of an unknown topic has no dead-letter topic; it is counted
            codec.topic_of(head.topic)
            dead = dead_letters.dead_letter(head.topic, head.key, head.headers, payload, error, time.time_ns())
            await self._bus.publish([dead])

    async def _report(self, host: str, process: Process, owner: Process) -> None:
        """Report a second producer of `host`, now and then."""
        now_s = time.monotonic()
        if now_s - self._reported_s.get(host, -_REPORT_EVERY_S) < _REPORT_EVERY_S:
            return
        if len(self._reported_s) >= _MOST_HOSTS:
            self._reported_s.clear()
        self._reported_s[host] = now_s
        data = RefusedProducer(host[:MOST_CHARACTERS] or "?", str(process), str(owner)).as_data()
        at_ns = time.time_ns()
        event = Event(PRODUCER_TYPE, "link", f"producer-{at_ns}", at_ns, data)
        await self._bus.publish([Output(TOPOLOGY.name, f"producer:{data['host']}", event)])
