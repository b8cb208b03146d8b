"""A recording as the input of a replay: archived, counted and reported as progress while the stages take it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from sdfstream.archive.writer_io import Archive
from sdfstream.bus.recording.reader_io import Recording
from sdfstream.records.message import Message

_PROGRESS_S: Final = 2.0


class ReplayInput:
    """Messages of a recording, without the topics that the replay makes afresh.

    Parameters
    ----------
    recording : Recording
    archive : Archive or None
        Gets every message that is read; None: nothing is archived.
    afresh : collection of str
        Topics that the replay's stages write.
    progress : callable, optional
        Called every two seconds with a line of text.
    """

    def __init__(
        self,
        recording: Recording,
        archive: Archive | None,
        afresh: Collection[str],
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._recording = recording
        self._archive = archive
        self._topics = [topic for topic in recording.topics if topic not in afresh]
        self._progress = progress
        self.rows = 0
        """Rows read so far."""

    def messages(self) -> Iterator[Message]:
        """All messages, in order of (bus_at_ns, topic, bus_seq)."""
        reported_s = time.perf_counter()
        for message in self._recording.messages(self._topics):
            self.rows += message.rows
            if self._archive is not None:
                self._archive.add_blocking([message])
            if self._progress is not None and time.perf_counter() - reported_s > _PROGRESS_S:
                reported_s = time.perf_counter()
                self._progress(self._line(message.bus_at_ns))
            yield message

    def _line(self, at_ns: int) -> str:
        span_ns = max(self._recording.end_at_ns - self._recording.start_at_ns, 1)
        return f"replay: {(at_ns - self._recording.start_at_ns) / span_ns:4.0%}, {self.rows:,} rows"
