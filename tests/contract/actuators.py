"""What every actuator of paths and limits must do, the twin and the real ones alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from sdfstream.agent.commands.actuator import Actuator, ActuatorAnswer, ActuatorRequest
from sdfstream.records.fabric import QueuePair


class Bench(Protocol):
    """An actuator, a queue pair that it can change, and the truth about that."""

    actuator: Actuator
    qp: QueuePair
    control: str
    limits: bool
    """It can limit rates."""

    def path(self) -> int: ...

    def rate(self) -> int | None: ...

    def refuse(self) -> None:
        """From now on what is asked cannot be done."""


def asked(bench: Bench, **fields: Any) -> ActuatorAnswer:
    """Apply one request and wait for its answer."""
    bench_id = getattr(bench, "next_id", 1)
    bench.next_id = bench_id + 1  # type: ignore[attr-defined]
    command = {
        "id": f"c{bench_id}",
        "target": {"type": "qp", "id": bench.qp.qp},
        "set": {"path": fields.get("path"), "rate_bps": fields.get("rate_bps")},
        "undo": {"path": bench.qp.path} if fields.get("path") else {"rate_bps": None},
    }
    command["set"] = {k: v for k, v in command["set"].items() if v is not None}
    wanted = {"do": "set", "ttl_ms": 60_000} | fields
    request = ActuatorRequest(id=bench_id, qp=bench.qp, control=bench.control, command=command, **wanted)
    answer = bench.actuator.apply(request, time.monotonic_ns())
    deadline = time.monotonic() + 5
    while answer is None:
        assert time.monotonic() < deadline, "no answer, not even that time is out"
        time.sleep(0.002)
        answer = next(iter(bench.actuator.answers(time.monotonic_ns())), None)
    assert answer.request == bench_id
    return answer


def moves_and_says_before_and_after(bench: Bench) -> None:
    to = bench.qp.alternates[0]
    answer = asked(bench, path=to)
    assert answer.ok, answer.why
    assert (answer.before["path"], answer.after["path"]) == (bench.qp.path, to)
    assert bench.path() == to


def moving_twice_is_moving_once(bench: Bench) -> None:
    to = bench.qp.alternates[0]
    assert asked(bench, path=to).ok
    again = asked(bench, path=to)
    assert again.ok
    assert again.before["path"] == to
    assert bench.path() == to


def moves_on_and_back(bench: Bench) -> None:
    for to in (*bench.qp.alternates[:2], bench.qp.path):
        assert asked(bench, path=to).ok
        assert bench.path() == to


def undo_of_a_move_goes_back(bench: Bench) -> None:
    assert asked(bench, path=bench.qp.alternates[0]).ok
    answer = asked(bench, do="undo", path=bench.qp.path)
    assert answer.ok
    assert answer.after["path"] == bench.qp.path
    assert bench.path() == bench.qp.path


def limits_and_lifts(bench: Bench) -> None:
    answer = asked(bench, rate_bps=5_000_000)
    if not bench.limits:
        assert not answer.ok
        assert answer.sure
        assert answer.why
        return
    assert answer.ok
    assert bench.rate() == 5_000_000
    assert asked(bench, do="undo").ok
    assert bench.rate() is None


def a_limit_ends_by_itself(bench: Bench) -> None:
    if not bench.limits:
        return
    assert asked(bench, rate_bps=5_000_000, ttl_ms=80).ok
    assert bench.rate() == 5_000_000
    time.sleep(0.1)
    bench.actuator.answers(time.monotonic_ns())
    assert bench.rate() is None


def a_refusal_is_an_answer_and_changes_nothing(bench: Bench) -> None:
    before = bench.path()
    bench.refuse()
    answer = asked(bench, path=bench.qp.alternates[0])
    assert not answer.ok
    assert answer.why
    assert bench.path() == before


SUITE: tuple[Callable[[Bench], None], ...] = (
    moves_and_says_before_and_after,
    moving_twice_is_moving_once,
    moves_on_and_back,
    undo_of_a_move_goes_back,
    limits_and_lifts,
    a_limit_ends_by_itself,
    a_refusal_is_an_answer_and_changes_nothing,
)
