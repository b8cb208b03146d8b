"""Options that several verbs share, so that they are called and explained the same everywhere."""

from __future__ import annotations

import argparse
from typing import Final

DATA_FOLDER: Final = "sdfstream-data"


def add_data_folder(parser: argparse.ArgumentParser) -> None:
    """``--data DIR``: where a pipeline keeps what it makes, and where its socket stands."""
    parser.add_argument("--data", default=DATA_FOLDER, metavar="DIR", help=f"data folder (default {DATA_FOLDER})")
