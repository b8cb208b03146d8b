"""The engines' tests once more with their C under AddressSanitizer and UndefinedBehaviorSanitizer (threads:
`test_threads`, under ThreadSanitizer)."""

from __future__ import annotations

import shutil

import pytest

from tests.fixtures import engine_sanitized

_ELSEWHERE = ("test_threads", "test_sanitized", "test_build")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler: there is no engine in C")
def test_neither_engine_reads_or_writes_where_it_may_not(capfd: pytest.CaptureFixture[str]) -> None:
    every = [*engine_sanitized.TESTS, *(f"--ignore-glob=*/{name}*" for name in _ELSEWHERE)]
    ended = engine_sanitized.main([*every, "-p", "no:cacheprovider", "--timeout", "0"])
    said = capfd.readouterr()
    assert ended == 0, said.out[-8000:] + said.err[-8000:]
    assert " passed" in said.out
