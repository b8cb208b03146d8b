"""A process frozen for longer than its session and its transactions, and thawed, again and again, on a real broker.

Two members share one unit of work and echo what they read (`tests/fixtures/kafka_member.py`). In each trial the owner
is stopped until the other one has the unit and up to a second more; in every fifth, both are. Sessions and transactions
last 2 s, so that a trial takes about 5 s. Once thawed, one of the two must run the unit and fence nobody any more, and
every row must be there once in the end.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from tests.bench.harness import Result, SkippedError
from tests.fixtures.kafka_broker import Broker, BrokerUnavailableError, jars
from tests.fixtures.kafka_member import QUICK_BROKER, ROOT, Pair, Times

SETTLE_S: Final = 30.0
QUIET_S: Final = 1.5


async def measure(result: Result, trials: int, seed: int) -> None:
    try:
        found = jars(Path(os.environ.get("SDFSTREAM_KAFKA_JARS") or ROOT / ".cache" / "kafka"))
    except BrokerUnavailableError as missing:
        raise SkippedError(str(missing)) from missing
    with tempfile.TemporaryDirectory(prefix="sdf-zombies-") as folder:
        place = Path(folder)
        with Broker(found, place / "kafka", **QUICK_BROKER) as broker:
            bus = KafkaBus(KafkaConfig(servers=broker.address), time.time_ns, boot_id="feeder")
            await bus.start()
            try:
                async with Pair(bus, place) as pair:
                    await _trials(result, pair, trials, seed)
            finally:
                await bus.close()


async def _trials(result: Result, pair: Pair, trials: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    taken_s: list[float] = []
    settled_s: list[float] = []
    fences, unsettled = 0, 0
    for number in range(trials):
        began_s = time.monotonic()
        try:
            taken = await _freeze(pair, both=number % 5 == 4, more_s=float(rng.random()))
            taken_s += [] if taken is None else [taken]
            settled_s.append(await pair.until(lambda: pair.owner() is not None, SETTLE_S))
            quiet_s = time.monotonic() + QUIET_S / 2  # a zombie may find out by its next commit
            await asyncio.sleep(QUIET_S)
            unsettled += pair.fences(quiet_s) > 0 or pair.owner() is None
            fences += pair.fences(began_s)
        except TimeoutError as why:
            unsettled += 1
            result.progress(f"trial {number}: nobody, or both: {why}")
        if number % 10 == 9:
            result.progress(f"{number + 1} trials, {fences} fences, {unsettled} not settled")
    await pair.echoed(60.0)
    doubled = sum(n - 1 for n in pair.heard.values())
    lost = sum(not pair.heard[n] for n in range(pair.sent - 100))
    result.say(
        f"{trials} trials, {len(taken_s)} of one process: the other had its unit after {_told(taken_s)} s; one owner "
        f"{_told(settled_s)} s after the thaw; fenced {fences} times; not settled: {unsettled}; "
        f"rows {len(pair.heard)}, lost {lost}, doubled {doubled}",
        trials=trials,
        taken_median_s=round(float(np.median(taken_s)), 3) if taken_s else None,
        taken_worst_s=round(max(taken_s, default=0.0), 3),
        fences=fences,
        unsettled=unsettled,
        rows=len(pair.heard),
        lost=lost,
        doubled=doubled,
        seed=seed,
    )


async def _freeze(pair: Pair, *, both: bool, more_s: float) -> float | None:
    """Freeze the owner until the other has its unit, or both for as long as a session lasts; then thaw."""
    await pair.until(lambda: pair.owner() is not None, SETTLE_S)
    owner = pair.owner()
    assert owner is not None
    frozen = pair.members if both else [owner]
    for member in frozen:
        member.freeze()
    try:
        if both:
            await asyncio.sleep(1.2 * Times().session / 1000 + more_s)
            return None
        taken_s = await pair.until(lambda: pair.other(owner).runs, SETTLE_S)
        await asyncio.sleep(more_s)
        return taken_s
    finally:
        for member in frozen:
            member.thaw()


def _told(seconds: list[float]) -> str:
    return f"{np.median(seconds):.1f} (worst {max(seconds):.1f})" if seconds else "–"
