"""Loads the packet engine's library by ctypes and refuses one that does not fit this Python code."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from sdfstream.errors import UnavailableError
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.build_io import available

_P: Final = c_void_p
ACT: Final = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint32, c_uint32, c_int64)
"""`pe_act`: context, order, index of the alternate, steady clock; 0 or an errno."""

_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "pe_abi": (c_int, ()),
    "pe_octets_of": (c_size_t, (c_char_p,)),
    "pe_shared_octets": (c_size_t, (_P,)),
    "pe_depth": (c_uint32, (c_int64,)),
    "pe_new": (_P, (_P, _P, c_size_t)),
    "pe_free": (None, (_P,)),
    "pe_path_begin": (c_int, (_P, c_uint32, _P)),
    "pe_path_end": (c_int, (_P, c_uint32)),
    "pe_nic_usable": (c_int, (_P, c_uint32, c_int)),
    "pe_clock_set": (c_int, (_P, c_uint32, c_int64, c_int64, c_int64, c_int64, _P, c_uint32)),
    "pe_report_all": (c_int, (_P,)),
    "pe_watch_begin": (c_int, (_P,)),
    "pe_segment": (c_int, (_P, _P, c_uint32)),
    "pe_route": (c_int, (_P, c_uint32, _P, c_uint32)),
    "pe_watch_commit": (c_int, (_P,)),
    "pe_order_arm": (c_int, (_P, c_uint32, c_uint32, _P, c_uint32)),
    "pe_order_disarm": (c_int, (_P, c_uint32)),
    "pe_take": (c_uint64, (_P, POINTER(c_uint64))),
    "pe_done": (None, (_P, c_uint64)),
    "pe_take_events": (c_uint64, (_P, POINTER(c_uint64))),
    "pe_done_events": (None, (_P, c_uint64)),
    "pe_reports": (_P, (_P,)),
    "pe_route_reports": (_P, (_P,)),
    "pe_stats": (c_int, (_P, _P, c_uint32)),
    "pe_counter_name": (c_char_p, (c_uint32,)),
    "pe_reason_name": (c_char_p, (c_uint32,)),
    "pe_on_order": (None, (_P, ACT, _P)),
    "pe_apply": (c_uint32, (_P, c_int64)),
    "pe_next_due_ns": (c_int64, (_P,)),
    "pe_next_assess_ns": (c_int64, (_P,)),
    "pe_due": (c_uint32, (_P, c_int64, c_int64, c_int64, _P, c_uint32)),
    "pe_shortest_interval_ns": (c_int64, (_P,)),
    "pe_take_stamp": (None, (_P, c_uint64, c_int64, c_uint8, c_int64)),
    "pe_unsent": (None, (_P, c_uint64)),
    "pe_take_answer": (c_int, (_P, _P, c_int64, c_int64)),
    "pe_assess": (c_uint32, (_P, c_int64, c_int64)),
    "pe_finish": (c_uint32, (_P, c_int64)),
    "pe_row_column": (c_char_p, (c_uint32, POINTER(c_uint32))),
    "pe_row_table_new": (_P, (_P, c_uint32)),
    "pe_row_table_free": (None, (_P,)),
    "pe_row_batches": (c_int32, (_P, _P, c_uint32, _P, _P, _P)),
}


@cache
def library(path: Path | None = None) -> ctypes.CDLL:
    """The library, with the types of its functions set: the installed one, or compiled first, unless `path` is given.

    Raises
    ------
    UnavailableError
        It cannot be compiled or loaded, or it is another ABI's.
    """
    found = path or available()
    try:
        loaded = ctypes.CDLL(str(found))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"no packet engine: {error}") from error
    _check(loaded, found)
    return loaded


def _check(loaded: ctypes.CDLL, path: Path) -> None:
    """Refuse a library whose structures are not the ones that this code reads and writes."""
    if loaded.pe_abi() != layouts.ABI:
        raise UnavailableError(f"no packet engine: {path} has ABI {loaded.pe_abi()}, this is {layouts.ABI}")
    for name, layout in layouts.STRUCTURES.items():
        if loaded.pe_octets_of(name.encode()) != layout.itemsize:
            raise UnavailableError(f"no packet engine: {path} has another {name}")
