"""An agent never loads pandas: 58 MB and most of a second that pyarrow would spend on its own accord."""

import subprocess
import sys

SCRIPT = """
import sys

import numpy as np

import sdfstream.cli.agent
import sdfstream.agent.process_io
import sdfstream.probes.ports.reader_io
import sdfstream.bus.link.client_io
from sdfstream.bus import codec
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.probes.ports.reading import PortRow, rows
from sdfstream.agent.report import PathReport
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import LIVENESS, PORT, PROBE
from tests.wire import Wire, host_a, host_b, reflector_of, sender_of

def seen(where):
    assert "pandas" not in sys.modules, where

seen("import")
port = rows("h", 1, [PortRow("h/r0", 1, "up", {"rx_bytes": 5, "rx_power_dbm": -1.5})])
assert port is not None and port.column("tx_bytes").null_count == 1
seen("port batch")
wire = Wire(sender_of(host_a()), reflector_of(host_b()))
wire.run(10**9)
probes = wire.sender.rows(3 * 10**9)
assert probes is not None and probes.num_rows > 20
seen("probe batch")
data = {"host": "h", "boot_id": "b", "seen_at_ns": 1, "complete": True, "changes": []}
event = Event(LIVENESS.name, "h", "1", 1, data)
outputs = [Output(PORT.name, "h", port), Output(PROBE.name, "h", probes), Output(LIVENESS.name, "h", event)]
for n, output in enumerate(outputs):
    headers, value = codec.encode(output, "b", n)
    codec.decode(output.topic, headers, value)
    seen(f"codec of {output.topic}")
report = PathReport(np.random.default_rng(1))
report.add(probes)
report.paths()
seen("report")
writer = RecordingWriter(sys.argv[1])
writer.write([Message(o.topic, o.key, o.body, 10**9 + n, n) for n, o in enumerate(outputs)])
writer.finish()
seen("recording")
"""


def test_an_agent_loads_no_pandas(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "r")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
