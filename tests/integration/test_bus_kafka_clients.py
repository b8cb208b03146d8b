"""Foreign clients read our topics following the README's words: kcat takes the messages, polars the bytes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.records.message import Output
from sdfstream.records.topics import FINDING, PROBE
from tests.bus_samples import finding, probe_batch
from tests.fixtures.kafka_broker import Broker

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not shutil.which("kcat"), reason="kcat is not installed (Debian: apt-get install kcat)"),
]


def kcat(broker: Broker, *words: str) -> bytes:
    command = ["kcat", "-b", broker.address, "-C", "-e", "-q", *words]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


async def test_kcat_reads_findings_and_polars_the_probes_it_saved(kafka: Broker, tmp_path: Path) -> None:
    bus = KafkaBus(KafkaConfig(servers=kafka.address), time.time_ns, boot_id="here")
    await bus.start()
    sent = probe_batch(300)
    await bus.publish([finding(1), finding(2), Output(PROBE.name, "h00", sent)])
    await bus.close()

    lines = await asyncio.to_thread(kcat, kafka, "-t", FINDING.name, "-o", "beginning")
    events = [json.loads(line) for line in lines.splitlines()]
    assert [e["data"]["mark"] for e in events] == [1, 2]
    assert [e["subject"] for e in events] == ["f1", "f2"]

    saved = tmp_path / "probe.arrows"
    words = ("-t", PROBE.name, "-o", "-1", "-c", "1", "-f", "%s")
    saved.write_bytes(await asyncio.to_thread(kcat, kafka, *words))
    frame = pl.read_ipc_stream(saved)
    assert frame.columns == PROBE.columns.names
    assert frame["t1_ns"].to_list() == sent.column("t1_ns").to_pylist()
    assert frame["src"].cast(str).to_list() == sent.column("src").to_pylist()

    headers = await asyncio.to_thread(kcat, kafka, "-t", PROBE.name, "-o", "-1", "-c", "1", "-f", "%k %h")
    assert headers.startswith(
        b"h00 schema=sdf.raw.probe.v1,content-type=application/vnd.apache.arrow.stream,boot_id=here,"
    )
