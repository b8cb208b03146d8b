"""Laws of the choice of quick paths: it shows and tells apart what candidates can, with few of them, and stays."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.agent.commands import path_watch as w
from sdfstream.agent.watch_cover import CoverRoom, Crossings, cover
from tests.fixtures.control import ALIVE, SILENT, SRC, FakeSlots

ALL = 1 << 20
SEGMENTS = st.frozensets(st.sampled_from("abcdefgh"), min_size=1, max_size=4)
CROSSINGS = st.builds(
    lambda paths, in_use, alternates: Crossings(
        {w.ProbePath("far", port, 0): crossed for port, crossed in enumerate(paths)}, in_use, alternates
    ),
    st.lists(SEGMENTS, max_size=10),
    st.lists(SEGMENTS, max_size=3),
    st.lists(SEGMENTS, max_size=3),
)
laws = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def demands(crossings: Crossings) -> set[tuple[str, str]]:
    """By the definition: (t, "") t is shown, (t, "again") twice; (t, s) told from s. As far as candidates can do it."""
    used = frozenset().union(*crossings.in_use)
    routes = [*crossings.in_use, *crossings.alternates]
    wanted = {(t, "") for t in used.union(*crossings.alternates)}
    for (t, _), s in itertools.product(sorted(wanted), used):
        if [t in r for r in routes] != [s in r for r in routes]:
            wanted.add((t, s))
    wanted |= {(t, "again") for t in used}
    return wanted & met(crossings, crossings.paths)


def met(crossings: Crossings, chosen: Collection[w.ProbePath]) -> set[tuple[str, str]]:
    used = frozenset().union(*crossings.in_use)
    found = {(t, s) for p in chosen for t in crossings.paths[p] for s in {"", *used} if s not in crossings.paths[p]}
    times = Counter(t for p in chosen for t in crossings.paths[p])
    return found | {(t, "again") for t, n in times.items() if n > 1}


@given(CROSSINGS)
@laws
def test_everything_that_can_be_is_shown_and_told_apart_and_no_path_is_redundant(crossings: Crossings) -> None:
    found = cover(crossings, CoverRoom(ALL))
    wanted = demands(crossings)
    assert wanted <= met(crossings, found.paths)
    assert (found.unshown, found.confused, found.once) == ((), 0, 0)
    for path in found.paths:
        assert not wanted <= met(crossings, [p for p in found.paths if p != path]), f"{path} is redundant"


@given(CROSSINGS, st.integers(0, 6), st.randoms(use_true_random=False))
@laws
def test_the_order_of_what_is_known_changes_nothing(crossings: Crossings, most: int, draw: random.Random) -> None:
    def shuffled(items: Collection[object]) -> list[object]:
        return draw.sample(list(items), len(items))

    again = Crossings(
        dict(shuffled(crossings.paths.items())), shuffled(crossings.in_use), shuffled(crossings.alternates)
    )  # type: ignore[arg-type]
    assert cover(again, CoverRoom(most)) == cover(crossings, CoverRoom(most))


@given(CROSSINGS, st.integers(0, 6))
@laws
def test_a_choice_stays_while_nothing_changes(crossings: Crossings, most: int) -> None:
    found = cover(crossings, CoverRoom(most))
    assert set(cover(crossings, CoverRoom(most), found.paths).paths) == set(found.paths)


@given(CROSSINGS, CROSSINGS)
@laws
def test_what_is_quick_and_suffices_is_not_exchanged(before: Crossings, after: Crossings) -> None:
    quick = set(before.paths) & set(after.paths)
    if demands(after) <= met(after, quick):
        assert set(cover(after, CoverRoom(ALL), quick).paths) <= quick


@given(CROSSINGS, st.integers(0, 6), st.integers(0, 3), st.integers(0, 3))
@laws
def test_no_more_are_chosen_than_there_is_room_for_and_segments_in_use_come_first(
    crossings: Crossings, most: int, even: int, odd: int
) -> None:
    room = CoverRoom(most, {p: "odd" if p.port % 2 else "even" for p in crossings.paths}, {"even": even, "odd": odd})
    found = cover(crossings, room)
    assert len(found.paths) <= most
    assert sum(p.port % 2 == 0 for p in found.paths) == even - room.at_target["even"] <= even
    assert sum(p.port % 2 == 1 for p in found.paths) == odd - room.at_target["odd"] <= odd
    wanted, done = demands(crossings), met(crossings, found.paths)
    assert set(found.unshown) == {t for t, s in wanted - done if not s}
    assert found.confused == sum(s not in ("", "again") for _, s in wanted - done)
    assert found.once == sum(s == "again" and (t, "") in done for t, s in wanted - done)
    used = frozenset().union(*crossings.in_use)
    found = cover(crossings, CoverRoom(most))
    done = met(crossings, found.paths)
    if any(t in used for t in found.unshown):  # then each path shows a segment in use that no other one shows
        for path in found.paths:
            others = met(crossings, [p for p in found.paths if p != path])
            assert any(t in used and not s for t, s in (done - others)), f"{path} takes a place"


@given(st.integers(0, 10_000), st.integers(2, 4))
@laws
def test_when_a_segment_in_use_breaks_just_the_routes_over_it_are_dead(seed: int, spines: int) -> None:
    """The rule of blame, by quick paths alone, blames what breaks; alternates that do not cross it are clean.

    That holds where the candidates can tell its segments from the others; those that cannot be are left out.
    """
    draw = random.Random(seed)

    def route(i: int, j: int) -> frozenset[str]:
        return frozenset({f"up{i}", f"down{i}", f"back-up{j}", f"back-down{j}"})

    def anywhere() -> frozenset[str]:
        return route(draw.randrange(spines), draw.randrange(spines))

    paths = {w.ProbePath("far", port, 0): anywhere() for port in range(16)}
    in_use, alternates = [anywhere(), anywhere()], [anywhere() for _ in range(3)]
    crossings = Crossings(paths, in_use, alternates)
    quick = cover(crossings, CoverRoom(ALL)).paths
    assert len(quick) <= 4 * spines
    broken = draw.choice(sorted(in_use[0]))
    routes = dict(enumerate([*in_use, *alternates]))
    able = demands(crossings)
    slots, watches = FakeSlots(), w.PathWatches()
    for path in quick:
        slots.set(path.port, SILENT if broken in paths[path] else ALIVE, dst="far")
    for number, names in routes.items():
        crossed = [w.Segment(t, tuple(p for p in quick if t in paths[p])) for t in sorted(names)]
        watches.put(w.WatchKey("c", number), SRC, crossed, 1)
    watches.assess(slots, 1)
    for number, names in routes.items():
        verdict = watches.verdict(w.WatchKey("c", number))
        if broken in names:
            assert verdict == w.DEAD or not any(broken in paths[p] for p in quick)
        elif all((t, broken) in able for t in names):
            assert verdict == w.CLEAN
