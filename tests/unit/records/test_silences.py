"""What a silence covers, by names alone."""

from __future__ import annotations

from typing import Any

import pytest

from sdfstream.errors import FormatError
from sdfstream.records.command import Override
from sdfstream.records.silences import FindingSilence, named, scopes_of_queue_pair, silence_of

PATH = "h00/r0>h04/r1 udp:50001 dscp46 fwd"


def finding(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"id": "f1", "kind": "loss", "subject": {"type": kind, "id": name}, **more}


def silence(subject: str, **more: Any) -> FindingSilence:
    kind, _, name = subject.partition(":")
    return FindingSilence("o1", *named(kind, name), 0, 10, "ann", **more)


@pytest.mark.parametrize(
    ("subject", "covered", "not_covered"),
    [
        ("host:h00", [("host", "h00"), ("nic", "h00/r0"), ("clock", "h00"), ("clock", "h00/r0"), ("path", PATH),
                      ("link", "h00/r0--l0"), ("qp", "h00/r0#17"), ("port", "h00/r0:1")],
         [("host", "h0"), ("nic", "h01/r0"), ("switch", "l0"), ("job", "h00")]),
        ("host:h04", [("path", PATH)], []),
        ("switch:l0", [("switch", "l0"), ("link", "l0--s1"), ("link", "h00/r0--l0"), ("port", "l0/p1:1")],
         [("link", "l00--s1"), ("nic", "h00/r0"), ("path", PATH)]),
        ("nic:h00/r0", [("nic", "h00/r0"), ("port", "h00/r0:2"), ("path", PATH), ("qp", "h00/r0#1"),
                        ("link", "h00/r0--l0")],
         [("nic", "h00/r1"), ("host", "h00"), ("clock", "h00")]),
        ("link:s1--l0", [("link", "l0--s1")], [("switch", "l0"), ("link", "l0--s2")]),
        ("clock:h00", [("clock", "h00")], [("host", "h00"), ("clock", "h00/r0")]),
        (f"path:{PATH}", [("path", PATH)], [("path", PATH.replace("fwd", "rev"))]),
        ("path:h00/r0>h04/r1", [("path", PATH)], [("path", "h04/r1>h00/r0 udp:50001 dscp46 fwd")]),
        ("job:train", [("job", "train")], [("link", "l0--s1")]),
        ("finding:f1", [("link", "l0--s1"), ("job", "x")], []),
        ("all:", [("process", "bus"), ("rail", "r0")], []),
    ],
)  # fmt: skip
def test_a_silence_covers_what_lies_under_its_subject(
    subject: str, covered: list[tuple[str, str]], not_covered: list[tuple[str, str]]
) -> None:
    for kind, name in covered:
        assert silence(subject).covers(finding(kind, name)), (kind, name)
    for kind, name in not_covered:
        assert not silence(subject).covers(finding(kind, name)), (kind, name)


def test_a_job_covers_its_queue_pairs_and_not_what_hurts_others_too() -> None:
    train = silence("job:train")
    assert train.covers(finding("qp", "h00/r0#1", jobs=["train"]))
    assert not train.covers(finding("qp", "h00/r0#1", jobs=["train", "other"]))
    assert not train.covers(finding("link", "l0--s1", jobs=["train"])), "a link is everybody's"


def test_kinds_and_time_bound_it() -> None:
    only = silence("host:h00", kinds=("congestion",))
    assert not only.covers(finding("nic", "h00/r0"))
    assert only.covers(finding("nic", "h00/r0") | {"kind": "congestion"})
    planned = FindingSilence("o1", "all", "*", 5, 10, "ann")
    assert [planned.in_force(at) for at in (4, 5, 9, 10)] == [False, True, True, False]


def test_a_queue_pair_lies_under_its_ends_its_job_and_what_it_crosses() -> None:
    crossed = [("h00/r0", "l0"), ("l0", "s1"), ("s1", "l1")]
    scopes = scopes_of_queue_pair("h00/r0", "h02/r0", ("7", "train"), ("f9",), crossed)
    for subject in ("host:h00", "host:h02", "nic:h02/r0", "switch:s1", "link:s1--l0", "job:train", "job:7",
                    "finding:f9", "path:h00/r0>h02/r0", "all:"):  # fmt: skip
        assert silence(subject).scope in scopes, subject
    for subject in ("host:h01", "switch:s0", "link:l0--s0", "job:other", "finding:f1", "clock:h00"):
        assert silence(subject).scope not in scopes, subject


@pytest.mark.parametrize(
    ("target", "set_", "words"),
    [
        ({"type": "pod", "id": "p1"}, {}, "target.type is one of finding, nic"),
        ({"type": "nic"}, {}, "names a nic"),
        ({"type": "nic", "id": "x" * 501}, {}, "at most 500"),
        ({"type": "nic", "id": "h0/r0"}, {"kinds": ["rain"]}, "set.kinds"),
        ({"type": "nic", "id": "h0/r0"}, {"kinds": [{}]}, "set.kinds"),
        ({"type": "nic", "id": "h0/r0"}, {"reason": 7}, "set.reason"),
        ({"type": "nic", "id": "h0/r0"}, {"from_at_ns": 200}, "before expires_at_ns"),
        ({"type": "nic", "id": "h0/r0"}, {"from_at_ns": True}, "from_at_ns"),
        ({"type": "nic", "id": "h0/r0"}, {"maintenance": "yes"}, "true or false"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(target: dict[str, Any], set_: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        silence_of(Override("o1", 100, 200, "silence", "ann", target=target, set=set_), 100)


def test_a_silence_without_a_begin_begins_when_the_controller_takes_it_up() -> None:
    ahead = Override("o1", 150, 200, "silence", "ann", target={"type": "all"})
    assert silence_of(ahead, 100).from_at_ns == 100, "its operator's clock may be ahead"
