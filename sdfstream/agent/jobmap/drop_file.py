"""A drop file, and the answer of a process, read and checked.

A file is named ``<job>@<host>.json`` and holds the fields of a `JobShard` with ``"version": 1``. It is taken whole or
refused with a reason; bad queue pairs are refused one by one and the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.records.fabric import QueuePair, host_of
from sdfstream.records.job import FILE_VERSION, JobShard, Rank, job_shard, queue_pair
from sdfstream.records.schema import LATEST_NS

MOST_BYTES: Final = 1 << 20
"""A larger file is refused: 4096 queue pairs take about 1 MB."""
MOST_PAIRS: Final = 4096
"""Queue pairs of one shard and direction; further ones are refused."""
MOST_TEXT: Final = 256
_NAME: Final = re.compile(r"([^@/\s.][^@/\s]{0,127})@([^@/\s]{1,127})\.json")
_STUMBLES: Final = (TypeError, ValueError, AttributeError, KeyError, RecursionError)
"""What reading foreign JSON may raise besides `FormatError`."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that could not or must not be read, in place of its content."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ListedPairs:
    """Ranks and queue pairs listed by a file or a process, without the refused ones."""

    ranks: tuple[Rank, ...]
    qps: tuple[QueuePair, ...]
    receives: tuple[QueuePair, ...]
    refused: tuple[str, ...]
    """One sentence for each refused entry."""


def owner(name: str) -> tuple[str, str] | None:
    """Job and host from the name of a drop file; None for any other name.

    >>> owner("train-7@h00.json"), owner(".train-7@h00.json.tmp")
    (('train-7', 'h00'), None)
    """
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else None


def read_file(name: str, content: bytes | Unreadable) -> tuple[JobShard, tuple[str, ...]]:
    """The shard in a file, and a sentence for each refused queue pair.

    Raises
    ------
    FormatError
        ``name``, ``oversized``, ``not-json``, ``version``, ``job-part``, ``name-mismatch``, or the shell's reason.
    """
    if isinstance(content, Unreadable):
        raise FormatError(content.reason, content.detail)
    owned = owner(name)
    if owned is None:
        raise FormatError("name", "a drop file is called JOB@HOST.json")
    if len(content) > MOST_BYTES:
        raise FormatError("oversized", f"more than {MOST_BYTES} bytes")
    data = _json(content)
    if data.get("version") != FILE_VERSION or isinstance(data.get("version"), bool):
        raise FormatError("version", f"version must be {FILE_VERSION}, not {str(data.get('version'))[:40]!r}")
    shard = _bare_shard({"job": owned[0], "host": owned[1], "source": "dropdir"} | _without_pairs(data))
    if (shard.job, shard.host) != owned:
        raise FormatError("name-mismatch", f"the name says {'@'.join(owned)}, the content {shard.key[:MOST_TEXT]}")
    pairs = read_pairs(shard, data)
    control = bool(shard.control)
    found = replace(
        shard,
        state="running",
        source="process" if control else "dropdir",
        ranks=pairs.ranks,
        qps=() if control else tuple(_unowned(qp) for qp in pairs.qps),
        receives=() if control else pairs.receives,
    )
    return found, pairs.refused


def read_pairs(shard: JobShard, data: Mapping[str, Any]) -> ListedPairs:
    """Ranks and queue pairs of `data`, a file's content or a process's answer, as far as they belong to `shard`.

    FormatError ``answer``: `data` name another job, or hold no lists.
    """
    if data.get("job", shard.job) != shard.job:
        raise FormatError("answer", f"speaks of job {str(data.get('job'))[:MOST_TEXT]!r}")
    refused: list[str] = []
    qps = _pairs(data, "qps", lambda qp: host_of(qp.src) == shard.host, refused)
    receives = _pairs(data, "receives", lambda qp: host_of(qp.dst) == shard.host, refused)
    return ListedPairs(_ranks(data, refused) or shard.ranks, qps, receives, tuple(refused))


def _json(content: bytes) -> dict[str, Any]:
    try:
        data = strict_json.loads(content, most_bytes=MOST_BYTES)
    except FormatError as error:
        raise FormatError("not-json", error.detail[:MOST_TEXT]) from error
    if not isinstance(data, dict):
        raise FormatError("not-json", "not a JSON object")
    return data


def _without_pairs(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k not in ("ranks", "qps", "receives")}


def _bare_shard(data: Mapping[str, Any]) -> JobShard:
    try:
        shard = job_shard(data)
    except _STUMBLES as error:
        raise FormatError("job-part", str(error)[:MOST_TEXT]) from error
    if not all(map(_is_id, (shard.job, shard.host, shard.name, shard.control))):
        raise FormatError("job-part", f"a text is longer than {MOST_TEXT} characters, or not printable")
    if not 0 <= shard.since_at_ns <= LATEST_NS or not 0 <= shard.seen_at_ns <= LATEST_NS:
        raise FormatError("job-part", "since_at_ns or seen_at_ns is no instant")
    return shard


def _ranks(data: Mapping[str, Any], refused: list[str]) -> tuple[Rank, ...]:
    try:
        ranks = job_shard({"job": "-", "host": "-", "ranks": _list(data, "ranks")[:MOST_PAIRS]}).ranks
    except (FormatError, *_STUMBLES) as error:
        refused.append(f"ranks: {str(error)[:MOST_TEXT]}")
        return ()
    found = tuple(r for r in ranks if _is_sound_rank(r))
    if len(found) < len(ranks):
        refused.append(f"ranks: {len(ranks) - len(found)} with a number out of range or a NIC that is no printable id")
    return found


def _is_sound_rank(rank: Rank) -> bool:
    numbers = 0 <= rank.rank < 1 << 32 and 0 <= (rank.pid or 0) < 1 << 32
    return numbers and len(rank.nics) <= MOST_PAIRS and all(map(_is_id, rank.nics))


def _is_id(text: str) -> bool:
    return len(text) <= MOST_TEXT and text.isprintable()


def _pairs(
    data: Mapping[str, Any], key: str, is_ours: Callable[[QueuePair], bool], refused: list[str]
) -> tuple[QueuePair, ...]:
    found: dict[str, QueuePair] = {}
    given = _list(data, key)
    for number, item in enumerate(given[:MOST_PAIRS]):
        try:
            pair = queue_pair(item)
            why = _unsound(pair)
        except (FormatError, *_STUMBLES) as error:
            refused.append(f"{key}[{number}]: {str(error)[:MOST_TEXT]}")
            continue
        if not why and not is_ours(pair):
            why = "is another host's"
        if not why and pair.qp in found:
            why = "is named twice"
        if why:
            refused.append(f"{key}[{number}] {pair.qp[:MOST_TEXT]}: {why}")
            continue
        found[pair.qp] = pair
    if len(given) > MOST_PAIRS:
        refused.append(f"{key}: {len(given) - MOST_PAIRS} beyond the first {MOST_PAIRS}")
    return tuple(found.values())


def _list(data: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = data.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise FormatError("answer", f"{key} is no list")
    return value


def _unsound(pair: QueuePair) -> str:
    """Why a queue pair with all its fields is refused; empty: it is sound."""
    if not all(map(_is_id, (pair.qp, pair.src, pair.dst, pair.peer_qp))):
        return f"a text is longer than {MOST_TEXT} characters, or not printable"
    if not all("/" in nic for nic in (pair.src, pair.dst)):
        return "src and dst are NIC ids host/nic"
    if pair.steering not in ("socket", "kernel", "none"):
        return f"steering is socket, kernel or none, not {pair.steering[:40]!r}"
    ports = (*pair.alternates, *(p for p in (pair.answer_path, pair.answer_port) if p is not None))
    if not all(0 < port < 65536 for port in ports):
        return "a port is not 1..65535"
    numbers = (pair.rank, pair.peer_rank, pair.rate_bps or 0)
    if not 0 <= pair.dscp < 64 or any(not 0 <= n < 1 << 53 for n in numbers):
        return "a number is out of its range"
    try:
        ip_address(pair.dst_address)
        ip_address(pair.src_address or pair.dst_address)
    except ValueError:
        return f"an address is no IP address: {pair.dst_address[:40]!r}, {pair.src_address[:40]!r}"
    return ""


def _unowned(pair: QueuePair) -> QueuePair:
    """A queue pair of a file without a control socket cannot be steered by one."""
    return replace(pair, steering="none") if pair.steering == "socket" else pair
