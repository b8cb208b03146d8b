"""Real packets of the MTU that a link does not take while small ones pass: told, placed, and over once healed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from sdfstream.records.topics import FINDING
from tests.bench.harness import SkippedError
from tests.trials.world import MESH, SPEC, World, world


def findings(here: World) -> list[dict[str, Any]]:
    return [said for said in here.said if said["topic"] == FINDING.name and said["severity"] != "info"]


async def _story() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    async with world(SPEC, replace(MESH, large_hz=4.0)) as here:
        await asyncio.sleep(12)
        before = findings(here)
        fault = here.fabric.inject("l0--s1", "mtu")
        await here.until(lambda: len(findings(here)) > len(before), 12)
        here.fabric.heal(fault.id)
        await here.until(lambda: any(said["status"] == "resolved" for said in findings(here)), 12)
        return before, findings(here)[len(before) :]


def test_a_link_that_takes_smaller_packets_than_the_hosts_send_is_told() -> None:
    try:
        before, told = uvloop.run(_story())
    except SkippedError as why:
        pytest.skip(str(why))
    assert not before
    assert {said["kind"] for said in told} == {"mtu-mismatch"}
    assert told[0]["cause"] == "mtu" and told[-1]["status"] == "resolved"
    # few pairs of NICs probe each other in a lab of four hosts: both links of the spine may be suspects
    named = {told[0]["subject"]["id"], *(suspect["id"] for suspect in told[0]["suspects"])}
    assert named & {"l0--s1", "l0->s1", "s1->l0"}
