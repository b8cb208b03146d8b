"""Every error sdfstream raises on purpose, in one tree.

::

    SdfError                     anything below; a caller may catch this one
    ├── ConfigError              a setting is wrong: a sentence with the path of the key; exit 2
    ├── UnavailableError         something outside is not there (root, kernel feature, broker, engine); exit 2
    │   ├── LabUnavailableError  neither root nor a user namespace can give us a lab
    │   └── NothingRunsError     no pipeline runs on the data folder
    ├── BusError                 the bus could not take or give a message
    │   └── FencedError          another process owns the unit or transaction now
    ├── ArchiveError             the archive refused a statement or an insert
    └── FormatError              bytes from outside cannot be read; carries ``reason`` for the counters

Bad input is normally *not* an exception: decoders return counted rejects with a reason. ``FormatError`` is
for whole messages and files, where there is nothing to go on with.
"""

from __future__ import annotations


class SdfError(Exception):
    """Base of all errors sdfstream raises on purpose."""


class ConfigError(SdfError):
    """A setting is wrong; the message is a sentence that names the path of the key."""


class UnavailableError(SdfError):
    """Something outside sdfstream that this operation needs is not there; the message says what."""


class LabUnavailableError(UnavailableError):
    """No network namespaces can be made here; the message says which right or kernel feature is missing."""


class NothingRunsError(UnavailableError):
    """No pipeline runs on the data folder; its archive may be asked instead."""


class BusError(SdfError):
    """The bus could not take or give a message."""


class FencedError(BusError):
    """Another process owns the unit or transaction now; nothing of the request was done."""


class ArchiveError(SdfError):
    """The archive refused a statement or an insert."""


class FormatError(SdfError):
    """Bytes from outside do not have the format that they declare.

    Parameters
    ----------
    reason : str
        A short, fixed, countable word group such as ``"schema-version"`` or ``"truncated"``.
    detail : str
        What exactly was met; may quote the input.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
