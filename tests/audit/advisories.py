"""Known vulnerabilities of locked packages: by pip-audit where its source answers, else by a list that lies here.

``advisories.json`` is an extract of the Python Packaging Advisory Database for the packages that were locked when it
was made; ``python -m tests.audit --update FOLDER`` makes it anew from a checkout. How old it is, is always said.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.version import InvalidVersion, Version

from tests.audit.locked import ROOT, Package
from tests.audit.policy import VULNERABILITIES

LIST: Final = Path(__file__).parent / "advisories.json"
_WAIT_S: Final = 45.0


def online(lock: str) -> list[str] | None:
    """Sentences about what pip-audit finds in a lock file; None: its source knows nothing, or does not answer."""
    options = [
        "--no-deps",
        "--disable-pip",
        "--require-hashes",
        "-f",
        "json",
        "--progress-spinner",
        "off",
        "--timeout",
        "5",
    ]
    command = [sys.executable, "-m", "pip_audit", "-r", str(ROOT / lock), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S)
        asked = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    known = [one for one in asked if "skip_reason" not in one]
    if len(known) * 2 < len(asked):
        return None
    named = ((f"{one['name']} {one['version']}", v) for one in known for v in one["vulns"])
    return sorted(f"{package}: {v['id']}" for package, v in named if not _excepted([v["id"], *v.get("aliases", ())]))


def listed(packages: Sequence[Package]) -> tuple[list[str], str]:
    """(sentences about what the list here says of `packages`, the day that it is of)."""
    given = json.loads(LIST.read_text(encoding="utf-8"))
    found = [
        f"{name} {version}: {one['id']}"
        for one in given["advisories"]
        for name, version in packages
        if name == one["package"] and affects(one, version) and not _excepted([one["id"], *one["aliases"]])
    ]
    return sorted(found), str(given["as_of"])


def affects(advisory: Mapping[str, Any], version: str) -> bool:
    """Whether an advisory (OSV's form) is about `version`."""
    if version in advisory["versions"]:
        return True
    mine = Version(version)
    return any(_within(events, mine) for events in advisory["ranges"])


def _within(events: Iterable[Mapping[str, str]], mine: Version) -> bool:
    """Whether the last event at or before `mine` introduced it."""
    passed = []
    for event in events:
        ((what, at),) = event.items()
        try:
            since = Version(at)
        except InvalidVersion:
            continue
        if since <= mine and not (what == "last_affected" and since == mine):
            passed.append((since, what == "introduced"))
    return bool(passed) and max(passed)[1]


def update(folder: Path, packages: Sequence[Package], as_of: str) -> int:
    """Write the list from a checkout of the database; the number of advisories in it."""
    kept = []
    for name in sorted({p.name for p in packages}):
        for file in sorted((folder / "vulns" / name).glob("*.yaml")):
            said = yaml.safe_load(file.read_text(encoding="utf-8"))
            if not said.get("withdrawn"):
                kept += [_extract(said, name, affected) for affected in said["affected"]]
    given = {"as_of": as_of, "source": "Python Packaging Advisory Database (CC-BY-4.0)", "advisories": kept}
    LIST.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")
    return len(kept)


def _extract(said: Mapping[str, Any], name: str, affected: Mapping[str, Any]) -> dict[str, Any]:
    ranges = [r["events"] for r in affected.get("ranges", ()) if r["type"] == "ECOSYSTEM"]
    # where ranges say it, every version by name would only make the list long
    versions = [] if ranges else affected.get("versions", [])
    return {
        "id": said["id"],
        "aliases": said.get("aliases", []),
        "package": name,
        "ranges": ranges,
        "versions": versions,
    }


def _excepted(names: Iterable[str]) -> bool:
    return any(name in VULNERABILITIES for name in names)
