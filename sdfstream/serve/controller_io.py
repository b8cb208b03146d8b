"""What a live controller acts by."""

from __future__ import annotations

from sdfstream.actuate import keys_io
from sdfstream.actuate.stage import Authority
from sdfstream.settings import Settings


def authority(settings: Settings, started_at_ns: int) -> Authority | None:
    """Keys of the data folder (made on first use), and the process's start as the epoch; None: nothing is signed, since
    there is neither a controller nor a mesh plan.

    Raises
    ------
    ConfigError
        A key file cannot be read or written, or others may read the private one.
    """
    if settings.actuate.mode == "off" and not settings.draws_plan:
        return None
    keys = keys_io.load(settings.data)
    return Authority(keys.signer, keys.operators, started_at_ns)
