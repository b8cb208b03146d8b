"""A file in YAML costs no more than its bounds, and is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfstream import yamlfile
from sdfstream.errors import ConfigError
from sdfstream.yamlfile import Bounds, parse, read

SMALL = Bounds(size_bytes=1 << 20, depth=4, values=50, entries=5)


def test_what_is_good_is_read() -> None:
    text = b"shared: &s {rate_hz: 1.5, live: true}\nlist: [1, a, null, 2027-01-15]\nown:\n  <<: *s\n  live: false\n"
    assert parse(text, "f")["own"] == {"rate_hz": 1.5, "live": False}
    assert parse(b"", "f") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a: [[[[1]]]]", r"^f, line 1: nested more than 4 levels deep$"),
        (b"a: &a [[1]]\nb: [[*a]]", r"^f, line 2: nested more than 4 levels deep$"),
        (b"a:\n  b: [1, 2, 3, 4, 5, 6]", r"^f, line 2: key 'b' has more than 5 entries"),
        (b"{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1}", r"^f, line 1: a list or mapping has more than 5 entries"),
        (b"a: &a [1,1,1,1]\nb: &b [*a,*a,*a,*a]\nc: [*b,*b,*b]", r"^f, line 3: more than 50 values"),
        (b"a: &a [*a]", r"^f, line 1: an alias names an anchor that is not there yet, or holds itself$"),
        (b"a: 1\nb: 2\na: 3", r"^f, line 3: key 'a' stands twice$"),
        (b"a: 2027-02-31", r"^f, line 1: a number or date that does not exist"),
        (b"a: " + b"9" * 5000, r"^f, line 1: a number or date"),
        (b"a: 0x" + b"f" * 5000, r"^f, line 1: a number or date"),
        (b"a: 1\n---\na: 2", r"^f, line 2: a second document begins"),
        (b"a: 1\nb: [", r"^f is not YAML, line 3: "),
        (b"a: \x01", r"^f is not YAML, line 1: a character"),
        (b"a: \xff", r"^f is not YAML: byte 3 is not UTF-8$"),
        (b"a: !!python/object/apply:os.system [id]", r"^f is not YAML, line 1: could not determine a constructor"),
    ],
)
def test_what_is_not_is_refused_with_its_line(text: bytes, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse(text, "f", SMALL)


def test_a_file_too_large_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ConfigError, match=r"large\.yaml is larger than 1 MiB"):
        read(path, SMALL)


def test_a_long_list_is_refused_before_its_end() -> None:
    text = b"sessions:\n" + b"- x\n" * 11_000 + b"]]]]\n"
    with pytest.raises(ConfigError, match=r"line 2: key 'sessions' has more than 10,000 entries; one agent takes"):
        parse(text, "f")


def test_no_error_quotes_a_value() -> None:
    for text in (
        'k: "hunter2hunter2\\q"',
        "k: !hunter2hunter2 x",
        "k: *hunter2hunter2",
        "k: 'hunter2hunter2",
        "k: [hunter2hunter2",
    ):
        with pytest.raises(ConfigError) as refused:
            parse(text.encode(), "f")
        assert "hunter2" not in str(refused.value)
    assert yamlfile.named("hmac_key:hunter2") == "'hmac_key…'"
