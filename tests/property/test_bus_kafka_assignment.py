"""Units to members: every unit once, evenly, and no move that evenness does not ask for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sdfstream.bus.kafka.assignment import Held, assign

UNITS = 8
holding = st.builds(Held, st.integers(-1, 4), st.frozensets(st.integers(0, UNITS + 2)))
groups = st.dictionaries(st.sampled_from("abcde"), holding, min_size=1)


@given(st.integers(1, UNITS), groups)
def test_every_unit_has_one_member_and_members_have_the_same_share(units: int, members: dict[str, Held]) -> None:
    found = assign(units, members)
    assert sorted(unit for mine in found.values() for unit in mine) == list(range(units))
    sizes = [len(mine) for mine in found.values()]
    assert found.keys() == members.keys() and max(sizes) - min(sizes) <= 1


@given(st.integers(1, UNITS), groups, st.sampled_from("abcde"), st.booleans())
def test_who_goes_or_comes_moves_no_more_than_its_share(
    units: int, members: dict[str, Held], who: str, comes: bool
) -> None:
    first = assign(units, {name: held for name, held in members.items() if name != who or not comes} or {"f": Held()})
    held = {name: Held(5, frozenset(mine)) for name, mine in first.items() if name != who}
    held |= {who: members.get(who, Held())._replace(generation=4)} if comes else {}
    if not held:
        return
    second = assign(units, held)
    moved = sum(len(first.get(name, set()) - mine) for name, mine in second.items() if name != who)
    assert moved <= (-(-units // len(held)) if comes else 0), "what stays together is not moved"


@given(st.binary(max_size=40))
def test_what_a_stranger_says_that_it_holds_is_nothing(raw: bytes) -> None:
    assert isinstance(Held.unpack(raw), Held)
    assert Held.unpack(Held(3, frozenset({1, 4})).pack()) == Held(3, frozenset({1, 4}))
