"""nf_tables requests: the fallback for loss and CE marks where bpf(2) is not allowed (linux/netfilter/nf_tables.h).

One table with one chain per port, in the netdev family. CE cannot follow the backlog here: it follows the packet
rate (byte limits of nf_tables hold a whole second's worth and never match).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from sdfstream.lab.kernel.netlink import KernelRequest
from sdfstream.probes.net.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, attribute, attributes, nested, text

_SUBSYSTEM = 10 << 8
_NETDEV = 5
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE, _GET_RULE = 0, 2, 3, 6, 7
_ACCEPT = 1
_CMP_EQ, _CMP_NEQ, _CMP_LT = 0, 1, 2
BURST_PACKETS = 25
SHARE_STEPS = 1_000_000


def _be32(kind: int, value: int) -> bytes:
    return attribute(kind, value.to_bytes(4, "big"))


def _be64(kind: int, value: int) -> bytes:
    return attribute(kind, value.to_bytes(8, "big"))


def _request(command: int, flags: int, body: bytes, what: str) -> KernelRequest:
    return KernelRequest(_SUBSYSTEM | command, flags, bytes([_NETDEV, 0, 0, 0]) + body, what)


def begin_and_end() -> tuple[KernelRequest, KernelRequest]:
    """The messages around a transaction: all of it is done, or nothing."""
    body = struct.pack(">BBH", 0, 0, 10)
    return KernelRequest(0x10, 0, body, "begin"), KernelRequest(0x11, 0, body, "end")


def table_name(ifindex: int) -> str:
    """The table of the packets sent by a port."""
    return f"sdfstream_{ifindex}"


def replace_table(
    ifindex: int, device: str, *, ingress: bool, loss: float, ce_over_pps: int, existed: bool
) -> list[KernelRequest]:
    """The whole table of one port: a hook, a rule that drops a share, and a rule that marks above a packet rate.

    Parameters
    ----------
    ifindex : int
        The sending port; names the table.
    device : str
        Interface the hook is put on.
    ingress : bool
        Hook at the interface's ingress rather than its egress.
    loss : float, 0..1
        Share dropped, in steps of 1e-6.
    ce_over_pps : int
        Packets per second above which CE is set (IPv4); 0: never.
    existed : bool
        The table is there and is replaced; counters start afresh.
    """
    name = text(1, table_name(ifindex))
    requests = [delete_table(ifindex)] if existed else []
    requests.append(_request(_NEW_TABLE, NLM_F_CREATE, name, "add table"))
    hook = nested(4, _be32(1, 0 if ingress else 1), _be32(2, 0), text(3, device))
    chain = text(1, table_name(ifindex)) + text(3, "wire") + hook + _be32(5, _ACCEPT) + text(7, "filter")
    requests.append(_request(_NEW_CHAIN, NLM_F_CREATE, chain, f"hook on {device}"))
    if loss > 0:
        requests.append(_rule(ifindex, [*_share(loss), _counter(), _drop()]))
    if ce_over_pps:
        requests.append(_rule(ifindex, [*_ecn_capable(), _over(ce_over_pps), *_set_ce(), _counter()]))
    return requests


def delete_table(ifindex: int) -> KernelRequest:
    """A port's table with all in it."""
    return _request(_DELETE_TABLE, 0, text(1, table_name(ifindex)), "delete table")


def get_rules(ifindex: int) -> KernelRequest:
    """All rules of a port's table, counters included."""
    return _request(_GET_RULE, NLM_F_DUMP, text(1, table_name(ifindex)), "read rules")


def counted(body: bytes) -> tuple[str, int]:
    """(``dropped`` or ``marked``, packets) of one rule in the reply to `get_rules`."""
    kinds, packets = [], 0
    for name, data in _expressions(attributes(body[4:])[4]):
        kinds.append(name)
        if name == "counter":
            packets = int.from_bytes(attributes(data).get(2, b""), "big")
    return ("dropped" if "immediate" in kinds else "marked"), packets


def _expressions(data: bytes) -> list[tuple[str, bytes]]:
    found, position = [], 0
    while position + 4 <= len(data):
        size = struct.unpack_from("=H", data, position)[0]
        if size < 4:
            break
        fields = attributes(data[position + 4 : position + size])
        found.append((fields[1].rstrip(b"\0").decode(), fields.get(2, b"")))
        position += size + (-size % 4)
    return found


def _rule(ifindex: int, expressions: Sequence[bytes]) -> KernelRequest:
    body = text(1, table_name(ifindex)) + text(2, "wire") + nested(4, *expressions)
    return _request(_NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, body, "add rule")


def _expression(name: str, *operands: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *operands))


def _value(kind: int, data: bytes) -> bytes:
    return nested(kind, attribute(1, data))


def _compare(operation: int, data: bytes) -> bytes:
    return _expression("cmp", _be32(1, 1), _be32(2, operation), _value(3, data))


def _load(offset: int, size: int) -> bytes:
    """Bytes of the network header into register 1."""
    return _expression("payload", _be32(1, 1), _be32(2, 1), _be32(3, offset), _be32(4, size))


def _mask(mask: bytes, xor: bytes) -> bytes:
    size = _be32(3, len(mask))
    return _expression("bitwise", _be32(1, 1), _be32(2, 1), size, _value(4, mask), _value(5, xor))


def _counter() -> bytes:
    return _expression("counter")


def _drop() -> bytes:
    return _expression("immediate", _be32(1, 0), nested(2, nested(2, _be32(1, 0))))


def _share(loss: float) -> list[bytes]:
    if loss >= 1.0:
        return []
    draw = _expression("numgen", _be32(1, 1), _be32(2, SHARE_STEPS), _be32(3, 1), _be32(4, 0))
    order = _expression("byteorder", _be32(1, 1), _be32(2, 1), _be32(3, 1), _be32(4, 4), _be32(5, 4))
    return [draw, order, _compare(_CMP_LT, round(loss * SHARE_STEPS).to_bytes(4, "big"))]


def _ecn_capable() -> list[bytes]:
    is_ipv4 = _expression("meta", _be32(1, 1), _be32(2, 1))
    ecn = [_load(1, 1), _mask(b"\x03", b"\x00"), _compare(_CMP_NEQ, b"\x00")]
    return [is_ipv4, _compare(_CMP_EQ, b"\x08\x00"), *ecn]


def _over(rate_pps: int) -> bytes:
    return _expression("limit", _be64(1, rate_pps), _be64(2, 1), _be32(3, BURST_PACKETS), _be32(4, 0), _be32(5, 1))


def _set_ce() -> list[bytes]:
    """Both ECN bits on, header checksum corrected."""
    write = _expression(
        "payload", _be32(5, 1), _be32(2, 1), _be32(3, 0), _be32(4, 2), _be32(6, 1), _be32(7, 10), _be32(8, 0)
    )
    return [_load(0, 2), _mask(b"\xff\xfc", b"\x00\x03"), write]
