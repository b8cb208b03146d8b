"""The key of a session as an event names it."""

from __future__ import annotations

import pytest

from sdfstream.detect.sessions import session_key

PATH = {"src": "h00/r0", "dst": "h01/r0", "transport": "udp", "path": 50_000, "dscp": 46}


def test_a_key_is_read() -> None:
    assert session_key(PATH) == ("h00/r0", "h01/r0", "udp", 50_000, 46)


@pytest.mark.parametrize("wrong", [{"path": 1 << 32}, {"path": 2**63}, {"path": -1}, {"dscp": 64}, {"dscp": -1}])
def test_what_does_not_fit_its_field_is_refused_not_taken_for_another_session(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        session_key(PATH | wrong)
