"""``sdfstream plan``: who probes whom by the mesh plan, and what a cluster of yours would probe and pay."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream import visible
from sdfstream.board.humanize import bitrate, number, plural
from sdfstream.cli import edge_io
from sdfstream.cli.options import add_server, server_url
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

if TYPE_CHECKING:
    from sdfstream.plan.draw import Plan
    from sdfstream.settings import Settings

HELP = "the mesh plan: show who probes whom now; draw what a cluster of yours would probe, and what that costs"
EXAMPLE = "sdfstream plan draw --hosts 64 --rails 8 --hosts-per-leaf 16 --spines 8"
SIZE_BYTES: Final = 128
"""IP packet of a planned probe, and of its answer."""
FRAME_BYTES: Final = 38
"""What Ethernet adds: preamble, header, checksum, gap."""
_LAST: Final = """
SELECT host, argMax(data, (bus_at, bus_seq)) AS data FROM state_mesh GROUP BY host ORDER BY host
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``show`` or ``draw``, with their options."""
    parser.add_argument("what", choices=("show", "draw"))
    show = parser.add_argument_group("show")
    show.add_argument("--data", default="./sdfstream-data", metavar="DIR", help="data folder (default: %(default)s)")
    add_server(show)
    show.add_argument("--host", help="list the sessions of this host")
    draw = parser.add_argument_group("draw")
    draw.add_argument("--inventory", type=Path, metavar="FILE", help="YAML or JSON: see docs/mesh.md")
    for name, doc in (("hosts", "hosts"), ("rails", "NICs a host"), ("hosts-per-leaf", "hosts on each leaf"),
                      ("spines", "spines of each rail")):  # fmt: skip
        draw.add_argument(f"--{name}", type=int, metavar="N", help=f"instead of a file: {doc}")
    draw.add_argument("--budget", type=float, metavar="PPS", help="packets/s that each host may send")
    draw.add_argument("--seed", type=int, help="another random graph (default: settings)")
    draw.add_argument("--epoch", type=int, default=0, help="which redraw (default 0)")
    draw.add_argument("--config", type=Path, help="settings file (YAML), for the keys below plan:")
    draw.add_argument("--sessions", action="store_true", help="with --json: list every session")


def run(args: argparse.Namespace) -> int:
    """Show what is in force, or draw without changing anything."""
    return _show(args) if args.what == "show" else _draw(args)


def _show(args: argparse.Namespace) -> int:
    from sdfstream import strict_json
    from sdfstream.archive.query_io import Console
    from sdfstream.records.mesh import HostPlan, host_plan

    console = Console.open(args.data, server_url(args))
    try:
        plans = [host_plan(strict_json.loads(str(row["data"]))) for row in console.answer(_LAST).rows]
    finally:
        console.close()
    by_host: dict[str, HostPlan] = {p.host: p for p in plans if p.sessions or p.probers}
    if args.host is not None:
        if args.host not in by_host:
            raise ConfigError(f"no plan for {args.host!r} is known" if plans else "no mesh plan was ever made here")
        plan = by_host[args.host]
        lines = [f"{s.purpose:<9} {s.src} > {s.dst} {s.address}:{s.port} from {s.path} dscp{s.dscp} {s.rate_hz:g}/s"
                 for s in plan.sessions]  # fmt: skip
        emit(args.json, plan.as_data(), visible.lines([_host_line(plan.as_data()), *lines]))
        return 0
    hosts = [{k: v for k, v in p.as_data().items() if k not in ("sessions", "probers")}
             | {"sessions": len(p.sessions), "clock_sessions": sum(s.purpose == "clock" for s in p.sessions)}
             for p in by_host.values()]  # fmt: skip
    result = {"hosts": hosts, "sessions": sum(h["sessions"] for h in hosts)}
    text = (
        visible.lines(_host_line(h) for h in hosts) if hosts else "no mesh plan was ever made here (plan.mesh is off?)"
    )
    emit(args.json, result, text)
    return 0


def _host_line(host: Mapping[str, Any]) -> str:
    spent = host["send_pps"] + host["answer_pps"]
    many = host["sessions"] if isinstance(host["sessions"], int) else len(host["sessions"])
    text = f"{host['host']}: {plural(many, 'session')}, sends {host['send_pps']:g} probes/s and {host['answer_pps']:g}"
    text += f" answers/s, {spent / host['budget_pps']:.0%} of its budget" if host["budget_pps"] else " answers/s"
    short = host["shortfall"]
    if "clock_rate_hz" in short:
        text += f"; clock sessions slower than {short['clock_rate_hz']:g}/s"
    if "coverage_sessions" in short:
        text += f"; {number(int(short['coverage_sessions']))} sessions for coverage left out"
    return text


def _draw(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from sdfstream import settings
    from sdfstream.plan import inventory_file
    from sdfstream.plan.draw import draw

    chosen: Settings = settings.load(args.config)
    config = chosen.plan if args.seed is None else replace(chosen.plan, seed=args.seed)
    if args.epoch < 0:
        raise ConfigError("--epoch must not be negative")
    inventory = inventory_file.read(_raw(args))
    started_s = edge_io.steady_s()
    plan = draw(inventory, config, args.epoch)
    took_s = edge_io.steady_s() - started_s
    result = {
        "figures": dict(plan.figures),
        "cost": cost(plan),
        "seed": config.seed,
        "epoch": args.epoch,
        "seconds": round(took_s, 3),
    }
    if args.sessions:
        result["sessions"] = _sessions(plan)
    emit(args.json, result, _text(result))
    return 0


def _raw(args: argparse.Namespace) -> Any:
    """The inventory as the options or the file say it."""
    from sdfstream import yamlfile

    sizes = {n: getattr(args, n) for n in ("hosts", "rails", "hosts_per_leaf", "spines")}
    given = {n: v for n, v in sizes.items() if v is not None}
    if bool(given) == bool(args.inventory):
        raise ConfigError("give either --inventory FILE, or --hosts N (with --rails, --hosts-per-leaf, --spines)")
    if given:
        raw: Any = {"fabric": {"hosts": 2, "rails": 1, "hosts_per_leaf": 32, "spines": 8} | given}
    else:
        raw = yamlfile.read(args.inventory, yamlfile.INVENTORY)
    return raw | {"budget_pps": args.budget} if args.budget is not None and isinstance(raw, dict) else raw


def cost(plan: Plan) -> dict[str, Any]:
    """What a plan sends: packets and bits per second, per host and per NIC, probes and answers together."""
    import numpy as np

    per_nic = np.zeros(len(plan.columns.nics))
    for ends in (plan.src, plan.dst):
        per_nic += np.bincount(ends, plan.rate_hz, len(per_nic))

    def spread(pps: Any) -> dict[str, float]:
        found = {"mean": float(pps.mean()), "max": float(pps.max())} if len(pps) else {"mean": 0.0, "max": 0.0}
        bits = 8 * (SIZE_BYTES + FRAME_BYTES)
        return {f"{k}_pps": round(v, 3) for k, v in found.items()} | {
            f"{k}_bps": round(v * bits) for k, v in found.items()
        }

    return {
        "host": spread(plan.load_pps),
        "nic": spread(per_nic),
        "worst_share": round(float((plan.load_pps / plan.budget_pps).max(initial=0.0)), 4),
        "packet_bytes": SIZE_BYTES,
    }


def _sessions(plan: Plan) -> list[dict[str, Any]]:
    from sdfstream.plan.draw import PURPOSES

    nics = plan.columns.nics
    columns = (plan.src, plan.dst, plan.path, plan.dscp, plan.rate_hz, plan.purpose)
    return [
        {"src": nics[s].id, "dst": nics[d].id, "path": p, "dscp": c, "rate_hz": r, "purpose": PURPOSES[u]}
        for s, d, p, c, r, u in zip(*(x.tolist() for x in columns), strict=True)
    ]


def _text(result: Mapping[str, Any]) -> str:
    f, c = result["figures"], result["cost"]
    host, nic = c["host"], c["nic"]
    lines = [
        f"{plural(f['hosts'], 'host')}, {plural(f['nics'], 'NIC')}, {plural(f['clocks'], 'clock')},"
        f" {number(f['leaves'])} leaves; drawn in {result['seconds']:.2f} s"
        f" (seed {result['seed']}, epoch {result['epoch']})",
        f"clocks     {number(f['clock_sessions'])} sessions; {f['degree_min']} to {f['degree_max']} peers a clock",
        f"coverage   {number(f['coverage_sessions'])} sessions over {number(f['pairs'])} pairs of leaves"
        " (while no trace is known; traces make them fewer)",
        f"per host   {host['mean_pps']:.0f} packets/s ({bitrate(host['mean_bps'])}), at most {host['max_pps']:.0f}"
        f" ({bitrate(host['max_bps'])}), {c['worst_share']:.0%} of the budget; probes and answers, on the wire",
        f"per NIC    {nic['mean_pps']:.0f} packets/s ({bitrate(nic['mean_bps'])}), at most {nic['max_pps']:.0f}"
        f" ({bitrate(nic['max_bps'])})",
    ]
    short = {
        "islands": f["islands"] > 1
        and f"{number(f['islands'])} parts that no NIC joins: their clocks share no timeline",
        "joints": f["joints"] and f"{plural(f['joints'], 'place')} where a single clock joins two parts",
        "degree": f["clocks_below_degree"] and f"{plural(f['clocks_below_degree'], 'clock')} with too few peers",
        "slowed": f["hosts_slowed"] and f"{plural(f['hosts_slowed'], 'host')} whose budget slows its clock sessions",
        "waiting": f["pairs_waiting"] and f"{number(f['pairs_waiting'])} pairs of leaves wait for their turn",
        "unpaid": f["sessions_unpaid"] and f"{number(f['sessions_unpaid'])} sessions left out for want of budget",
        "unused": f["nics_unused"] and f"{plural(f['nics_unused'], 'NIC')} in no session",
    }
    warnings = [text for text in short.values() if text]
    return visible.lines([*lines, *(f"{'short' if i == 0 else '':<10} {text}" for i, text in enumerate(warnings))])
