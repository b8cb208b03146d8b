"""Completion queues of a UD queue pair: with the device's own stamps where it has them, without elsewhere.

A device that stamps completions (mlx5: ``IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK``) says when a packet left or
arrived, by the NIC's clock; elsewhere a completion has no time, and the reading of user space serves (stamp kind 0).
Soft-RoCE has none. **The stamped queue is not yet run on hardware**; its calls are tested against a recorded double.
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from sdfstream.errors import UnavailableError
from sdfstream.verbs.library_io import Verbs

_BATCH: Final = 64
_MOST: Final = 1024
"""Completions taken in one go: a flood of packets must not keep the loop here for ever."""
_NO_MORE: Final = 2
"""ENOENT, as ``ibv_start_poll`` and ``ibv_next_poll`` say that the queue is empty."""


class UdCompletion(NamedTuple):
    """One completion; what was received carries the sender's queue pair and its immediate data."""

    id: int
    status: int
    """``ibv_wc_status``; 0 is success. Otherwise only `id` means anything."""
    octets: int
    peer_qpn: int
    immediate: int
    at_ns: int | None
    """By the NIC's clock; None: the device stamps nothing."""


class CompletionQueue(Protocol):
    """What an endpoint asks of its queue."""

    queue: Any
    """For the queue pair."""
    stamps: bool
    wakes: bool
    """The channel becomes readable at a completion; else the queue must be looked at."""

    def take(self) -> list[UdCompletion]:
        """What has completed."""

    def arm(self) -> None:
        """Make the channel readable at the next completion."""


def completion_queue(verbs: Verbs, context: Any, depth: int, channel: Any) -> CompletionQueue:
    """A stamped queue where the device has one, else a plain one. UnavailableError: neither."""
    try:
        return StampedQueue(verbs, context, depth)
    except verbs.error:  # not supported: the plain one
        return PlainQueue(verbs, context, depth, channel)


class PlainQueue:
    """Completions without times."""

    stamps = False
    wakes = True

    def __init__(self, verbs: Verbs, context: Any, depth: int, channel: Any) -> None:
        try:
            self.queue = verbs.cq.CQ(context, depth, None, channel, 0)
        except verbs.error as error:
            raise UnavailableError(f"no completion queue: {error}") from error

    def take(self) -> list[UdCompletion]:
        """What has completed."""
        found: list[UdCompletion] = []
        while len(found) < _MOST:
            count, completions = self.queue.poll(_BATCH)
            found += [UdCompletion(c.wr_id, c.status, c.byte_len, c.src_qp, c.imm_data, None) for c in completions]
            if count < _BATCH:
                break
        return found

    def arm(self) -> None:
        """Make the channel readable at the next completion."""
        self.queue.req_notify()


class StampedQueue:
    """Completions with the NIC's reading of its own clock, as nanoseconds of the day's time."""

    stamps = True
    wakes = False  # pyverbs has no way to arm such a queue

    def __init__(self, verbs: Verbs, context: Any, depth: int) -> None:
        enums, self._cq = verbs.enums, verbs.cq
        wanted = enums.IBV_WC_STANDARD_FLAGS | enums.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
        self.queue = verbs.cq.CQEX(context, verbs.cq.CqInitAttrEx(cqe=depth, wc_flags=wanted))

    def take(self) -> list[UdCompletion]:
        """What has completed; the fields of one that failed are not read, for they mean nothing."""
        found: list[UdCompletion] = []
        queue = self.queue
        ended = queue.start_poll(self._cq.PollCqAttr())
        if ended:
            if ended != _NO_MORE:
                raise UnavailableError(f"completion queue: {os.strerror(ended)}")
            return found
        while not ended and len(found) < _MOST:
            if queue.status:
                found.append(UdCompletion(queue.wr_id, queue.status, 0, 0, 0, None))
            else:
                source, immediate = queue.read_src_qp(), queue.read_imm_data()
                at_ns = queue.read_completion_wallclock_ns()
                found.append(UdCompletion(queue.wr_id, 0, queue.read_byte_len(), source, immediate, at_ns))
            ended = queue.poll_next()
        queue.end_poll()
        return found

    def arm(self) -> None:
        """Nothing: see `wakes`."""


def new_files(before: frozenset[int]) -> list[int]:
    """Descriptors of events that were opened since `before` (see `open_events`), in order.

    pyverbs gives no descriptor of a channel or a context, and its waiting calls hold the interpreter's lock; with the
    descriptor one waits outside, and calls when there is something.
    """
    return sorted(open_events() - before)


def only_new_file(before: frozenset[int]) -> int:
    """The first of `new_files`, from now on without blocking; −1: there is none.

    A call of pyverbs that waits for such a file holds the interpreter's lock as long as it waits: should one ever be
    made where there is nothing, it fails instead.
    """
    found = next(iter(new_files(before)), -1)
    if found >= 0:
        os.set_blocking(found, False)
    return found


def open_events() -> frozenset[int]:
    """Descriptors of this process that are RDMA event files."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "infinibandevent" in str(entry.readlink()):
                found.add(int(entry.name))
    return frozenset(found)


def is_readable(descriptor: int, timeout_s: float = 0.0) -> bool:
    """Whether something can be read now, or within the time-out."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1e3))
