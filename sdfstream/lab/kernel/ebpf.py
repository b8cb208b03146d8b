"""A small eBPF assembler: instructions with labels in, bytecode out (RFC 9669)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

_SLOT = struct.Struct("=BBhi")

MOV, MOV_IMM = 0xBF, 0xB7
ADD_IMM, AND_IMM, RSH_IMM = 0x07, 0x57, 0x77
LDX_BYTE, LDX_HALF, LDX_WORD, LDX_DOUBLE = 0x71, 0x69, 0x61, 0x79
STX_WORD, STX_DOUBLE = 0x63, 0x7B
JUMP, JEQ_IMM, JNE_IMM, JNE, JGE, JLE = 0x05, 0x15, 0x55, 0x5D, 0x3D, 0xBD
CALL, EXIT = 0x85, 0x95
ATOMIC_DOUBLE = 0xDB
TO_BIG_ENDIAN = 0xDC
LOAD_MAP = 0x18


@dataclass(slots=True)
class Assembler:
    """Instructions in order; a jump names its target by label, which may follow later.

    Examples
    --------
    >>> a = Assembler()
    >>> a.op(MOV_IMM, dst=0, imm=1)
    >>> a.op(EXIT)
    >>> a.bytecode().hex()
    'b7000000010000009500000000000000'
    """

    _slots: list[tuple[int, int, int, int, int, str]] = field(default_factory=list)
    _labels: dict[str, int] = field(default_factory=dict)

    def op(self, code: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0, to: str = "") -> None:
        """One instruction; `to` names the label a jump leads to."""
        self._slots.append((code, dst, src, off, imm, to))

    def call(self, helper: int) -> None:
        """Call a kernel helper: arguments in r1..r5, result in r0."""
        self.op(CALL, imm=helper)

    def load_map(self, dst: int, map_fd: int) -> None:
        """The address of a map, by its descriptor (two slots)."""
        self.op(LOAD_MAP, dst=dst, src=1, imm=map_fd)
        self.op(0)

    def label(self, name: str) -> None:
        """The next instruction is called `name`."""
        self._labels[name] = len(self._slots)

    def bytecode(self) -> bytes:
        """The program; raises ValueError for a jump to a label that does not exist."""
        result = bytearray()
        for index, (code, dst, src, off, imm, to) in enumerate(self._slots):
            if to:
                if to not in self._labels:
                    raise ValueError(f"no label {to}")
                off = self._labels[to] - index - 1
            result += _SLOT.pack(code, src << 4 | dst, off, imm)
        return bytes(result)
