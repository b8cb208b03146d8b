"""Agents that fall silent, and those that are heard again with old news."""

from collections.abc import Callable
from math import isnan, nan

from sdfstream.detect.presence import Presence
from sdfstream.detect.sessions import Sessions

S = 1_000_000_000
T0 = 1_800_000_000 * S
LIMIT_NS = 3 * S


def changes(says_s: Callable[[float], float | None]) -> list[tuple[float, bool]]:
    """When one of four agents becomes stale and well again.

    `says_s`: of when it tells at each second; None: it is silent; NaN: it tells of nothing.
    """
    presence = Presence(Sessions(16))
    found: list[tuple[float, bool]] = []
    for tick in range(500):
        at_s, now_ns = tick / 10, T0 + tick * S // 10
        for host, said_s in (("a", at_s), ("b", at_s), ("c", at_s), ("d", says_s(at_s))):
            if said_s is not None:
                presence.take_message(host, now_ns, "boot")
                if not isnan(said_s):
                    presence.take_report(host, T0 + round(said_s * S), now_ns)
        presence.mark(now_ns * 10 // S)
        stale = bool(presence.stale(now_ns, LIMIT_NS)[presence.sessions.hosts.find("d")])
        if stale != (found[-1][1] if found else False):
            found.append((at_s, stale))
    return found


def test_an_agent_that_is_heard_again_with_old_news_is_stale_until_it_tells_of_now() -> None:
    def six_seconds_late(at_s: float) -> float | None:
        return None if 10 <= at_s < 16 else at_s - 6 if 16 <= at_s < 31 else at_s

    assert changes(six_seconds_late) == [(13.0, True), (31.0, False)]


def test_an_agent_that_was_away_is_well_once_it_is_heard() -> None:
    assert changes(lambda at_s: None if 10 <= at_s < 16 else at_s) == [(13.0, True), (16.0, False)]


def test_messages_without_news_make_no_agent_well_at_once() -> None:
    """Of one that is heard again, the first may be of ports (`agent-late`, seed 206): it was well from then on."""

    def first_without(at_s: float) -> float | None:
        return None if 10 <= at_s < 16 else nan if 16 <= at_s < 16.2 else at_s - 6 if 16 <= at_s < 31 else at_s

    assert changes(first_without) == [(13.0, True), (31.0, False)]
    assert changes(lambda at_s: None if 10 <= at_s < 16 else nan if at_s > 15 else at_s) == [
        (13.0, True),
        (19.1, False),
    ]
