"""Queue disciplines of the lab's ports: token bucket and byte queue, or classes by DSCP (linux/pkt_sched.h)."""

from __future__ import annotations

import struct

from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.lab.spec import FabricSpec
from sdfstream.probes.net.netlink import (
    NLM_F_CREATE,
    NLM_F_ECHO,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    attribute,
    attributes,
    nested,
    text,
)
from sdfstream.probes.net.netlink import u32 as number

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_GETTCLASS = 40, 42
RTM_NEWTFILTER = 44
TC_H_ROOT = 0xFFFFFFFF
REST_CLASS, DSCP_CLASS = 0x1000A, 0x10014
"""Class handles 1:10 (all other packets) and 1:20 (the class with a DSCP of its own)."""
_TC = struct.Struct("=BxxxiIII")
_QUEUE = struct.Struct("=5I")
_CREATE = NLM_F_CREATE | NLM_F_REPLACE


def _rate(rate_bps: int) -> bytes:
    """A ``struct tc_ratespec``; link layer Ethernet spares the old rate table."""
    return struct.pack("=BBHhHI", 0, 1, 0, 0, 0, min(rate_bps // 8, 0xFFFFFFFF))


def token_bucket(ifindex: int, rate_bps: int, burst_bytes: int, queue_bytes: int) -> KernelRequest:
    """TBF at the root of an interface: one byte queue served at `rate_bps`."""
    parms = _rate(rate_bps) + bytes(12) + struct.pack("=III", queue_bytes, 0, 0)
    options = nested(2, attribute(1, parms), attribute(4, struct.pack("=Q", rate_bps // 8)), number(6, burst_bytes))
    body = _TC.pack(0, ifindex, 0x10000, TC_H_ROOT, 0) + text(1, "tbf") + options
    return KernelRequest(RTM_NEWQDISC, _CREATE, body, f"token bucket on interface {ifindex}")


def classes(ifindex: int, spec: FabricSpec) -> list[KernelRequest]:
    """HTB at the root: one class for a single DSCP, one for all other packets, each with its own byte queue."""
    dscp, rest_bps = spec.class_dscp or 0, spec.rate_bps - spec.class_rate_bps
    head = _TC.pack(0, ifindex, 0x10000, TC_H_ROOT, 0) + text(1, "htb")
    glob = attribute(2, struct.pack("=5I", 3, 10, REST_CLASS & 0xFFFF, 0, 0))
    requests = [KernelRequest(RTM_NEWQDISC, _CREATE, head + nested(2, glob), f"classes on interface {ifindex}")]
    for class_id, rate_bps in ((REST_CLASS, rest_bps), (DSCP_CLASS, spec.class_rate_bps)):
        requests.append(_class(ifindex, class_id, rate_bps, spec.burst_bytes))
        fifo = _TC.pack(0, ifindex, (class_id & 0xFFFF) << 16, class_id, 0) + text(1, "bfifo")
        fifo += attribute(2, struct.pack("=I", spec.queue_bytes))
        requests.append(KernelRequest(RTM_NEWQDISC, _CREATE, fifo, f"byte queue on interface {ifindex}"))
    return [*requests, _by_dscp(ifindex, dscp, spec.ip_version)]


def _class(ifindex: int, class_id: int, rate_bps: int, burst_bytes: int) -> KernelRequest:
    """A class that never borrows. Burst is given as the time it takes at full rate, in units of 64 ns."""
    ticks = burst_bytes * 8 * 1_000_000_000 // rate_bps // 64
    parms = _rate(rate_bps) + _rate(rate_bps) + struct.pack("=5I", ticks, ticks, 3_028, 0, 0)
    rate64 = struct.pack("=Q", rate_bps // 8)
    options = nested(2, attribute(1, parms), attribute(6, rate64), attribute(7, rate64))
    body = _TC.pack(0, ifindex, class_id, 0x10000, 0) + text(1, "htb") + options
    return KernelRequest(RTM_NEWTCLASS, _CREATE, body, f"class on interface {ifindex}")


def _by_dscp(ifindex: int, dscp: int, ip_version: int) -> KernelRequest:
    """A u32 filter on the DSCP bits of the first word of the IP header."""
    protocol, shift = (0x0800, 18) if ip_version == 4 else (0x86DD, 22)
    selector = struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0)
    selector += struct.pack(">II", 0x3F << shift, dscp << shift) + struct.pack("=ii", 0, 0)
    info = 2 << 16 | (protocol >> 8 | (protocol & 0xFF) << 8)
    body = _TC.pack(0, ifindex, 0, 0x10000, info) + text(1, "u32")
    body += nested(2, number(1, DSCP_CLASS), attribute(5, selector))
    return KernelRequest(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body, f"DSCP filter on interface {ifindex}")


def get_class(ifindex: int, class_id: int) -> KernelRequest:
    """One class of an interface."""
    body = _TC.pack(0, ifindex, class_id, 0, 0)
    return KernelRequest(RTM_GETTCLASS, NLM_F_ECHO, body, f"class of interface {ifindex}")


def get_queue(ifindex: int) -> KernelRequest:
    """The root queue of an interface; without the echo flag the kernel does not answer."""
    return KernelRequest(
        RTM_GETQDISC, NLM_F_ECHO, _TC.pack(0, ifindex, 0, TC_H_ROOT, 0), f"queue of interface {ifindex}"
    )


def queue_stats(body: bytes) -> tuple[int, int, int]:
    """(packets waiting, bytes waiting, packets dropped) of a reply to `get_queue` or `get_class`."""
    stats = attributes(attributes(body[20:])[7])
    packets, backlog_bytes, drops, _, _ = _QUEUE.unpack_from(stats[3])
    return packets, backlog_bytes, drops


def classifier_hook(ifindex: int) -> KernelRequest:
    """The hook on which programs are put at an interface's ingress and egress."""
    body = _TC.pack(0, ifindex, 0xFFFF0000, 0xFFFFFFF1, 0) + text(1, "clsact")
    return KernelRequest(RTM_NEWQDISC, _CREATE, body, f"classifier hook on interface {ifindex}")


def program(ifindex: int, program_fd: int, *, ingress: bool) -> KernelRequest:
    """An eBPF program at the ingress or egress of an interface; its return value decides (direct action)."""
    parent = 0xFFFFFFF2 if ingress else 0xFFFFFFF3
    # Priority 1, every protocol (0x0003 in network order).
    body = _TC.pack(0, ifindex, 1, parent, 1 << 16 | 0x0300) + text(1, "bpf")
    body += nested(2, number(6, program_fd), text(7, "sdfstream"), number(8, 1))
    return KernelRequest(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE, body, f"program on interface {ifindex}")
