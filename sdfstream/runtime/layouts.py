"""Which saved states a stage takes up: those of its own layout and settings, whatever release wrote them. Pure.

The `Snapshot.maker` of a saved state names the stage, the **layout** of its state and a digest of its settings. The
layout is a number of its own, not the program's version: releases that read each other's states have the same one, so
an upgrade keeps what the stages have learned, and a step back to the release before does too (docs/upgrade.md).

Who changes what a `snapshot` holds either lets `restore` do without (a key that is absent has its fresh value), and the
layout stays; or raises the layout here, and the first start of the new release begins that stage with an empty state.
`tests/scenarios/test_upgrade.py` restores what the version before wrote, and so tells which of the two it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any, Final

from sdfstream.errors import FormatError

LAYOUTS: Final = {"sync": 1, "sync-edge": 1, "sync-mesh": 1, "workload": 1, "detect": 1, "actuate": 1, "plan": 1}
"""Layout of each stage's state. Raised when `restore` cannot take up what the release before has saved."""
_OF_0_2_0: Final = {
    "sync": "9dc0a6f15d99f5f4",
    "sync-edge": "9dc0a6f15d99f5f4",
    "sync-mesh": "9dc0a6f15d99f5f4",
    "workload": "8ce7ccb693c0193f",
    "detect": "9aefbfdfd91c8f63",
    "actuate": "93bc2ce3b04d1c5f",
}
"""Version 0.2.0 named itself, and a digest of all its settings; these are of a stage at its defaults."""


def identity(stage: str, config: Any) -> str:
    """Name, layout and settings of a stage.

    Parameters
    ----------
    config : dataclass instance
        The stage's settings; all have defaults. Only those that differ from them count, so that a release with a
        setting more, or with another default, takes up what was saved before.
    """
    return f"{stage} layout={LAYOUTS[stage]} settings={_digest(repr(_chosen(config)))}"


def formerly(stage: str, config: Any) -> frozenset[str]:
    """Identities that version 0.2.0 gave to the same stage with these settings, which had layout 1.

    At the defaults it is known; otherwise it is found again as long as the settings are those that 0.2.0 had.
    """
    if LAYOUTS[stage] != 1:
        return frozenset()
    digests = {_digest(repr(config))}
    if not _chosen(config) and stage in _OF_0_2_0:
        digests.add(_OF_0_2_0[stage])
    return frozenset(f"{stage} 0.2.0 {digest}" for digest in digests)


def check(saved: str, own: str, former: frozenset[str]) -> None:
    """Let a state of the identity `saved` pass for a stage that is `own`, or was one of `former`.

    Raises
    ------
    FormatError
        ``snapshot-layout``: the state is laid out in another way, as by a later release; ``snapshot-settings``: it was
        made under other settings; ``snapshot-foreign``: it is of another stage, or of none that is known.
    """
    if saved == own or saved in former:
        return
    mine, theirs = own.split(" "), saved.split(" ")
    said = f"it is of {saved}, this is {own}"
    if len(mine) != 3 or len(theirs) != 3 or theirs[0] != mine[0] or not theirs[1].startswith("layout="):
        raise FormatError("snapshot-foreign", said)
    raise FormatError("snapshot-layout" if theirs[1] != mine[1] else "snapshot-settings", said)


def _chosen(config: Any) -> dict[str, Any]:
    default = type(config)()
    names = sorted(f.name for f in fields(config))
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name)}


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()
