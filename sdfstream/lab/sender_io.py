"""The process that sends cross traffic: a plain script on the standard library, so that it starts in 30 ms.

Packet sockets are inherited, the flows one JSON line on standard input; when standard input ends (the owner stopped
the process, or died) the process ends too. Its last output is the number of packets sent.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import sys
import time
from typing import Any

_TICK_S = 0.001
_BATCH = 64
_libc = ctypes.CDLL(None, use_errno=True)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """A ``struct mmsghdr``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("iov", ctypes.c_void_p),
        ("iov_size", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    )


class FlowSender:
    """One packet, sent again and again to one link-layer address over one socket."""

    def __init__(self, flow: dict[str, Any]) -> None:
        self._fd = flow["fd"]
        self._address = ctypes.create_string_buffer(bytes.fromhex(flow["address"]))
        self._frame = ctypes.create_string_buffer(bytes.fromhex(flow["frame"]))
        iov = _Iovec(ctypes.addressof(self._frame), len(self._frame) - 1)
        self._iov = iov
        self._batch = (_Message * _BATCH)()
        for message in self._batch:
            message.name, message.name_size = ctypes.addressof(self._address), len(self._address) - 1
            message.iov, message.iov_size = ctypes.addressof(iov), 1

    def send(self, packets: int) -> int:
        """Hand up to `packets` to the kernel; the number it took."""
        taken: int = _libc.sendmmsg(self._fd, self._batch, min(packets, _BATCH), 0)
        return max(taken, 0)


def run(config: dict[str, Any]) -> dict[str, Any]:
    """Send until the time is up or standard input ends."""
    flows = [(FlowSender(flow), flow["packets_per_s"]) for flow in config["flows"]]
    os.write(1, b"started\n")
    start = last = time.monotonic()
    end = start + config["seconds"] if config["seconds"] else float("inf")
    owed = [0.0] * len(flows)
    sent = 0
    stop = select.poll()
    stop.register(0, select.POLLIN | select.POLLHUP)
    while last < end and not stop.poll(_TICK_S * 1e3):
        now = time.monotonic()
        for i, (flow, rate) in enumerate(flows):
            # A stalled sender may catch up on this much, not more: else one stall makes a burst that fills the queue.
            owed[i] = min(owed[i] + (now - last) * rate, max(2.0, rate * config["catch_up_s"]))
            while owed[i] >= 1.0:
                done = flow.send(int(owed[i]))
                owed[i] -= max(done, 1)
                sent += done
        last = now
    return {"packets": sent, "seconds": time.monotonic() - start}


if __name__ == "__main__":
    line = sys.stdin.buffer.readline()
    if line:
        os.write(1, json.dumps(run(json.loads(line))).encode() + b"\n")
