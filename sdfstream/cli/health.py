"""``sdfstream health``: is the process at this address well? For people, and for a container's health check."""

from __future__ import annotations

import argparse
import urllib.error
import urllib.request

from sdfstream import visible
from sdfstream.errors import ConfigError
from sdfstream.runtime.health import PORT

HELP = "ask a running process whether it is well; exit 1 when it is not, with a sentence why"
EXAMPLE = "sdfstream health http://127.0.0.1:9464"


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
    from sdfstream.runtime.output_io import emit

    well, answer = ask(args.url, args.timeout)
    emit(args.json, {"well": well, "said": answer, "url": args.url}, visible.line(answer))
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
            answer = refusal.read(65536).decode("utf-8", "replace").strip()
        return False, answer or f"{where} answers {refusal.code}"
    except (OSError, ValueError) as error:
        return False, f"{where} does not answer: {error}"
