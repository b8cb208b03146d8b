"""What offsets are relative to: settings, hysteresis, the mean, and the formula of the error."""

from pathlib import Path

import numpy as np
import pytest

from sdfstream import settings
from sdfstream.cli import main
from sdfstream.errors import ConfigError
from sdfstream.numeric.codec import dump, load
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.reference import HOLD_NS, SLEW_PPB, Candidates, Ensemble, Reference, Scale, check

TICK = 1e8


class MeshClocks:
    """Clocks that go on in straight lines, and a reference that looks at them every 100 ms."""

    def __init__(self, setting: str = "", names: str = "c a d b") -> None:
        self.names = names.split()
        n = len(self.names)
        self.counters = Counters("sync")
        self.reference = Reference(setting, self.counters)
        self.label = np.zeros(n, dtype=np.int64)
        self.alive = np.ones(n, dtype=np.bool_)
        self.known = np.ones(n, dtype=np.bool_)
        self.tied = np.ones(n, dtype=np.bool_)
        self.base_ns = np.zeros(n, dtype=np.int64)
        self.offset_ns = np.zeros(n)
        self.skew_ppb = np.zeros(n)
        self.at_ns = 0.0

    def bank(self) -> Ensemble:
        return Ensemble(self.at_ns, self.base_ns, self.offset_ns, self.skew_ppb)

    def tick(self, seconds: float = 0.1) -> Scale:
        for _ in range(round(seconds * 10)):
            self.at_ns += TICK
            self.offset_ns = self.offset_ns + self.skew_ppb * TICK / NS_PER_S
            rank = np.argsort(np.argsort(np.array(self.names)))
            candidates = Candidates(rank, self.label, self.alive, self.known, self.tied)
            scale = self.reference.choose(self.names, candidates, self.bank())
        return scale

    def name(self) -> str:
        return self.names[self.reference.clock]

    def die(self, *names: str, alive: bool = False) -> None:
        for name in names:
            self.alive[self.names.index(name)] = alive


def test_by_default_it_is_the_smallest_id_of_the_largest_component() -> None:
    clocks = MeshClocks()
    clocks.label = np.array([0, 1, 0, 0])
    clocks.tick()
    assert clocks.name() == "b"
    scale = clocks.tick()
    assert scale.weights.tolist() == [0.0, 0.0, 0.0, 1.0] and scale.clock == 3
    assert scale.variance(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [5.0, 6.0, 7.0, 0.0]


def test_while_clocks_come_in_every_better_choice_is_taken_at_once() -> None:
    clocks = MeshClocks()
    clocks.die("a", "b")
    clocks.tick(1.0)
    assert clocks.name() == "c"
    clocks.die("a", alive=True)
    clocks.tick()
    assert clocks.name() == "a"


def test_of_two_components_as_large_as_each_other_the_present_one_stays() -> None:
    clocks = MeshClocks(names="b a d c")
    clocks.label = np.array([0, 1, 0, 1])
    clocks.die("a")
    clocks.tick()
    assert clocks.name() == "b"
    clocks.die("a", alive=True)
    clocks.tick(30.0)
    assert clocks.name() == "b"


def test_clocks_never_tied_to_a_reference_do_not_outvote_it() -> None:
    clocks = MeshClocks(names="c a d b e")
    clocks.label = np.array([0, 1, 1, 1, 0])
    clocks.tied = np.array([True, False, False, False, True])
    clocks.die("a", "b")
    clocks.tick(11.0)
    assert clocks.name() == "c"
    clocks.die("a", "b", alive=True)
    clocks.tick(30.0)
    assert clocks.name() == "c"
    clocks.die("c", "e")
    clocks.tick(11.0)
    assert clocks.name() == "a"


def test_a_restart_does_not_move_the_reference_and_a_death_does_once() -> None:
    clocks = MeshClocks()
    clocks.tick(15.0)
    for _ in range(3):
        clocks.die("a")
        clocks.tick(9.0)
        clocks.die("a", alive=True)
        clocks.tick(0.1)
        assert clocks.name() == "a"
    assert clocks.counters.get("reference-changed") == 0
    clocks.die("a")
    clocks.tick(HOLD_NS / NS_PER_S - 0.1)
    assert clocks.name() == "a"
    clocks.tick(0.2)
    assert clocks.name() == "b"
    clocks.die("a", alive=True)
    clocks.tick(9.0)
    assert clocks.name() == "b"
    clocks.tick(2.0)
    assert clocks.name() == "a" and clocks.counters.get("reference-changed") == 2


def test_the_first_of_several_that_lives_is_taken() -> None:
    clocks = MeshClocks("d, b,x")
    clocks.tick(15.0)
    assert clocks.name() == "d"
    clocks.die("d")
    clocks.tick(11.0)
    assert clocks.name() == "b"
    clocks.die("b")
    clocks.tick(11.0)
    assert clocks.name() == "a" and clocks.counters.get("reference-fell-back") == 1
    clocks.die("d", alive=True)
    clocks.tick(11.0)
    assert clocks.name() == "d"


def test_a_named_clock_is_taken_when_it_comes_at_last_though_it_is_an_island() -> None:
    clocks = MeshClocks("z")
    clocks.tick(20.0)
    assert clocks.name() == "a"
    clocks.names.append("z")
    for name, value in (
        ("label", 4),
        ("alive", True),
        ("known", True),
        ("base_ns", 0),
        ("offset_ns", 0.0),
        ("skew_ppb", 0.0),
    ):
        setattr(clocks, name, np.append(getattr(clocks, name), value))
    clocks.tick(11.0)
    assert clocks.name() == "z"


def test_forgotten_clocks_close_up() -> None:
    clocks = MeshClocks("d")
    clocks.tick(15.0)
    retained = np.array([True, False, True, True])
    clocks.reference.keep(retained)
    clocks.names = ["c", "d", "b"]
    for name in ("label", "alive", "known", "tied", "base_ns", "offset_ns", "skew_ppb"):
        setattr(clocks, name, getattr(clocks, name)[retained])
    clocks.tick()
    assert clocks.name() == "d" and clocks.counters.get("reference-changed") == 0
    clocks.reference.keep(np.array([True, False, True]))
    clocks.names = ["c", "b"]
    for name in ("label", "alive", "known", "tied", "base_ns", "offset_ns", "skew_ppb"):
        setattr(clocks, name, getattr(clocks, name)[[0, 2]])
    clocks.tick()
    assert clocks.name() == "b"


@pytest.mark.parametrize("setting", ["", "d,b"])
def test_clocks_may_be_numbered_afresh(setting: str) -> None:
    """A list in order of the names: one that comes in shifts the others."""
    clocks = MeshClocks(setting, "b c d")
    clocks.tick(15.0)
    before = clocks.name()
    clocks.names = ["a0", "b", "c", "d"]
    for name in ("label", "alive", "known", "tied", "base_ns", "offset_ns", "skew_ppb"):
        old = getattr(clocks, name)
        setattr(clocks, name, np.concatenate([old[:1], old]))
    clocks.tick()
    assert clocks.name() == before and clocks.counters.get("reference-changed") == 0


def test_a_mean_forgets_members() -> None:
    clocks = MeshClocks("mean")
    clocks.tick(15.0)
    clocks.reference.keep(np.array([True, False, True, True]))
    assert clocks.reference.scale(3).weights.tolist() == [1 / 3] * 3


def test_nobody_there_at_all_is_no_error() -> None:
    empty = Reference("mean", Counters("sync"))
    nothing = np.empty(0)
    none = np.empty(0, dtype=np.int64)
    nobody = none.astype(bool)
    candidates = Candidates(none, none, nobody, nobody, nobody)
    scale = empty.choose([], candidates, Ensemble(0.0, none, nothing, nothing))
    assert scale.weights.size == 0 and empty.clock == 0


# --- the mean ---


def standing(clocks: MeshClocks, at: float | None = None) -> float:
    found = clocks.reference.state_at(clocks.bank() if at is None else clocks.bank()._replace(at_ns=at))
    return found.base_ns + found.offset_ns


def test_the_mean_is_the_mean_of_all_clocks_and_goes_at_their_mean_rate() -> None:
    clocks = MeshClocks("mean")
    clocks.offset_ns, clocks.skew_ppb = np.array([0.0, 400.0, 100.0, 300.0]), np.array([10.0, -20.0, 30.0, 60.0])
    scale = clocks.tick(30.0)
    assert scale.weights.tolist() == [0.25] * 4
    assert abs(standing(clocks) - clocks.offset_ns.mean()) < 1e-6 and abs(scale.gap_ns) < 1e-6
    assert abs(clocks.reference.state_at(clocks.bank()).skew_ppb - 20.0) < 1e-6
    assert scale.variance(np.array([1.0, 1.0, 1.0, 5.0])).tolist() == [1.0, 1.0, 1.0, 3.0]


def test_a_clock_that_joins_leaves_or_steps_bends_the_mean_by_the_limit_at_most() -> None:
    clocks = MeshClocks("mean")
    clocks.die("d")
    clocks.tick(20.0)
    standings = [standing(clocks)]

    def go(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            clocks.tick()
            standings.append(standing(clocks))

    clocks.offset_ns[2] = 40_000.0
    clocks.die("d", alive=True)  # joins, 40 µs off: the mean is 10 µs away
    go(2.0)
    assert 0.0 < standings[-1] <= 2 * SLEW_PPB
    go(60.0)
    assert abs(standings[-1] - 10_000.0) < 50.0
    clocks.offset_ns[0] -= 8_000.0  # steps
    go(40.0)
    assert abs(standings[-1] - 8_000.0) < 100.0
    clocks.die("d")  # leaves
    go(60.0)
    assert abs(standings[-1] - -8_000.0 / 3) < 100.0
    assert np.abs(np.diff(standings)).max() <= SLEW_PPB * 0.1 + 1e-6
    assert clocks.counters.as_dict() == {}


def test_a_clock_on_another_time_scale_does_not_count_in_the_mean() -> None:
    clocks = MeshClocks("mean")
    clocks.base_ns = np.array([0, 37 * NS_PER_S, -1_800_000_000 * NS_PER_S, 1_000])
    scale = clocks.tick(20.0)
    assert scale.weights.tolist() == [0.5, 0.0, 0.0, 0.5]
    assert standing(clocks) == 500.0
    assert scale.variance(np.array([2.0, 2.0, 2.0, 2.0])).tolist() == [1.0, 3.0, 3.0, 1.0]


def test_the_mean_is_begun_anew_when_nobody_is_near_it_for_long() -> None:
    clocks = MeshClocks("mean")
    clocks.tick(20.0)
    clocks.base_ns = clocks.base_ns + 10 * NS_PER_S
    clocks.tick(5.0)
    assert standing(clocks) == 0.0
    clocks.tick(6.0)
    assert standing(clocks) == 10 * NS_PER_S and clocks.counters.get("reference-changed") == 1


def test_the_mean_waits_for_clocks_that_are_known_and_runs_on_without_any() -> None:
    clocks = MeshClocks("mean")
    clocks.known[:] = False
    assert clocks.tick(1.0).weights.tolist() == [0.0, 1.0, 0.0, 0.0]
    clocks.known[:] = True
    clocks.skew_ppb[:] = 100.0
    clocks.tick(12.0)
    before = standing(clocks)
    clocks.alive[:] = False
    clocks.tick(5.0)
    assert abs(standing(clocks) - before - 500.0) < 1e-6


def test_the_mean_knows_where_it_was() -> None:
    clocks = MeshClocks("mean")
    clocks.skew_ppb[:] = 100.0
    seen = {}
    for _ in range(200):
        clocks.tick()
        seen[clocks.at_ns] = standing(clocks)
    clocks.offset_ns[0] += 10_000.0
    for _ in range(30):
        clocks.tick()
    for at in list(seen)[-20:]:
        assert abs(standing(clocks, at) - seen[at]) < 1e-6
        assert abs(standing(clocks, at - TICK / 2) - seen[at] + 5.0) < 1e-6


@pytest.mark.parametrize("setting", ["", "d,b", "mean"])
def test_a_snapshot_is_not_seen(setting: str) -> None:
    one, two = MeshClocks(setting), MeshClocks(setting)
    rng = np.random.default_rng(1)
    for i in range(300):
        alive, step = rng.random(4) < 0.8, rng.normal(0.0, 100.0, 4)
        for clocks in (one, two):
            clocks.alive, clocks.offset_ns = alive, clocks.offset_ns + step
            clocks.tick()
        if i % 40 == 7:
            saved = dump(two.reference.snapshot())
            two.reference = Reference(setting, two.counters)
            two.reference.restore(load(saved))
            assert dump(two.reference.snapshot()) == saved == dump(one.reference.snapshot())
        assert standing(one) == standing(two)
    assert one.counters.as_dict() == two.counters.as_dict()


# --- settings ---


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("a,", "with commas between"),
        (" ", "with commas between"),
        ("a,b, a", "names a twice"),
        ("a,mean", "goes with no other"),
        ("utc", "no clock of the mesh"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_a_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SyncConfig(reference=setting)


def test_settings_that_can_work() -> None:
    assert check("a, b") == ("a", "b") and check("") == check("mean") == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sync: {reference: 'a,,b'}", r"sync\.reference"),
        ("sync: {utc_clocks: [h1, h1]}", r"sync\.utc_clocks\.1: h1 stands twice"),
        ("sync: {utc_clocks: [utc]}", r"sync\.utc_clocks\.0"),
        ("sync: {utc_err_ns: 0}", r"sync\.utc_err_ns"),
        ("sync: {utc_clocks: h1}", r"sync\.utc_clocks"),
    ],
)
def test_the_settings_file_is_checked(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        settings.load(tmp_path / "s.yaml")


def test_the_settings_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("sync: {reference: mean, utc_clocks: [h1, h2, h3], utc_err_ns: 5.0e4}")
    sync = settings.load(tmp_path / "s.yaml").sync
    assert (sync.reference, sync.utc_clocks, sync.utc_err_ns) == ("mean", ("h1", "h2", "h3"), 5e4)


@pytest.mark.parametrize(
    "verb", [["up"], ["run", "sync", "--bus", "kafka://nowhere:1"], ["replay", "IN", "--out", "OUT"]]
)
def test_the_option_is_checked_before_anything_is_done(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*verb, "--reference", "a,,b"]) == 2
    assert "sync.reference" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
