"""What the loop takes: everything once, the newest state of each path, and a bounded number of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sdfstream.stats import Counters
from sdfstream.verbs.carried.mail import MOST_BATCHES, HostMail


def entry(path: int, state: str) -> dict[str, Any]:
    name = {"role": "sender", "observer": "a/r0", "src": "a/r0", "dst": "b/r0", "transport": "rocev2", "dscp": 0}
    return {**name, "path": path, "state": state}


def test_changes_come_once_and_in_order() -> None:
    mail = HostMail(Counters("rdma"))
    mail.put_states([entry(1, "alive"), entry(1, "silent")], [entry(1, "silent")])
    assert mail.has_changes
    assert [e["state"] for e in mail.changes(complete=False)] == ["alive", "silent"]
    assert not mail.has_changes
    assert mail.changes(complete=False) == []


def test_a_complete_list_has_every_path_in_its_newest_state_and_what_has_ended() -> None:
    mail = HostMail(Counters("rdma"))
    mail.put_states([entry(1, "silent"), entry(2, "unknown")], [entry(1, "silent"), entry(3, "alive")])  # 2 has ended
    mail.put_states([entry(1, "alive")], [entry(1, "alive"), entry(3, "alive")])
    states = {e["path"]: e["state"] for e in mail.changes(complete=True)}
    assert states == {1: "alive", 2: "unknown", 3: "alive"}
    assert {e["path"] for e in mail.changes(complete=True)} == {1, 3}


def test_a_complete_list_is_never_older_than_the_changes_before_it() -> None:
    mail = HostMail(Counters("rdma"))
    mail.put_states([], [entry(1, "unknown")])
    mail.put_states([entry(1, "alive")], [entry(1, "alive")])
    assert [e["state"] for e in mail.changes(complete=False)] == ["alive"]
    assert [e["state"] for e in mail.changes(complete=True)] == ["alive"]


def test_rows_that_nobody_takes_are_shed_oldest_first_and_counted() -> None:
    counters = Counters("rdma")
    mail = HostMail(counters)
    for i in range(MOST_BATCHES + 3):
        mail.put_rows(pa.record_batch({"seq": [i, i]}))
    assert counters.get("shed", "rows") == 6
    assert mail.rows()[0].column("seq")[0].as_py() == 3
    assert mail.rows() == []
