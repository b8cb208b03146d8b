"""The fabric's figures as families of Prometheus, from the same boards as all other answers. Pure.

Base units; labels have few values: nothing is labelled with a pair of NICs (those are in ClickHouse). What is not known
has no sample; what can be counted has one from the start, also at 0, lest a rule miss its first rise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sdfstream.board.nic_grid import STATES
from sdfstream.records import command
from sdfstream.records.finding import FINDING_KINDS, SEVERITIES
from sdfstream.serve.api.picture import Picture

CLOCK_STATUSES = ("synced", "holdover", "unsynced", "faulty", "unknown")


def families(picture: Picture) -> Iterator[Metric]:
    """All families, as of the picture."""
    view = picture.board.view(picture.at_ns, known_ns=picture.known_at_ns, hosts=0, worst=0)
    yield _one("sdf_data_fresh", "1: what is said of now is of now (/healthz).", float(picture.is_fresh))
    yield _one("sdf_data_age_seconds", "Age of the newest that a host reported.", _seconds(picture.age_ns))
    yield _one(
        "sdf_findings_age_seconds",
        "How long ago the instant is of which findings speak.",
        _seconds(picture.at_ns - picture.known_at_ns),
    )
    hosts = view["pipeline"]
    reporting = {"reporting": hosts["hosts"] - hosts["hosts_stale"], "stale": hosts["hosts_stale"]}
    yield _by("sdf_hosts", "Hosts by whether anything came from them within 5 s.", "state", reporting)
    yield _by("sdf_nics", "NICs by state.", "state", {state: view["nics"][state] for state in STATES})
    paths = view["paths"]
    yield _by(
        "sdf_paths",
        "Paths: known, measured now, stale (unknown now), losing 1 % or more, with 1 % CE or more, silent.",
        "which",
        {name: paths[name] for name in ("known", "measured", "stale", "lossy", "marked", "silent")},
    )
    yield _one("sdf_owd_median_seconds", "Median over the paths of their one-way delay.", _seconds(paths["owd_p50_ns"]))
    yield _one(
        "sdf_owd_excess_p99_seconds",
        "99th percentile over the paths of the delay over their floor.",
        _seconds(paths["excess_p99_ns"]),
    )
    yield from _of_findings(view["findings"]["open"])
    yield _one("sdf_findings_resolved", "Resolved findings that are remembered.", view["findings"]["resolved"])
    clocks = view["clocks"]
    yield _by("sdf_clocks", "Clocks by status.", "status", {s: clocks["by_status"].get(s, 0) for s in CLOCK_STATUSES})
    yield _one(
        "sdf_clock_error_bound_seconds",
        "Widest error bound of the synced clocks.",
        _seconds(clocks["worst_err_ns"]) if clocks["by_status"].get("synced") else None,
    )
    yield from _of_jobs(picture)


def _of_findings(opened: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    classes = {of_class for of_class, _ in FINDING_KINDS.values()}
    levels = {(of_class, severity): 0 for of_class in sorted(classes) for severity in SEVERITIES}
    by_level = Counter[tuple[str, ...]](levels)
    silenced_by_level = Counter[tuple[str, ...]](levels)
    by_kind = Counter(dict.fromkeys(FINDING_KINDS, 0))
    silenced_by_kind = Counter(dict.fromkeys(FINDING_KINDS, 0))
    for finding in opened:
        level, kind = (str(finding.get("class")), str(finding.get("severity"))), str(finding.get("kind"))
        by_level[level] += 1
        by_kind[kind] += 1
        silenced_by_level[level] += bool(finding["silence"])
        silenced_by_kind[kind] += bool(finding["silence"])
    labels = ("class", "severity")
    yield _labelled("sdf_findings_open", "Open findings, silenced ones among them.", labels, by_level)
    yield _by("sdf_findings_open_of_kind", "The same by kind.", "kind", by_kind)
    yield _labelled("sdf_findings_silenced", "Open findings that a silence covers now.", labels, silenced_by_level)
    yield _by("sdf_findings_silenced_of_kind", "The same by kind.", "kind", silenced_by_kind)


def _of_jobs(picture: Picture) -> Iterable[Metric]:
    states = Counter(str(job["state"]) for job in picture.jobs.view(picture.at_ns))
    yield _by("sdf_jobs", "Jobs by state.", "state", {state: states[state] for state in ("running", "ended")})
    commands = picture.jobs.commands
    in_force = commands.in_force(picture.at_ns).total()
    yield _one("sdf_commands_in_force", "Commands that agents are to obey, their lease running.", in_force)
    yield _one("sdf_commands_waiting", "Commands that wait for approval.", commands.waiting())
    family = CounterMetricFamily(
        "sdf_command_outcomes", "Outcomes of commands that were read, by state.", labels=["state"]
    )
    for state in command.STATES:
        family.add_metric([state], commands.outcomes_read[state])
    yield family


def _seconds(value_ns: Any) -> float | None:
    return float(value_ns) / 1e9 if isinstance(value_ns, int | float) and math.isfinite(value_ns) else None


def _one(name: str, doc: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, doc)
    if value is not None:
        family.add_metric([], value)
    return family


def _by(name: str, doc: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(name, doc, (label,), {(value,): n for value, n in values.items()})


def _labelled(name: str, doc: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=labels)
    for values_of, n in values.items():
        family.add_metric(list(values_of), n)
    return family
