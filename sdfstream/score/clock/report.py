"""The score card of the clocks as people read it: a table on a terminal, and the page ``docs/scorecard.md``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sdfstream.score.clock.cases import BY_NAME, figure_of
from sdfstream.score.clock.quoted import CONDITIONS, QUOTES

Card = Mapping[str, Any]
OURS: Final = "sdfstream"
COMMAND: Final = "make bench-clock"
_SHARES: Final = ("covered", "smoothed_covered", "owd_covered", "least_covered", "least_shown", "phantom")
_MAIN: Final = ("rms", "p99", "max", "least_covered", "bound_per_rms")
"""Limits that have a column of their own on the page."""
_UNITS: Final = {"_s": " s", "_ms": " ms", "_ratio": " ×", "_per_rms": " ×"}


def value(name: str, figure: float | None) -> str:
    """A figure as people read it: shares in per cent, all else to three digits.

    >>> [value("rms", 24.06), value("rms", 1234.5), value("least_covered", 0.99985), value("told_s", None)]
    ['24.1', '1 234', '99.985 %', 'never']
    """
    if figure is None or not math.isfinite(figure):
        return "never" if name.endswith("_s") else "–"
    if name in _SHARES:
        return f"{100 * figure:.3f}".rstrip("0").rstrip(".") + " %"
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    text = f"{figure:,.0f}".replace(",", " ") if abs(figure) >= 999.5 else f"{figure:.3g}"
    return text + unit


def text(name: str, card: Card) -> str:
    """One case on a terminal: every figure, median and worst over seeds, beside its limit; other estimators below."""
    seeds = card["seeds"]
    rows: list[tuple[str, ...]] = [
        (f"{name}  ({BY_NAME[name].what}; {len(seeds)} seeds)", "median", "worst", "limit", "")
    ]
    for figure, worst in card["worst"].items():
        limit = next((k for k in card["limits"] if figure_of(k, card["worst"]) == figure), None)
        shown = (
            ""
            if limit is None
            else ("≥ " if limit.startswith("least_") else "≤ ") + value(figure, card["limits"][limit])
        )
        typical = card.get("covered") if limit == "least_covered" else card["median"].get(figure)
        verdict = "" if limit is None else "met" if card["met"][limit] else "MISSED"
        if verdict == "met" and not card["met_worst"][limit]:
            verdict = "met, not by the worst seed"
        rows.append((f"  {figure}", value(figure, typical), value(figure, worst), shown, verdict))
    for peer, found in card.get("peers", {}).items():
        cells = [_three(found[side]) for side in ("median", "worst")]
        rows.append((f"  {peer}: rms / p99 / max", *cells, "", ""))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        f"{r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}  {r[3]:>{widths[3]}}  {r[4]}".rstrip()
        for r in rows
    )


def page(result: Mapping[str, Card], images: Sequence[tuple[str, str]] = ()) -> str:
    """``docs/scorecard.md``, whole.

    Parameters
    ----------
    result : mapping
        Case to its card, as ``sdfstream score clock --peers --json`` prints it.
    images : sequence of (title, path relative to the page)
    """
    seeds = sorted({seed for card in result.values() for seed in card["seeds"]})
    sections = [
        "# Score card of the clocks",
        f"Written by `{COMMAND}` (`sdfstream score clock --peers --markdown FILE`); do not edit.",
        _INTRO.format(seeds=_span(seeds)),
        "## Against the limits",
        _main_table(result),
        "### What else has a limit",
        _other_table(result),
        "### Missed",
        _missed(result),
    ]
    if any("peers" in card for card in result.values()):
        sections += ["## Beside others, on the same draws", _PEERS]
        sections += [_peer_table(name, card) for name, card in result.items() if "peers" in card]
    sections += ["## Programs that were run elsewhere", CONDITIONS, _quoted(result)]
    sections += ["## Pictures"] * bool(images) + [f"![{title}]({path})" for title, path in images]
    sections += ["## The cases", _cases(result)]
    return "\n\n".join(sections) + "\n"


_INTRO: Final = """\
Errors are those of published rows against simulated truth, in ns, of all clocks but the reference, whatever
their status; {seeds}. Each cell: median over the seeds / worst seed (limit); **bold** where the median misses
its limit. Covered: share of rows inside `err_ns`, of all seeds together / in the worst seed. Bound: median
half-width in units of that seed's rms. The draws are the same on every machine, the figures up to rounding.
They are simulations, with symmetric delays unless said otherwise: no hardware truth stands behind them, and a
constant difference between the two directions of all of a clock's paths would not show in any of them. Limits
of the troubles that nobody published (slew, islands, reroutes, jitter, bursts, loss, ramp) are our own: an
honest bound, and back inside it within 15 s."""
_PEERS: Final = """\
`ntpstats` 3.8 (MIT) estimates from the same exchanges, each estimate judged at the instant it is about, over
the same stretch as ours. Its Kalman filters fit their noise to the whole recording, which ours may not, and
do better on a longer one (law B, 64/s, 1,000 s, seeds 1-3: kalman-dw rms 157-178, p99 380-444; rts-dw
102-125, 267-308). The max margin per window is our own plain model of the published method, not anybody's
program: on meshes each edge's line is reconciled by plain least squares; joined means straight lines between
windows' middles, known 1 to 3 s late. It gets the true time of each exchange, which a real one lacks. ns, rms
/ p99 / max."""


def _main_table(result: Mapping[str, Card]) -> str:
    rows = []
    for name, card in result.items():
        cells = [_cell(card, limit) for limit in ("rms", "p99", "max")]
        covered = f"{value('covered', card['covered'])} / {value('covered', card['worst'].get('covered'))}"
        if "least_covered" in card["limits"]:
            covered = _marked(card, "least_covered", f"{covered} ({value('covered', card['limits']['least_covered'])})")
        rows.append([f"`{name}`", *cells, covered, _cell(card, "bound_per_rms")])
    return _table(["case", "rms", "p99", "max", "covered", "bound / rms"], rows)


def _other_table(result: Mapping[str, Card]) -> str:
    rows = [
        [f"`{name}`", f"`{limit.removeprefix('least_')}`: {MEANING.get(limit, limit)}", _cell(card, limit)]
        for name, card in result.items()
        for limit in card["limits"]
        if limit not in _MAIN
    ]
    return _table(["case", "figure", "median / worst (limit)"], rows)


MEANING: Final = {
    "p50": "median error",
    "smoothed_p99": "99th percentile of smoothed rows",
    "age_ms": "oldest causal row when published",
    "gap_ms": "longest time between two causal rows of a clock",
    "microsecond_s": "last error above 1 µs",
    "steady_ratio": "rms of 15-30 s against afterwards",
    "least_shown": "share of the queueing that one-way delays show",
    "phantom": "what they show and was not there, in shares of it",
    "clean_ratio": "good clocks' p99 against the same seed without lies",
    "flagged_s": "last liar flagged `faulty`",
    "wrongly": "good clocks flagged, with or without liars",
    "told_s": "step told by the status",
    "inside_s": "last row outside its bound, or with a bound above 1 µs",
    "others_ratio": "other clocks' p99 against the same seed without the trouble",
}


WHOSE: Final = {"all": "all clocks", "good": "clocks in no trouble", "troubled": "the clock in trouble"}


def _cell(card: Card, limit: str) -> str:
    figure = limit if limit in card["worst"] or limit in card["median"] else limit.removeprefix("least_")
    shown = f"{value(figure, card['median'].get(figure))} / {value(figure, card['worst'].get(figure))}"
    if limit not in card["limits"]:
        return shown
    return _marked(card, limit, f"{shown} ({value(figure, card['limits'][limit])})")


def _marked(card: Card, limit: str, shown: str) -> str:
    return shown if card["met"][limit] else f"**{shown}**"


def _missed(result: Mapping[str, Card]) -> str:
    always, once = [], []
    for name, card in result.items():
        for limit, met in card["met"].items():
            figure = limit.removeprefix("least_") if limit == "least_covered" else limit
            bound = value(figure, card["limits"][limit])
            worst = value(figure, card["worst"].get(figure))
            if not met:
                typical = card.get("covered") if figure == "covered" else card["median"].get(figure)
                always.append(f"- `{name}`: {figure} {value(figure, typical)}, worst {worst}; limit {bound}")
            elif not card["met_worst"][limit]:
                once.append(f"- `{name}`: {figure} {worst}; limit {bound}")
    met = sum(ok for card in result.values() for ok in card["met"].values())
    sections = [f"{met} limits are met, {len(always)} are missed" + (":" if always else "."), "\n".join(always)]
    if once:
        sections += ["Met in the median, but not by the worst seed:", "\n".join(once)]
    return "\n\n".join(section for section in sections if section)


def _peer_table(name: str, card: Card) -> str:
    ours = {side: {k: card[side].get(k) for k in ("rms", "p99", "max")} for side in ("median", "worst")}
    rows = [[f"**{OURS}, causal**", _three(ours["median"]), _three(ours["worst"])]]
    if "smoothed_rms" in card["median"]:
        cells = [
            " / ".join(value(k, card[s].get(f"smoothed_{k}")) for k in ("rms", "p99")) for s in ("median", "worst")
        ]
        rows.append([f"{OURS}, smoothed (2-4 s late)", *(f"{cell} / –" for cell in cells)])
    best = sorted(card["peers"].items(), key=lambda peer: peer[1]["median"].get("rms", float("inf")))
    rows += [[peer, _three(found["median"]), _three(found["worst"])] for peer, found in best]
    return f"**{BY_NAME[name].what}**\n\n" + _table(["estimator", "median", "worst seed"], rows)


def _quoted(result: Mapping[str, Card]) -> str:
    rows = []
    for q in QUOTES:
        card = result.get(q.case)
        ours = "" if card is None else _three(card["median"])
        rows.append([f"`{q.case}`", f"{q.program}: {q.options}", f"{q.rms} / {q.p99} / {q.max}", ours])
    return _table(["law", "program and options", "rms / p99 / max", "sdfstream, median"], rows)


def _cases(result: Mapping[str, Card]) -> str:
    rows = []
    for name, card in result.items():
        low, high = BY_NAME[name].stretch_s
        until = f"{high:g}" if high < BY_NAME[name].seconds else f"{BY_NAME[name].seconds:g}"
        rows.append(
            [f"`{name}`", BY_NAME[name].what, f"{low:g}-{until} s", WHOSE[BY_NAME[name].whose], _span(card["seeds"])]
        )
    return _table(["case", "what", "judged", "errors of", "seeds"], rows)


def _span(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]}-{seeds[-1]}"


def _three(found: Mapping[str, float | None]) -> str:
    return " / ".join(value(k, found.get(k)) for k in ("rms", "p99", "max"))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
