"""Delays a second that detect takes per core, in slices of 5,000 rows of ``sdf.derived.owd.v1``.

``python -m tests.bench.detect_speed``. A healthy mesh of 12,500 sessions through sync, and what sync says of it through
detect: the cost of these rows alone, and of all that detect does meanwhile, probe rows and boundaries of 100 ms
included. Sessions are known and baselines made before anything is counted.
"""

from __future__ import annotations

import time

import numpy as np

from sdfstream.detect.stage import DetectStage
from sdfstream.records.message import Message
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import OWD, PROBE
from sdfstream.runtime.replay import replay
from sdfstream.sync.stage import SyncStage
from tests.bench.probe_load import EPOCH_NS, Load, messages

LOAD = Load(hosts=25, nics=4, peers=25, ports=5, rate_hz=10, flush_s=0.1, seconds=20)
WARM_S = 12


def main() -> None:
    """Measure and say it."""
    stream = replay(messages(LOAD, np.random.default_rng(1)), [SyncStage()], EPOCH_NS, EPOCH_NS + LOAD.seconds * 10**9)
    given: list[Message] = [message for message in stream if message.topic in (OWD.name, PROBE.name)]
    detect, spent_s, all_s, rows, slices = DetectStage(), 0.0, 0.0, 0, 0
    for call in in_calls(given):
        owd = [m for m in call if m.topic == OWD.name]
        first_s = time.thread_time()
        detect.step([m for m in call if m.topic == PROBE.name], call[0].bus_at_ns)
        began_s = time.thread_time()
        detect.step(owd, call[-1].bus_at_ns)
        if call[-1].bus_at_ns > EPOCH_NS + WARM_S * 10**9:
            spent_s += time.thread_time() - began_s
            all_s += time.thread_time() - first_s
            rows += sum(m.rows for m in owd)
            slices += bool(owd)
    per_slice = f"{rows // slices} rows a slice, {slices} slices"
    print(f"{rows / spent_s / 1e6:.2f} M delays/s per core, with all else {rows / all_s / 1e6:.2f} M; {per_slice}")


if __name__ == "__main__":
    main()
