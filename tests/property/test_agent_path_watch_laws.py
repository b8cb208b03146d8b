"""The watch against its definition, written out naively; and the stories it was made for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.agent.commands import path_watch as w
from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.probes.stamp import liveness
from tests.fixtures.control import ALIVE, DST, MS, SILENT, SRC, UNKNOWN, FakeSlots

PORTS = st.integers(1, 8)
SEGMENTS = st.lists(st.tuples(st.sampled_from("abcdef"), st.frozensets(PORTS, max_size=4)), max_size=5)


def brute(watches: Mapping[int, list[w.Segment]], state: Mapping[int, int]) -> dict[int, int]:
    """Verdict per watch by the definition; segments of one name are one segment with the union of their paths.

    A path without a state is not probed: it says nothing.
    """
    paths: dict[str, set[int]] = {}
    for segments in watches.values():
        for segment in segments:
            paths.setdefault(segment.name, set()).update(p.port for p in segment.paths if p.port in state)
    dead = {n for n, ports in paths.items() if ports and all(state.get(p) == SILENT for p in ports)}
    clean = {n for n, ports in paths.items() if any(state.get(p) == ALIVE for p in ports)}
    blamed = set()
    for name in dead:
        for port in paths[name]:
            if all(len(paths[other]) <= len(paths[name]) for other in dead if port in paths[other]):
                blamed.add(name)
    verdict = {}
    for key, segments in watches.items():
        names = {s.name for s in segments}
        verdict[key] = w.DEAD if names & blamed else w.CLEAN if names and names <= clean else w.UNKNOWN
    return verdict


@given(
    st.dictionaries(st.integers(50_000, 50_009), SEGMENTS, max_size=5),
    st.dictionaries(PORTS, st.sampled_from((0, 1, 2))),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_arrays_say_what_the_definition_says(
    raw: dict[int, list[tuple[str, frozenset[int]]]], state: dict[int, int]
) -> None:
    slots, watches = FakeSlots(), w.PathWatches()
    for port, value in state.items():
        slots.set(port, value)
    wanted = {
        key: [w.Segment(name, tuple(ProbePath(DST, p, 0) for p in sorted(ports))) for name, ports in segments]
        for key, segments in raw.items()
    }
    for key, segments in wanted.items():
        watches.put(w.WatchKey("c", key), SRC, segments, 1)
    watches.assess(slots, 0)
    expected = brute(wanted, state)
    assert {key: watches.verdict(w.WatchKey("c", key)) for key in wanted} == expected


@given(st.lists(st.tuples(PORTS, st.sampled_from((0, 1, 2))), max_size=40))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_clean_since_is_the_first_judgement_of_an_unbroken_row_of_clean_ones(changes: list[tuple[int, int]]) -> None:
    slots, watches = FakeSlots(), w.PathWatches()
    key = w.WatchKey("c", 1)
    watches.put(key, SRC, [w.Segment("a", (ProbePath(DST, 1, 0), ProbePath(DST, 2, 0)))], 1)
    since = None
    for now, (port, state) in enumerate(changes):
        slots.set(port, state)
        watches.assess(slots, now)
        clean = watches.verdict(key) == w.CLEAN
        since = (now if since is None else since) if clean else None
        assert watches.clean_since_ns(key) == since


def test_the_numbers_of_states_are_those_of_the_probes() -> None:
    assert (w._ALIVE, w._SILENT, w.UNKNOWN) == (liveness.ALIVE, liveness.SILENT, liveness.UNKNOWN)


# --- a fabric: 2 leaves, 2 spines; probes 1, 2 go out and back over spine A, 3, 4 over spine B ------------------------

A, B = (1, 2), (3, 4)
FAR = "h5/r0"
"""Another NIC under the far leaf, probed on the same ports."""


def fabric() -> tuple[FakeSlots, w.PathWatches]:
    """QP path 1 over spine A and back over A, alternate 3 over B; probes to two far NICs under one leaf."""
    slots, watches = FakeSlots(), w.PathWatches()
    for port in (*A, *B):
        for dst in (DST, FAR):
            slots.set(port, ALIVE, dst=dst)
    for path, ports in ((1, A), (3, B)):
        watches.put(w.WatchKey("c", path), SRC, route(ports), 1)
    watches.assess(slots, 0)
    return slots, watches


def route(ports: tuple[int, ...]) -> list[w.Segment]:
    spine = "A" if ports == A else "B"
    both = tuple(ProbePath(dst, p, 0) for p in ports for dst in (DST, FAR))
    return [w.Segment(f"{spine}{leg}", both) for leg in ("up", "down", "back-up", "back-down")]


def verdicts(slots: FakeSlots, watches: w.PathWatches) -> tuple[int, int]:
    watches.assess(slots, 1)
    return watches.verdict(w.WatchKey("c", 1)), watches.verdict(w.WatchKey("c", 3))


def test_a_dead_spine_kills_its_paths_and_leaves_the_others_clean() -> None:
    slots, watches = fabric()
    for port in A:
        for dst in (DST, FAR):
            slots.set(port, SILENT, dst=dst)
    assert verdicts(slots, watches) == (w.DEAD, w.CLEAN)


def test_a_single_silent_probe_path_kills_nothing() -> None:
    slots, watches = fabric()
    slots.set(1, SILENT)
    assert verdicts(slots, watches) == (w.CLEAN, w.CLEAN)


def test_when_the_own_nic_is_down_nothing_is_known() -> None:
    slots, watches = fabric()
    for port in (*A, *B):
        for dst in (DST, FAR):
            slots.set(port, UNKNOWN, dst=dst)
    assert verdicts(slots, watches) == (w.UNKNOWN, w.UNKNOWN)


def test_when_the_far_nic_is_down_its_neighbours_leave_the_path_clean() -> None:
    slots, watches = fabric()
    for port in (*A, *B):
        slots.set(port, SILENT)
    assert verdicts(slots, watches) == (w.CLEAN, w.CLEAN)


def test_when_everything_far_is_silent_no_alternate_is_clean() -> None:
    slots, watches = fabric()
    for port in (*A, *B):
        for dst in (DST, FAR):
            slots.set(port, SILENT, dst=dst)
    assert verdicts(slots, watches) == (w.DEAD, w.DEAD)


def test_one_direction_is_distinguished_from_the_other_by_the_routes_of_answers() -> None:
    """Probes 1 and 3 come back over A, 2 and 4 over B; the way up over A is fine, the way back over A is dead."""
    slots, watches = FakeSlots(), w.PathWatches()
    up_a, back_a, back_b = (1, 2), (1, 3), (2, 4)
    for port in (1, 2, 3, 4):
        slots.set(port, SILENT if port in back_a else ALIVE)
    named = {"up": up_a, "back-A": back_a, "back-B": back_b}
    segments = {n: w.Segment(n, tuple(ProbePath(DST, p, 0) for p in ports)) for n, ports in named.items()}
    watches.put(w.WatchKey("c", 1), SRC, [segments["up"], segments["back-A"]], 1)
    watches.put(w.WatchKey("c", 2), SRC, [segments["up"], segments["back-B"]], 1)
    watches.assess(slots, 1)
    assert watches.verdict(w.WatchKey("c", 1)) == w.DEAD
    assert watches.verdict(w.WatchKey("c", 2)) == w.CLEAN


def test_only_the_best_supported_explanation_is_blamed() -> None:
    """Probes 1..3 cross the broken link; 1 alone crosses another link, which needs no fault to explain it."""
    slots, watches = FakeSlots(), w.PathWatches()
    for port in (1, 2, 3):
        slots.set(port, SILENT)
    slots.set(4, ALIVE)
    broken = w.Segment("broken", tuple(ProbePath(DST, p, 0) for p in (1, 2, 3)))
    innocent = w.Segment("innocent", (ProbePath(DST, 1, 0),))
    watches.put(w.WatchKey("c", 1), SRC, [broken], 1)
    watches.put(w.WatchKey("c", 2), SRC, [innocent], 1)
    watches.assess(slots, 1)
    assert watches.verdict(w.WatchKey("c", 1)) == w.DEAD
    assert watches.verdict(w.WatchKey("c", 2)) == w.UNKNOWN


def test_quick_probe_paths_overrule_slow_ones() -> None:
    slots, watches = FakeSlots(), w.PathWatches()
    slots.set(1, SILENT)
    slots.set(2, ALIVE)  # a candidate of the same pair, which still says alive
    slots.set(2, ALIVE, dst=FAR)  # of the slow mesh
    slots.limits_ns = {1: 3_000 * MS, 2: 500 * MS}
    probes = (ProbePath(DST, 1, 0), ProbePath(DST, 2, 0), ProbePath(FAR, 2, 0))
    watches.put(w.WatchKey("c", 1), SRC, [w.Segment("a", probes)], 1)
    watches.assess(slots, 1)
    assert watches.verdict(w.WatchKey("c", 1)) == w.DEAD
    slots.limits_ns = {0: 3_000 * MS, 1: 3_000 * MS}  # now another one is quick
    slots.generation += 1
    watches.assess(slots, 2)
    assert watches.verdict(w.WatchKey("c", 1)) == w.CLEAN


def test_quick_probe_paths_count_as_soon_as_the_host_has_traced_them() -> None:
    """A queue pair was armed a moment ago: its command names a slow path, which will say alive for a second yet."""
    slots, watches = FakeSlots(), w.PathWatches()
    slow, quick, other = (ProbePath(DST, port, 0) for port in (1, 2, 3))
    slots.limits_ns = {0: 1_500 * MS}
    slots.set(1, ALIVE)
    for port, state in ((2, SILENT), (3, ALIVE)):
        slots.set(port, state)
    watches.put(w.WatchKey("c", 1), SRC, [w.Segment("up0", (slow,))], 1)
    watches.put(w.WatchKey("c", 2), SRC, [w.Segment("up1", (slow,))], 1)
    assert verdicts_of(slots, watches) == [w.CLEAN, w.CLEAN]
    slots.known_routes = {quick: ("cable", "up0"), other: ("cable", "up1")}
    slots.generation += 1
    assert verdicts_of(slots, watches) == [w.DEAD, w.CLEAN]


def verdicts_of(slots: FakeSlots, watches: w.PathWatches) -> list[int]:
    watches.assess(slots, 1)
    return [watches.verdict(w.WatchKey("c", key)) for key in (1, 2)]


def test_a_path_that_is_no_witness_is_not_heard() -> None:
    """Its packets are as large as the MTU: it may be silent where queue pairs' packets pass."""
    slots, watches = FakeSlots(), w.PathWatches()
    slots.set(1, ALIVE)
    slots.names[SRC, DST, 9, 0] = w.NO_WITNESS
    one, large = ProbePath(DST, 1, 0), ProbePath(DST, 9, 0)
    watches.put(w.WatchKey("c", 1), SRC, [w.Segment("a", (one, large))], 1)
    watches.put(w.WatchKey("c", 2), SRC, [w.Segment("b", (large,))], 1)
    for state, verdict in ((ALIVE, w.CLEAN), (SILENT, w.DEAD)):
        slots.set(1, state)
        watches.assess(slots, 1)
        assert watches.verdict(w.WatchKey("c", 1)) == verdict, "it outvotes nobody"
        assert watches.verdict(w.WatchKey("c", 2)) == w.UNKNOWN


@given(
    st.lists(st.tuples(st.sampled_from((1, 1.9, 2, 2.1, 30)), st.sampled_from((0, 1, 2))), min_size=1, max_size=6),
    st.integers(1, 3_000),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_segment_is_judged_as_if_only_its_quick_paths_were_there(probes: list[tuple[float, int]], ms: int) -> None:
    """Quick: at most twice the limit of the quickest."""
    slots, watches = FakeSlots(), w.PathWatches()
    for port, (times, state) in enumerate(probes):
        slots.set(port, state)
        slots.limits_ns[port] = round(times * ms * MS)
    segment = w.Segment("a", tuple(ProbePath(DST, port, 0) for port in range(len(probes))))
    watches.put(w.WatchKey("c", 1), SRC, [segment], 1)
    watches.assess(slots, 1)
    quickest = min(slots.limits_ns.values())
    states = [state for port, (_, state) in enumerate(probes) if slots.limits_ns[port] <= 2 * quickest]
    verdict = w.DEAD if set(states) == {SILENT} else w.CLEAN if ALIVE in states else w.UNKNOWN
    assert watches.verdict(w.WatchKey("c", 1)) == verdict


def test_a_probe_path_that_has_ended_keeps_no_segment_from_being_dead() -> None:
    """A spare port was given up a moment ago, and the command names it still: its queue pair stayed on a dead path."""
    slots, watches = FakeSlots(), w.PathWatches()
    for port in (1, 2):
        slots.set(port, SILENT)
    segment = w.Segment("up", tuple(ProbePath(DST, port, 0) for port in (1, 2, 3)))
    watches.put(w.WatchKey("c", 1), SRC, [segment], 1)
    watches.assess(slots, 1)
    assert (watches.verdict(w.WatchKey("c", 1)), watches.unresolved) == (w.DEAD, 1)


def test_a_new_generation_is_resolved_anew() -> None:
    slots, watches = FakeSlots(), w.PathWatches()
    watches.put(w.WatchKey("c", 1), SRC, [w.Segment("a", (ProbePath(DST, 1, 0),))], 1)
    watches.assess(slots, 1)
    assert (watches.verdict(w.WatchKey("c", 1)), watches.unresolved) == (w.UNKNOWN, 1)
    slots.set(7, SILENT)
    slots.set(1, ALIVE)
    watches.assess(slots, 2)
    assert (watches.verdict(w.WatchKey("c", 1)), watches.unresolved) == (w.CLEAN, 0)
    assert np.array_equal(slots.states(), [SILENT, ALIVE])
