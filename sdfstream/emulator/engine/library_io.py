"""Loads the library of the job's data plane by ctypes and refuses one that does not fit this Python code."""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from sdfstream.emulator.engine import layouts
from sdfstream.errors import UnavailableError
from sdfstream.probes.engine.build_io import available

FOLDER: Final = Path(__file__).parent

_P: Final = c_void_p
SINK: Final = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
"""``je_sink``: context, datagram."""

_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "je_abi": (c_int, ()),
    "je_octets_of": (c_size_t, (c_char_p,)),
    "je_new": (_P, (_P, _P)),
    "je_free": (None, (_P,)),
    "je_receive": (None, (_P, c_uint32, c_uint16, c_uint8, c_int64, c_char_p, c_uint32, c_int64)),
    "je_step": (None, (_P, c_int64, SINK, _P)),
    "je_next_ns": (c_int64, (_P, c_int64)),
    "je_departed": (None, (_P, c_uint32, c_uint8, c_uint32, c_uint16, c_int64)),
    "je_steer": (None, (_P, c_uint32, c_uint16, c_int64)),
    "je_limit": (None, (_P, c_uint32, c_int64)),
    "je_reported": (None, (_P, _P, _P)),
    "je_take_rows": (c_uint32, (_P, _P, c_uint32)),
    "je_shell_new": (_P, (_P, c_uint32, c_char_p, c_int64, c_int)),
    "je_shell_free": (None, (_P,)),
    "je_shell_run": (None, (_P,)),
    "je_shell_stop": (None, (_P,)),
    "je_shell_adopt": (None, (_P, c_uint32, c_int)),
    "je_shell_is_away": (c_bool, (_P, c_uint32)),
    "je_shell_steer": (None, (_P, c_uint32, c_uint16)),
    "je_shell_limit": (None, (_P, c_uint32, c_int64)),
    "je_shell_reported": (None, (_P, _P, _P, _P)),
    "je_shell_take_rows": (c_uint32, (_P, _P, c_uint32)),
}


@cache
def library() -> ctypes.CDLL:
    """The library, with the types of its functions set: the installed one, or compiled first.

    Raises
    ------
    UnavailableError
        It cannot be compiled or loaded, or it is another ABI's.
    """
    found = available(FOLDER)
    try:
        loaded = ctypes.CDLL(str(found))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"no engine in C: {error}") from error
    if loaded.je_abi() != layouts.ABI:
        raise UnavailableError(f"no engine in C: {found} has ABI {loaded.je_abi()}, this is {layouts.ABI}")
    for name, layout in layouts.STRUCTURES.items():
        if loaded.je_octets_of(name.encode()) != layout.itemsize:
            raise UnavailableError(f"no engine in C: {found} has another {name}")
    return loaded
