"""Every decoder as a target: `decoders_bus`, `decoders_agent`, and here what people write and ask."""

from __future__ import annotations

import io
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml

from sdfstream import settings
from sdfstream.alerts import webhook
from sdfstream.archive.failures import EngineError
from sdfstream.archive.http import body, query
from sdfstream.errors import ConfigError, FormatError
from sdfstream.plan import inventory_file
from tests.fuzz import decoders_agent, decoders_bus, mutate
from tests.fuzz.target import Target, altered_json, altered_values, damaged_bytes
from tests.fuzz.values import Draw

YAML_TOKENS: Final = (
    b"&a [*a]", b"*a", b"<<: *a", b"!!python/object:os.system", b"- - - - ", b"? : ", b"|\n", b"%YAML 9.9\n", b"---\n",
    b"{" * 300, b"[" * 300, b"!!binary ", b"!!set {a}", b"1:60:60", b"2026-02-30", b".inf", b".nan", b"0o777", b"~",
    b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", b"\t", b"\x85", b"\x00",
)  # fmt: skip

_WEBHOOK: Final = {
    "version": "4", "receiver": "r", "status": "firing",
    "alerts": [
        {
            "status": "resolved", "labels": {"alertname": "x"}, "annotations": {"summary": "y"}, "fingerprint": "c9cb",
            "startsAt": "2027-01-15T08:00:00.123Z", "endsAt": "2027-01-15T08:00:00+02:00",
        }
    ],
}  # fmt: skip


def targets() -> dict[str, Target]:
    """All targets by name."""
    several = [*decoders_bus.targets(), *decoders_agent.targets(), *_asked()]
    return {one.name: one for one in several}


def _asked() -> Iterator[Target]:
    yield Target("settings", _yaml, _settings, (ConfigError,))
    fabric = {"fabric": {"hosts": 4, "rails": 2, "hosts_per_leaf": 2, "spines": 2}, "budget_pps": 5}
    listed = {"nics": [{"id": "h0/r0", "address": "10.0.0.1"}], "links": [], "nodes": [], "budgets": {"h0": 5}}
    inventory = altered_values(fabric, listed)
    yield Target("inventory", inventory, lambda: lambda raw: _nothing(inventory_file.read(raw)), (ConfigError,))
    webhooks = altered_json(_WEBHOOK)
    yield Target("alertmanager's webhook", webhooks, lambda: lambda raw: _nothing(webhook.read(raw)))
    yield Target("sql request", _requests, lambda: _request, (EngineError, FormatError))
    allowed = (body.TooLargeError, ValueError, OSError, pa.ArrowException, zlib.error)
    yield Target("sql request's body", damaged_bytes(*_BODIES), lambda: _body, allowed)


def _yaml(draw: Draw) -> Iterator[bytes]:
    whole = settings.plain(settings.Settings())
    whole["agent"] = {"hosts": [{"id": "h0", "nics": [{"id": "h0/r0", "device": "eth0", "address": "10.0.0.1"}]}]}
    sound = yaml.safe_dump(whole, sort_keys=False).encode()
    parts = {key: {key: value} for key, value in whole.items()}
    while True:
        dice = draw.rng.random()
        if dice < 0.6:
            part = mutate.altered(draw, parts[draw.rng.choice(list(parts))])
            yield mutate.dumped(part)  # JSON is YAML
        elif dice < 0.8:
            start = draw.rng.randrange(len(sound))
            yield mutate.damaged(draw.rng, sound[start : start + 600])
        else:
            at = draw.rng.randrange(400)
            yield sound[:at] + draw.rng.choice(YAML_TOKENS) + sound[at : at + draw.rng.choice((0, 200))]


def _settings() -> Callable[[bytes], None]:
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    with tempfile.NamedTemporaryFile(prefix="sdf-fuzz-", suffix=".yaml", dir=folder, delete=False) as made:
        path = Path(made.name)

    def feed(raw: bytes) -> None:
        path.write_bytes(raw)
        try:
            settings.load(path)
        finally:
            path.unlink(missing_ok=True)

    return feed


def _requests(draw: Draw) -> Iterator[tuple[str, dict[str, str], bytes]]:
    target = b"/?query=SELECT%201&max_threads=2&param_x=5&default_format=JSON&database=sdf&decompress=0"
    while True:
        raw = mutate.damaged(draw.rng, target) if draw.chance(0.9) else target
        headers = {"content-type": draw.text(), "x-clickhouse-format": draw.text(), "authorization": draw.text()}
        headers = {name: value for name, value in headers.items() if draw.chance(0.5)}
        if draw.chance(0.3):
            headers["authorization"] = "Basic " + draw.text()
        sql = mutate.damaged(draw.rng, b"INSERT INTO t (a) FORMAT JSONEachRow\n{}") if draw.chance(0.5) else b""
        yield raw.decode("latin-1"), headers, sql


def _request(given: tuple[str, dict[str, str], bytes]) -> None:
    target, headers, sql = given
    query.parse_request(target, headers, sql)
    query.split_insert(sql)


_BODIES: Final = (b"5\r\nhello\r\n0\r\n\r\n", zlib.compress(b"SELECT 1" * 50), b"SELECT 1")
_CODINGS: Final = ("identity", "gzip", "deflate", "br", "lz4", "zstd", "x")


def _body(raw: bytes) -> None:
    for coding in _CODINGS:
        for headers in ({"content-length": str(len(raw))}, {"transfer-encoding": "chunked"}):
            body.read_body(_Reader(raw), headers | {"content-encoding": coding}, 10_000)


class _Reader(io.BytesIO):
    """A connection."""


def _nothing(value: Any) -> None:
    """What came out does not matter."""
