"""Which probe paths of a NIC cross which segments: by commands, and there by the host's own traces, which are newer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ProbePath(NamedTuple):
    """A probe path of the watching NIC."""

    dst: str
    port: int
    dscp: int


def crosses(
    own: Mapping[ProbePath, tuple[str, ...] | None], crossing: Mapping[str, Sequence[ProbePath]]
) -> dict[ProbePath, frozenset[str]]:
    """The segments of each probe path in `own`.

    A segment on the way of any of the host's own traces is crossed by those that the traces say, where they are known;
    other segments, those on the way back, by those that the commands name.

    Parameters
    ----------
    own : probe path to hops
        By the host's own traces; the first is met over the NIC's own cable, which is no segment. None: not known.
    crossing : segment to probe paths
        By commands.
    """
    traced = frozenset(hop for hops in own.values() if hops is not None for hop in hops[1:])
    found = {path: set(hops[1:]) if hops is not None else set() for path, hops in own.items()}
    for name, paths in crossing.items():
        for path in paths:
            if path in found and (own[path] is None or name not in traced):
                found[path].add(name)
    return {path: frozenset(names) for path, names in found.items()}


def corrected(
    own: Mapping[ProbePath, tuple[str, ...]], crossing: Mapping[str, Sequence[ProbePath]]
) -> dict[str, tuple[ProbePath, ...]]:
    """`crossing` by what the host's own traces say: a probe path that no command knows yet is added, one that has
    another way now is left out. Segments that `crossing` does not have are left out.
    """
    named = dict.fromkeys(path for paths in crossing.values() for path in paths)
    routes = crosses({**dict.fromkeys(named), **own}, crossing)
    found: dict[str, list[ProbePath]] = {name: [] for name in crossing}
    for path, segments in routes.items():
        for name in segments & found.keys():
            found[name].append(path)
    return {name: tuple(paths) for name, paths in found.items()}
