"""``score detect --labels`` refuses what it cannot do, before it works for minutes."""

import pytest

from sdfstream.cli import main


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--labels", "0"], "--labels"),
        (["--labels", "2", "--only", "bursts"], "--only"),
        (["--labels", "2", "--quick"], "--quick"),
        (["--labels", "2", "--seed", "3"], "--seed"),
        (["--labels", "2", "--seeds", "0"], "--seeds"),
    ],
)
def test_refused(given: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "detect", *given]) != 0
    assert named in capsys.readouterr().err


def test_other_scores_do_not_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "somewhere", "--labels", "2"]) != 0
    assert "--labels" in capsys.readouterr().err
