"""The queue with the device's own stamps, by calls as recorded from pyverbs; no such device was run."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from sdfstream.errors import UnavailableError
from sdfstream.verbs.probing.completions_io import PlainQueue, StampedQueue, UdCompletion, completion_queue

Entry = tuple[int, int, int, int, int, int]
"""id, status, octets, queue pair, immediate, stamp"""


class NotSupportedError(Exception):
    """As pyverbs raises it."""


class Extended:
    """A CQEX: one entry is readable at a time, between start_poll and end_poll."""

    def __init__(self, entries: list[Entry], error: int = 0) -> None:
        self.entries, self.error, self.open = list(entries), error, False

    def start_poll(self, attr: object) -> int:
        if self.error or not self.entries:
            return self.error or errno.ENOENT
        self.open = True
        return 0

    def poll_next(self) -> int:
        assert self.open
        self.entries.pop(0)
        return 0 if self.entries else errno.ENOENT

    def end_poll(self) -> None:
        self.open = False

    def __getattr__(self, name: str) -> Any:
        field = {"wr_id": 0, "status": 1, "read_byte_len": 2, "read_src_qp": 3, "read_imm_data": 4}.get(name, 5)
        assert self.open
        value = self.entries[0][field]
        if name.startswith("read_"):
            assert not self.entries[0][1], "the fields of a failed completion mean nothing"
            return lambda: value
        return value


def library(entries: list[Entry] | None, error: int = 0) -> Any:
    def extended(context: object, attr: Any) -> Extended:
        assert attr.wc_flags == 127 | 2048
        if entries is None:
            raise NotSupportedError
        return Extended(entries, error)

    enums = SimpleNamespace(IBV_WC_STANDARD_FLAGS=127, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK=2048)
    plain = SimpleNamespace(poll=lambda n: (0, []), req_notify=lambda: None)
    cq = SimpleNamespace(
        CQEX=extended, CqInitAttrEx=lambda **how: SimpleNamespace(**how), PollCqAttr=object, CQ=lambda *_: plain
    )
    return SimpleNamespace(enums=enums, cq=cq, error=NotSupportedError)


def test_stamps_come_with_what_was_received() -> None:
    queue = StampedQueue(library([(7, 0, 120, 18, 49153, 1_000), (1 << 32, 0, 0, 0, 0, 1_001)]), None, 64)
    assert queue.take() == [UdCompletion(7, 0, 120, 18, 49153, 1_000), UdCompletion(1 << 32, 0, 0, 0, 0, 1_001)]
    assert queue.take() == []


def test_a_failed_completion_has_its_id_alone() -> None:
    queue = StampedQueue(library([(3, 12, 99, 9, 9, 9), (4, 0, 50, 1, 49152, 5)]), None, 64)
    assert queue.take() == [UdCompletion(3, 12, 0, 0, 0, None), UdCompletion(4, 0, 50, 1, 49152, 5)]


def test_a_queue_that_fails_is_said() -> None:
    with pytest.raises(UnavailableError, match="Input/output error"):
        StampedQueue(library([], errno.EIO), None, 64).take()


def test_a_device_without_stamps_has_a_plain_queue() -> None:
    assert isinstance(completion_queue(library([]), None, 64, None), StampedQueue)
    plain = completion_queue(library(None), None, 64, None)
    assert isinstance(plain, PlainQueue)
    assert not plain.stamps
    assert plain.take() == []
