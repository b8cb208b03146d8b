"""A second producer of a host: the link refuses it, and reports that on the topology topic (`PRODUCER_TYPE`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sdfstream.errors import FormatError

PRODUCER_TYPE: Final = "sdf.state.topology.producer.v1"
MOST_CHARACTERS: Final = 200
"""Of each field."""


@dataclass(frozen=True, slots=True)
class RefusedProducer:
    """Data of `PRODUCER_TYPE`."""

    host: str
    """The host that both speak for."""
    refused: str
    """The process whose messages are refused."""
    owner: str
    """The process that spoke for the host first."""

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def refused_producer(data: Mapping[str, Any]) -> RefusedProducer:
    """Read the data of `PRODUCER_TYPE`; unknown fields are ignored.

    Raises
    ------
    FormatError
        ``producer``: a field is absent or no short text.
    """
    fields = {}
    for name in ("host", "refused", "owner"):
        value = data.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= MOST_CHARACTERS:
            raise FormatError("producer", f"{name} must be a text of 1 to {MOST_CHARACTERS} characters")
        fields[name] = value
    return RefusedProducer(**fields)
