"""A full disk ends a recording, not its process; what was written until then replays."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.errors import UnavailableError
from sdfstream.records.units import NS_PER_S
from tests.fixtures import board_messages as bm


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_what_comes_after_is_counted_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordingWriter(tmp_path / "r", lambda: bm.NOW_NS + 20 * NS_PER_S)
    for second in range(5):
        writer.write(bm.small_fabric(bm.NOW_NS + second * NS_PER_S))
    monkeypatch.setattr("sdfstream.bus.recording.writer_io._TopicWriter.write", full)
    writer.write(bm.small_fabric(bm.NOW_NS + 6 * NS_PER_S))
    monkeypatch.undo()
    writer.write(bm.small_fabric(bm.NOW_NS + 7 * NS_PER_S))
    writer.flush()
    assert "No space left" in writer.counters.troubles.current(0.0)["disk"]
    assert writer.counters.total("lost") > 0
    await writer.close()
    recorded = list(open_recording(tmp_path / "r").messages())
    assert recorded and max(m.bus_at_ns for m in recorded) < bm.NOW_NS + 6 * NS_PER_S


async def test_the_head_stays_when_it_cannot_be_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordingWriter(tmp_path / "r", lambda: bm.NOW_NS + NS_PER_S)
    writer.write(bm.small_fabric())
    before = (tmp_path / "r" / "recording.json").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        await writer.close()
        with pytest.raises(UnavailableError, match="No space left"):
            RecordingWriter(tmp_path / "other")
    assert (tmp_path / "r" / "recording.json").read_text() == before
    assert writer.counters.troubles.open
