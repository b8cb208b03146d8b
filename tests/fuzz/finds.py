"""What a run found: each place that raised, once, with the input that made it; and as cases that stay."""

from __future__ import annotations

import base64
import json
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fuzz.traffic import Wire

CASES: Final = Path(__file__).parent / "cases"
"""Sequences of wire messages that once ended a stage, as `Finds.save` writes them; each test run replays them."""


@dataclass(slots=True)
class Finds:
    """Places that raised, by target and innermost line of the product."""

    count: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str], tuple[str, tuple[Wire, ...]]] = field(default_factory=dict)
    """Traceback and input of the first time."""

    def add(self, target: str, error: BaseException, wires: tuple[Wire, ...] = (), more: str = "") -> None:
        """Note that `target` raised `error` on the last of `wires`; `more`: what else a reader wants to see."""
        where = (target, f"{type(error).__name__} {place(error)}")
        self.count[where] += 1
        if where not in self.first:
            self.first[where] = ("".join(traceback.format_exception(error)) + more, wires)

    def note(self, target: str, what: str, wires: tuple[Wire, ...] = ()) -> None:
        """Note something that is wrong without an exception."""
        self.count[target, what] += 1
        self.first.setdefault((target, what), (what, wires))

    def lines(self, *, long: bool = False) -> Iterator[str]:
        """What a person reads."""
        for (target, what), n in self.count.most_common():
            text, wires = self.first[target, what]
            yield f"{n:7} {target}: {what}"
            if long:
                yield from (f"          {line}" for line in text.splitlines()[-14:])
                yield from (f"          input: {one.topic} {one.value[:400]!r}" for one in wires[-1:])

    def save(self, folder: Path) -> None:
        """A file per find."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, ((target, what), (text, wires)) in enumerate(self.first.items()):
            case = {"target": target, "what": what, "wires": [packed(one) for one in wires]}
            (folder / f"{number:03}-{target}.json").write_text(json.dumps(case, indent=1) + "\n")
            (folder / f"{number:03}-{target}.txt").write_text(text)


def place(error: BaseException) -> str:
    """File and line of the product nearest to where `error` was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/sdfstream/" in f.filename]
    if not frames:
        return f"{error}"[:100]
    last = frames[-1]
    return f"{last.filename.rsplit('/sdfstream/', 1)[-1]}:{last.lineno} {last.name}"


def packed(one: Wire) -> dict[str, Any]:
    """A wire message as JSON."""
    return {
        "topic": one.topic,
        "key": one.key,
        "headers": [[name, value.decode("latin-1")] for name, value in one.headers],
        "value": base64.b64encode(one.value).decode(),
    }


def unpacked(case: dict[str, Any]) -> Wire:
    """What `packed` made, again."""
    headers = tuple((name, value.encode("latin-1")) for name, value in case["headers"])
    return Wire(case["topic"], case["key"], headers, base64.b64decode(case["value"]), False)
