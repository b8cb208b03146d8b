"""Snapshots of the stage."""

from __future__ import annotations

import pytest

from sdfstream.errors import FormatError
from sdfstream.numeric import codec


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"version":1}', b'{"version":9,"state":{}}'])
def test_a_foreign_snapshot_is_refused(bad: bytes) -> None:
    with pytest.raises(FormatError):
        codec.load(bad)
