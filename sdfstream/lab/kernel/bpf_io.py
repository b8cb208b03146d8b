"""bpf(2): maps and programs by descriptor, gone with the process (linux/bpf.h)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from functools import lru_cache
from pathlib import Path

from sdfstream.errors import FormatError, LabUnavailableError
from sdfstream.lab.kernel.btf import Btf
from sdfstream.lab.kernel.wire import Offsets

_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROG_LOAD = 0, 1, 2, 5
_HASH, _SCHED_CLS = 1, 3
_LOG_BYTES = 65_536
_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attribute: bytes, what: str) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise LabUnavailableError(f"the number of bpf(2) on {platform.machine()} is not known")
    buffer = ctypes.create_string_buffer(attribute.ljust(128, b"\0"), 128)
    result: int = _libc.syscall(number, command, buffer, 128)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


@lru_cache(maxsize=1)
def kernel_offsets() -> Offsets:
    """Offset of a queue's backlog in the running kernel's structures; read once per process, about 40 ms.

    Raises
    ------
    LabUnavailableError
        The kernel publishes no type information, or it lacks a part.
    """
    try:
        return Offsets.of(Btf(Path("/sys/kernel/btf/vmlinux").read_bytes()))
    except (OSError, FormatError) as error:
        raise LabUnavailableError(f"no kernel type information (/sys/kernel/btf/vmlinux): {error}") from error


class HashMap:
    """A kernel hash map from a 32-bit key to a value of fixed size."""

    def __init__(self, value_bytes: int, entries: int) -> None:
        self._value_bytes = value_bytes
        attribute = struct.pack("=5I", _HASH, 4, value_bytes, entries, 0)
        self.fd = _bpf(_MAP_CREATE, attribute, "create a map")

    def set(self, key: int, value: bytes) -> None:
        """Put or replace an entry; programs see it at their next packet."""
        self._element(_MAP_UPDATE, key, ctypes.create_string_buffer(value, self._value_bytes))

    def get(self, key: int) -> bytes:
        """An entry's value; zeros when there is none."""
        value = ctypes.create_string_buffer(self._value_bytes)
        with contextlib.suppress(FileNotFoundError):
            self._element(_MAP_LOOKUP, key, value)
        return value.raw

    def _element(self, command: int, key: int, value: ctypes.Array[ctypes.c_char]) -> None:
        name = ctypes.create_string_buffer(struct.pack("=I", key), 4)
        attribute = struct.pack("=IxxxxQQQ", self.fd, ctypes.addressof(name), ctypes.addressof(value), 0)
        _bpf(command, attribute, f"map entry {key}")

    def __enter__(self) -> HashMap:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def load_program(bytecode: bytes) -> int:
    """Load a SCHED_CLS program; its descriptor.

    Raises
    ------
    OSError
        Not allowed here, or the verifier refused it (its last words are in the message).
    """
    code = ctypes.create_string_buffer(bytecode, len(bytecode))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(_LOG_BYTES)
    addresses = struct.pack("=QQ", ctypes.addressof(code), ctypes.addressof(licence))
    head = struct.pack("=II", _SCHED_CLS, len(bytecode) // 8) + addresses
    quiet = head + struct.pack("=IIQII16s", 0, 0, 0, 0, 0, b"sdfstream_wire")
    try:
        return _bpf(_PROG_LOAD, quiet, "load the program")
    except OSError as error:
        if error.errno == 1:
            raise
    verbose = head + struct.pack("=IIQII16s", 1, _LOG_BYTES, ctypes.addressof(log), 0, 0, b"sdfstream_wire")
    try:
        return _bpf(_PROG_LOAD, verbose, "load the program")
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; verifier: {log.value[-400:].decode(errors='replace')}") from None
