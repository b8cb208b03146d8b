"""Orders on the control socket: what is right is done, and of what is not, nothing is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.qpcontrol.rules import QpControl, QpTarget, RefusedError
from sdfstream.records.command import Command
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.units import NS_PER_MS, NS_PER_S

BUS_NS = 1_800_000_000 * NS_PER_S
LEASE_NS = 10 * NS_PER_S
PORTS = tuple(range(50_000, 50_017))
SIGNER, STRANGER = Signer(bytes(range(32))), Signer(bytes(range(1, 33)))
QP = "h00/r0#1"


class Sender:
    """A queue pair's sending end that only remembers."""

    def __init__(self) -> None:
        self.path = PORTS[0]
        self.rate_bps: int | None = None
        self.changes = 0

    def steer(self, path: int, now_ns: int) -> None:
        self.path = path
        self.changes += 1


def control(own_rate_bps: int | None = None) -> tuple[QpControl, Sender]:
    sender = Sender()
    sender.rate_bps = own_rate_bps
    other = Sender()
    targets = {
        QP: QpTarget(QP, PORTS, own_rate_bps, sender),
        "h01/r0#2": QpTarget("h01/r0#2", PORTS, None, other),
    }
    return QpControl(KeyRing([SIGNER.public]), "train-a", targets), sender


def order(action: str = "steer", *, id_: str = "c1", after_s: float = 0.0, epoch: int = 5) -> dict[str, Any]:
    """The data of a good command, unsigned."""
    issued = BUS_NS + int(after_s * NS_PER_S)
    what: dict[str, dict[str, Any]] = {
        "steer": {"set": {"path": PORTS[3]}, "undo": {"path": PORTS[0]}},
        "failover": {
            "set": {"watch": [], "alternates": [{"path": PORTS[1], "watch": []}, {"path": PORTS[2], "watch": []}]},
            "undo": {"path": PORTS[0]},
        },
        "throttle": {"set": {"rate_bps": 5_000_000}, "undo": {"rate_bps": None}},
        "undo": {"set": {"command": "c1"}, "undo": {"path": PORTS[0]}},
    }
    return Command(
        id=id_,
        epoch=epoch,
        issued_at_ns=issued,
        expires_at_ns=issued + LEASE_NS,
        mode="enforce",
        action=action,
        target={"type": "qp", "id": QP, "host": "h00", "job": "train-a"},
        expected={"path": PORTS[0]},
        reason=("f1",),
        **what[action],
    ).as_data()


def signed(data: dict[str, Any], signer: Signer = SIGNER) -> dict[str, Any]:
    return signer.sign(data)


def do(
    rules: QpControl, command: Any, *, after_s: float = 0.1, host: str = "h00", do_: str = "set", **more: Any
) -> dict[str, Any]:
    """Put a command to the rules `after_s` after the epoch of these tests; steady and host's clock agree."""
    now_ns = int(after_s * NS_PER_S)
    request = {"do": do_, "command": command, **more}
    if do_ == "undo":
        return rules.undo(request, host, now_ns)
    return rules.set(request, host, BUS_NS + now_ns, now_ns)


def refusal(rules: QpControl, command: Any, **more: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        do(rules, command, **more)
    assert ": " in str(caught.value)
    return caught.value.reason


def test_a_steer_moves_and_says_before_and_after() -> None:
    rules, sender = control()
    answer = do(rules, signed(order()))
    assert answer == {
        "ok": True,
        "before": {"path": PORTS[0], "rate_bps": None},
        "after": {"path": PORTS[3], "rate_bps": None},
    }
    assert sender.path == PORTS[3]
    assert json.loads(json.dumps(answer)) == answer


def test_a_renewal_of_a_steer_changes_nothing_and_a_path_outlives_its_lease() -> None:
    rules, sender = control()
    do(rules, signed(order()))
    do(rules, signed(order(after_s=5)), after_s=5)
    rules.expire(10**12)
    assert sender.path == PORTS[3]


def test_an_armed_failover_is_chosen_as_often_as_needed_under_one_statement() -> None:
    rules, sender = control()
    armed = signed(order("failover"))
    for path in (PORTS[1], PORTS[2], PORTS[0], PORTS[1]):
        assert do(rules, armed, choice={"path": path})["after"]["path"] == path
    assert sender.path == PORTS[1]
    assert refusal(rules, armed, choice={"path": PORTS[2]}, after_s=11) == "expired"


def test_a_choice_has_no_say_where_somebody_else_moved_the_queue_pair() -> None:
    rules, sender = control()
    do(rules, signed(order()))
    assert refusal(rules, signed(order("failover", id_="c2")), choice={"path": PORTS[1]}) == "unexpected-state"
    assert sender.path == PORTS[3]


def test_whoever_waits_knows_when_the_next_limit_ends() -> None:
    known: list[int | None] = []
    targets = {QP: QpTarget(QP, PORTS, None, Sender())}
    rules = QpControl(KeyRing([SIGNER.public]), "train-a", targets, lambda: known.append(rules.next_end_ns))
    assert rules.next_end_ns is None
    do(rules, signed(order("throttle")), ttl_ms=300)
    assert known == [400 * NS_PER_MS]
    rules.expire(400 * NS_PER_MS)
    assert rules.next_end_ns is None


def test_a_limit_ends_by_itself_and_not_before() -> None:
    rules, sender = control()
    do(rules, signed(order("throttle")), ttl_ms=300)
    assert sender.rate_bps == 5_000_000
    assert rules.expire(399 * NS_PER_MS) == []
    assert rules.expire(400 * NS_PER_MS) == [QP]
    assert sender.rate_bps is None


def test_a_limit_holds_at_most_until_its_lease_ends_and_a_renewal_holds_on() -> None:
    rules, sender = control()
    do(rules, signed(order("throttle")), ttl_ms=10**9)
    do(rules, signed(order("throttle", after_s=6)), after_s=6)
    assert rules.expire(int(15.9 * NS_PER_S)) == []
    assert rules.expire(16 * NS_PER_S) == [QP]
    assert sender.rate_bps is None


def test_a_limit_never_lifts_what_the_job_asks_of_itself() -> None:
    rules, sender = control(own_rate_bps=1_000_000)
    do(rules, signed(order("throttle")))
    assert sender.rate_bps == 1_000_000
    do(rules, signed(order("throttle")), do_="undo")
    assert sender.rate_bps == 1_000_000


@pytest.mark.parametrize("action", ["steer", "throttle", "failover"])
def test_an_undo_takes_back_what_its_command_did_even_when_lease_and_epoch_are_over(action: str) -> None:
    rules, sender = control()
    command = signed(order(action))
    do(rules, command, **({"choice": {"path": PORTS[2]}} if action == "failover" else {}), **(
        {"ttl_ms": 9_000} if action == "throttle" else {}
    ))  # fmt: skip
    with pytest.raises(RefusedError):
        do(
            rules, signed({**order(id_="c9", epoch=8), "expected": {}, "set": {"path": PORTS[9]}}), after_s=1
        )  # a later run of the controller
    after_s = 60.0 if action != "throttle" else 1.0
    assert do(rules, command, do_="undo", after_s=after_s)["ok"]
    assert (sender.path, sender.rate_bps) == (PORTS[0], None)
    assert do(rules, command, do_="undo", after_s=after_s)["ok"]  # saying it twice changes nothing


def test_an_undo_command_names_what_it_undoes() -> None:
    rules, sender = control()
    do(rules, signed(order()))
    do(rules, signed(order("undo", id_="u1", after_s=1)), do_="undo", after_s=1)
    assert sender.path == PORTS[0]


def test_an_undo_of_what_is_not_in_force_here_moves_nothing() -> None:
    rules, sender = control()
    do(rules, signed(order()))
    then = {**order(id_="c2"), "expected": {"path": PORTS[3]}, "set": {"path": PORTS[5]}, "undo": {"path": PORTS[3]}}
    do(rules, signed(then))
    assert refusal(rules, signed(order()), do_="undo") == "unexpected-state"
    for nameless in ({}, {"command": ""}):
        bad = {**order("undo", id_="u1"), "set": nameless, "undo": {"path": PORTS[9]}}
        assert refusal(rules, signed(bad), do_="undo") == "unexpected-state"
    assert sender.path == PORTS[5]


def _forged(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    good = signed(data)
    kind = int(rng.integers(4))
    if kind == 0:
        return {**good, "set": {**good["set"], "path": PORTS[int(rng.integers(1, 17))] + 100}}
    if kind == 1:
        return {**good, "expires_at_ns": good["expires_at_ns"] + int(rng.integers(1, 10**12))}
    if kind == 2:
        return {**good, "signature": signed({**data, "id": "other"})["signature"]}
    return {**signed(data, STRANGER), "key_id": good["key_id"]}


def _strange(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return signed(data, STRANGER)


def _expired(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    by_ns = int(rng.integers(0, 10 ** int(rng.integers(1, 18)))) + 100 * NS_PER_MS
    return signed(
        {**data, "issued_at_ns": BUS_NS - LEASE_NS - by_ns, "expires_at_ns": BUS_NS + 100 * NS_PER_MS - by_ns}
    )


def _endless(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    span_ns = int(rng.choice([0, -1, -LEASE_NS, 3_601 * NS_PER_S, 2**62]))
    return signed({**data, "expires_at_ns": data["issued_at_ns"] + span_ns})


def _from_the_future(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    ahead_ns = int(rng.integers(61, 10**6)) * NS_PER_S
    return signed({**data, "issued_at_ns": BUS_NS + ahead_ns, "expires_at_ns": BUS_NS + ahead_ns + LEASE_NS})


def _old_epoch(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return signed({**data, "epoch": int(rng.integers(-5, 5))})


def _other_target(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    target: dict[str, Any] = [
        {"id": "h00/r0#2"},
        {"id": ["h00/r0#1"]},
        {"type": "host"},
        {"job": "train-b"},
        {"id": ""},
    ][int(rng.integers(5))]
    return signed({**data, "target": {**data["target"], **target}})


def _other_host(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    target: dict[str, Any] = [{"host": "h01"}, {"id": "h01/r0#2", "host": "h01"}][int(rng.integers(2))]
    return signed({**data, "target": {**data["target"], **target}})


def _not_enforced(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return signed({**data, "mode": ["observe", "dry-run", "approve"][int(rng.integers(3))]})


def _foreign_port(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    port: Any = [int(rng.integers(0, 50_000)), int(rng.integers(50_017, 65_536)), None, "50003", True, [50_003]][
        int(rng.integers(6))
    ]
    return signed({**data, "set": {"path": port}})


def _unexpected(data: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    expected: Any = [{}, {"path": PORTS[1]}, {"path": None}, {"path": []}][int(rng.integers(4))]
    return signed({**data, "expected": expected})


BAD: dict[str, tuple[Callable[[dict[str, Any], np.random.Generator], dict[str, Any]], set[str]]] = {
    "forged": (_forged, {"forged"}),
    "unknown key": (_strange, {"unknown-key"}),
    "expired": (_expired, {"expired"}),
    "no lease, or an endless one": (_endless, {"expired"}),
    "from the future": (_from_the_future, {"expired"}),
    "wrong epoch": (_old_epoch, {"wrong-epoch"}),
    "wrong target": (_other_target, {"unknown-target", "wrong-host"}),
    "wrong host": (_other_host, {"wrong-host"}),
    "not enforced": (_not_enforced, {"not-enforced"}),
    "foreign port": (_foreign_port, {"malformed"}),
    "unexpected path": (_unexpected, {"unexpected-state"}),
}


@pytest.mark.parametrize("kind", BAD)
def test_of_a_thousand_bad_orders_none_is_applied(kind: str) -> None:
    make, reasons = BAD[kind]
    rules, sender = control()
    seen = signed({**order(id_="c0"), "set": {"path": PORTS[0]}})
    do(rules, seen)  # epoch 5 has been seen
    sender.changes = 0
    rng = np.random.default_rng(4)
    for n in range(1000):
        assert refusal(rules, make(order(id_=f"x{n}"), rng)) in reasons
    assert (sender.path, sender.rate_bps, sender.changes) == (PORTS[0], None, 0)


def test_of_a_thousand_replays_none_is_applied() -> None:
    rules, sender = control()
    commands = [signed(order(id_=f"c{n}", after_s=n / 1e4)) for n in range(1000)]
    for n, command in enumerate(commands):
        sender.path = PORTS[0]
        do(rules, command, after_s=0.2 + n / 1e4)
    sender.path, sender.changes = PORTS[0], 0
    for command in commands:
        assert refusal(rules, command, after_s=0.5) == "replayed"
    later = signed(order(id_="c7", after_s=1))
    do(rules, later, after_s=1)
    sender.path, sender.changes = PORTS[0], 0
    for command in (commands[7], later, signed(order(id_="c7", after_s=0.9))):
        assert refusal(rules, command, after_s=2) == "replayed"
    assert sender.changes == 0


def test_of_a_thousand_choices_outside_the_alternates_none_is_applied() -> None:
    rules, sender = control()
    armed = signed(order("failover"))
    rng = np.random.default_rng(5)
    allowed = {PORTS[0], PORTS[1], PORTS[2]}
    for _ in range(1000):
        path: Any = int(rng.integers(49_152, 65_536)) if rng.random() < 0.5 else PORTS[int(rng.integers(17))]
        if path in allowed:
            path = [path]
        choice: Any = [{"path": path}, {"path": str(path)}, path, {}, [path]][int(rng.integers(5))]
        assert refusal(rules, armed, choice=choice) == "malformed"
    assert refusal(rules, armed) == "malformed"  # a failover needs a choice,
    assert refusal(rules, signed(order()), choice={"path": PORTS[3]}) == "malformed"  # and nothing else has one
    assert sender.changes == 0


def test_a_later_commands_issue_time_ends_earlier_leases_even_where_the_hosts_clock_is_behind() -> None:
    rules, _ = control()
    old = signed(order(id_="old"))
    do(
        rules, signed({**order(id_="new", after_s=30), "set": {"path": PORTS[0]}}), after_s=0.1
    )  # this clock is 30 s behind
    assert refusal(rules, old, after_s=0.2) == "expired"


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=8,
    ),
    st.sampled_from(["set", "undo"]),
    st.sampled_from([None, "target", "expected", "set", "undo", "epoch", "id", "action", "mode", "reason"]),
    st.booleans(),
)
def test_nonsense_is_refused_and_never_raises_anything_else(
    junk: Any, verb: str, where: str | None, sign: bool
) -> None:
    rules, sender = control()
    command: Any = junk if where is None else {**order(), where: junk}
    if sign and isinstance(command, dict):
        try:
            command = signed(command)
        except Exception:  # what cannot be written as canonical JSON cannot be signed either
            return
    try:
        do(rules, command, do_=verb, choice=junk, ttl_ms=junk)
    except RefusedError as refused:
        assert refused.reason
        assert sender.changes == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["steer", "throttle", "failover"]), st.integers(0, 3), st.integers(1, 16),
                          st.sampled_from(["set", "undo"]), st.integers(0, 3000)), max_size=25))  # fmt: skip
def test_whatever_is_ordered_the_port_is_its_own_and_no_limit_outlives_its_lease(
    steps: list[tuple[str, int, int, str, int]],
) -> None:
    rules, sender = control()
    now_s = 0.1
    for action, name, port, verb, wait_ms in steps:
        now_s += wait_ms / 1000
        rules.expire(int(now_s * NS_PER_S))
        data = {**order(action, id_=f"{action}{name}", after_s=now_s - 0.05), "expected": {"path": sender.path}}
        if action == "steer":
            data["set"] = {"path": PORTS[port]}
        more: dict[str, Any] = {"choice": {"path": PORTS[1 + port % 2]}} if action == "failover" else {}
        with contextlib.suppress(RefusedError):
            do(rules, signed(data), after_s=now_s, do_=verb, **more)
        assert sender.path in PORTS
    rules.expire(int((now_s + 10.001) * NS_PER_S))
    assert sender.rate_bps is None
