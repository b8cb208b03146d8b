"""Options of several verbs, with one name and one explanation."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.cli import edge_io

if TYPE_CHECKING:
    from sdfstream.settings import Settings

DATA_FOLDER: Final = "sdfstream-data"


def add_data_folder(parser: argparse._ActionsContainer) -> None:
    """``--data DIR``: the folder of a pipeline's archive, keys and socket."""
    parser.add_argument("--data", default=DATA_FOLDER, metavar="DIR", help=f"data folder (default {DATA_FOLDER})")


def add_server(parser: argparse._ActionsContainer, when: str = "a ClickHouse server instead") -> None:
    """``--url URL`` and ``--password-file FILE``: a ClickHouse server in place of the data folder's archive."""
    parser.add_argument(
        "--url",
        help=f"{when}: http://user@host:8123/database; its password in SDFSTREAM_SQL_PASSWORD or --password-file",
    )
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="the password of --url's user, on one line")


def server_url(args: argparse.Namespace) -> str | None:
    """The server of ``--url`` with its password; None when the verb asks the data folder."""
    from sdfstream.archive.server_password_io import VARIABLE, has_password, with_password
    from sdfstream.runtime.output_io import progress

    if args.url is None:
        return None
    if has_password(args.url):
        progress(
            "the password in --url stands in the process list, where every user of this host can read it; "
            f"give it in {VARIABLE} or by --password-file FILE"
        )
    return with_password(args.url, args.password_file)


def add_past(parser: argparse._ActionsContainer) -> None:
    """``--at TIME``, and the options of `add_server`: the archive instead of the running pipeline."""
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="as of an instant of the past, from the archive: 10m (ago), or 2027-01-15T08:00:00Z "
        "(default: now; where nothing runs, the archive's last moment)",
    )
    add_server(parser, "the archive of a ClickHouse server")


def ask(args: argparse.Namespace, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `request` of the pipeline or the archive that the options of `add_past` name, with ``source``.

    Raises
    ------
    UnavailableError
        Neither answers.
    """
    from sdfstream.serve import asking_io

    return asking_io.ask(args.data, request, at=args.at, url=server_url(args))


def heading(answer: Mapping[str, Any]) -> str:
    """The line, with its end, that text out of an archive begins with; nothing of a running pipeline's."""
    from sdfstream.board.source_text import line_of

    line = line_of(answer["source"], edge_io.now_ns())
    return f"{line}\n" if line else ""


def add_reference(parser: argparse.ArgumentParser) -> None:
    """``--reference CLOCK``: the clock that offsets are relative to."""
    parser.add_argument(
        "--reference",
        metavar="CLOCK",
        help="what clock offsets are relative to: a clock id, several with commas (the first that lives), or mean "
        "(default: settings; smallest clock id of the largest component)",
    )


def add_api(parser: argparse.ArgumentParser) -> None:
    """``--api HOST:PORT``: where the process serves the read API."""
    parser.add_argument(
        "--api", metavar="HOST:PORT", help="serve the read API there, or off (default: settings, 127.0.0.1:9465)"
    )


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """``--metrics HOST:PORT``: where the process serves its metrics and health."""
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve /metrics (Prometheus) and /health there, as in 127.0.0.1:9464 (default: nowhere)",
    )


def with_reference(chosen: Settings, args: argparse.Namespace) -> Settings:
    """The settings with the reference of ``--reference``; raises ConfigError when it cannot be one."""
    if args.reference is None:
        return chosen
    return chosen.model_copy(update={"sync": replace(chosen.sync, reference=args.reference)})
