"""Reading a recording as far as it is whole (`writer_io` writes one).

Nothing in a file ends the reading for good: a torn line, a truncated or corrupt block, a file of an unknown topic
is refused with its reason (`Recording.rejects`, `Recording.counters`) and the rest goes on. Memory is bounded by one
block per topic, whatever the recording's length.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.bus.recording import format as recording
from sdfstream.bus.recording.file_io import topic_files
from sdfstream.bus.recording.format import RecordingReject
from sdfstream.bus.recording.writer_io import META
from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.message import Message
from sdfstream.stats import Counters

REJECTS: Final = "rejects.jsonl"


class Recording:
    """A recording on disk, opened by `open_recording`.

    `rejects` and `counters` cover the last pass of `messages` (and of ``recording.json``); at most
    `MAX_REJECTS` rejects are listed, all are counted.
    """

    MAX_REJECTS: Final = 1000

    def __init__(self, directories: Sequence[Path]) -> None:
        self.counters = Counters("recording")
        self.rejects: list[RecordingReject] = []
        self.directories = tuple(directories)
        self._files = [f for i, d in enumerate(directories) for f in topic_files(d, source=i)]
        metas = [self._read_meta(d) for d in directories]
        self._meta_rejects = list(self.rejects)
        self.cluster = next((m["cluster"] for m in metas if m.get("cluster")), "")
        scans = [self._times(i, m) for i, m in enumerate(metas)]
        self.start_at_ns = min((s for s, _ in scans if s is not None), default=0)
        """First instant of the recording; where ``recording.json`` has none, the first message's time."""
        self.end_at_ns = max((e for _, e in scans if e is not None), default=self.start_at_ns)
        """Last instant, likewise."""
        self._clear()

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that have a file, sorted."""
        return tuple(sorted({f.topic.name for f in self._files if f.topic}))

    def messages(self, topics: Collection[str] | None = None) -> Iterator[Message]:
        """Every message, or those of `topics`, in order of (bus_at_ns, topic, bus_seq)."""
        self._clear()
        chosen = [f for f in self._files if topics is None or f.name in topics]
        for message in heapq.merge(*(f.messages(self._reject) for f in chosen), key=recording.merged_key):
            self.counters.add("read", message.topic)
            yield message

    def _clear(self) -> None:
        self.rejects = []
        self.counters = Counters("recording")
        for reject in self._meta_rejects:
            self._reject(reject)

    def _reject(self, reject: RecordingReject) -> None:
        self.counters.add("refused", reject.reason, reject.n)
        if len(self.rejects) < self.MAX_REJECTS:
            self.rejects.append(reject)

    def _read_meta(self, directory: Path) -> dict[str, Any]:
        try:
            raw = (directory / META).read_bytes()
        except FileNotFoundError:
            self._reject(RecordingReject(META, "missing", "times are taken from the messages", "the file", 1))
            return {}
        try:
            meta = strict_json.loads(raw)
        except FormatError as error:
            self._reject(RecordingReject(META, error.reason, error.detail, "the file", 1))
            return {}
        if not isinstance(meta, dict) or meta.get("version") != recording.VERSION:
            raise FormatError("recording-version", f"{directory / META} is not of version {recording.VERSION}")
        if not isinstance(meta.get("cluster", ""), str):
            meta["cluster"] = ""
        return meta

    def _times(self, source: int, meta: dict[str, Any]) -> tuple[int | None, int | None]:
        start, end = (meta.get(name) for name in ("start_at_ns", "end_at_ns"))
        if type(start) is int and type(end) is int and start <= end:
            return start, end
        seen = [span for f in self._files if f.source == source and (span := f.span()) is not None]
        return min((s for s, _ in seen), default=None), max((e for _, e in seen), default=None)


def open_recording(path: Path | str, *more: Path | str) -> Recording:
    """The recording in folder `path`, or several folders' as one (say two hosts' of one trial).

    Raises
    ------
    ConfigError
        A folder is not there or holds nothing of a recording.
    FormatError
        ``recording-version``: ``recording.json`` names a version that this program does not know.
    """
    directories = [Path(p) for p in (path, *more)]
    for directory in directories:
        if not directory.is_dir():
            raise ConfigError(f"{directory} is not a recording: no such folder")
        if not (directory / META).exists() and not any(topic_files(directory)):
            raise ConfigError(f"{directory} is not a recording: no {META} and no topic's file in it")
    return Recording(directories)


def write_rejects(directory: Path, rejects: list[RecordingReject]) -> Path | None:
    """Write `rejects` to ``rejects.jsonl`` in `directory`; nothing is written when there are none."""
    if not rejects:
        return None
    path = directory / REJECTS
    path.write_bytes(b"".join(recording.reject_lines(rejects)))
    return path
