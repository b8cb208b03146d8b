"""Every kind of fault on a random target: named once, in time, at the right place; and nothing else is named.

``SDFSTREAM_SEEDS=10 pytest -s tests/scenarios/test_detect_faults.py`` prints a table over more seeds.
"""

import os
from statistics import median

import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.faultlist import CASES, play, score

SEEDS = int(os.environ.get("SDFSTREAM_SEEDS", "1"))


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_once_in_time_and_at_its_location(name: str) -> None:
    case = CASES[name]
    delays, exact, suspected, wrong = [], 0, 0, []
    for seed in range(100, 100 + SEEDS):
        fabric, target = play(case, seed)
        result = score(case, target, run(DetectStage(), fabric.messages(case.run_s)))
        wrong += [(seed, target, *w) for w in result.false_alarms]
        exact, suspected = exact + result.exact, suspected + result.suspected
        if result.delay_s is not None:
            delays.append(result.delay_s)
    worst = max(delays, default=0.0)
    middle = median(delays) if delays else 0.0
    print(f"{name:16} found {len(delays)}/{SEEDS} exact {exact} delay s {middle:.2f} worst {worst:.2f} wrong {wrong}")
    assert not wrong
    if case.kinds:
        assert suspected == exact == SEEDS
        assert worst <= case.limit_s
