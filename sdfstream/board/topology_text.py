"""The fabric as text: for people, and as Slurm's ``topology.conf``.

References
----------
Slurm's manual, ``topology.conf`` of the tree plugin: every node below one leaf switch, names as host lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sdfstream import visible
from sdfstream.board.humanize import bitrate, listed, number, plural

ROOT: Final = "fabric"
"""Name of the switch above all groups in Slurm's file."""
_PLURALS: Final = {"host": "hosts", "leaf": "leaves", "spine": "spines"}
_NUMBERED: Final = re.compile(r"(.*?)(\d+)")
_SLURM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def text_of(view: Mapping[str, Any]) -> str:
    """Groups of near hosts with their switches, line by line."""
    kinds = _counts(node["kind"] for node in view["nodes"])
    size = (
        ", ".join(f"{number(n)} {_PLURALS.get(kind, kind) if n != 1 else kind}" for kind, n in kinds.items())
        or "no cabling is declared"
    )
    speeds = sorted({link["speed_bps"] for link in view["links"] if link["speed_bps"]})
    lines = [
        f"fabric                 {size}; {plural(len(view['nics']), 'NIC')}, {plural(len(view['links']), 'link')}"
        + (f" at {' and '.join(bitrate(speed) for speed in speeds)}" if speeds else "")
    ]
    how = {"declared": "by declared cabling", "measured": "by the least round trips"}[view["by"]]
    lines.append(f"near each other        {plural(len(view['groups']), 'group')}, {how}")
    for group in view["groups"]:
        over = f", over {listed(group['switches'])}" if group["switches"] else ""
        lines.append(f"  {group['name']:20s} {hostlist(group['hosts'])}{over}")
    if view["unplaced"]:
        lines.append(f"  not told apart       {hostlist(view['unplaced'])}")
    return visible.lines(lines)


def slurm_of(view: Mapping[str, Any]) -> str:
    """The groups as Slurm's tree; hosts of no known group are named in a comment alone.

    Names that Slurm does not take are left out in the same way: its node names are letters, digits, ``.``, ``_`` and
    ``-``.
    """
    lines = [f"# Hosts that reach each other over the same leaf switches ({view['by']}); sdfstream topo --format slurm"]
    left_out = [str(host) for host in view["unplaced"]]
    names = []
    for group in view["groups"]:
        hosts = [host for host in group["hosts"] if _SLURM_NAME.fullmatch(host)]
        left_out += [host for host in group["hosts"] if host not in hosts]
        if not hosts:
            continue
        names.append(group["name"])
        over = f" # {', '.join(group['switches'])}" if group["switches"] else ""
        lines.append(f"SwitchName={group['name']} Nodes={hostlist(hosts)}{over}")
    if names:
        lines.append(f"SwitchName={ROOT} Switches={hostlist(names)}")
    if left_out:
        lines.append(f"# not placed: {', '.join(sorted(left_out))}")
    return visible.lines(lines)


def hostlist(names: Sequence[str]) -> str:
    """Names as Slurm writes them: numbers of one width that follow each other as a range.

    >>> hostlist(["h00", "h01", "h02", "h10", "gpu7"])
    'gpu7,h[00-02,10]'
    """
    by_prefix: dict[tuple[str, int], list[int]] = {}
    alone = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found is None:
            alone.append(name)
        else:
            by_prefix.setdefault((found[1], len(found[2])), []).append(int(found[2]))
    for (prefix, width), its in by_prefix.items():
        ranges = [_range(first, last, width) for first, last in _runs(sorted(set(its)))]
        one = len(ranges) == 1 and "-" not in ranges[0]
        alone.append(f"{prefix}{ranges[0]}" if one else f"{prefix}[{','.join(ranges)}]")
    return ",".join(sorted(alone))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for one in numbers:
        if found and one == found[-1][1] + 1:
            found[-1] = found[-1][0], one
        else:
            found.append((one, one))
    return found


def _range(first: int, last: int, width: int) -> str:
    return f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"


def _counts(kinds: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in kinds:
        found[kind] = found.get(kind, 0) + 1
    return found
