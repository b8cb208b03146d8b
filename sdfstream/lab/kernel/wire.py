"""Loss and CE marks at a port's egress, as an eBPF program and its map entries.

The program runs at the port's egress before the queue (or, for packets from a host, at its leaf's ingress). CE is
set when the queue's true backlog, read from the kernel's own structures, is above the threshold.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sdfstream.lab.kernel import ebpf
from sdfstream.lab.kernel.btf import Btf

ACT_OK, ACT_SHOT = 0, 2
_LOOKUP, _RANDOM, _LOAD_BYTES, _SET_CE, _READ_KERNEL = 1, 7, 26, 97, 113
_CTX_IFINDEX = 40
"""Offset of ``ifindex`` in the program's context, ``struct __sk_buff``."""
ALL_CLASSES = 64
_RULE = struct.Struct("=QII")
_COUNTS = struct.Struct("=QQ")
RULE_BYTES, COUNTS_BYTES = _RULE.size, _COUNTS.size


@dataclass(frozen=True, slots=True)
class PortRule:
    """Loss and marking at one port: the value of its map entry."""

    loss: float = 0.0
    """Share of packets dropped, 0..1."""
    ce_threshold_bytes: int = 0
    """Backlog above which CE is set; 0: never."""
    ce_dscp: int = ALL_CLASSES
    """Mark only this DSCP; 64: all."""

    def packed(self) -> bytes:
        """Map value; loss becomes a 33-bit threshold for a 32-bit random number, so that 1.0 drops all."""
        return _RULE.pack(round(self.loss * 2**32), self.ce_threshold_bytes, self.ce_dscp)


@dataclass(frozen=True, slots=True)
class Counts:
    """Packets dropped and marked at one port so far."""

    dropped: int = 0
    marked: int = 0

    @classmethod
    def unpacked(cls, value: bytes) -> Counts:
        """From a map value."""
        return cls(*_COUNTS.unpack(value))


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of the members that the program reads from this kernel's structures, in bytes."""

    device: int
    """``sk_buff.dev``."""
    queue: int
    """``net_device.qdisc``."""
    backlog: int
    """``Qdisc.qstats.backlog``."""

    @classmethod
    def of(cls, kernel: Btf) -> Offsets:
        """From a kernel's type information; raises FormatError where it lacks a part."""
        return cls(
            kernel.offset_bytes("sk_buff", ["dev"]),
            kernel.offset_bytes("net_device", ["qdisc"]),
            kernel.offset_bytes("Qdisc", ["qstats", "backlog"]),
        )


def program(offsets: Offsets, rules_fd: int, counts_fd: int, ip_version: int, key_offset: int) -> bytes:
    """Bytecode for a SCHED_CLS program over two hash maps by the sending port's interface index.

    `key_offset` is added to the index of the interface the program runs at: 0 at a sender's egress; at a leaf's
    ingress what leads to the host's port behind it.

    r6: context, r7: rule, r8: threshold. Stack: −4 the key, −16 a pointer or number read.
    """
    a = ebpf.Assembler()
    a.op(ebpf.MOV, dst=6, src=1)
    a.op(ebpf.LDX_WORD, dst=2, src=6, off=_CTX_IFINDEX)
    a.op(ebpf.ADD_IMM, dst=2, imm=key_offset)
    a.op(ebpf.STX_WORD, dst=10, src=2, off=-4)
    _lookup(a, rules_fd)
    a.op(ebpf.JEQ_IMM, dst=0, imm=0, to="pass")
    a.op(ebpf.MOV, dst=7, src=0)
    _drop(a, counts_fd)
    a.label("mark")
    a.op(ebpf.LDX_WORD, dst=8, src=7, off=8)
    a.op(ebpf.JEQ_IMM, dst=8, imm=0, to="pass")
    _match_class(a, ip_version)
    a.label("depth")
    _mark_if_deep(a, offsets, counts_fd)
    a.label("pass")
    a.op(ebpf.MOV_IMM, dst=0, imm=ACT_OK)
    a.op(ebpf.EXIT)
    return a.bytecode()


def _lookup(a: ebpf.Assembler, map_fd: int) -> None:
    a.load_map(1, map_fd)
    a.op(ebpf.MOV, dst=2, src=10)
    a.op(ebpf.ADD_IMM, dst=2, imm=-4)
    a.call(_LOOKUP)


def _count(a: ebpf.Assembler, counts_fd: int, offset: int, then: str) -> None:
    _lookup(a, counts_fd)
    a.op(ebpf.JEQ_IMM, dst=0, imm=0, to=then)
    a.op(ebpf.MOV_IMM, dst=1, imm=1)
    a.op(ebpf.ATOMIC_DOUBLE, dst=0, src=1, off=offset)


def _drop(a: ebpf.Assembler, counts_fd: int) -> None:
    a.op(ebpf.LDX_DOUBLE, dst=8, src=7, off=0)
    a.op(ebpf.JEQ_IMM, dst=8, imm=0, to="mark")
    a.call(_RANDOM)
    a.op(ebpf.JGE, dst=0, src=8, to="mark")
    _count(a, counts_fd, 0, then="shot")
    a.label("shot")
    a.op(ebpf.MOV_IMM, dst=0, imm=ACT_SHOT)
    a.op(ebpf.EXIT)


def _match_class(a: ebpf.Assembler, ip_version: int) -> None:
    """The first two bytes behind the Ethernet header: IPv4 has the TOS octet second, IPv6 from bit 4 to bit 11."""
    a.op(ebpf.LDX_WORD, dst=9, src=7, off=12)
    a.op(ebpf.JEQ_IMM, dst=9, imm=ALL_CLASSES, to="depth")
    a.op(ebpf.MOV, dst=1, src=6)
    a.op(ebpf.MOV_IMM, dst=2, imm=14)
    a.op(ebpf.MOV, dst=3, src=10)
    a.op(ebpf.ADD_IMM, dst=3, imm=-16)
    a.op(ebpf.MOV_IMM, dst=4, imm=2)
    a.call(_LOAD_BYTES)
    a.op(ebpf.JNE_IMM, dst=0, imm=0, to="pass")
    a.op(ebpf.LDX_HALF, dst=1, src=10, off=-16)
    a.op(ebpf.TO_BIG_ENDIAN, dst=1, imm=16)
    a.op(ebpf.RSH_IMM, dst=1, imm=2 if ip_version == 4 else 6)
    a.op(ebpf.AND_IMM, dst=1, imm=0x3F)
    a.op(ebpf.JNE, dst=1, src=9, to="pass")


def _mark_if_deep(a: ebpf.Assembler, offsets: Offsets, counts_fd: int) -> None:
    a.op(ebpf.MOV, dst=3, src=6)
    _read(a, offsets.device, 8)
    a.op(ebpf.LDX_DOUBLE, dst=3, src=10, off=-16)
    _read(a, offsets.queue, 8)
    a.op(ebpf.LDX_DOUBLE, dst=3, src=10, off=-16)
    _read(a, offsets.backlog, 4)
    a.op(ebpf.LDX_WORD, dst=1, src=10, off=-16)
    a.op(ebpf.JLE, dst=1, src=8, to="pass")
    a.op(ebpf.MOV, dst=1, src=6)
    a.call(_SET_CE)
    a.op(ebpf.JNE_IMM, dst=0, imm=1, to="pass")
    _count(a, counts_fd, 8, then="pass")


def _read(a: ebpf.Assembler, offset: int, size: int) -> None:
    """Read `size` bytes at r3 + offset into the stack; a bad address reads zeros."""
    a.op(ebpf.ADD_IMM, dst=3, imm=offset)
    a.op(ebpf.MOV, dst=1, src=10)
    a.op(ebpf.ADD_IMM, dst=1, imm=-16)
    a.op(ebpf.MOV_IMM, dst=2, imm=size)
    a.call(_READ_KERNEL)
