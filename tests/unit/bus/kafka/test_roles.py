"""The page on Kafka says what the code does: settings, roles, rules, and every refusal a person may read."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.roles import ROLES, Role
from sdfstream.bus.kafka.topic_rules import DEFAULT_RULES, GIB, ruled
from sdfstream.cli import VERBS
from sdfstream.records.topics import CHECKPOINT, TOPICS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
REFUSALS = (ROOT / "sdfstream" / "bus" / "kafka" / "diagnose_io.py").read_text(encoding="utf-8")


def test_settings_and_verbs_that_it_names_are_there() -> None:
    known = set(KafkaConfig.__dataclass_fields__)
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", PAGE))
    assert named <= known, named - known
    verbs = set(re.findall(r"^    sdfstream (\w+)", PAGE, re.MULTILINE))
    assert verbs <= set(VERBS)
    assert {"security", "ca_file", "cert_file", "key_file", "user", "password_file", "password_env"} <= set(
        re.findall(r"`([a-z_]+)`", PAGE)
    )


@pytest.mark.parametrize("role", ROLES.values(), ids=str)
def test_every_role_is_in_the_table_as_it_is(role: Role) -> None:
    (row,) = re.findall(rf"^\| `{role.name}` \|.*$", PAGE, re.MULTILINE)
    _, _, _, reads, writes, groups, transactions, _ = row.split("|")
    assert {f"`{g}*`" for g in role.groups} == set(re.findall(r"`[a-z-]+\*`", groups))
    assert {f"`{t}*`" for t in role.transactions} == set(re.findall(r"`[a-z-]+/\*`", transactions))
    if role.name in ("agent", "operator"):
        assert {f"`{t}`" for t in role.reads} == set(re.findall(r"`sdf[^`]*`", reads))
        assert {f"`{t}`" for t in role.writes} == set(re.findall(r"`sdf[^`]*`", writes))


def test_what_stages_write_fits_the_table() -> None:
    made = {"sdf.derived.*", "sdf.event.*", *(f"sdf.state.{n}.v1" for n in ("clock", "nic", "mesh"))}
    made |= {f"sdf.control.{n}.v1" for n in ("command", "outcome")}
    ours = {t for t in ROLES["stage"].writes if not t.endswith(".dlq") and t != CHECKPOINT.name}
    assert ours == {t for t in TOPICS if any(fnmatchcase(t, pattern) for pattern in made)}


@pytest.mark.parametrize(
    ("name", "hours", "size"),
    [
        ("sdf.raw.probe.v1", 6, 16), ("sdf.derived.owd.v1", 6, 16), ("sdf.derived.edge.v1", 2, 2),
        ("sdf.state.clock.v1", 24, 4), ("sdf.event.finding.v1", 720, 1), ("sdf.control.command.v1", 720, 1),
        ("sdf.raw.probe.v1.dlq", 168, 1),
    ],
)  # fmt: skip
def test_retention_is_as_the_table_says(name: str, hours: float, size: int) -> None:
    rule = ruled(name, DEFAULT_RULES)
    assert (rule.retention_h, rule.retention_bytes) == (hours, size * GIB)


@pytest.mark.parametrize(
    "words",
    [
        "wrong user or password", "from users", "is from an authority that", "is for another name", "is not valid now",
        "speaks TLS, but kafka.security is", "does not speak TLS", "wants another certificate of ours",
        "ends the connection",
    ],
)  # fmt: skip
def test_every_refusal_is_explained(words: str) -> None:
    assert words in PAGE
    assert words in REFUSALS
