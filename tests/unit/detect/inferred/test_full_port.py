"""The port that holds up NICs where no cabling is known."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.detect.inferred.full_port import hidden_full_port
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.localise import Location
from tests.unit.detect.gray.test_behind import GroupedCabling
from tests.unit.detect.inferred.test_hidden import LEAF, NICS, World, link

MS = 1e6
INTO, SPINE = 1, 2
"""The full port leads from this spine into this leaf, or out of it."""
SENDERS = np.array([0, 1, 4, 5, 6, 7])
"""NICs of the other leaves."""


class Waits:
    """What directed paths wait behind a full port: at paused NICs, at the uplinks that it has filled, at itself."""

    def __init__(
        self, seed: int, nics: np.ndarray, uplinks: dict[int, float], port_ms: float = 0.8, direction: str = "in"
    ) -> None:
        self.world, rng = World(seed), np.random.default_rng(seed)
        table = self.world.sessions.table
        src, dst = (table[end][self.world.slots] for end in ("src", "dst"))
        sender, receiver = np.stack([src, dst], axis=1).reshape(-1), np.stack([dst, src], axis=1).reshape(-1)
        spine = np.stack([self.world.there, self.world.back], axis=1).reshape(-1)
        self.number = np.stack([2 * self.world.slots, 2 * self.world.slots + 1], axis=1).reshape(-1)
        start, end = LEAF[sender], LEAF[receiver]
        beyond = (start != end) & (spine == SPINE)
        self.full = beyond & ((end if direction == "in" else start) == INTO)
        up_ms = np.array([uplinks.get(leaf, 0.0) for leaf in range(4)])[start] * beyond
        ms = 7.0 * np.isin(sender, nics) + up_ms + port_ms * self.full
        self.wait_ns = ms * MS * rng.normal(1.0, 0.02, ms.size)
        self.paused = [NICS[nic] for nic in nics.tolist()]

    def found(self, marked: float = 0.0) -> Location | None:
        """`marked`: share of what arrives through the full port."""
        slow = self.wait_ns != 0.0
        number, wait_ns, ce = self.number[slow], self.wait_ns[slow], np.where(self.full, marked, np.nan)[slow]
        cabling, order = GroupedCabling(self.world.sessions), np.argsort(number)
        cabling.note_new(self.world.slots.tolist())
        cabling.refresh()
        return hidden_full_port(cabling, self.paused, number[order], wait_ns[order], ce[order])

    def crossing(self) -> set[int]:
        return set(self.number[self.full].tolist())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("nics", "uplinks"),
    [
        (SENDERS[:2], {0: 7.0, 2: 0.1}),  # one leaf is paused, an uplink of another for moments
        (SENDERS[:4], {0: 7.0, 2: 7.0}),
        (SENDERS[[0, 2]], {0: 4.0, 2: 7.0}),  # a NIC of each
        (SENDERS, {0: 7.0, 2: 7.0, 3: 4.0}),  # all but the leaf itself
    ],
)
def test_a_full_port_into_a_leaf_is_found_whatever_leaves_it_has_paused(
    seed: int, nics: np.ndarray, uplinks: dict[int, float]
) -> None:
    waits = Waits(seed, nics, uplinks)
    found = waits.found()
    assert found is not None and found.subject.id == link(INTO)
    assert found.directions == [f"{CORE}->{leaf_name(NICS[2 * INTO])}"]
    assert found.beside == (NICS[2 * INTO], NICS[2 * INTO + 1])
    listed = found.directed_paths().tolist()
    assert len(listed) >= 2 and set(listed) <= waits.crossing()


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_named_where_nothing_tells_the_leaves_apart(seed: int) -> None:
    """Two leaves' uplinks are full, as two faults of their own, or a leaf's NICs are paused and nothing else waits."""
    assert Waits(seed, SENDERS[:4], {0: 7.0, 2: 7.0}, port_ms=0.0).found() is None
    assert Waits(seed, SENDERS[:2], {}, port_ms=0.0).found() is None


@pytest.mark.parametrize("seed", range(8))
def test_a_full_port_out_of_a_leaf_is_told_by_what_it_marks(seed: int) -> None:
    waits = Waits(seed, np.array([2, 3]), {}, direction="out")
    found = waits.found(marked=0.05)
    assert found is not None and found.subject.id == link(INTO)
    assert found.directions == [f"{leaf_name(NICS[2 * INTO])}->{CORE}"]
    assert set(found.directed_paths().tolist()) <= waits.crossing()
    assert waits.found() is None, "the wait in the NICs hides the rest"


def test_a_port_that_marks_as_it_should_holds_up_nobody() -> None:
    waits = Waits(0, SENDERS[:2], {0: 7.0, 2: 0.1})
    assert waits.found(marked=0.05) is not None
    assert waits.found(marked=0.9) is None


def test_a_nic_that_nobody_probed_with_tells_nothing() -> None:
    waits = Waits(0, SENDERS, {0: 7.0, 2: 7.0, 3: 4.0})
    waits.paused = ["h99/r0"]
    assert waits.found() is None
