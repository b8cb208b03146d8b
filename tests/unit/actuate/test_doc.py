"""The operator's page names every reason, mode, state and verb there is: a new one without a word there is a defect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.guard import RULES
from sdfstream.agent.commands.admission import REASONS
from sdfstream.cli import VERBS
from sdfstream.records.command import MODES, STATES

PAGE = (Path(__file__).parents[3] / "docs" / "control.md").read_text(encoding="utf-8")
SOURCES = Path(__file__).parents[3] / "sdfstream" / "actuate"


@pytest.mark.parametrize("reason", [*REASONS, *(rule.name for rule in RULES)])
def test_every_reason_is_explained(reason: str) -> None:
    assert f"| `{reason}` |" in PAGE


def test_every_doubt_of_the_controller_is_explained() -> None:
    said = {name for path in SOURCES.glob("*.py") for name in re.findall(r'Doubt\(\s*"([a-z-]+)"', path.read_text())}
    assert {"unknown-way", "not-clean"} <= said
    assert not [name for name in said if f"`{name}`" not in PAGE]


def test_every_mode_and_state_is_named() -> None:
    assert not [mode for mode in MODES if f"| `{mode}`" not in PAGE]
    assert not [state for state in STATES if state not in PAGE]


def test_settings_and_verbs_that_it_names_are_there() -> None:
    known = set(ActuateConfig.__dataclass_fields__)
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", PAGE)) - {"trusted_keys", "path_selectable"}
    assert named <= known, named - known
    verbs = set(re.findall(r"^    sdfstream (\w+)", PAGE, re.MULTILINE))
    assert verbs <= set(VERBS)
