"""The simulator of the clocks' score card: what it claims to be the truth is what the stamps hold."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS
from sdfstream.score.clock import worlds
from sdfstream.score.clock.delays import bursts, law, standing
from sdfstream.score.clock.sim import mesh, pair
from sdfstream.score.clock.truth import truth_lines
from sdfstream.score.clock_errors import TrueClocks
from sdfstream.twin.clock_model import START_NS, SimulatedClock, Slew, seeded


def test_stamps_are_true_times_and_offsets() -> None:
    world = pair("B", 64, 3)
    messages = world.messages(20.0)
    x = world.exchanges
    assert sum(m.rows for m in messages) == x["sent"].size == 20 * 64
    got = np.concatenate([columns.instants(m.body, "t2_ns") for m in messages])
    assert (got == x["t2"]).all()
    b = world.clocks["b"]
    assert np.abs((x["t2"] - START_NS) - (x["sent"] + x["fwd"] + b.offset(x["sent"] + x["fwd"]))).max() <= 0.51
    back = (x["t4"] - START_NS) - (b.true_time(x["t3"]) + x["rev"])
    assert np.abs(back).max() <= 1.1


def test_a_message_is_what_a_host_measured_in_its_100_ms() -> None:
    messages = mesh(6, 3, "B", 64, 1).messages(5.0)
    assert [m.bus_at_ns for m in messages] == sorted(m.bus_at_ns for m in messages)
    assert [m.bus_seq for m in messages] == list(range(len(messages)))
    for host in {m.key for m in messages}:
        mine = [m for m in messages if m.key == host]
        assert {ends for m in mine for ends in _hosts(m.body)} == {host}
        assert set(np.diff([m.bus_at_ns for m in mine]) // 1_000_000) <= {99, 100}
        for m in mine[1:]:
            age = m.bus_at_ns - columns.instants(m.body, "t4_ns")
            assert age.max() < 103e6 + 1e6  # the host's own clock is up to 1 ms off


def _hosts(body: object) -> set[str]:
    codes, names = columns.names(body, "clock_src")  # type: ignore[arg-type]
    return {names[c] for c in codes}


def test_a_seed_gives_the_same_draws_and_another_one_others() -> None:
    one, again, other = (pair("L90", 16, seed) for seed in (1, 1, 2))
    for world in (one, again, other):
        world.messages(10.0)
    assert all((one.exchanges[k] == again.exchanges[k]).all() for k in one.exchanges)
    assert (one.exchanges["fwd"] != other.exchanges["fwd"]).all()


@pytest.mark.parametrize(
    ("make", "clean"),
    [
        (worlds.liars(40, 10, 0.05), worlds.plain_mesh(40, 10)),
        (worlds.stepped(3, 250e3), worlds.plain_mesh(8, 4)),
        (worlds.slewed(Slew(2, 4, 500_000.0)), worlds.plain_mesh(8, 4)),
        (worlds.islands(2, 4), worlds.plain_mesh(16, 8)),
    ],
)
def test_a_trouble_leaves_the_draws_of_its_seed_alone(make: worlds.Make, clean: worlds.Make) -> None:
    troubled, plain = make(7), clean(7)
    for world in (troubled, plain):
        world.messages(5.0)
    assert troubled.troubled and troubled.reference not in troubled.troubled
    both = [
        np.array(
            [w.sessions[i].src in troubled.troubled or w.sessions[i].dst in troubled.troubled for i in x["session"]]
        )
        for w, x in ((troubled, troubled.exchanges), (plain, plain.exchanges))
    ]
    keys = [
        x["session"][~m] * 10_000 + x["seq"][~m]
        for x, m in zip((troubled.exchanges, plain.exchanges), both, strict=True)
    ]
    rows = [np.argsort(k) for k in keys]
    for name in ("t1", "t2", "t3", "t4"):
        a, b = troubled.exchanges[name][~both[0]][rows[0]], plain.exchanges[name][~both[1]][rows[1]]
        assert (a == b).all(), name


def test_liars_lie_by_10_us_with_a_sign_per_edge() -> None:
    world, plain = worlds.liars(40, 10, 0.05)(1), worlds.plain_mesh(40, 10)(1)
    world.messages(2.0), plain.messages(2.0)
    assert len(world.troubled) == 2
    signs = set()
    for number, s in enumerate(world.sessions):
        mine = [
            w.exchanges["fwd"][np.argsort(w.exchanges["seq"] + 1e6 * (w.exchanges["session"] != number))]
            for w in (world, plain)
        ]
        lie = (mine[0] - mine[1])[:128]
        if s.src in world.troubled or s.dst in world.troubled:
            assert np.allclose(np.abs(lie), 10e3)
            signs.add(float(np.sign(lie[0])))
        else:
            assert np.allclose(lie, 0.0)
    assert signs == {-1.0, 1.0}


def test_islands_are_cut_off_from_each_other_for_a_while() -> None:
    world = worlds.islands(2.0, 4.0)(1)
    messages = world.messages(6.0)
    x = world.exchanges
    across = np.array([(s.src in world.troubled) != (s.dst in world.troubled) for s in world.sessions])[x["session"]]
    cut = across & (x["sent"] >= 2e9) & (x["sent"] < 4e9)
    assert cut.any() and (x["lost"] == cut).all()
    t4 = np.concatenate([columns.instants(m.body, "t4_ns") for m in messages])
    assert ((t4 == ABSENT_NS) == cut).all()


def test_half_of_the_edges_queue_and_the_other_half_does_not() -> None:
    world = worlds.half_queued(16, 6, 2.0, 4.0)(1)
    assert sum(s.extra_forward is not None for s in world.sessions) == len(world.sessions) // 2
    world.messages(6.0)
    x = world.exchanges
    during = (x["sent"] > 2e9) & (x["sent"] < 4e9)
    queued = np.array([s.extra_forward is not None for s in world.sessions])[x["session"]]
    assert x["fwd"][during & queued].min() >= 30e3
    assert x["fwd"][during & queued].mean() == pytest.approx(60e3, rel=0.05)
    assert x["fwd"][during & ~queued].mean() == pytest.approx(20e3, rel=0.05)
    assert x["rev"][during].mean() == pytest.approx(20e3, rel=0.05)


@pytest.mark.parametrize(
    ("name", "mean", "clean"), [("A", 10_000, 0.0), ("B", 20_000, 0.0), ("L40", 12_400, 0.2), ("L90", 42_400, 0.0005)]
)
def test_the_laws_have_their_published_moments(name: str, mean: float, clean: float) -> None:
    drawn = law(name)(seeded(1), 200_000)
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert (drawn == 10e3).mean() == pytest.approx(clean, abs=0.02)


def test_bursts_take_a_quarter_of_the_time_and_hold_together() -> None:
    t = np.arange(0, 400e9, 10e6)
    more = bursts(0.2, 0.6, 50e3)(t, seeded(1))
    busy = more > 0
    assert busy.mean() == pytest.approx(0.25, abs=0.03)
    assert more[busy].mean() == pytest.approx(37.5e3, rel=0.15)
    assert busy[1:][busy[:-1]].mean() > 0.9, "a busy instant is followed by a busy one"


def test_a_standing_queue_never_empties() -> None:
    t = np.arange(0, 100e9, 10e6)
    more = standing(50, 80, 20e3, 20e3)(t, seeded(1))
    during = (t > 50e9) & (t < 80e9)
    assert more[during].min() >= 20e3 and not more[~during].any()


def test_clocks_ramp_slew_and_step_and_are_linear_in_between() -> None:
    clock = SimulatedClock("b", 0.0, 0.0, ramp_ppb=20.0, ramp_from_s=10.0, ramp_to_s=20.0)
    at = clock.offset(np.array([5e9, 20e9, 30e9, 40e9]))
    assert at[0] == 0.0 and at[3] - at[2] == pytest.approx(10 * 200.0), "200 ppb more than before the ramp"
    slewed = SimulatedClock("b", slews=(Slew(30, 38, 500_000.0), Slew(45, 49, -500_000.0)))
    assert slewed.offset(np.array([29e9, 38e9, 44e9, 60e9])).tolist() == [0.0, 4e6, 4e6, 2e6]
    stepped = SimulatedClock("b", step_at_s=3.0, step_ns=250e3)
    assert stepped.offset(np.array([2.999e9, 3e9])).tolist() == [0.0, 250e3]


@pytest.mark.parametrize(
    "clock",
    [
        SimulatedClock("b", 1e6, 10_000.0, 10.0, rng=seeded(1)),
        SimulatedClock("b", 123_456.0, 10_000.0, 0.0, 200.0, rng=seeded(1)),
        SimulatedClock("b", -1e6, 0.0, slews=(Slew(10, 20, 500_000.0),)),
    ],
)
def test_true_time_undoes_a_reading(clock: SimulatedClock) -> None:
    t = np.linspace(0.1e9, 60e9, 1001)
    assert np.abs(clock.true_time(clock.reading(t)) - t).max() <= 0.6


def test_jitter_is_two_sided_and_of_its_size() -> None:
    world = worlds.jittery("A", 64, 10.0)(1)
    world.messages(100.0)
    x = world.exchanges
    a, b = world.clocks["a"], world.clocks["b"]
    for name, clock, true in (("t1", a, x["sent"]), ("t2", b, x["sent"] + x["fwd"])):
        error = (x[name] - START_NS) - (true + clock.offset(true))
        assert error.std() == pytest.approx(10.0, rel=0.05) and abs(error.mean()) < 0.5


def test_a_reroute_of_one_direction_has_both_signs_and_ends() -> None:
    world = worlds.rerouted(2.0, 4.0, 500.0, 0.0)(1)
    shifts = [s.extra_forward for s in world.sessions if s.extra_forward is not None]
    assert len(shifts) == len(world.sessions) // 5
    t = np.array([1e9, 3e9, 5e9])
    found = {tuple(shift(t, seeded(1)).tolist()) for shift in shifts}
    assert found == {(0.0, 500.0, 0.0), (0.0, -500.0, 0.0)}


@pytest.mark.parametrize("make", [worlds.stepped(3, 250e3), worlds.slewed(Slew(2.5, 4, 5e5)), worlds.lab_clock(2, 4)])
def test_the_truth_beside_a_recording_is_the_simulated_one(make: worlds.Make) -> None:
    world = make(1)
    truth = TrueClocks(truth_lines(world, 8.0))
    t = np.linspace(0.01e9, 8e9, 997)
    for name, clock in world.clocks.items():
        assert np.abs(truth.offset_ns(name, START_NS + t.astype(np.int64)) - clock.offset(np.floor(t))).max() < 0.01
