"""The functions of `shell.h`, with their types."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine import shell_layouts as layouts
from sdfstream.probes.engine.library_io import library

_P: Final = c_void_p
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "pe_shell_abi": (c_int, ()),
    "pe_shell_octets_of": (c_size_t, (c_char_p,)),
    "pe_shell_new": (_P, (_P, _P)),
    "pe_shell_free": (None, (_P,)),
    "pe_shell_run": (c_int, (_P,)),
    "pe_shell_stop": (None, (_P,)),
    "pe_shell_turn": (None, (_P,)),
    "pe_shell_wake": (None, (_P,)),
    "pe_shell_adopt": (c_int64, (_P, c_uint32, _P)),
    "pe_shell_close": (c_int64, (_P, c_uint32)),
    "pe_shell_limited": (c_int64, (_P, _P, c_char_p)),
    "pe_shell_reflector": (c_int64, (_P, c_uint32, _P)),
    "pe_shell_know": (c_int64, (_P, c_uint32, _P, c_uint32, _P, c_uint32)),
    "pe_shell_clock": (c_int64, (_P, c_uint32, _P)),
    "pe_shell_usable": (c_int64, (_P, c_uint32, c_uint32, c_int)),
    "pe_shell_inbound_all": (c_int64, (_P,)),
    "pe_shell_link": (c_int64, (_P, c_uint32, c_int)),
    "pe_shell_prepare": (c_int64, (_P, c_uint32, c_uint32, _P, c_uint32)),
    "pe_shell_found_fd": (c_int, (_P,)),
    "pe_shell_done": (c_int64, (_P,)),
    "pe_shell_reported": (None, (_P, _P)),
    "pe_shell_stats": (c_int, (_P, _P, c_uint32)),
    "pe_shell_bins": (c_int, (_P, c_uint32, _P, c_uint32)),
    "pe_shell_bin_least_ns": (c_int64, (c_uint32,)),
    "pe_shell_suspects": (c_uint32, (_P, _P, c_uint32)),
    "pe_shell_link_error": (c_int, (_P, c_uint32)),
    "pe_shell_take_icmp": (c_uint32, (_P, _P, c_uint32)),
    "pe_shell_take_inbound": (c_uint32, (_P, _P, c_uint32)),
    "pe_control_read": (ctypes.c_bool, (_P, c_size_t, _P)),
    "pe_control_add_ttl": (c_uint32, (_P, c_uint32, ctypes.c_bool, c_uint8)),
}


@cache
def shell_library(path: Path | None = None) -> ctypes.CDLL:
    """The packet engine's library, with the types of the shell's functions set, too.

    Raises
    ------
    UnavailableError
        There is none, or it is not this code's.
    """
    found = library(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    if found.pe_shell_abi() != layouts.ABI:
        raise UnavailableError(f"no packet engine: its shell has ABI {found.pe_shell_abi()}, this is {layouts.ABI}")
    for name, layout in layouts.STRUCTURES.items():
        if found.pe_shell_octets_of(name.encode()) != layout.itemsize:
            raise UnavailableError(f"no packet engine: the library has another {name}")
    return found
