"""What the host's own traces change in what commands say of probe paths."""

from __future__ import annotations

from sdfstream.agent.commands.crossings import ProbePath, corrected, crosses
from tests.fixtures.control import DST

FIRST = 50_000
a, b, c = (ProbePath(DST, FIRST + n, 0) for n in range(3))


def test_the_hosts_own_traces_overrule_commands_where_they_say_something() -> None:
    a, b, c = (ProbePath(DST, FIRST + n, 0) for n in range(3))
    own = {a: ("cable", "up1", "down1"), b: None, c: ("cable", "up0", "down0")}
    named = {"up0": (a, b, c), "down0": (a, b, c), "back-up0": (a, b)}
    found = crosses(own, named)
    assert found[a] == {"up1", "down1", "back-up0"}, "it goes there no more; its way back is another matter"
    assert found[b] == {"up0", "down0", "back-up0"}, "its own way is not known: the command's word counts"
    assert found[c] == {"up0", "down0"}


def test_a_probe_path_that_no_command_knows_is_added_where_it_goes_there() -> None:
    named = {"up0": (b,), "down0": (b,), "back-up0": (b,)}
    assert corrected({a: ("cable", "up0", "down0")}, named) == {"up0": (b, a), "down0": (b, a), "back-up0": (b,)}


def test_a_probe_path_that_goes_another_way_now_is_left_out() -> None:
    named = {"up0": (a, b), "up1": (c,), "back-up0": (a,)}
    routes = {a: ("cable", "up1", "down1"), b: ("cable", "up0", "down0")}
    assert corrected(routes, named) == {"up0": (b,), "up1": (a, c), "back-up0": (a,)}


def test_without_traces_the_commands_word_counts() -> None:
    named = {"up0": (a, b), "up1": ()}
    assert corrected({}, named) == named
