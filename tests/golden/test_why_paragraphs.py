"""What ``sdfstream why`` says, word for word, in every case: the paragraphs are read by people who did not build this.

``python -m tests.golden.test_why_paragraphs`` writes them anew; read them before they are kept.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from sdfstream.board.jobs import JobBoard
from sdfstream.board.why import Explanation, explain
from sdfstream.runtime.output_io import compact
from tests.fixtures.job_cases import STORIES, messages_of
from tests.fixtures.job_messages import NOW_NS

HERE = Path(__file__).parent / "why"


def verdict_of(story: str) -> Explanation:
    board = JobBoard()
    board.take(messages_of(story))
    assert board.counters.as_dict() == {}
    return explain(board.facts("train-7", NOW_NS))


def page(story: str) -> str:
    return textwrap.fill(verdict_of(story).paragraph, 100, break_on_hyphens=False, break_long_words=False) + "\n"


@pytest.mark.parametrize("story", STORIES)
def test_the_paragraph_is_this_one(story: str) -> None:
    assert page(story) == (HERE / f"{story}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("story", STORIES)
def test_the_verdict_is_right_and_complete_as_json(story: str) -> None:
    _, network, case = STORIES[story]
    verdict = verdict_of(story)
    assert (verdict.network, verdict.case) == (network, case)
    data = json.loads(compact(verdict.as_data()))
    assert data["paragraph"] == verdict.paragraph
    assert {"job", "at_ns", "network", "case", "sentences", "advice", "numbers", "findings", "commands"} <= data.keys()
    assert (verdict.since_at_ns is not None) == (case in ("hurt", "not-slowed", "recovered", "host"))
    assert bool(verdict.where) == (verdict.since_at_ns is not None)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name in STORIES:
        (HERE / f"{name}.txt").write_text(page(name), encoding="utf-8")
    sys.stdout.write(f"{len(STORIES)} paragraphs in {HERE}\n")
