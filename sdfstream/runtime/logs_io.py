"""The log of a process on stderr: one line a message, whatever name or error stands in it.

A host, a job or a peer's error with a line feed could else write a line of its own into the log of a stage or an agent.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType
from typing import Any

from sdfstream import visible

_log = logging.getLogger("sdfstream")


class VisibleFormatter(logging.Formatter):
    """One line a message; a traceback follows with a bar before each of its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging names it
        """See `logging.Formatter`."""
        return visible.line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """See `logging.Formatter`."""
        return visible.lines(f"  | {line}" for line in super().formatException(ei).split("\n"))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        """See `logging.Formatter`."""
        return visible.lines(f"  | {line}" for line in stack_info.split("\n"))


def to_stderr(level: int) -> None:
    """Log from `level` on; where somebody else has set up the log already, do nothing."""
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if isinstance(handler.formatter, VisibleFormatter)]
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(VisibleFormatter("%(message)s"))
        root.addHandler(handler)
        ours = [handler]
    if ours:
        root.setLevel(level)


def log_defects() -> None:
    """Let what nobody caught end up in the log, of threads too: not raw on the terminal, and never nowhere."""
    sys.excepthook = _defect
    threading.excepthook = _thread_defect


def _defect(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _log.critical("%s ended the process", kind.__name__, exc_info=(kind, error, traceback))


def _thread_defect(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    error = args.exc_value or args.exc_type()
    name = args.thread.name if args.thread is not None else "unknown"
    _log.error("thread %s ended by a defect", name, exc_info=(args.exc_type, error, args.exc_traceback))
