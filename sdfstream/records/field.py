"""A column of a bulk topic, with its unit and what it says."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

NAME: Final = pa.dictionary(pa.int32(), pa.utf8())
"""How names travel: dictionary<int32, utf8>, complete in every message (no delta dictionaries)."""


def column(name: str, kind: pa.DataType, doc: str, *, unit: str = "", null: bool = False) -> pa.Field:
    """A column; `unit` is empty for names, counts and flags."""
    return pa.field(name, kind, nullable=null, metadata={"unit": unit, "doc": doc})
