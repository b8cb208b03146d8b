"""``sdfstream serve`` on a real broker: verbs and API answer, also of what was there before; nothing is written."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.cli import main
from sdfstream.records.message import Output
from tests.fixtures import board_messages as bm
from tests.fixtures.kafka_broker import Broker
from tests.integration.test_runtime_record_kafka import verb
from tests.integration.test_serve_api import ask

pytestmark = pytest.mark.kafka
WITHIN_S = 90.0


async def _api_with_findings(data: Path, total: int) -> str:
    """Where the service of `data` answers, once it knows so many findings."""
    while not (data / "api.url").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    url = (data / "api.url").read_text().strip()
    while (await asyncio.to_thread(ask, url, "/v1/findings"))[1].get("total") != total:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    return url


async def test_verbs_and_api_on_kafka(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = f"serve{time.time_ns()}."
    config = KafkaConfig(servers=kafka.address, prefix=prefix)
    file, log, data = tmp_path / "serve.json", tmp_path / "serve.log", tmp_path / "data"
    file.write_text(json.dumps({"bus": f"kafka://{kafka.address}", "kafka": {"prefix": prefix}, "api": "127.0.0.1:0"}))
    apply = ["topics", "apply", "--bus", f"kafka://{kafka.address}", "--config", str(file)]
    assert await asyncio.to_thread(main, apply) == 0
    bus = KafkaBus(config, time.time_ns, boot_id=prefix)
    await bus.start()
    try:
        before = bm.small_fabric(time.time_ns())
        await bus.publish([Output(m.topic, m.key, m.body) for m in before])  # before it reads: states and findings stay
        await asyncio.sleep(6.0)  # longer than what is said counts as of now
        async with verb(log, "serve", "--config", str(file), "--data", str(data)):
            url = await asyncio.wait_for(_api_with_findings(data, 3), WITHIN_S)
            status, nics = await asyncio.to_thread(ask, url, "/v1/nics")
            assert status == 200
            assert {n["state"] for n in nics["items"]} == {"unknown"}, "stated before; nobody is heard now"
            status, health = await asyncio.to_thread(ask, url, "/healthz")
            assert (status, health["fresh"]) == (503, False)
            async with asyncio.timeout(WITHIN_S):
                while True:  # delays are read from now on
                    again = bm.small_fabric(time.time_ns())
                    await bus.publish([Output(m.topic, m.key, m.body) for m in again])
                    status, paths = await asyncio.to_thread(ask, url, "/v1/paths?state=measured")
                    if paths["total"] > 40:
                        break
                    await asyncio.sleep(0.5)
            status, nics = await asyncio.to_thread(ask, url, "/v1/nics?state=unhealthy")
            assert [n["nic"] for n in nics["items"]] == ["h03/r1"]
            status, past = await asyncio.to_thread(ask, url, "/v1/nics?at=2020-01-01")
            assert (status, "no archive" in past["detail"]) == (503, True)
            capsys.readouterr()
            assert await asyncio.to_thread(main, ["status", "--json", "--data", str(data)]) == 0
            said = json.loads(capsys.readouterr().out)
            assert (said["nics"]["known"], said["run"]["mode"], said["source"]["kind"]) == (16, "reader", "pipeline")
            await asyncio.sleep(6.0)
            status, health = await asyncio.to_thread(ask, url, "/healthz")
            assert status == 503, "no detect runs: whether anything is wrong nobody says"
            stages = ("run", "detect", "--config", str(file), "--data", str(tmp_path / "stages"))
            async with verb(tmp_path / "detect.log", *stages), asyncio.timeout(WITHIN_S):
                while status != 200:
                    again = bm.small_fabric(time.time_ns())
                    await bus.publish([Output(m.topic, m.key, m.body) for m in again])
                    await asyncio.sleep(0.5)
                    status, health = await asyncio.to_thread(ask, url, "/healthz")
            assert health["fresh"], "detect commits what it has read, and says so by that"
    finally:
        await bus.close()
    assert "Traceback" not in log.read_text()
