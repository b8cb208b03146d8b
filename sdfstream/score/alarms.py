"""Every alarm of a run in one class: which told a fault, and which told it again, for too long, or of nothing.

============  =======================================================================================================
class         a finding above ``info`` that
============  =======================================================================================================
fault         earned its fault's verdict, or is the only one tied to it, and lasted as long as the fault
false         no fault explains, or blames what its fault did not touch: the host of a flapping NIC
telemetry     no fault explains, and speaks of our own agents and pipeline: true or not, nothing here knows
extra         is tied to a fault that another finding tells: it should be that one's symptom
early         tells a fault and was resolved more than `EARLY_NS` before that ended
late          tells a fault and stood more than `LATE_NS` after that ended
============  =======================================================================================================

Kinds that look back stand for longer (`LOOK_BACK_NS`); faults that come and go (`COMES_AND_GOES`) have no early end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.units import NS_PER_S
from sdfstream.score.location import touched

AlarmClass = Literal["fault", "false", "telemetry", "extra", "early", "late"]
Data = Mapping[str, Any]

EARLY_NS: Final = 2 * NS_PER_S
LATE_NS: Final = 10 * NS_PER_S
"""Windows must pass, queues drain and routes come back before a finding can see that its fault is over."""
LOOK_BACK_NS: Final = {"link-flap": 3600 * NS_PER_S, "port-errors": 40 * NS_PER_S}
"""A flap is the count of an hour, and a port's errors stand until it has been quiet for half a minute."""
COMES_AND_GOES: Final = frozenset({"flap", "link-flap", "bursts", "clock-step"})
"""Their findings may be resolved before they end."""
SYMPTOM: Final = "symptom of "
"""Begins the detail of a finding that was put under its root."""


def untied(statements: Sequence[Data]) -> AlarmClass:
    """Class of a finding (its statements in order) that no fault explains."""
    kind = FINDING_KINDS.get(str(statements[0]["kind"]), ("", ""))
    return "telemetry" if kind[0] == "telemetry" else "false"


def tied(statements: Sequence[Data], fault: Data, *, reports: bool, end_ns: int) -> AlarmClass:
    """Class of a finding that is tied to `fault`; `reports`: by it the fault was judged. `end_ns`: of the run."""
    if not reports:
        return "extra" if touched(str(fault["target"]), statements[0]) else "false"
    if closed_early(statements, fault):
        return "early"
    healed, last = fault.get("healed_at_ns"), statements[-1]
    over_ns = int(last["seen_at_ns"]) if last.get("status") == "resolved" else end_ns
    stands_ns = max(LATE_NS, LOOK_BACK_NS.get(str(last["kind"]), 0))
    return "late" if healed is not None and over_ns - int(healed) > stands_ns else "fault"


def closed_early(statements: Sequence[Data], fault: Data) -> bool:
    """Whether a finding was resolved for good well before its fault ended, and not put under its root."""
    if fault["kind"] in COMES_AND_GOES or "reroute_s" in (fault.get("parameters") or {}):
        return False
    healed, last = fault.get("healed_at_ns"), statements[-1]
    if last.get("status") != "resolved" or str(last.get("detail", "")).startswith(SYMPTOM):
        return False
    return healed is None or int(last["seen_at_ns"]) < int(healed) - EARLY_NS
