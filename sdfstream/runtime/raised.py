"""What is said of a message at which code raised: whether it was at fault, and its dead letter. Pure."""

from __future__ import annotations

import json
import re
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from sdfstream.bus.dead_letters import SUFFIX
from sdfstream.errors import FormatError, SdfError
from sdfstream.records.message import Event, Message, Output

MOST_FRAMES: Final = 20
MOST_DETAIL: Final = 300
MOST_VALUE: Final = 4096
"""Characters of the message that are quoted; the whole is on its topic, under ``topic`` and ``bus_seq``."""
_HUGE_BYTES: Final = 1 << 30
"""An array of more was never meant: a number in a message asked for it."""
_QUOTED_ROWS: Final = 3
_PACKAGE: Final = "sdfstream"
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")


def is_of_message(error: Exception) -> bool:
    """Whether `error` may come of what a message says; else the process must hear of it."""
    if isinstance(error, MemoryError):
        shape = getattr(error, "shape", None)  # numpy tells what was asked for
        return shape is not None and int(getattr(error, "_total_size", 0)) > _HUGE_BYTES
    return not isinstance(error, SdfError) or isinstance(error, FormatError)


def dead_letter(stage: str, message: Message, now_ns: int, reason: str, error: Exception | None) -> Output:
    """The dead letter of `message`, set aside by `stage` at bus time `now_ns`."""
    body = message.body
    data: dict[str, Any] = {
        "stage": stage,
        "reason": reason,
        "topic": message.topic,
        "bus_seq": message.bus_seq,
        "bus_at_ns": message.bus_at_ns,
        "key": ascii_of(message.key),
        "boot_id": ascii_of(message.boot_id),
        "batch_seq": message.batch_seq,
        "rows": message.rows,
        "value": _quoted(body),
    }
    if error is not None:
        data |= {"error": type(error).__name__, "detail": detail(error), "traceback": frames(error)}
    topic = message.topic + SUFFIX
    identity = f"{stage}/{message.topic}/{message.bus_seq}/{reason}"
    return Output(topic, ascii_of(message.key), Event(topic, stage, identity, now_ns, data))


def detail(error: Exception) -> str:
    """What `error` says, without what differs from run to run."""
    if isinstance(error, RecursionError):
        return "maximum recursion depth exceeded"  # where exactly depends on the caller's depth
    try:
        text = str(error)
    except Exception as second:  # a message that cannot be formatted
        text = type(second).__name__
    return ascii_of(_ADDRESS.sub("0x..", text)[:MOST_DETAIL])


def frames(error: Exception) -> list[str]:
    """Where it was raised, from the stage inwards: ``module:line:function``; of other packages no line.

    No path of this machine, and nothing of who called the stage, so that live and replayed bytes agree.
    """
    found = [_frame(trace) for trace in _inner(error.__traceback__)]
    if isinstance(error, RecursionError):
        return list(dict.fromkeys(found))[:MOST_FRAMES]
    return found[-MOST_FRAMES:]


def ascii_of(text: str) -> str:
    """`text` with what is not printable ASCII escaped: a lone surrogate could not be written anywhere."""
    return text.encode("ascii", "backslashreplace").decode()


def _inner(trace: TracebackType | None) -> list[TracebackType]:
    """The frames of `trace` behind the one that caught the error."""
    found: list[TracebackType] = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    own = [n for n, one in enumerate(found) if one.tb_frame.f_globals.get("__name__") == f"{_PACKAGE}.runtime.aside"]
    return found[own[-1] + 1 if own else 0 :]


def _frame(trace: TracebackType) -> str:
    code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", "?"))
    line = f"{trace.tb_lineno}:" if module.partition(".")[0] == _PACKAGE else ""
    return f"{module}:{line}{code.co_name}"


def _quoted(body: pa.RecordBatch | Event) -> str:
    try:
        value = dict(body.data) if isinstance(body, Event) else body.slice(0, _QUOTED_ROWS).to_pylist()
        return ascii_of(_ADDRESS.sub("0x..", json.dumps(value, default=repr)[:MOST_VALUE]))
    except Exception as error:  # nothing about a message that raises may be relied on
        return f"({type(error).__name__} while quoting)"
