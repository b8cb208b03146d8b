"""A twin's reflectors number their answers: from the numbers alone follows in which direction a probe was lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from sdfstream.twin.probing import ExchangeBlock
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

SMALL = {
    "seconds": 8,
    "fabric": {"hosts": 6, "leaves": 6, "spines": 3},
    "probes": {"peers": 3, "ports": 2, "loss": 0.0},
    "clocks": {"ms": 50},
}
Key = tuple[str, str, int]
Row = tuple[int, bool, int | None]
"""seq, whether it was answered, seq_rev."""


def run(fault: dict[str, Any], **more: object) -> tuple[Twin, list[Message], ExchangeBlock]:
    """The twin, its messages, and what was true of all exchanges."""
    twin = Twin(parse({**SMALL, **more, "faults": [fault]}, "s.yaml"), 3)
    made: list[ExchangeBlock] = []
    block = twin.prober.block

    def noted(*args: Any) -> ExchangeBlock:
        made.append(block(*args))
        return made[-1]

    twin.prober.block = noted  # type: ignore[method-assign]
    messages = list(twin.messages())
    return twin, messages, ExchangeBlock.joined(made)


def by_session(messages: list[Message]) -> dict[Key, list[Row]]:
    """Rows by session, in order of sending."""
    found: dict[Key, list[Row]] = {}
    for message in messages:
        if message.topic == PROBE.name:
            for row in message.body.to_pylist():  # type: ignore[union-attr]
                key = (row["src"], row["dst"], row["path"])
                found.setdefault(key, []).append((row["seq"], row["t4_ns"] is not None, row["seq_rev"]))
    return {key: sorted(rows) for key, rows in found.items()}


def lost_back(rows: list[Row]) -> tuple[int, int]:
    """(lost, of these on the way back) between the first and the last answer, by the numbers."""
    answers = [(seq, number) for seq, answered, number in rows if answered]
    lost = back = 0
    for (seq, number), (next_seq, next_number) in pairwise(answers):
        assert number is not None and next_number is not None
        lost += next_seq - seq - 1
        back += next_number - number - 1
    return lost, back


def key_of(twin: Twin, session: int) -> Key:
    s = twin.sessions
    return twin.fabric.nics[s.src[session]], twin.fabric.nics[s.dst[session]], int(s.port[session])


@pytest.mark.parametrize("lossy", ["there", "back", "both"])
def test_gaps_tell_in_which_direction_each_probe_was_lost(lossy: str) -> None:
    """Truth by the exchanges themselves: of paths with a lossy link in one direction, and of all, lossy both ways."""
    fault = {"kind": "gray-loss", "at": 0, "share": 0.3, "direction": "fwd"}
    twin, messages, truth = run(fault, probes={"peers": 3, "ports": 2, "loss": 0.2 if lossy == "both" else 0.0})
    table, link = twin.sessions.tables[-1], twin.faults[0].links[0]
    there, back = ((routes[0] == link).any(axis=1) for routes in (table.fwd, table.rev))
    wanted = {"there": there & ~back, "back": back & ~there, "both": np.ones(there.size, bool)}[lossy]
    found = by_session(messages)
    total = 0
    for session in np.flatnonzero(wanted).tolist():
        rows = found[key_of(twin, session)]
        assert all((number is None) == (not answered) for _, answered, number in rows)
        lost, on_the_way_back = lost_back(rows)
        answered = [seq for seq, is_answered, _ in rows if is_answered]
        mine = (truth.session == session) & (truth.seq > answered[0]) & (truth.seq < answered[-1])
        assert lost == np.count_nonzero(mine & ~truth.answered)
        assert on_the_way_back == np.count_nonzero(mine & truth.arrived & ~truth.answered)
        assert lossy == "both" or on_the_way_back == (lost if lossy == "back" else 0)
        total += lost
    assert total > 20


def test_a_session_is_numbered_from_0_through_all_blocks() -> None:
    _, messages, truth = run({"kind": "gray-loss", "at": 0, "share": 0.3})
    arrived = truth.take(truth.arrived)
    order = np.lexsort((arrived.seq, arrived.session))
    session, number = arrived.session[order], arrived.seq_rev[order]
    count = np.bincount(session)
    assert number.tolist() == [n for each in count.tolist() for n in range(each)]
    assert sum(m.topic == PROBE.name for m in messages) > 10 * len({m.key for m in messages if m.topic == PROBE.name})


def test_a_reflector_that_was_down_begins_again_and_one_whose_cable_was_out_goes_on() -> None:
    for kind, begins_again in (("host-down", True), ("nic-down", False)):
        twin, messages, _ = run({"kind": kind, "at": 2, "lasts": 2.0, "target": "h001" if begins_again else "h001/r0"})
        dst = [k for k in range(len(twin.sessions)) if twin.fabric.nics[twin.sessions.dst[k]].startswith("h001/r0")]
        assert dst
        for session in dst:
            numbers = [number for _, _, number in by_session(messages)[key_of(twin, session)] if number is not None]
            assert numbers[0] == 0
            assert numbers.count(0) == 1 + begins_again
