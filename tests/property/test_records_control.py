"""Commands, overrides, job parts: signatures cover every field, and no input makes a reader do but read or refuse."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.command import Command, canonical, command, outcome, override
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard, Rank, job_shard
from sdfstream.records.signature import KeyRing, Signer

KEY = Signer(b"\1" * 32)
SMALL = st.integers(-(2**53) + 1, 2**53 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | SMALL | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
COMMAND = Command(
    "c1", 7, 10**18, 10**18 + 1, "enforce", "steer",
    {"type": "qp", "id": "a/n#1", "host": "a"}, {"path": 1}, {"path": 2}, {"path": 1}, ("f1",),
)  # fmt: skip


@given(JSON)
def test_canonical_json_is_that_of_rfc_8785_where_that_speaks(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return
    assert canonical(value) == expected


@given(st.integers())
def test_an_integer_of_any_size_is_its_digits(value: int) -> None:
    assert json.loads(canonical({"at": value})) == {"at": value}


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, {"a": object()}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(FormatError, match="canonical"):
        canonical(value)


@given(st.sampled_from(sorted(COMMAND.as_data())), JSON)
def test_a_signature_covers_every_field(name: str, value: Any) -> None:
    signed = KEY.sign(COMMAND.as_data())
    ring = KeyRing([KEY.public])
    assert ring.refuses(signed) == ""
    changed = {**signed, name: value}
    if canonical_or_none(changed) != canonical_or_none(signed):
        assert ring.refuses(changed) in ("forged", "unknown-key", "canonical")


def canonical_or_none(value: Any) -> bytes | None:
    try:
        return canonical(value)
    except FormatError:
        return None


def test_a_stranger_is_not_trusted_and_a_key_has_its_length() -> None:
    assert KeyRing([]).refuses(KEY.sign(COMMAND.as_data())) == "unknown-key"
    with pytest.raises(ConfigError, match="32 bytes"):
        Signer(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        KeyRing([b"short"])


@given(JSON)
def test_readers_take_anything_and_refuse_by_reason(value: Any) -> None:
    for read in (command, outcome, override, job_shard):
        with pytest.raises(FormatError):
            read(value)


@given(st.sampled_from(sorted(COMMAND.as_data())), JSON)
def test_a_command_with_one_odd_field_is_read_or_refused(name: str, value: Any) -> None:
    data = {**KEY.sign(COMMAND.as_data()), name: value}
    try:
        assert command(data).as_data()[name] == value or name == "reason"
    except FormatError as error:
        assert error.reason == "command"


SHARD = JobShard(
    "j", "h00", ranks=(Rank(0, ("h00/r0",), 17),),
    qps=(QueuePair("h00/r0#1", 0, 1, "h00/r0", "h01/r0", "10.0.0.1", 50_000, 4791, alternates=(50_001,)),),
)  # fmt: skip


def test_a_job_shard_comes_back() -> None:
    assert job_shard(json.loads(json.dumps(SHARD.as_data()))) == SHARD


@given(st.sampled_from(sorted(SHARD.as_data()["qps"][0])), JSON)
def test_a_queue_pair_with_one_odd_field_is_read_or_refused(name: str, value: Any) -> None:
    data = SHARD.as_data()
    data["qps"][0][name] = value
    try:
        job_shard(data)
    except FormatError as error:
        assert error.reason == "job-part"
