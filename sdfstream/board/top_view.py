"""The live terminal view, drawn from a board (plain JSON) for a given width; holds no state and does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sdfstream import visible
from sdfstream.board import notes_text
from sdfstream.board.commands_text import line_of
from sdfstream.board.humanize import (
    SEVERITY_STYLES,
    SHAPES,
    STYLES,
    bitrate,
    duration,
    evidence_of,
    number,
    rate,
    share,
    subject_of,
)
from sdfstream.board.lateness import as_of
from sdfstream.board.source_text import utc
from sdfstream.board.status_text import is_of_archive

_WIDE: Final = 150
"""From this many columns on, clocks and pipeline stand beside paths and findings."""
_BLOCK: Final = 40
"""About the columns that a host takes in the NIC grid."""
_FRESH_NS: Final = 5_000_000_000
Board = Mapping[str, Any]


def render(board: Board, width: int, rows: int = 10) -> RenderableType:
    """The whole view.

    Parameters
    ----------
    board : mapping
        What `Board.view` gave; absent figures may be missing.
    width : int
        Columns of the terminal.
    rows : int
        Lines of each list.
    """
    board = visible.data(board)
    left: list[RenderableType] = [_section("Open findings", open_findings(board, rows, width))]
    if board.get("jobs", {}).get("known"):
        left.append(_section("Jobs", jobs(board, rows, width)))
    left.append(_section("Worst paths now", worst_paths(board, rows, width)))
    right: list[RenderableType] = [_section("Clocks", clocks(board, rows)), _section("Pipeline", pipeline(board, rows))]
    top: list[RenderableType] = [headline(board), _section("NICs", nic_grid(board, width))]
    if width < _WIDE:
        return Group(*top, *left, *right)
    beside = Table.grid(padding=(0, 3), expand=True)
    beside.add_column(ratio=3)
    beside.add_column(ratio=2)
    beside.add_row(Group(*left), Group(*right))
    return Group(*top, beside)


def rows_for(height: int, width: int, hosts: int, most: int, *, jobs: bool = False) -> int:
    """Lines each list may have so that the whole view fits `height` lines, at most `most` and at least 3.

    Below about 40 lines the lower lists do not fit on a narrow terminal; findings stand first for that reason.
    """
    lists = (2 if width >= _WIDE else 4) + jobs
    grid = 4 + (hosts if width < 2 * _BLOCK else -(-hosts // 2))
    return max(3, min(most, (height - 2 - grid) // lists - 4))


def headline(board: Board) -> Text:
    """NICs by state, open findings, freshness: call someone, or sleep."""
    nics, run = board.get("nics", {}), board.get("run", {})
    line = Text("sdfstream ", style="bold")
    if is_of_archive(board):
        line.append(f"archive, as of {utc(board['at_ns'])}  ", style="bold yellow")
    if "started_at_ns" in run:
        line.append(f"up {duration(board['at_ns'] - run['started_at_ns'])}  ")
    for state in ("healthy", "unhealthy", "unknown", "absent"):
        count = nics.get(state, 0)
        if count or state in ("healthy", "unhealthy"):
            line.append(f"{SHAPES[state]} {number(count)} {state}  ", style=STYLES[state] if count else "dim")
    findings = len(board.get("findings", {}).get("open", ()))
    silenced = board.get("findings", {}).get("silenced", 0)
    style = "bold red" if findings > silenced else "yellow" if findings else "dim"
    line.append(f"{findings} open finding{'s' * (findings != 1)}{f' ({silenced} silenced)' * bool(silenced)}  ", style)
    age_ns = board.get("pipeline", {}).get("age_ns")
    if age_ns is None:
        line.append("no data yet", style="yellow")
    else:
        line.append(f"data {duration(age_ns)} old", style="dim" if age_ns < _FRESH_NS else "bold yellow")
    if known := as_of(board.get("known_at_ns"), board["at_ns"]):
        line.append(f"  all this {known}", style="bold yellow")
    return line


def nic_grid(board: Board, width: int) -> RenderableType:
    """Hosts × NICs, two shapes per NIC: sending, receiving."""
    grid = board.get("grid", {})
    columns, hosts = list(grid.get("columns", ())), list(grid.get("hosts", ()))
    if not hosts:
        return Text("no NIC known yet: no agent has reported", style="yellow")
    name_width = max(len(h["host"]) for h in hosts)
    cell = max(2, *(len(c) for c in columns)) + 1
    lines: list[RenderableType] = []
    if name_width + 1 + cell * len(columns) <= width:
        block = name_width + 1 + cell * len(columns)
        lines.append(_grid_blocks(hosts, columns, name_width, cell, max(1, (width + 3) // (block + 3))))
    else:
        lines.extend(_host_line(host, name_width) for host in hosts)
    more = grid.get("more", {})
    if more.get("hosts"):
        line = Text(f"and {number(more['hosts'])} hosts more: ", style="dim")
        for state, shape in SHAPES.items():
            if more.get(state):
                line.append(f"{shape} {number(more[state])} {state}  ", style=STYLES[state])
        lines.append(line)
    legend = "  ".join(f"{shape} {state}" for state, shape in SHAPES.items())
    lines.append(Text(f"first shape sending, second receiving; {legend}", style="dim"))
    return Group(*lines)


def _grid_blocks(
    hosts: Sequence[Mapping[str, Any]], columns: Sequence[str], name_width: int, cell: int, most: int
) -> Text:
    """Hosts down the page, in as many blocks side by side as fit and are of use."""
    blocks = min(most, -(-len(hosts) // 4))
    height = -(-len(hosts) // blocks)
    out = Text()
    heads = " " * (name_width + 1) + "".join(f"{c:<{cell}}" for c in columns)
    out.append("   ".join([heads] * -(-len(hosts) // height)).rstrip() + "\n", style="dim")
    for line in range(height):
        for host in hosts[line::height]:
            out.append(f"{host['host']:<{name_width}} ")
            for column in columns:
                _cell(out, host["cells"].get(column), cell)
            out.append("   ")
        out.rstrip()
        out.append("\n" if line < height - 1 else "")
    return out


def _cell(out: Text, states: Sequence[str] | None, cell: int) -> None:
    for state in states or ():
        out.append(SHAPES.get(state, "?"), style=STYLES.get(state, "yellow"))
    out.append(" " * (cell - len(states or ())))


def _host_line(host: Mapping[str, Any], name_width: int) -> Text:
    """A host with more NICs than the page is wide: how many of each state, the worse direction counting."""
    worst = [min(states, key=_ORDER.index) for states in host["cells"].values()]
    line = Text(f"{host['host']:<{name_width}} ")
    for state in _ORDER:
        if worst.count(state):
            line.append(f"{SHAPES[state]}{worst.count(state)} ", style=STYLES[state])
    return line


_ORDER: Final = ("unhealthy", "unknown", "absent", "healthy")


_ARROWS: Final = {"fwd": "→", "rev": "←"}
"""A path is named by its session, sender first; the arrow is the direction of the packets."""


def worst_paths(board: Board, rows: int, width: int) -> RenderableType:
    """Delay, excess over the floor, loss, CE and error bar of the worst paths."""
    paths = board.get("paths", {})
    if not paths.get("measured") and not paths.get("worst"):
        known = paths.get("known", 0)
        return Text(f"no delay measured now ({number(known)} paths known)", style="yellow")
    table = _table("path", "p50", "excess", "loss", "CE", "± err")
    for path in paths.get("worst", ())[:rows]:
        name = f"{path['src']} {_ARROWS.get(path['dir'], '?')} {path['dst']}" + (
            f"  {path['transport']}:{path['path']}" if width >= 90 else ""
        )
        name += f" dscp{path['dscp']}" if width >= 110 else ""
        lossy = path.get("loss", 0.0) >= 0.01
        table.add_row(
            name,
            duration(path.get("owd_p50_ns")),
            duration(path.get("excess_p50_ns")),
            Text(share(path.get("loss")), style="bold red" if lossy else ""),
            share(path.get("ce")),
            duration(path.get("err_ns")),
        )
    summary = Text(
        f"{number(paths['measured'])} measured, {number(paths['lossy'])} losing 1 % or more, "
        f"{number(paths['marked'])} with 1 % CE or more, {number(paths['stale'])} stale, "
        f"{number(paths.get('silent', 0))} silent; p50 {duration(paths.get('owd_p50_ns'))}, "
        f"excess p99 {duration(paths.get('excess_p99_ns'))}",
        style="dim",
    )
    return Group(table, summary)


def open_findings(board: Board, rows: int, width: int) -> RenderableType:
    """What is wrong, the newest first."""
    findings = board.get("findings", {}).get("open", [])
    resolved = board.get("findings", {}).get("resolved", 0)
    if not findings:
        nothing = "none" if board.get("pipeline", {}).get("hosts") else "none, but nothing is being watched"
        return Text(f"{nothing} ({number(resolved)} resolved)", style="dim")
    known_ns = board.get("known_at_ns", board["at_ns"])
    table = _table(*(("severity", "kind", "subject", "for", "cause", "evidence")[: 6 if width >= 80 else 4]), right=())
    notes: list[RenderableType] = []
    for finding in sorted(findings, key=lambda f: bool(f.get("silence")))[:rows]:
        silenced = bool(finding.get("silence"))
        severity = str(finding.get("severity"))
        if said := notes_text.of_finding(finding, board["at_ns"]):
            notes.append(Text(f"{subject_of(finding)}: {said}", style="dim", no_wrap=True, overflow="ellipsis"))
        cells = (
            Text(severity, style="dim" if silenced else SEVERITY_STYLES.get(severity, "")),
            Text(f"{finding.get('kind')}{', silenced' * silenced}", style="dim" if silenced else ""),
            subject_of(finding),
            duration(known_ns - finding["since_at_ns"]) if "since_at_ns" in finding else "–",
            str(finding.get("cause", "unknown")),
            evidence_of(finding),
        )
        table.add_row(*cells[: len(table.columns)])
    left = len(findings) - rows
    rest = Text(f"and {left} more" if left > 0 else f"{number(resolved)} resolved", style="dim")
    return Group(table, *notes, rest)


def jobs(board: Board, rows: int, width: int) -> RenderableType:
    """What jobs get, running ones first, and below them what was done last."""
    known = board["jobs"]
    heads = ("job", "state", "throughput", "usual", "slowest queue pair", "findings")
    table = _table(*heads[: 6 if width >= 100 else 3 if width < 60 else 4], right=("throughput", "usual"))
    for job in known["list"][:rows]:
        slowest = f"{job['slowest_qp']} {bitrate(job.get('slowest_bps'))}" if job.get("slowest_qp") else "–"
        hurt = len(job.get("findings", ()))
        cells = (
            str(job["job"]),
            Text(job["state"], style="dim" if job["state"] == "ended" else ""),
            Text(bitrate(job.get("throughput_bps")), style="bold red" if job.get("slow") else ""),
            bitrate(job.get("usual_bps")),
            slowest,
            Text(number(hurt), style="bold red" if hurt else "dim"),
        )
        table.add_row(*cells[: len(table.columns)])
    commands = board.get("commands", {})
    lines = [Text(line_of(c), style="dim", no_wrap=True, overflow="ellipsis") for c in commands.get("last", ())[:3]]
    summary = f"commands: {number(commands.get('in_force', 0))} in force, {number(commands.get('armed', 0))} armed"
    return Group(table, Text(summary, style="dim"), *lines)


def clocks(board: Board, rows: int) -> RenderableType:
    """Worst clocks first: not synced, then by error bound."""
    known = board.get("clocks", {})
    if not known.get("known"):
        return Text("no clock known yet", style="yellow")
    table = _table("clock", "status", "offset", "skew", "± err", right=("offset", "skew", "± err"))
    for clock in known.get("worst", ())[:rows]:
        skew = clock.get("skew_ppb")
        table.add_row(
            str(clock["clock"]),
            Text(clock["status"], style="green" if clock["status"] == "synced" else "yellow"),
            duration(clock.get("offset_ns")),
            "–" if skew is None else f"{skew:.0f} ppb",
            duration(clock.get("err_ns")),
        )
    by_status = ", ".join(f"{number(n)} {status}" for status, n in sorted(known.get("by_status", {}).items()))
    return Group(table, Text(f"{by_status}; worst bound {duration(known.get('worst_err_ns'))}", style="dim"))


def pipeline(board: Board, rows: int) -> RenderableType:
    """Rates and ages per topic, lag per reader, and everything refused, shed or dropped."""
    state = board.get("pipeline", {})
    if is_of_archive(board):
        return Text("rates, lag and what was refused are figures of a running pipeline", style="dim")
    if not state.get("rates"):
        return Text("no message yet", style="yellow")
    table = _table("topic", "messages", "rows", "age")
    for topic, figures in state["rates"].items():
        age_ns = figures.get("age_ns")
        table.add_row(topic, rate(figures.get("messages_per_s")), rate(figures.get("rows_per_s")), duration(age_ns))
    lag = ", ".join(f"{reader} {number(n)}" for reader, n in state.get("lag", {}).items()) or "not known"
    lines = [Text(f"lag in messages: {lag}", style="dim")]
    if state.get("hosts_stale"):
        lines.append(Text(f"{state['hosts_stale']} of {state['hosts']} hosts are silent", style="yellow"))
    lost = list(state.get("lost", {}).items())
    lines.extend(Text(f"{name} {number(n)}", style="yellow") for name, n in lost[: max(3, rows // 2)])
    if not lost:
        lines.append(Text("nothing refused, shed or dropped", style="dim"))
    return Group(table, *lines)


def _table(*heads: str, right: Sequence[str] | None = None) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column, head in enumerate(heads):
        is_right = head in right if right is not None else column > 0
        table.add_column(head, justify="right" if is_right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _section(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold"), Padding(body, (0, 0, 0, 1)))
