"""NICs as a grid: hosts down, NICs across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

STATES: Final = ("healthy", "unhealthy", "unknown", "absent")


def grid(nics: Sequence[Mapping[str, Any]], most: int) -> dict[str, Any]:
    """Hosts × NICs: every host when they fit, else the worst ones and a sum over the rest."""
    hosts: dict[str, list[Mapping[str, Any]]] = {}
    for nic in nics:
        hosts.setdefault(nic["host"], []).append(nic)
    order = sorted(hosts)
    if len(order) > most:
        order.sort(key=lambda h: (-sum(_WEIGHT[n["state"]] for n in hosts[h]), h))
    shown, rest = sorted(order[:most]), order[most:]
    left = [nic["state"] for host in rest for nic in hosts[host]]
    return {
        "columns": sorted({n["nic"].partition("/")[2] for n in nics}, key=_natural),
        "hosts": [
            {"host": h, "cells": {n["nic"].partition("/")[2]: [n["tx"], n["rx"]] for n in hosts[h]}} for h in shown
        ],
        "more": {"hosts": len(rest)} | {state: left.count(state) for state in STATES},
    }


_WEIGHT: Final = {"unhealthy": 1_000_000, "unknown": 1000, "absent": 1, "healthy": 0}


def _natural(name: str) -> tuple[str, int, str]:
    """``r2`` before ``r10``."""
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or -1), name
