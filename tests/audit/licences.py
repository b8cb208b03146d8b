"""The licence of every locked package, as its own metadata says, against those that are allowed."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import Message
from importlib import metadata

from license_expression import ExpressionError, get_spdx_licensing

from tests.audit.locked import Package
from tests.audit.policy import LICENCES, WORDS


def refused(packages: Sequence[Package]) -> tuple[list[str], list[str]]:
    """(sentences about packages whose licence is not allowed, names of those that are not installed here)."""
    found, absent = [], []
    for name in sorted({p.name for p in packages}):
        try:
            said = expression(metadata.metadata(name))  # type: ignore[arg-type]
        except metadata.PackageNotFoundError:
            absent.append(name)
            continue
        if not allowed(said):
            found.append(f"{name}: licence {said or 'not named'!r} is not allowed (tests/audit/policy.py)")
    return found, absent


def allowed(expression: str) -> bool:
    """Whether all parts of an SPDX expression that hold together, or one of those to choose from, are allowed.

    >>> allowed("Apache-2.0 OR GPL-3.0-only"), allowed("MIT AND GPL-3.0-only"), allowed("")
    (True, False, False)
    """
    licensing = get_spdx_licensing()
    try:
        parsed = licensing.parse(expression, validate=True)
    except ExpressionError:
        return False
    if parsed is None:
        return False
    choices = licensing.dnf(parsed)
    alternatives = choices.args if isinstance(choices, licensing.OR) else [choices]
    return any({symbol.key for symbol in one.symbols} <= LICENCES for one in alternatives)


def expression(about: Message) -> str:
    """The SPDX expression of a package: as it says, or by what older metadata calls it.

    Several classifiers are a choice where the package says no more.
    """
    if said := about.get("License-Expression"):
        return str(said)
    named = [
        line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License :: OSI App")
    ]
    named += [
        line.split(" :: ")[-1]
        for line in about.get_all("Classifier") or ()
        if line.count("::") == 1 and "License" in line
    ]
    text = str(about.get("License") or "").strip()
    if "\n" not in text and (text in LICENCES or text in WORDS):
        return WORDS.get(text, text)
    return " OR ".join(WORDS[name] for name in named if name in WORDS)
