"""An instant without silence but of stale hosts, and without other findings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.engines import Engines
from sdfstream.detect.instant import Instant
from sdfstream.stats import Counters


def at(now_ns: int, stale_hosts: frozenset[str] = frozenset()) -> Instant:
    engines = Engines(DetectConfig(), Counters("detect"))
    silence = replace(engines.silence.assess(now_ns), stale_hosts=stale_hosts)
    return Instant(now_ns, now_ns, silence, engines.ledger, np.zeros(0, np.bool_), np.zeros(0, np.bool_))
