"""What can be done to a queue pair, found by trying it on the pair itself when it is registered."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

SteerBy = Literal["udp-sport", "sqd", "none"]

_DRIVERS: Final[dict[int, str]] = {
    0xFFFFFF: "rxe",
    0x02C9: "mlx5",
    0x15B3: "mlx5",
    0x14E4: "bnxt_re",
    0x8086: "irdma or hfi1",
    0x1D0F: "efa",
    0x19E5: "hns",
}
"""``vendor_id`` of ibv_query_device."""
_RUN: Final = frozenset({"rxe"})
"""Drivers on which this code has been run; for the others its calls are tested against recorded answers."""


@dataclass(frozen=True, slots=True)
class QpCapabilities:
    """What a queue pair's device lets its own process do."""

    driver: str
    """As its vendor id says; ``unknown`` with the number otherwise."""
    steer: SteerBy
    """``udp-sport``: one call in RTS; ``sqd``: through the state SQD; ``none``."""
    why_not: str
    """Why it cannot be steered; empty: it can."""
    throttle: Literal["software", "none"]
    """``software``: the program asks the pacer before it posts."""
    run_on_hardware: bool
    """False: the calls were never made on such a device by us."""

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def driver_of(vendor_id: int) -> str:
    """The driver's name, or the vendor's number.

    >>> driver_of(0x02c9), driver_of(1)
    ('mlx5', 'unknown (vendor 0x1)')
    """
    return _DRIVERS.get(vendor_id, f"unknown (vendor {vendor_id:#x})")


def capabilities(vendor_id: int, tried: dict[SteerBy, str], *, paced: bool) -> QpCapabilities:
    """What follows from the trials.

    Parameters
    ----------
    vendor_id : int
    tried : mapping of a method of steering to why it failed (empty: it worked), in order of preference
    paced : bool
        The program asks the pacer before each post.
    """
    driver = driver_of(vendor_id)
    works: SteerBy = next((by for by, why in tried.items() if not why), "none")
    why_not = "" if works != "none" else "; ".join(f"{by}: {why}" for by, why in tried.items()) or "nothing was tried"
    return QpCapabilities(driver, works, why_not, "software" if paced else "none", driver in _RUN)


def chooses_datagram_ports(vendor_id: int) -> bool:
    """Whether a UD queue pair's packets leave by the source port of their address, and not by one of its own."""
    return driver_of(vendor_id) != "rxe"


def needs_prompt(vendor_id: int) -> bool:
    """Whether the device goes on with a resumed send queue only at the next post (Soft-RoCE, Linux 6.1)."""
    return driver_of(vendor_id) == "rxe"
