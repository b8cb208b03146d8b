"""Findings and clocks do not depend on how the stream is cut: slices of 20, 50 and 100 ms, and one message at a time.

Over every recording that the tests have: the shipped one, and those that earlier versions wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sdfstream import demo, pipeline
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.records import slices
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import CLOCK, FINDING
from sdfstream.records.units import NS_PER_MS
from sdfstream.runtime import replay
from sdfstream.settings import Settings

GOLDEN = Path(__file__).parents[1] / "golden"
SHIPPED = Path(demo.__file__).parent / "shipped_recording"
RECORDINGS = [SHIPPED, *sorted(path.parent for path in GOLDEN.rglob("recording.json"))]
SLICES_MS = (20, 50, 100)
Said = tuple[list[str], list[tuple[Any, ...]]]


def one_by_one(messages: Iterable[Message]) -> Iterator[list[Message]]:
    return ([message] for message in messages)


def said(folder: Path) -> Said:
    """What sync says of clocks, and detect of findings, over one recording."""
    recording = open_recording(folder)
    stages = pipeline.stages(Settings())
    clocks: list[str] = []
    findings: list[tuple[Any, ...]] = []
    given = recording.messages(recording.topics)
    for message in replay.replay(given, stages, recording.start_at_ns, recording.end_at_ns):
        body = message.body
        if message.topic == CLOCK.name and not isinstance(body, Event):
            clocks += map(str, body.to_pylist())
        elif message.topic == FINDING.name and isinstance(body, Event):
            data = body.data
            names = sorted(suspect["id"] for suspect in data["suspects"])
            findings.append((data["kind"], data["subject"]["id"], data["status"], data["cause"], names))
    return clocks, findings


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda path: "-".join(path.parts[-3:]))
def test_the_same_whatever_the_slicing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Said] = {}
    for ms in SLICES_MS:
        monkeypatch.setattr(slices, "SLICE_NS", ms * NS_PER_MS)
        told[f"{ms} ms"] = said(folder)
    monkeypatch.setattr(replay, "in_calls", one_by_one)
    told["one by one"] = said(folder)
    clocks, findings = told.pop("50 ms")
    for name, (others, found) in told.items():
        assert others == clocks, name
        assert found == findings, name


def test_the_recordings_have_something_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for ms in SLICES_MS:
        monkeypatch.setattr(slices, "SLICE_NS", ms * NS_PER_MS)
        calls.append(sum(1 for _ in slices.in_calls(open_recording(SHIPPED).messages(open_recording(SHIPPED).topics))))
    assert calls[0] > calls[1] > calls[2], "these slices cut the stream in other places"
    monkeypatch.undo()
    clocks, findings = said(SHIPPED)
    assert len(clocks) > 1000 and len(findings) > 5
