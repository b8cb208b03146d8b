"""Which saved states are taken up, and what is said of the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from sdfstream import pipeline
from sdfstream.errors import FormatError
from sdfstream.runtime import layouts
from sdfstream.sync.config import SyncConfig


@dataclass(frozen=True)
class Before:
    window_ns: int = 100
    mode: str = "dry-run"


@dataclass(frozen=True)
class After:
    """A release later: a setting more, another default."""

    added_ns: int = 5
    window_ns: int = 200
    mode: str = "dry-run"


def test_every_stage_has_a_layout() -> None:
    assert layouts.LAYOUTS.keys() == {stage.name for stage in pipeline.STAGES}


def test_a_setting_more_or_another_default_is_no_other_stage() -> None:
    assert layouts.identity("detect", Before()) == layouts.identity("detect", After())
    ours, theirs = layouts.identity("detect", Before(mode="x")), layouts.identity("detect", After(mode="x"))
    assert ours == theirs != layouts.identity("detect", Before())


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        (layouts.identity("sync", replace(SyncConfig(), window_ns=1)), "snapshot-settings"),
        (layouts.identity("sync", SyncConfig()).replace("layout=", "layout=9"), "snapshot-layout"),
        (layouts.identity("sync-mesh", SyncConfig()), "snapshot-foreign"),
        ("sync 0.2.0 0000000000000000", "snapshot-foreign"),
        ("sync 0.1.0 9dc0a6f15d99f5f4", "snapshot-foreign"),
        ("sync", "snapshot-foreign"),
        ("", "snapshot-foreign"),
    ],
)
def test_another_state_is_refused_and_both_are_named(saved: str, reason: str) -> None:
    own, former = layouts.identity("sync", SyncConfig()), layouts.formerly("sync", SyncConfig())
    with pytest.raises(FormatError, match=f"^{reason}: it is of {saved}, this is sync layout=") as refused:
        layouts.check(saved, own, former)
    assert refused.value.reason == reason


def test_states_of_0_2_0_are_taken_up_at_the_defaults_and_at_settings_of_ones_own() -> None:
    for name, digest in layouts._OF_0_2_0.items():
        (maker,) = [m for m in _makers() if m.name == name]
        layouts.check(f"{name} 0.2.0 {digest}", maker.identity, maker.formerly)
        layouts.check(maker.identity, maker.identity, frozenset())
    chosen = replace(SyncConfig(), reference="h00")
    (own,) = layouts.formerly("sync", chosen)
    assert own != next(iter(layouts.formerly("sync", replace(SyncConfig(), reference="h01"))))


def test_a_raised_layout_takes_up_nothing_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layouts.LAYOUTS, "sync", 2)
    assert not layouts.formerly("sync", SyncConfig())


def _makers() -> list[pipeline.StageMaker]:
    from sdfstream.settings import Settings

    return pipeline.makers(Settings()) + pipeline.split_sync(Settings())
