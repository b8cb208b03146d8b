"""Messages that once ended a stage or an agent, through the real decoders: refused with a reason, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sdfstream.bus import codec
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.errors import FormatError
from sdfstream.records.fabric import PATH_TYPE
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import LIVENESS, MESH, TOPICS, TOPOLOGY
from tests.fixtures.shapes import sample

TRACED = sample(SHAPES[TOPOLOGY.name][PATH_TYPE])
HEARD = sample(SHAPES[LIVENESS.name][LIVENESS.name])
PLAN = sample(SHAPES[MESH.name][MESH.name])
AT = "2026-11-22T10:00:00.000000000Z"


def wire(topic: str, data: Any, type_: str = "", **envelope: Any) -> bytes:
    """An event as a stranger may write it; a str among the values stands for itself, also as ``1e400``."""
    whole = {"specversion": "1.0", "id": "1", "source": "h00", "type": type_ or topic, "time": AT, "data": data}
    text = json.dumps(whole | envelope)
    return text.replace('"~', "").replace('~"', "").encode()


def literally(number: str) -> str:
    """A number that `json.dumps` would not write."""
    return f"~{number}~"


def in_change(**fields: Any) -> dict[str, Any]:
    return HEARD | {"changes": [HEARD["changes"][0] | fields]}


HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "path of 2^63": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": 1 << 63}, PATH_TYPE), "shape"),
    "path of 2^32": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": 1 << 32}, PATH_TYPE), "shape"),
    "path is true": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": True}, PATH_TYPE), "shape"),
    "path is a list": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"path": [1]}, PATH_TYPE), "shape"),
    "hops are objects": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"hops": [{}]}, PATH_TYPE), "shape"),
    "traced in 2262": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"traced_at_ns": 1 << 62 | 1}, PATH_TYPE), "shape"),
    "traced before 1970": (TOPOLOGY.name, wire(TOPOLOGY.name, TRACED | {"traced_at_ns": -1}, PATH_TYPE), "shape"),
    "liveness of 1e400": (LIVENESS.name, wire(LIVENESS.name, in_change(interval_ns=literally("1e400"))), "shape"),
    "an endless interval": (LIVENESS.name, wire(LIVENESS.name, in_change(interval_ns=1 << 62)), "shape"),
    "missed 2^70": (LIVENESS.name, wire(LIVENESS.name, in_change(missed=1 << 70)), "shape"),
    "since 2^63": (LIVENESS.name, wire(LIVENESS.name, in_change(since_at_ns=1 << 63)), "shape"),
    "a change is a number": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"changes": [7]}), "shape"),
    "no host": (LIVENESS.name, wire(LIVENESS.name, {k: v for k, v in HEARD.items() if k != "host"}), "shape"),
    "an escape in a host": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"host": "h\x1b[2J"}), "shape"),
    "a surrogate in a NIC": (LIVENESS.name, wire(LIVENESS.name, in_change(observer="h00/\ud800")), "shape"),
    "a NIC of 1 MB": (LIVENESS.name, wire(LIVENESS.name, in_change(observer="h" * 1_000_000)), "shape"),
    "a field of 1e400": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"new": literally("1e400")}), "json"),
    "a field of 2^70": (LIVENESS.name, wire(LIVENESS.name, HEARD | {"new": {"at": [1 << 70]}}), "json"),
    "a field 600 deep": (
        LIVENESS.name, wire(LIVENESS.name, HEARD | {"new": literally("[" * 600 + "]" * 600)}), "json"
    ),
    "year 9999": (LIVENESS.name, wire(LIVENESS.name, HEARD, time="9999-12-31T23:59:59Z"), "time"),
    "year 1": (LIVENESS.name, wire(LIVENESS.name, HEARD, time="0001-01-01T00:00:00+23:59"), "time"),
    "an escape in a source": (LIVENESS.name, wire(LIVENESS.name, HEARD, source="\x1b]0;x\x07"), "name"),
    "a plan of 1e400": (MESH.name, wire(MESH.name, PLAN | {"budget_pps": literally("1e400")}), "shape"),
    "a plan of NaN": (MESH.name, wire(MESH.name, PLAN | {"send_pps": literally("NaN")}), "json"),
    "a shortfall of lists": (MESH.name, wire(MESH.name, PLAN | {"shortfall": {"clock_rate_hz": []}}), "shape"),
    "a name twice": (MESH.name, wire(MESH.name, PLAN).replace(b'"host":', b'"host": 7, "host":'), "json"),
}  # fmt: skip


@pytest.mark.parametrize(("topic", "value", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_row_3_an_event_out_of_bounds_reaches_no_stage(topic: str, value: bytes, reason: str) -> None:
    headers = [("schema", topic.encode())]
    with pytest.raises(FormatError) as refused:
        codec.decode(topic, headers, value)
    assert refused.value.reason == reason


async def test_row_3_what_is_refused_is_a_dead_letter_and_counted() -> None:
    bus = MemoryBus(lambda: 1, boot_id="bus")
    topics = sorted({topic for topic, _, _ in HOSTILE.values()})
    reader = await bus.subscribe("g", topics)
    dead = await bus.subscribe("d", [TOPICS[t].dead_letters for t in topics])
    for topic, value, _ in HOSTILE.values():
        await bus.publish_bytes(topic, "h00", [("schema", topic.encode())], value)
    assert await reader.read(1000, 0.01) == []
    reasons = sorted(m.body.data["reason"] for m in await dead.read(1000, 0.01))  # type: ignore[union-attr]
    assert reasons == sorted(reason for _, _, reason in HOSTILE.values())
    await bus.close()
