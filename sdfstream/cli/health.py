"""``sdfstream health``: is the process at this address well? For people, and for a container's health check.

`problems` is the judgement itself, on plain values; `metrics_io` serves it, `ask` asks for it.
"""

from __future__ import annotations

import argparse
import urllib.error
import urllib.request
from collections.abc import Collection
from typing import Final

from sdfstream.errors import ConfigError
from sdfstream.stats import Vital, Vitals

HELP = "ask a running process whether it is well; exit 1 when it is not, with a sentence why"
EXAMPLE = "sdfstream health http://127.0.0.1:9464"

STALL_S: Final = 30.0
"""No progress for so long is a stop. Shorter, and a broker that restarts (4–12 s) looks like one."""
PORT: Final = 9464
"""Where processes serve their metrics by convention (the number that Prometheus exporters of OpenTelemetry use)."""


def problems(vitals: Vitals, expected: Collection[str], now_s: float, *, stall_s: float = STALL_S) -> list[str]:
    """Why a process is not well, in sentences; none when it is.

    Parameters
    ----------
    vitals : Vitals
    expected : collection of str
        Tasks that must be there; one that has not begun is a problem, since nothing is known of it.
    now_s : float
        Same clock as in `vitals`.
    stall_s : float
        A task without progress, or a bus without an answer, for longer than this has stopped.
    """
    found = [f"{name} has not begun yet" for name in sorted(set(expected) - vitals.tasks.keys())]
    for name, vital in sorted(vitals.tasks.copy().items()):
        if now_s - vital.progress_s > stall_s:
            found.append(_stopped(name, vital, now_s - vital.progress_s))
    if vitals.bus_s is not None and now_s - vitals.bus_s > stall_s:
        found.append(f"the bus has not answered for {now_s - vitals.bus_s:.0f} s")
    return found


def _stopped(name: str, vital: Vital, for_s: float) -> str:
    if vital.lag:
        return f"{name} has not moved for {for_s:.0f} s and is {vital.lag} messages behind"
    return f"{name} has not come round for {for_s:.0f} s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """[URL], --timeout."""
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        default=f"http://127.0.0.1:{PORT}",
        help="where it serves its metrics (default: %(default)s)",
    )
    parser.add_argument("--timeout", type=float, default=5.0, metavar="S", help="longest wait (default: %(default)s s)")


def run(args: argparse.Namespace) -> int:
    """Ask once; exit 1 when it is not well or does not answer."""
    from sdfstream.cli.output import emit

    well, said = ask(args.url, args.timeout)
    emit(args.json, {"well": well, "said": said, "url": args.url}, said)
    return 0 if well else 1


def ask(url: str, timeout_s: float) -> tuple[bool, str]:
    """Whether the process that serves at `url` is well, and what it says; one that does not answer is not.

    Raises
    ------
    ConfigError
        `url` is no http:// address.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"'{url}' is not the http:// address of a process's metrics")
    where = url.rstrip("/")
    where = where if where.endswith("/health") else f"{where}/health"
    try:
        with urllib.request.urlopen(where, timeout=timeout_s) as answer:
            return True, answer.read(65536).decode("utf-8", "replace").strip()
    except urllib.error.HTTPError as refusal:
        with refusal:
            said = refusal.read(65536).decode("utf-8", "replace").strip()
        return False, said or f"{where} answers {refusal.code}"
    except (OSError, ValueError) as error:
        return False, f"{where} does not answer: {error}"
