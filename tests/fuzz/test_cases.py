"""What the fuzzer once found, again: every sequence in ``cases/`` through all stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz.chain import Chain
from tests.fuzz.finds import CASES, unpacked

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("case", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_ends_no_stage_any_more(case: Path) -> None:
    chain = Chain()
    for wire in json.loads(case.read_text())["wires"]:
        chain.wire(unpacked(wire), chain.now_ns + 10**6)
    chain.advance(chain.now_ns + 10**9)
    chain.finish()
    assert list(chain.finds.lines(long=True)) == []
