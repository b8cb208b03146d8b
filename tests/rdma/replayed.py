"""What the host makes of the recordings that two agents in the guest have written, by the stories told to them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.cli import main
from sdfstream.records.message import Event
from sdfstream.records.topics import CLOCK, FINDING, OWD, PROBE

Finding = dict[str, Any]


def check(agents: Path, out: Path) -> str:
    """Replay both recordings as one; rows, clocks, delays and findings are those of the story. A line of figures."""
    recordings = [str(agents / host) for host in ("h00", "h04")]
    marks: dict[str, int] = json.loads((agents / "marks.json").read_text())
    assert main(["replay", *recordings, "--out", str(out)]) == 0
    probes = _transports(Path(recordings[0]), PROBE.name) + _transports(Path(recordings[1]), PROBE.name)
    delays = _transports(out, OWD.name)
    for transport in ("udp", "rocev2"):
        assert probes[transport] > 20, probes
        assert delays[transport] > 20, delays
    clocks = {name for batch in _batches(out, CLOCK.name) for name in batch.column("clock").to_pylist()}
    assert {"h00", "h04"} <= clocks
    found = [f for f in _findings(out) if f["status"] == "open" and f["kind"] == "transport-silent"]
    first = min(found, key=lambda f: int(f["seen_at_ns"]))
    assert first["subject"]["id"] in ("h00/r0", "h04/r0")
    assert {s["id"] for s in first["suspects"]} == {"h00/r0", "h04/r0"}, "they probe each other alone"
    assert marks["drop-roce"] - 10**9 <= first["since_at_ns"] <= marks["pass-roce"]
    told_s = (first["seen_at_ns"] - marks["drop-roce"]) / 1e9
    assert {"nic-down", "link-down", "link-flap", "host-silent"}.isdisjoint(f["kind"] for f in _findings(out))
    return f"agents: rows {dict(probes)}, delays {dict(delays)}; RoCEv2 dropped to the finding: {told_s:.1f} s"


FAULTS: Final = {
    "queue": {"congestion", "ecn-marks"},
    "black-hole": {"link-down", "path-down"},
    "loss": {"loss"},
    "unplugged": {"nic-down", "link-down"},
    "flapping": {"link-flap"},
}
"""Part of the story to kinds of finding that are right; it ends with the mark ``no-…``, or ``plugged``."""
_LATE_NS: Final = 6 * 10**9
"""Findings open, and others follow, for so long after the part."""


def check_faults(agents: Path, out: Path) -> str:
    """Replay both recordings as one; each fault is found while it lasts, and nothing urgent between. Figures."""
    marks: dict[str, int] = json.loads((agents / "marks.json").read_text())
    assert main(["replay", *(str(agents / host) for host in ("h00", "h04")), "--out", str(out)]) == 0
    opened = [f for f in _findings(out) if f["status"] == "open"]
    ends = {part: marks["plugged" if part == "unplugged" else f"no-{part}"] + _LATE_NS for part in FAULTS}
    told, missed = [], []
    for part, kinds in FAULTS.items():
        right = [f for f in opened if f["kind"] in kinds and marks[part] <= f["seen_at_ns"] <= ends[part]]
        if not right:
            missed.append(part)
            continue
        first = min(right, key=lambda f: int(f["seen_at_ns"]))
        after_s = (first["seen_at_ns"] - marks[part]) / 1e9
        told.append(f"{part}: {first['kind']} {first['subject']['id']} after {after_s:.1f} s")
    said = [(f["kind"], f["subject"]["id"], (f["seen_at_ns"] - marks["alive"]) / 1e9) for f in opened]
    assert not missed, (missed, said)
    stray = [
        (f["kind"], f["subject"]["id"])
        for f in opened
        if f["class"] in ("link", "node")
        and not any(marks[part] - 10**9 <= f["seen_at_ns"] <= ends[part] for part in FAULTS)
    ]
    assert not stray, said
    return f"faults: {'; '.join(told)}; {len(opened)} findings opened in all"


def _batches(recording: Path, topic: str) -> list[pa.RecordBatch]:
    messages = open_recording(recording).messages()
    return [m.body for m in messages if m.topic == topic and isinstance(m.body, pa.RecordBatch)]


def _transports(recording: Path, topic: str) -> Counter[str]:
    return Counter(t for batch in _batches(recording, topic) for t in batch.column("transport").to_pylist())


def _findings(recording: Path) -> list[Finding]:
    messages = open_recording(recording).messages()
    return [dict(m.body.data) for m in messages if m.topic == FINDING.name and isinstance(m.body, Event)]
