"""The journal of an agent's process: what it took up, what the bus acknowledged, what it shed.

Lines, written at once (they outlive kill -9) and forced to the disk every second: ``B boot`` a run begins, ``P n``
message n of the story was taken up, ``O n topic key digest`` one of the agent's own was, ``A n …`` the bus has these,
``S rows`` shed so far in this run, ``E`` the run ended as it was told to, with nothing left to send.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


class Journal:
    """Written by the agent."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._synced_s = 0.0
        self._shed = 0
        self.line(f"B {boot_id}")

    def line(self, text: str) -> None:
        """Write one line."""
        os.write(self._file, f"{text}\n".encode())
        now_s = time.monotonic()
        if now_s - self._synced_s > 1.0:
            self._synced_s = now_s
            os.fsync(self._file)

    def took(self, numbers: Iterable[str]) -> None:
        """The bus acknowledged these."""
        if text := " ".join(numbers):
            self.line(f"A {text}")

    def shed(self, rows: int) -> None:
        """Rows shed so far."""
        if rows != self._shed:
            self._shed = rows
            self.line(f"S {rows}")

    def end(self) -> None:
        """Nothing more comes."""
        self.line("E")
        os.fsync(self._file)


@dataclass(slots=True)
class Own:
    """A message that an agent made itself: an outcome."""

    topic: str
    key: str
    digest: int


@dataclass(slots=True)
class Told:
    """What one run wrote."""

    boot_id: str
    made: list[str] = field(default_factory=list)
    own: dict[str, Own] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    shed_rows: int = 0
    orderly: bool = False


def read(path: Path) -> list[Told]:
    """The runs of an agent in order; a last line cut off in the middle is left out."""
    runs: list[Told] = []
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, _, rest = line.partition(" ")
        if word == "B":
            runs.append(Told(rest))
        elif word == "P":
            runs[-1].made.append(rest)
        elif word == "O":
            number, topic, key, sum_ = rest.split(" ")
            runs[-1].made.append(number)
            runs[-1].own[number] = Own(topic, key, int(sum_))
        elif word == "A":
            runs[-1].taken |= set(rest.split(" "))
        elif word == "S":
            runs[-1].shed_rows = int(rest)
        elif word == "E":
            runs[-1].orderly = True
    return runs
