"""The folder of an agent's spill on its machine."""

from __future__ import annotations

import logging
import os
import urllib.parse
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.probes.config import AgentConfig

_log = logging.getLogger("sdfstream.agent")

SYSTEM: Final = Path("/var/lib/sdfstream/spill")
"""Root's. Not below /run: that is memory."""


def spill_folder(config: AgentConfig) -> SpillFolder | None:
    """The spill that `config` asks for; nothing is made or opened yet."""
    if config.spill_bytes == 0:
        return None
    if config.spill_dir != "auto":
        return SpillFolder(Path(config.spill_dir), config.spill_bytes)
    try:
        base = SYSTEM if os.geteuid() == 0 else Path.home() / ".local/state/sdfstream/spill"
    except RuntimeError:  # the user has no home
        _log.warning("no folder for a spill: the user has no home; set agent.spill_dir")
        return None
    return SpillFolder(base / folder_name([h.host for h in config.hosts]), config.spill_bytes)


def folder_name(hosts: Sequence[str]) -> str:
    """The same name for the same hosts, so that the next run of an agent finds the outputs of the last one.

    >>> folder_name(["gpu-17"])
    'gpu-17'
    >>> folder_name(["a", "b"])
    'a+1-15e87871'
    """
    first = urllib.parse.quote(hosts[0], safe="").replace(".", "%2E")
    if len(hosts) == 1:
        return first
    return f"{first}+{len(hosts) - 1}-{zlib.crc32(chr(0).join(hosts).encode()):08x}"
