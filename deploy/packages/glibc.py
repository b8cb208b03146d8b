#!/usr/bin/env python3
"""Which glibc the files of a package need, and the last of it taken off them. Standard library only.

    glibc.py needs FILE...             the latest version that any of them asks for, and which symbols ask for it
    glibc.py lower VERSION FILE...     take off them what is later than VERSION, where that is known to be safe
    glibc.py hide VERSION LIBRARY...   make a C library look like VERSION to the loader (a bare system that is tried)

A file names the versions that it needs (``.gnu.version_r``), and each of its symbols says of which it is. The loader
refuses a file of which one version is not there, even if its symbol is never called. `lower` puts an earlier version in
the place of such a one, and makes its symbols unversioned (any definition will do). That is right for a symbol that
older releases have too, under an older version (`KNOWN`), or that the package brings along (``compat.c``). To mark the
version as weak would do as well, but the loader complains of it at each start.

References: Linux Standard Base Core 5.0, chapter 10.7 (symbol versions); glibc's ``elf/dl-version.c`` and
``elf/dl-lookup.c``.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KNOWN = {
    "hypot": "libm has had it since 2.2.5; 2.35's is faster and sets errno by another way",
    "arc4random_buf": "compat.c",
}
"""Symbols of later versions that may be taken from an older one or from the package, and why."""
BASELINES = ((2, 2, 5), (2, 17))
"""The first version on x86-64 and on aarch64: every library of glibc defines it."""
_HIDDEN, _GLOBAL = 0x8000, 1
_DYNSYM, _VERDEF, _VERNEED, _VERSYM = 11, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF

Version = tuple[int, ...]


@dataclass
class Need:
    """One version that a file needs of one library: `at` is its entry's offset, `index` what its symbols carry."""

    library: str
    name: str
    at: int
    index: int


class Elf:
    """A 64-bit little-endian ELF file's symbol versions."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, bytearray(path.read_bytes())
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        start, size, count = (self._at("<Q", 0x28), self._at("<H", 0x3A), self._at("<H", 0x3C))
        # of each section: type, file offset, size, number of the section with its strings, number of entries
        heads = [struct.unpack_from("<IIQQQQII", self.data, start + i * size) for i in range(count)]
        self._sections = {h[1]: h for h in heads}
        self._offsets = [h[4] for h in heads]

    def _at(self, form: str, at: int) -> int:
        (value,) = struct.unpack_from(form, self.data, at)
        return int(value)

    def _text(self, section: int, at: int) -> str:
        start = self._offsets[self._sections[section][6]] + at
        return self.data[start : self.data.index(0, start)].decode()

    def needs(self) -> Iterator[Need]:
        """Every version that the file needs."""
        if _VERNEED not in self._sections:
            return
        _, _, _, _, at, _, _, count = self._sections[_VERNEED]
        for _ in range(count):
            _, entries, library, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(entries):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.data, entry)
                said = self._text(_VERNEED, library), self._text(_VERNEED, name)
                yield Need(*said, entry, index & ~_HIDDEN)
                entry += step
            at += following

    def definitions(self) -> Iterator[tuple[int, int, str]]:
        """Every version that a library defines: offset of its name in the file, index, name."""
        if _VERDEF not in self._sections:
            return
        _, _, _, _, at, _, link, count = self._sections[_VERDEF]
        for _ in range(count):
            _, _, index, _, _, first, following = struct.unpack_from("<HHHHIII", self.data, at)
            name = self._at("<I", at + first)
            yield self._offsets[link] + name, index, self._text(_VERDEF, name)
            at += following

    def symbols(self, index: int) -> Iterator[tuple[str, int]]:
        """Symbols of the version `index`, and where that stands."""
        _, _, _, _, versions, size, _, _ = self._sections[_VERSYM]
        symbols = self._sections[_DYNSYM][4]
        for number in range(size // 2):
            if self._at("<H", versions + 2 * number) & ~_HIDDEN == index:
                yield self._text(_DYNSYM, self._at("<I", symbols + 24 * number)), versions + 2 * number

    def put(self, at: int, value: int) -> None:
        """Write two bytes."""
        struct.pack_into("<H", self.data, at, value)

    def replace(self, need: Need, by: Need) -> None:
        """Let an entry name another version: its hash and its name, which keeps its index."""
        for at, size in ((0, 4), (8, 4)):
            self.data[need.at + at : need.at + at + size] = self.data[by.at + at : by.at + at + size]

    def write(self) -> None:
        """Write the file in place."""
        self.path.write_bytes(self.data)


def version(name: str) -> Version:
    """``GLIBC_2.34`` as numbers; nothing for the names of other libraries, and ``GLIBC_PRIVATE``."""
    head, _, numbers = name.partition("_")
    parts = numbers.split(".")
    return tuple(map(int, parts)) if head == "GLIBC" and all(p.isdigit() for p in parts) else ()


def elves(paths: list[str]) -> Iterator[Elf]:
    """The ELF files among `paths`."""
    for path in map(Path, paths):
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            head = file.read(6)
        if head == b"\x7fELF\x02\x01":
            yield Elf(path)


def later(elf: Elf, than: Version) -> Iterator[tuple[Need, list[tuple[str, int]]]]:
    """Versions of glibc after `than` that the file cannot do without, and their symbols."""
    for need in elf.needs():
        if version(need.name) > than:
            yield need, list(elf.symbols(need.index))


def needs(paths: list[str]) -> Version:
    """The latest version that any file needs; on standard error the symbols of those that need it."""
    found: dict[Version, list[str]] = {}
    for elf in elves(paths):
        for need, symbols in later(elf, ()):
            found.setdefault(version(need.name), []).append(f"{elf.path.name}: {', '.join(s for s, _ in symbols[:9])}")
    latest = max(found, default=())
    for line in found.get(latest, [])[:9]:
        print(f"  {line}", file=sys.stderr)
    return latest


def lower(to: Version, paths: list[str]) -> list[str]:
    """Take off what is later than `to` where every symbol is `KNOWN`; what was done and what was left, in words."""
    said = []
    for elf in elves(paths):
        changed = False
        for need, symbols in list(later(elf, to)):
            unknown = [name for name, _ in symbols if name not in KNOWN]
            others = [n for n in elf.needs() if n.library == need.library or version(n.name) in BASELINES]
            others = [n for n in others if () < version(n.name) <= to]
            left = bool(unknown) or not others
            names = ", ".join(unknown or [name for name, _ in symbols])
            said.append(f"{elf.path.name}: {need.name} of {need.library} {'is left' if left else 'taken off'}: {names}")
            if left:
                continue
            for _, at in symbols:
                elf.put(at, _GLOBAL)
            elf.replace(need, max(others, key=lambda n: version(n.name)))
            changed = True
        if changed:
            elf.write()
    return said


def hide(after: Version, paths: list[str]) -> int:
    """Rename the versions after `after` that libraries define, and hide their symbols; how many versions."""
    count = 0
    for elf in elves(paths):
        for at, index, name in list(elf.definitions()):
            if version(name) > after:
                elf.data[at : at + 5] = b"LATER"
                for _, place in list(elf.symbols(index)):
                    elf.put(place, index | _HIDDEN)
                count += 1
        elf.write()
    return count


def main(words: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("needs", "lower", "hide"):
        sub = verbs.add_parser(verb)
        if verb != "needs":
            sub.add_argument("version")
        sub.add_argument("files", nargs="*")
    given = parser.parse_args(words)
    if given.verb == "needs":
        print(".".join(map(str, needs(given.files))))
    elif given.verb == "lower":
        print("\n".join(lower(version(f"GLIBC_{given.version}"), given.files)), file=sys.stderr)
    else:
        print(f"{hide(version(f'GLIBC_{given.version}'), given.files)} versions hidden", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
