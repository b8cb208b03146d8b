"""``sdfstream switches``: what it refuses, and what its page says."""

import pytest

from sdfstream.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs --bus kafka://HOST:PORT"),
        (["--bus", "link:x"], "needs --bus kafka://HOST:PORT"),
        (["--bus", "kafka://127.0.0.1:1", "--topic", "sdf.raw.port.v1"], "none of ours"),
        (["--bus", "kafka://127.0.0.1:1", "--topic", "a b"], "the name of gnmic's topic"),
        (["--bus", "kafka://127.0.0.1:1"], "looking for a broker"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["switches", *words]) == 2
    assert says in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["switches", "--help"])
    assert "example: sdfstream switches --bus kafka://localhost:9092 --topic gnmic" in capsys.readouterr().out
