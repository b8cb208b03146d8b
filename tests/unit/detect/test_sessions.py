"""The key of a session as an event names it."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.sessions import Sessions, session_key
from tests.bus_samples import probe_batch

PATH = {"src": "h00/r0", "dst": "h01/r0", "transport": "udp", "path": 50_000, "dscp": 46}


def test_a_key_is_read() -> None:
    assert session_key(PATH) == ("h00/r0", "h01/r0", "udp", 50_000, 46)


@pytest.mark.parametrize("wrong", [{"path": 1 << 32}, {"path": 2**63}, {"path": -1}, {"dscp": 64}, {"dscp": -1}])
def test_what_does_not_fit_its_field_is_refused_not_taken_for_another_session(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        session_key(PATH | wrong)


def test_the_first_message_may_have_no_row_that_can_be_read() -> None:
    sessions = Sessions(100)
    sessions.note_planes(probe_batch(3), np.full(3, -1))
    assert sessions.planes == {}
