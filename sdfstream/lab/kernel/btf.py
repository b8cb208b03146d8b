"""Offsets of members in kernel structures, from the kernel's own type information (BTF).

Only what the lab needs: structures and unions by name, members by name, anonymous ones looked through. The walk
over all 130 000 types of a kernel takes about 35 ms, so nothing is cached on disk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from sdfstream.errors import FormatError

_MAGIC = 0xEB9F
_HEADER = struct.Struct("=HBBIIIII")
_STRUCT, _UNION = 4, 5
# Words that follow the three common words of each kind: fixed, and per element (linux/btf.h).
_FIXED = {1: 1, 3: 3, 14: 1, 17: 1}
_PER_ELEMENT = {4: 3, 5: 3, 6: 2, 13: 2, 15: 3, 19: 3}


class Btf:
    """One BTF blob, such as ``/sys/kernel/btf/vmlinux``.

    Raises
    ------
    FormatError
        ``btf`` when the bytes are not complete BTF of this machine's byte order.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER.size:
            raise FormatError("btf", "shorter than its header")
        magic, _, _, header, type_at, type_size, text_at, text_size = _HEADER.unpack_from(data)
        types_end, text_end = header + type_at + type_size, header + text_at + text_size
        if magic != _MAGIC or types_end > len(data) or text_end > len(data) or type_size % 4:
            raise FormatError("btf", "not BTF of this byte order, or cut off")
        self._text = data[header + text_at : text_end]
        self._words = memoryview(data)[header + type_at : types_end].cast("I")
        self._starts = _walk(self._words)

    def offset_bytes(self, structure: str, members: Sequence[str]) -> int:
        """Offset of ``structure.members[0].members[1]…``, in bytes.

        Raises
        ------
        FormatError
            ``btf`` when there is no such structure or member, or it is a bit field.
        """
        try:
            total_bits = self._offset_bits(structure, members)
        except (IndexError, ValueError, RecursionError) as error:
            raise FormatError("btf", f"types that refer to nothing: {error}") from error
        if total_bits % 8:
            raise FormatError("btf", f"{structure}.{'.'.join(members)} is a bit field")
        return total_bits // 8

    def _offset_bits(self, structure: str, members: Sequence[str]) -> int:
        at, total_bits = self._named(structure), 0
        for name in members:
            found = self._member(at, name)
            if found is None:
                raise FormatError("btf", f"{structure} has no member {'.'.join(members)}")
            total_bits += found[0]
            at = self._starts[found[1]]
        return total_bits

    def _named(self, name: str) -> int:
        text_at = self._text.find(b"\0" + name.encode() + b"\0") + 1
        for at in self._starts[1:] if text_at else ():
            if self._words[at] == text_at and self._kind(at) == _STRUCT:
                return at
        raise FormatError("btf", f"no structure {name}")

    def _kind(self, at: int) -> int:
        return (self._words[at + 1] >> 24) & 31

    def _members(self, at: int) -> Iterator[tuple[int, int, int]]:
        info = self._words[at + 1]
        if self._kind(at) not in (_STRUCT, _UNION):
            return
        for i in range(info & 0xFFFF):
            name, type_id, offset = self._words[at + 3 + 3 * i : at + 6 + 3 * i]
            # With the kind flag set the upper 8 bits are a bit field's width.
            yield name, type_id, offset & 0xFFFFFF if info >> 31 else offset

    def _member(self, at: int, name: str) -> tuple[int, int] | None:
        for text_at, type_id, bits in self._members(at):
            if text_at and self._name(text_at) == name:
                return bits, type_id
            if not text_at and (inner := self._member(self._starts[type_id], name)):
                return bits + inner[0], inner[1]
        return None

    def _name(self, text_at: int) -> str:
        return self._text[text_at : self._text.index(b"\0", text_at)].decode()


def _walk(words: memoryview[int]) -> list[int]:
    """Word index at which each type starts; type ids count from 1, so entry 0 stands for void."""
    starts = [0]
    at = 0
    while at + 3 <= len(words):
        starts.append(at)
        info = words[at + 1]
        kind = info >> 24 & 31
        at += 3 + _FIXED.get(kind, 0) + _PER_ELEMENT.get(kind, 0) * (info & 0xFFFF)
    if at != len(words):
        raise FormatError("btf", "the last type is cut off")
    return starts
