"""Files in YAML that people write, read within bounds: settings, an agent's configuration, an inventory.

A file is walked event by event before anything of it is made: its size, the depth of its nesting, the number of its
values with every alias written out, and the entries of each list are bounded, so that no file costs more than a few
seconds, whatever stands in it. What is refused is a sentence with the file and the line; it quotes no value, since that
may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from sdfstream.errors import ConfigError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is there: five times faster."""
_QUOTED: Final = re.compile(r"""(["'])(?!<)(?:(?!\1).){3,}\1""")
"""What a message of the parser quotes from the file."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a file may hold."""

    size_bytes: int = 16 << 20
    depth: int = 32
    values: int = 1_000_000
    """Keys and values together, those of aliases as often as they are named."""
    entries: int = 10_000
    """Of one list or mapping."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What to do instead, by the key under which such a list stands."""


SETTINGS: Final = Bounds(
    advice={"sessions": "one agent takes no more: run several, or let the mesh plan choose (mesh: auto)"}
)
INVENTORY: Final = Bounds(size_bytes=256 << 20, values=20_000_000, entries=1_000_000)


def read(path: Path, bounds: Bounds = SETTINGS) -> Any:
    """The plain data in the file at `path`.

    Raises
    ------
    ConfigError
        The file cannot be read, is no YAML, exceeds `bounds` or has a key twice in one mapping: one line with the path,
        and the number of the line where it is known.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(bounds.size_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(raw) > bounds.size_bytes:
        raise ConfigError(f"{path} is larger than {bounds.size_bytes >> 20} MiB")
    return parse(raw, str(path), bounds)


def parse(raw: bytes, name: str, bounds: Bounds = SETTINGS) -> Any:
    """The plain data in `raw`; `name` stands in errors as the path does in those of `read`."""
    try:
        text = raw.decode()
        _walk(text, bounds)
        return yaml.load(text, Loader=_StrictLoader)
    except _Refused as error:
        raise ConfigError(f"{name}{_line(error.line)}: {error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not YAML: byte {error.start} is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = _QUOTED.sub("…", " ".join((error.problem or "it cannot be read").split()))
        raise ConfigError(f"{name} is not YAML{_line(mark.line if mark else None)}: {said}") from None
    except yaml.YAMLError as error:
        at = getattr(error, "position", None)
        line = raw.decode(errors="replace").count("\n", 0, at) if isinstance(at, int) else None
        raise ConfigError(f"{name} is not YAML{_line(line)}: a character that YAML does not allow") from None


class _Refused(Exception):  # noqa: N818 - becomes a ConfigError here
    def __init__(self, sentence: str, line: int | None) -> None:
        super().__init__(sentence)
        self.line = line


class _StrictLoader(_Loader):  # type: ignore[misc]
    """Refuses values that Python cannot hold, such as the date 2027-02-31."""


def _strictly(construct: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(loader: Any, node: Any) -> Any:
        try:
            value = construct(loader, node)
        except (ValueError, OverflowError):
            value = 1 << 64
        if isinstance(value, int) and value.bit_length() > 64:
            raise _Refused("a number or date that does not exist, or is too long", node.start_mark.line)
        return value

    return checked


for _kind in ("int", "float", "timestamp"):
    _tag = f"tag:yaml.org,2002:{_kind}"
    _StrictLoader.add_constructor(_tag, _strictly(_Loader.yaml_constructors[_tag]))


@dataclass(slots=True)
class _OpenNode:
    """A list or mapping whose end has not come yet."""

    line: int
    anchor: str | None
    before: int
    """Values before it."""
    key: str | None = None
    """Under which it stands."""
    is_mapping: bool = False
    children: int = 0
    last: str | None = None
    """The key whose value comes next."""
    keys: set[str] = field(default_factory=set)
    deepest: int = 0
    """Levels of nesting inside."""


@dataclass(slots=True)
class _Walk:
    bounds: Bounds
    open: list[_OpenNode] = field(default_factory=list)
    anchors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Values and levels behind each anchor."""
    values: int = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line
        if isinstance(event, yaml.NodeEvent):
            self._count(event, line)
        if isinstance(event, yaml.CollectionStartEvent):
            key = self.open[-1].last if self.open else None
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self.open.append(_OpenNode(line, event.anchor, self.values, key, is_mapping))
            self._check_depth(0, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self.open.pop()
            if self.open:
                self.open[-1].deepest = max(self.open[-1].deepest, ended.deepest + 1)
            if ended.anchor is not None:
                self.anchors[ended.anchor] = (self.values - ended.before, ended.deepest + 1)

    def _count(self, event: Any, line: int) -> None:
        weight = 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _Refused("an alias names an anchor that is not there yet, or holds itself", line)
            weight, levels = self.anchors[event.anchor]
            self._check_depth(levels, line)
            if self.open:
                self.open[-1].deepest = max(self.open[-1].deepest, levels)
        elif isinstance(event, yaml.ScalarEvent) and event.anchor is not None:
            self.anchors[event.anchor] = (1, 0)
        self.values += weight
        if self.values > self.bounds.values:
            raise _Refused(f"more than {self.bounds.values:,} values, with every alias written out", line)
        if self.open:
            self._count_child(self.open[-1], event)

    def _count_child(self, parent: _OpenNode, event: Any) -> None:
        if parent.is_mapping and parent.children % 2 == 0:
            parent.last = event.value if isinstance(event, yaml.ScalarEvent) else None
            if parent.last in parent.keys:
                raise _Refused(f"key {named(parent.last)} stands twice", event.start_mark.line)
            if parent.last is not None:
                parent.keys.add(parent.last)
        parent.children += 1
        if parent.children > self.bounds.entries * (1 + parent.is_mapping):
            what = f"key {named(parent.key)}" if parent.key is not None else "a list or mapping"
            advice = self.bounds.advice.get(parent.key or "", "the most that there may be")
            raise _Refused(f"{what} has more than {self.bounds.entries:,} entries; {advice}", parent.line)

    def _check_depth(self, levels: int, line: int) -> None:
        if len(self.open) + levels > self.bounds.depth:
            raise _Refused(f"nested more than {self.bounds.depth} levels deep", line)


def _walk(text: str, bounds: Bounds) -> None:
    walk = _Walk(bounds)
    documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise _Refused("a second document begins; one file holds one", getattr(event.start_mark, "line", None))
        walk.take(event)


def _line(line: int | None) -> str:
    return "" if line is None else f", line {line + 1}"


def named(key: object) -> str:
    """A key as errors name it: what does not look like one is cut, since a value may have slipped into it.

    >>> named("agent.hmac_key"), named("hmac_key:0123abcd")
    ("'agent.hmac_key'", "'hmac_key…'")
    """
    text = str(key)
    head = re.match(r"[\w.-]{0,48}", text, re.ASCII)
    shown = head[0] if head else ""
    return f"'{shown}'" if shown == text else f"'{shown}…'"
