"""Answers to the packet engine's probes without a reflector: the bare base packet, unauthenticated mode."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sdfstream.probes.engine.engine_io import PacketEngine, datagram_records
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.stamp import packet
from sdfstream.records.units import StampKind, UInt8s


def answers_to(data: UInt8s, system_ns: int) -> UInt8s:
    """(n, 44) answers to the probes `data` (n, width)."""
    probe = packet.fields(np.ascontiguousarray(data[:, :44]), packet.OPEN.probe)
    answers = np.zeros((len(data), 44), dtype=np.uint8)
    head = packet.fields(answers, packet.OPEN.answer)
    stamp = packet.ntp_of(np.array([system_ns], dtype=np.int64))[0]
    head["seq"] = head["sender_seq"] = probe["seq"]
    head["t2"] = head["t3"] = stamp
    head["sender_t1"], head["ssid"], head["error"], head["ttl"] = probe["t1"], probe["ssid"], 1, 64
    return answers


def echo(
    engine: PacketEngine,
    out: Records,
    data: UInt8s,
    answered: Collection[int],
    now_ns: int,
    *,
    system_ns: int | None = None,
) -> list[int]:
    """Answer the probes of the paths `answered`; what the engine made of each answer."""
    system_ns = now_ns if system_ns is None else system_ns
    rows = np.flatnonzero(np.isin(out["path"], list(answered)))
    answers = answers_to(data[rows], system_ns)
    columns = {name: out[name][rows] for name in ("socket", "address", "port")}
    datagrams = datagram_records(
        answers, np.full(len(rows), 44), kind=StampKind.KERNEL, at_ns=system_ns, user_at_ns=system_ns, ttl=64, **columns
    )
    return engine.take_answers(datagrams, now_ns)
