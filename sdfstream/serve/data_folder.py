"""Names in a data folder that several verbs and pipelines use."""

from __future__ import annotations

from typing import Final

LINK_SOCKET: Final = "agents.sock"
"""Socket at which agents on this machine publish their batches and receive commands."""
JOBS: Final = "jobs"
"""Drop directory of the jobs of agents on this machine."""
CLOCK_PAGES: Final = "clock"
"""Folder of the clock pages of a lab's hosts."""
