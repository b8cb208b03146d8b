"""See the package."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from tests.audit import advisories, licences, secrets
from tests.audit.locked import LOCKS, packages


def main() -> int:
    """0: nothing found but what `policy` names."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--offline", action="store_true", help="licences and secrets only")
    parser.add_argument("--update", type=Path, metavar="FOLDER", help="make the list anew from pypa/advisory-database")
    parser.add_argument("--as-of", metavar="DAY", help="with --update: the day of that checkout's last change")
    args = parser.parse_args()
    if args.update is not None:
        day = datetime.date.fromisoformat(args.as_of or datetime.datetime.now(datetime.UTC).date().isoformat())
        print(f"audit: {advisories.update(args.update, packages(), str(day))} advisories in the list of {day}")
        return 0
    found = [] if args.offline else _vulnerabilities()
    said, absent = licences.refused(packages())
    found += said
    if absent:
        print(f"audit: not installed here, licence not seen: {', '.join(absent)}", file=sys.stderr)
    found += secrets.found()
    for sentence in found:
        print(sentence)
    print(f"audit: {len(packages())} locked packages; {f'{len(found)} found' if found else 'clean'}")
    return 1 if found else 0


def _vulnerabilities() -> list[str]:
    answers = [advisories.online(lock) for lock in LOCKS]
    if all(answer is not None for answer in answers):
        print("audit: vulnerabilities as the package index knows them today", file=sys.stderr)
        return sorted({sentence for answer in answers for sentence in answer or ()})
    found, as_of = advisories.listed(packages())
    today = datetime.datetime.now(datetime.UTC).date()
    days = (today - datetime.date.fromisoformat(as_of)).days
    said = f"audit: no source of vulnerabilities answers; by the list of {as_of}, which is {days} days old"
    print(said, file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
