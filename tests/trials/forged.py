"""Commands that must not be obeyed: forged, replayed, expired, of an old epoch, for another host. None may be applied.

Half of them go over the bus to the agent, half straight to the control socket of the queue pairs' process, which does
not believe the agent either. A genuine command before and after proves that both listen.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import Counter
from typing import Any, Final

import numpy as np

from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.lab.job_io import Job
from sdfstream.records.signature import Signer
from tests.bench.harness import Result
from tests.trials.lapses import _pairs, _wait
from tests.trials.pieces import Pieces, pieces, throttle

COUNT: Final = 1_000
GENUINE_BPS: Final = 3_000_000
WRONG_BPS: Final = 1_234_567
LEASE_S: Final = 60.0


async def measure(result: Result, trials: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = COUNT if trials >= 20 else 50 * trials
    async with pieces() as here:
        spec = JobSpec("train-a", ("h00", "h02"), qps=2, chunk_kb=16, message_mb=0.25)
        job = await asyncio.to_thread(Job.start, here.fabric, spec, here.jobs_dir, [here.signer.public])
        try:
            epoch = time.time_ns()
            qp = next(iter((await _pairs(job)).values()))
            genuine = await _genuine(here, job, qp, "genuine-1", epoch)
            tried: Counter[str] = Counter()
            refused: Counter[str] = Counter()
            applied = 0
            for number in range(count):
                kind, data = _wrong(rng, qp, job, genuine, number, epoch, here.signer)
                tried[kind] += 1
                if number % 2:
                    await here.send(data)
                else:
                    answer = await asyncio.to_thread(
                        job.ask, qp["src"].partition("/")[0], {"do": "set", "command": data, "ttl_ms": 60_000}
                    )
                    refused[str(answer.get("error", "applied")).partition(":")[0]] += 1
                if number % 20 == 19:
                    applied += _changed(await _pairs(job), qp["qp"])
            await asyncio.sleep(1.0)
            applied += _changed(await _pairs(job), qp["qp"])
            states = Counter(s["state"] for s in here.said if not str(s["command"]).startswith("genuine"))
            refused.update(s["why"].partition(":")[0] for s in here.said if s["state"] == "refused")
            await _genuine(here, job, qp, "genuine-2", epoch)
        finally:
            await asyncio.to_thread(job.stop)
    told = ", ".join(f"{why} {n}" for why, n in refused.most_common())
    obeyed = states["applied"] + states["accepted"] + refused["applied"]
    result.say(
        f"{obeyed + applied} of {count} wrong commands applied (goal 0); tried: {dict(tried)}; refused: {told}",
        wrong=count,
        obeyed=obeyed + applied,
        tried=dict(tried),
        refused=dict(refused),
        seed=seed,
    )


async def _genuine(here: Pieces, job: Job, qp: dict[str, Any], number: str, epoch: int) -> dict[str, Any]:
    """A limit that must be obeyed, and is taken back at once."""
    end_s = time.monotonic() + 20.0
    while True:
        data = throttle(qp, job, f"{number}-{time.monotonic_ns()}", LEASE_S, GENUINE_BPS, epoch)
        signed = await here.command(data)
        if await _wait(job, lambda now: now[qp["qp"]]["rate_bps"] == GENUINE_BPS, 1.0):
            break
        if time.monotonic() > end_s:
            raise RuntimeError(f"a genuine command was not obeyed: {here.said[-1:]}")
    undo = {**data, "id": f"{data['id']}-undo", "action": "undo", "issued_at_ns": time.time_ns(), "expected": {},
            "set": {"command": data["id"]}, "undo": {}}  # fmt: skip
    await here.command(undo)
    if not await _wait(job, lambda now: now[qp["qp"]]["rate_bps"] is None, 5.0):
        raise RuntimeError(f"a genuine undo was not obeyed: {here.said[-1:]}")
    return signed


def _wrong(
    rng: np.random.Generator,
    qp: dict[str, Any],
    job: Job,
    genuine: dict[str, Any],
    number: int,
    epoch: int,
    key: Signer,
) -> tuple[str, dict[str, Any]]:
    """One command that must be refused, and in which way it is wrong."""
    data = throttle(qp, job, f"wrong-{number}", LEASE_S, WRONG_BPS, epoch)
    kind = ("forged", "unknown-key", "replayed", "expired", "wrong-epoch", "wrong-host", "unknown-target", "dry-run")[
        int(rng.integers(8))
    ]
    if kind == "replayed":
        return kind, genuine
    if kind == "unknown-key":
        return kind, Signer(rng.bytes(32)).sign(data)
    if kind == "forged":
        signed = key.sign(data)
        if rng.integers(2):
            return kind, {**signed, "set": {"rate_bps": WRONG_BPS + 1}}
        raw = bytearray(base64.b64decode(signed["signature"]))
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
        return kind, {**signed, "signature": base64.b64encode(bytes(raw)).decode()}
    wrong: dict[str, dict[str, Any]] = {
        "expired": {"issued_at_ns": data["issued_at_ns"] - 120 * 10**9, "expires_at_ns": data["issued_at_ns"] - 10**9},
        "wrong-epoch": {"epoch": epoch - int(rng.integers(1, 10**9))},
        "wrong-host": {"target": {**data["target"], "host": "h01"}},
        "unknown-target": {"target": {**data["target"], "id": "h00/r0#999"}},
        "dry-run": {"mode": "dry-run"},
    }
    return kind, key.sign({**data, **wrong[kind]})


def _changed(pairs: dict[str, dict[str, Any]], qp: str) -> int:
    return int(pairs[qp]["rate_bps"] is not None)
