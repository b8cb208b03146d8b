"""The figures of ``sdfstream status`` as text, from the plain JSON that `Board.view` gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdfstream import visible
from sdfstream.board import commands_text, findings_text
from sdfstream.board.humanize import SHAPES, bitrate, duration, listed, number, plural, rate, subject_of
from sdfstream.board.lateness import as_of


def text_of(board: Mapping[str, Any]) -> str:
    """The status as text; a board with no data says so and calls nothing healthy."""
    lines = [*_run(board), *_troubles(board), *_nics(board), *_findings(board), *_jobs(board), *_commands(board)]
    lines += [*_clocks(board), *_mesh(board), *_paths(board), *_pipeline(board)]
    return visible.lines(f"{head:<10} {text}" for head, text in lines)


Lines = list[tuple[str, str]]


def is_of_archive(board: Mapping[str, Any]) -> bool:
    """Whether an archive told the board: figures of a running pipeline are not in it."""
    return bool(board.get("run", {}).get("mode") == "archive")


def _run(board: Mapping[str, Any]) -> Lines:
    run, state = board.get("run", {}), board.get("pipeline", {})
    if is_of_archive(board):
        up = "not running, or not asked"
    else:
        up = f"running for {duration(board['at_ns'] - run['started_at_ns'])}" if "started_at_ns" in run else "running"
    age_ns = state.get("age_ns")
    data = "no data yet" if age_ns is None else f"newest data {duration(age_ns)} old"
    hosts = f"{number(state.get('hosts', 0))} hosts heard"
    stale = f", {number(state['hosts_stale'])} of them silent now" if state.get("hosts_stale") else ""
    lines = [("pipeline", f"{up}, {data}, {hosts}{stale}")]
    known = "" if is_of_archive(board) else as_of(board.get("known_at_ns"), board["at_ns"])
    return lines + ([("late", f"all this is {known}: messages come late, or wait to be read")] if known else [])


def _troubles(board: Mapping[str, Any]) -> Lines:
    """What of the pipeline itself fails now."""
    troubles = board.get("run", {}).get("troubles", ())
    lines = [("", f"{t['what']}: {t['why']}, for {duration(board['at_ns'] - t['since_at_ns'])}") for t in troubles]
    return [("degraded", lines[0][1]), *lines[1:8]] if lines else []


def _nics(board: Mapping[str, Any]) -> Lines:
    nics = board.get("nics", {})
    if not nics.get("known"):
        return [("NICs", "none known yet")]
    lines = [("NICs", "  ".join(f"{shape} {number(nics.get(state, 0))} {state}" for state, shape in SHAPES.items()))]
    odd = [n for n in board.get("nic_list", ()) if n["state"] != "healthy"]
    odd.sort(key=lambda n: (n["state"] != "unhealthy", n["nic"]))
    for nic in odd[:8]:
        directions = f"tx {nic['tx']}, rx {nic['rx']}, port {nic['port']}"
        lines.append(
            ("", f"{SHAPES[nic['state']]} {nic['nic']}: {directions}" + (f"; {nic['why']}" if nic["why"] else ""))
        )
    if len(odd) > 8:
        lines.append(("", f"and {number(len(odd) - 8)} more; see sdfstream top"))
    return lines


def _findings(board: Mapping[str, Any]) -> Lines:
    known = board.get("findings", {})
    found = known.get("open", [])
    silenced = f" ({number(known['silenced'])} silenced)" if known.get("silenced") else ""
    lines = [("findings", f"{number(len(found))} open{silenced}, {number(known.get('resolved', 0))} resolved")]
    found = sorted(found, key=lambda finding: bool(finding.get("silence")))  # of the others are told first
    lines += [("", findings_text.line_of(finding, board["at_ns"], board.get("known_at_ns"))) for finding in found[:8]]
    if len(found) > 8:
        lines.append(("", f"and {number(len(found) - 8)} more; see sdfstream findings --open"))
    return lines


def _jobs(board: Mapping[str, Any]) -> Lines:
    known = board.get("jobs", {})
    if not known.get("known"):
        return [("jobs", "none known")]
    running = [job for job in known["list"] if job["state"] == "running"]
    lines = [("jobs", f"{number(len(running))} running, {number(known['known'] - len(running))} ended")]
    kinds = {f.get("id"): f for f in board.get("findings", {}).get("open", ())}
    for job in running[:8]:
        text = f"{job['job']}: {plural(job['ranks'], 'rank')} on {plural(len(job['hosts']), 'host')}"
        text += f", {bitrate(job.get('throughput_bps'))}" + (", slow" if job.get("slow") else "")
        if job.get("slowest_qp"):
            text += f"; slowest {job['slowest_qp']} {bitrate(job.get('slowest_bps'))}"
        hurt = [f"{kinds[i]['kind']} {subject_of(kinds[i])}" for i in job.get("findings", ()) if i in kinds]
        lines.append(("", text + (f"; hurt by {listed(hurt, 3)}" if hurt else "")))
    if len(running) > 8:
        lines.append(("", f"and {number(len(running) - 8)} more"))
    return lines


def _commands(board: Mapping[str, Any]) -> Lines:
    known = board.get("commands", {})
    if not known.get("known"):
        return [("commands", "none")]
    lines = [("commands", f"{number(known['in_force'])} in force, of them {number(known['armed'])} armed failovers")]
    return lines + [("", commands_text.line_of(command)) for command in known["last"][:5]]


def _clocks(board: Mapping[str, Any]) -> Lines:
    clocks = board.get("clocks", {})
    if not clocks.get("known"):
        return [("clocks", "none known yet")]
    states = ", ".join(f"{number(n)} {status}" for status, n in sorted(clocks.get("by_status", {}).items()))
    text = f"{states}; worst error bound {duration(clocks.get('worst_err_ns'))}"
    if utc := clocks.get("utc"):
        text += f"; UTC {utc['status']} within {duration(utc['err_ns'])}"
    return [("clocks", text)]


def _mesh(board: Mapping[str, Any]) -> Lines:
    """Nothing where nobody plans: then every agent probes what its configuration says."""
    mesh = board.get("mesh", {})
    if not mesh.get("hosts") and not mesh.get("waiting"):
        return []
    text = f"{number(mesh['obeyed'])} of {plural(mesh['hosts'], 'host')} obey the plan"
    text += f", {number(mesh['clock_sessions'])} sessions for clocks, {number(mesh['coverage_sessions'])} for coverage"
    if mesh.get("worst_share") is not None:
        text += f"; the busiest host spends {mesh['worst_share']:.0%} of its budget"
    lines = [("mesh", text)]
    if mesh["waiting"]:
        lines.append(("", f"{plural(mesh['waiting'], 'host')} without a plan yet"))
    if mesh["short"] or mesh["left_out"]:
        lines.append(
            ("", f"budget too small on {plural(mesh['short'], 'host')}; agents left out {number(mesh['left_out'])}"
             " sessions; see sdfstream plan show")
        )  # fmt: skip
    return lines


def _paths(board: Mapping[str, Any]) -> Lines:
    paths = board.get("paths", {})
    if not paths.get("known"):
        return [("paths", "none measured yet")]
    text = f"{number(paths['measured'])} measured now, {number(paths['stale'])} stale, {number(paths['lossy'])} lossy"
    text += f", {number(paths['silent'])} silent; one-way p50 {duration(paths.get('owd_p50_ns'))}"
    return [("paths", f"{text}, excess p99 {duration(paths.get('excess_p99_ns'))}")]


def _pipeline(board: Mapping[str, Any]) -> Lines:
    state = board.get("pipeline", {})
    if is_of_archive(board):
        return [("rows", "rates, lag and what was refused are figures of a running pipeline; no archive has them")]
    rates = [f"{topic} {rate(figures.get('rows_per_s'))}" for topic, figures in state.get("rates", {}).items()]
    lag = ", ".join(f"{reader} {number(n)}" for reader, n in state.get("lag", {}).items()) or "not known"
    lost = [f"{name} {number(n)}" for name, n in state.get("lost", {}).items()]
    lines = [("rows", rates[0] if rates else "none yet"), *(("", text) for text in rates[1:])]
    degraded = bool(board.get("run", {}).get("troubles"))
    lines.append(("lag", f"{lag} (messages)" + ("; what is read is not all written, see degraded" if degraded else "")))
    nothing = "not all is written, see degraded" if degraded else "nothing refused, shed or dropped"
    lines.append(("refused", lost[0] if lost else nothing))
    lines += [("", text) for text in lost[1:8]]
    aside = [f"{name} {number(n)}" for name, n in state.get("aside", {}).items()]
    return [*lines, *(("set aside" if n == 0 else "", text) for n, text in enumerate(aside[:8]))]
