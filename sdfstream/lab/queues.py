"""Queue disciplines of the lab's ports: token bucket and byte queue, or classes by DSCP (linux/pkt_sched.h)."""

from __future__ import annotations

import struct

from sdfstream.lab.netlink import NLM_F_CREATE, NLM_F_ECHO, NLM_F_REPLACE, Request, attribute, attributes, nested, text
from sdfstream.lab.netlink import u32 as number

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER = 44
TC_H_ROOT = 0xFFFFFFFF
_TC = struct.Struct("=BxxxiIII")
_QUEUE = struct.Struct("=5I")
_CREATE = NLM_F_CREATE | NLM_F_REPLACE


def _rate(rate_bps: int) -> bytes:
    """A ``struct tc_ratespec``; link layer Ethernet spares the old rate table."""
    return struct.pack("=BBHhHI", 0, 1, 0, 0, 0, min(rate_bps // 8, 0xFFFFFFFF))


def token_bucket(ifindex: int, rate_bps: int, burst_bytes: int, queue_bytes: int) -> Request:
    """TBF at the root of an interface: one byte queue served at `rate_bps`."""
    parms = _rate(rate_bps) + bytes(12) + struct.pack("=III", queue_bytes, 0, 0)
    options = nested(2, attribute(1, parms), attribute(4, struct.pack("=Q", rate_bps // 8)), number(6, burst_bytes))
    body = _TC.pack(0, ifindex, 0x10000, TC_H_ROOT, 0) + text(1, "tbf") + options
    return Request(RTM_NEWQDISC, _CREATE, body, f"token bucket on interface {ifindex}")


def get_queue(ifindex: int) -> Request:
    """The root queue of an interface; without the echo flag the kernel does not answer."""
    return Request(RTM_GETQDISC, NLM_F_ECHO, _TC.pack(0, ifindex, 0, TC_H_ROOT, 0), f"queue of interface {ifindex}")


def queue_stats(body: bytes) -> tuple[int, int, int]:
    """(packets waiting, bytes waiting, packets dropped) of a reply to `get_queue` or `get_class`."""
    stats = attributes(attributes(body, 20)[7])
    packets, backlog_bytes, drops, _, _ = _QUEUE.unpack_from(stats[3])
    return packets, backlog_bytes, drops
