"""Laws: the packet engine sends the octets, writes the rows and assesses as the numpy Session-Sender does."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.config import VirtualClock
from sdfstream.probes.stamp import packet
from sdfstream.records.units import ABSENT_NS, NS_PER_S, StampKind
from sdfstream.records.units import NS_PER_MS as MS
from tests.fixtures.engine_twins import CHANGING, NICS, Twins

KEYS = st.sampled_from([None, b"a key", b"k" * 70])
CLOCKS = st.sampled_from(
    [None, VirtualClock(offset_ns=5_000_001, skew_ppb=-12_345.678, epoch_at_ns=1_780_000_000 * NS_PER_S)]
)
ERRORS = st.sampled_from([None, packet.error_estimate(100, ptp=True)])
small = st.integers(0, 63)
some = st.lists(small, min_size=1, max_size=12)
BITS = st.one_of(
    st.integers(0, 8 * 160),  # anywhere
    st.tuples(
        st.sampled_from([3, 14, 15, 27, 35, 44, 45, 47, 51, 55, 60, 64, 68, 69, 72, 77, 80, 83]), st.integers(0, 7)
    ).map(
        lambda octet: 8 * octet[0] + octet[1]  # where the fields are that decide
    ),
)
TURN = st.tuples(st.just("turn"), st.sampled_from([3, 9, 30, 70, 260]), st.integers(0, 2**32 - 1))
STEPS = st.one_of(
    TURN,
    TURN,
    TURN,
    st.tuples(st.just("turn"), st.sampled_from([0, 1_100, 4_000]), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("answer"), st.sampled_from([0, 0, 0, 1, 2]), some),
    st.tuples(st.just("damaged"), BITS, st.lists(small, min_size=1, max_size=3)),
    st.tuples(st.just("lengthened"), st.integers(0, 90), small),
    st.tuples(st.just("forged"), st.sampled_from(["socket", "port", "length", "tos", "ttl", "user_at_ns"]), small),
    st.tuples(st.just("stamp"), st.sampled_from([0, 1, 2, 255]), some),
    st.tuples(st.just("unsent"), st.just(0), small),
    st.tuples(st.just("step clock"), st.sampled_from([-3 * NS_PER_S, -MS, 50 * MS, 3 * NS_PER_S]), small),
    st.tuples(st.just("finish"), st.just(0), small),
    st.tuples(st.just("assess"), st.integers(0, 7), small),
    st.tuples(st.just("nic"), st.integers(0, 2), small),
    st.tuples(st.just("begin"), st.integers(0, 2), small),
    st.tuples(st.just("end"), st.integers(0, 1), small),
)


def grown(octets: bytes, number: int) -> bytes:
    """Another TLV behind the others, perhaps beyond our own probes' width, and a flag that makes all be read."""
    return octets[:44] + bytes([octets[44] | 0x10]) + octets[45:] + bytes([0, number % 9, 0, number]) + bytes(number)


def flipped(bit: int) -> Any:
    def damage(octets: bytes) -> bytes:
        at = bit // 8 % len(octets)
        return octets[:at] + bytes([octets[at] ^ (1 << bit % 8)]) + octets[at + 1 :]

    return damage


class Script:
    """Carries a list of steps out on both."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self._usable = dict.fromkeys((nic.nic for nic in NICS), True)
        self._running: set[int] = set()
        self._slots = 0
        self._ended_at_ns: dict[int, int] = {}
        self._held: dict[int, int] = {}

    def run(self, steps: list[tuple[str, Any, Any]]) -> None:
        for what, one, more in steps:
            getattr(self, what.replace(" ", "_"))(one, more)
            self.twins.compare_state()

    def _flights(self, numbers: list[int]) -> list[Any]:
        """Of the newest ones, the given numbers back."""
        flights = self.twins.flights
        return [flights[-1 - n % len(flights)] for n in numbers] if flights else []

    def turn(self, ms: int, fates: int) -> None:
        """Time goes by, probes leave; two bits of `fates` for each say whether it is stamped and answered."""
        twins = self.twins
        twins.advance(ms * MS + fates % 64 * 15_625)
        before = len(twins.flights)
        twins.probe()
        fresh = twins.flights[before:]
        twins.stamp([f for i, f in enumerate(fresh) if fates >> (2 * i) & 1], 1, twins.system_ns + 3_000, handed=True)
        twins.advance(MS // 4)
        twins.answer([f for i, f in enumerate(fresh) if fates >> (2 * i) & 2])
        if fates % 3:
            twins.assess()
        if fates % 5 < 2:
            twins.finish()

    def answer(self, kind: int, numbers: list[int]) -> None:
        self.twins.answer(self._flights(numbers), kind=[StampKind.KERNEL, StampKind.HARDWARE, StampKind.NONE][kind])

    def damaged(self, bit: int, numbers: list[int]) -> None:
        self.twins.answer(self._flights(sorted(set(numbers))), damage=flipped(bit))

    def lengthened(self, number: int, flight: int) -> None:
        self.twins.answer(self._flights([flight]), damage=lambda octets: grown(octets, number))

    def forged(self, column: str, number: int) -> None:
        value = {"length": 40, "user_at_ns": self.twins.system_ns}.get(column, number + 3)
        if column == "user_at_ns":
            self.twins.answer(self._flights([number]), due_at_ns=self.twins.system_ns + number * 1_000)
        else:
            self.twins.answer(self._flights([number]), **{column: value})

    def stamp(self, kind: int, numbers: list[int]) -> None:
        at_ns = ABSENT_NS if numbers[0] == 0 else self.twins.system_ns - 50_000
        if flights := self._flights(numbers):
            self.twins.stamp(flights, kind, at_ns, handed=at_ns != ABSENT_NS and numbers[0] % 2 == 0)

    def unsent(self, _: int, number: int) -> None:
        self.twins.unsent(self._flights([number]))

    def step_clock(self, ns: int, _: int) -> None:
        self.twins.system_ns += ns

    def finish(self, _: int, __: int) -> None:
        self.twins.finish()

    def assess(self, complete: int, _: int) -> None:
        self.twins.assess(complete == 0)

    def nic(self, number: int, _: int) -> None:
        nic = NICS[number].nic
        self._usable[nic] = not self._usable[nic]
        self.twins.nic_usable(nic, self._usable[nic])

    def begin(self, which: int, slot: int) -> None:
        """A session in a new slot, in its own old one, or in one that has drained."""
        slot %= 2
        if slot in self._running or slot > self._slots:
            return
        drained = self.twins.now_ns - self._ended_at_ns.get(slot, -10 * NS_PER_S) >= 3 * NS_PER_S
        which = which if slot == self._slots or drained else self._held[slot]
        self._slots = max(self._slots, slot + 1)
        self._running.add(slot)
        self._held[slot] = which
        self.twins.change({slot: CHANGING[which]}, [], in_step=slot == 0, liveness_ms=30 if slot == 0 else 100)

    def end(self, slot: int, _: int) -> None:
        if slot in self._running:
            self._running.discard(slot)
            self._ended_at_ns[slot] = self.twins.now_ns
            self.twins.change({}, [slot], in_step=slot == 0, liveness_ms=30)


@given(st.lists(STEPS, min_size=10, max_size=50), st.integers(0, 2**64 - 1), KEYS, CLOCKS, ERRORS)
@settings(max_examples=50, deadline=None)
def test_both_do_the_same(steps: list[Any], seed: int, key: bytes | None, clock: Any, error: int | None) -> None:
    """Random packets, losses, copies, reorderings, stalls, clock steps, and changes of paths and NICs."""
    twins = Twins(seed, key, clock=clock, error=error)
    twins.advance(50 * MS)
    twins.probe()
    Script(twins).run(steps)
    for _ in range(3):
        twins.advance(2 * NS_PER_S)
        twins.finish()
        twins.assess()
    twins.compare_state()


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=50, max_size=120), st.integers(0, 2**32), KEYS
)
@settings(max_examples=4, deadline=None)
def test_both_do_the_same_on_a_sound_network(turns: list[tuple[int, int]], seed: int, key: bytes | None) -> None:
    """Turns as an agent takes them: nearly all is answered in time, with stamps; one in ten is lost."""
    twins = Twins(seed, key)
    rows = changes = 0
    for ms, fate in turns:
        twins.advance(ms * MS)
        before = len(twins.flights)
        twins.probe()
        fresh = twins.flights[before:]
        if fresh and fate:
            twins.stamp(fresh, StampKind.KERNEL, twins.system_ns + 5_000, handed=True)
            twins.advance(MS)
            twins.answer(fresh[fate == 1 :])
        changes += twins.assess()
        rows += twins.finish() if ms % 3 == 0 else 0
        twins.compare_state()
    twins.advance(2 * NS_PER_S)
    rows += twins.finish()
    twins.advance(2 * NS_PER_S)
    rows += twins.finish()
    assert rows == len(twins.flights)
    assert changes >= len({f.socket for f in twins.flights}) or not any(fate for _, fate in turns)


def test_another_session_in_a_path_gets_none_of_the_follow_ups_of_the_former() -> None:
    """Its reflector numbers answers anew, so that their numbers occur again."""
    twins = Twins(1)
    for which in (0, 1):
        twins.change({0: CHANGING[which]}, [], in_step=True, liveness_ms=30)
        for turn in range(60):
            twins.advance(5 * MS)
            before = len(twins.flights)
            twins.probe()
            fresh = twins.flights[before:]
            twins.stamp(fresh, StampKind.KERNEL, twins.system_ns + 5_000, handed=True)
            twins.answer(fresh)
            _ = turn % 4 or twins.finish()
        twins.change({}, [0], in_step=True, liveness_ms=30)
        twins.advance(4 * NS_PER_S)
        twins.finish()
        twins.finish()
    assert twins.numpy.counters.get("refused", "follow-up") == 0
    twins.compare_state()
