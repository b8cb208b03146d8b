"""What an agent still knows after it was killed; the journal's file; bus time."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sdfstream.agent.commands import journal
from sdfstream.agent.commands.admission import BusTimeBound
from sdfstream.agent.commands.executor import Executor
from sdfstream.agent.commands.journal_io import JournalFile
from sdfstream.agent.commands.lease import LeaseState
from sdfstream.errors import FormatError, UnavailableError
from sdfstream.records.signature import KeyRing
from tests.fixtures.control import ALIVE, KEYS, PATHS, SILENT, SRC, S, queue_pair, shard
from tests.unit.agent.commands.test_executor import Bench

QP = f"{SRC}#1"
calm = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def restarted(bench: Bench, *, boot: str = "b1", keys: KeyRing = KEYS) -> list[str]:
    """Kill the bench's agent and start it again; what was not resumed."""
    data = json.loads(json.dumps(journal.record(bench.executor, bench.now_ns, "b1")))
    bench.executor = Executor(["h0"], keys)
    left_out = journal.resume(bench.executor, data, bench.now_ns, boot)
    bench.executor.attach("h0", bench.slots)
    path = bench.twin.paths.get(QP, PATHS[0])
    qp = queue_pair(path=path, rate_bps=bench.twin.rates.get(QP), alternates=PATHS)
    bench.executor.take_jobs("h0", [shard(qp)], bench.now_ns)
    return left_out


def test_an_armed_queue_pair_is_still_armed() -> None:
    bench = Bench()
    bench.say(bench.controller.failover("f", bench.now_ns))
    assert restarted(bench) == []
    bench.probe(PATHS[0], SILENT)
    assert bench.wait(5) == ["applied"]


def test_a_moved_one_stays_until_its_former_path_is_clean() -> None:
    bench = Bench()
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.probe(PATHS[0], SILENT)
    bench.wait(5)
    restarted(bench)
    assert bench.wait(4_000) == ["held"]
    assert bench.path == PATHS[1]
    bench.probe(PATHS[0], ALIVE)
    assert bench.wait(600) == ["undone"]
    assert bench.path == PATHS[0]


def test_a_limit_whose_lease_ended_meanwhile_is_lifted_at_once() -> None:
    bench = Bench()
    bench.say(bench.controller.throttle("t", bench.now_ns))
    data = journal.record(bench.executor, bench.now_ns, "b1")
    bench.now_ns += 10 * S
    bench.executor = Executor(["h0"], KEYS)
    journal.resume(bench.executor, data, bench.now_ns, "b1")
    bench.executor.take_jobs("h0", [shard(queue_pair(rate_bps=10_000_000))], bench.now_ns)
    assert bench.wait(5) == ["undone"]
    assert bench.twin.rates[QP] is None


def test_a_move_that_died_with_the_agent_is_found() -> None:
    """Killed between the request and its note in the journal: armed there, moved in truth."""
    bench = Bench()
    bench.say(bench.controller.failover("f", bench.now_ns))
    bench.twin.paths[QP] = PATHS[1]
    restarted(bench)
    assert bench.wait(5) == ["applied"]
    assert bench.executor.leases("h0")[0].state is LeaseState.MOVED
    assert bench.wait(4_000) == ["undone"]  # its lease is over, and its former path was clean all the time
    assert bench.path == PATHS[0]


def test_statements_before_a_restart_are_replays() -> None:
    bench = Bench()
    message = bench.controller.failover("f", bench.now_ns)
    bench.say(message)
    bench.say(bench.controller.steer("s", bench.now_ns, PATHS[2]))
    bench.say(bench.controller.undo("u", "s", bench.now_ns + 1))
    restarted(bench)
    assert bench.say(message) == ["refused"]
    assert bench.say(bench.controller.steer("s", bench.now_ns + 2, PATHS[2])) == ["refused"]  # undone for good
    assert all(o.why.startswith("replayed") for o in bench.said[-2:])


def test_old_epochs_stay_over() -> None:
    bench = Bench()
    bench.controller.epoch = 7
    bench.say(bench.controller.failover("f", bench.now_ns))
    restarted(bench)
    bench.controller.epoch = 6
    assert bench.say(bench.controller.failover("g", bench.now_ns)) == ["refused"]
    assert bench.said[-1].why.startswith("wrong-epoch")


def test_after_a_restart_of_the_machine_no_lease_is_left_but_epochs_are() -> None:
    bench = Bench()
    bench.controller.epoch = 7
    bench.say(bench.controller.failover("f", bench.now_ns))
    assert restarted(bench, boot="another") == ["the machine has been started anew: no lease is left"]
    assert bench.executor.leases("h0") == []
    assert bench.executor.admission.epoch == 7


def test_a_lease_by_a_key_that_is_trusted_no_more_is_not_resumed() -> None:
    bench = Bench()
    bench.say(bench.controller.failover("f", bench.now_ns))
    assert restarted(bench, keys=KeyRing([])) == ["command f: unknown-key"]


@calm
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda x: st.lists(x, max_size=3) | st.dictionaries(
                        st.sampled_from(["version", "boot", "epoch", "bus_at_ns", "steady_ns", "heard", "hosts", "h0",
                                         "leases", "kernel_paths", "data", "state"]), x, max_size=6)))  # fmt: skip
def test_nothing_that_is_no_journal_is_taken_for_one(data: Any) -> None:
    executor = Executor(["h0"], KEYS)
    try:
        journal.resume(executor, data if isinstance(data, dict) else {"hosts": data}, 1, "b")
    except FormatError:
        assert executor.admission.epoch == 0
    assert executor.leases("h0") == []


# --- the file ---


def test_the_file_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "state" / "journal.json")
    assert file.read() is None
    file.write({"version": 1})
    file.write({"version": 1, "epoch": 2})
    assert file.read() == {"version": 1, "epoch": 2}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [p.name for p in file.path.parent.iterdir()] == ["journal.json"]


def test_what_cannot_be_read_is_set_aside_and_said(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal.json")
    file.path.write_text('{"version": 1, "epo')
    with pytest.raises(FormatError):
        file.read()
    assert [p.name for p in tmp_path.iterdir()] == ["journal.json.unreadable"]
    assert file.read() is None


def test_a_folder_that_cannot_be_used_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError):
        JournalFile(tmp_path / "file" / "journal.json").read()


def test_without_earlier_statements_only_fresh_commands_count() -> None:
    bench = Bench()
    bench.executor.admission.forgetful = True
    old = bench.controller.failover("f", bench.now_ns)
    bench.now_ns += S
    bench.say(bench.controller.message({}, bench.now_ns, key="elsewhere", signed=False))
    assert bench.say(old) == ["refused"]
    assert bench.said[-1].why.startswith("replayed")
    assert bench.say(bench.controller.failover("f", bench.now_ns + 1)) == ["accepted"]


# --- bus time ---


@calm
@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20),
    st.integers(-90, 90),
)
@example([(1114, 0, 9998)], 90)
@example([(3338, 0, 0), (29996, 0, 0)], 90)
@example([(8750002, 0, 9998)], 25)
def test_bus_time_is_a_lower_bound_that_never_goes_back(
    last_statements: list[tuple[int, int, int]], drift_ppm: int
) -> None:
    """Messages wait in the bus for any time; the steady clock is up to 90 ppm off."""
    time, true, before = BusTimeBound(), 10**18, 0
    for step, waited, later in last_statements:
        true += step
        steady = (true - 10**18) + (true - 10**18) * drift_ppm // 10**6
        time.take(true - waited, steady)
        now = time.now(steady)
        assert before <= now <= true
        true += later
        steady = (true - 10**18) + (true - 10**18) * drift_ppm // 10**6
        before = time.now(steady)
        assert now <= before <= true
