"""What an agent must still know after it was killed and started again: plain values; `journal_io` keeps the file.

The highest epoch and the last statement of every command, so that nothing old is obeyed after a restart; a bound of
bus time; and the leases in force with the signed commands behind them, so that limits whose lease is over are undone
and moved queue pairs stay where they are until their former path is clean.

Steady times mean something only until the machine starts again. After that the programs whose queue pairs the leases
concerned are gone, and so are the leases; epoch and statements still count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sdfstream.agent.commands.admission import LastStatement, terms
from sdfstream.agent.commands.executor import Executor
from sdfstream.agent.commands.host_state import HostState
from sdfstream.agent.commands.lease import ENDS, Lease, LeaseState
from sdfstream.errors import FormatError
from sdfstream.records.command import command

VERSION: Final = 1

_RESUMES: Final = {
    # what was requested and not answered may have been done; the job map will show it (LeaseEvent.FOUND, BACK)
    LeaseState.MOVING: LeaseState.FAILED,
    LeaseState.MOVING_ON: LeaseState.MOVED,
    LeaseState.ENDING: LeaseState.HOLDING,
    LeaseState.RETURNING: LeaseState.HOLDING,
    LeaseState.LIMITING: LeaseState.LIMITED,
    LeaseState.RENEWING: LeaseState.LIMITED,
}
"""Where a lease goes on; other states as they were."""


def record(executor: Executor, now_ns: int, boot: str) -> dict[str, Any]:
    """All that must outlive the process, as plain JSON; `boot` names the machine's run."""
    admission = executor.admission
    admission.forget(now_ns)
    return {
        "version": VERSION,
        "boot": boot,
        "epoch": admission.epoch,
        "bus_at_ns": admission.bus.now(now_ns),
        "steady_ns": now_ns,
        "heard": {i: [h.issued_at_ns, h.expires_at_ns, h.revoked] for i, h in admission.last_statements.items()},
        "hosts": {name: _host(host_state) for name, host_state in executor.host_states.items()},
    }


def _host(host_state: HostState) -> dict[str, Any]:
    leases = [_lease(x) for x in host_state.leases.values() if x.state not in ENDS or x.state is LeaseState.FAILED]
    return {"leases": leases, "kernel_paths": dict(host_state.inventory.kernel_paths)}


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "data": dict(lease.data),
        "state": lease.state.value,
        "src": lease.src,
        "deadline_ns": lease.deadline_ns,
        "limit_until_ns": max(lease.limit_until_ns, lease.deadline_ns),
        "path": lease.path,
        "asked": lease.requested_path,
        "asked_rate_bps": lease.requested_rate_bps,
        "undo": lease.undo,
    }


def resume(executor: Executor, data: Mapping[str, Any], now_ns: int, boot: str) -> list[str]:
    """Go on from what `record` made, in an executor that has done nothing yet.

    Returns
    -------
    list of str
        What was left out, and why.

    Raises
    ------
    FormatError
        ``journal``: it is none, or of another version; nothing was taken.
    """
    try:
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']!r}")
        epoch, bus_at_ns = int(data["epoch"]), int(data["bus_at_ns"])
        last_statements = {str(i): LastStatement(int(h[0]), int(h[1]), bool(h[2])) for i, h in data["heard"].items()}
        hosts = {str(name): (list(h["leases"]), _paths(h["kernel_paths"])) for name, h in data["hosts"].items()}
        same_boot = data["boot"] == boot and int(data["steady_ns"]) <= now_ns
        bus_since_ns = int(data["steady_ns"]) if same_boot else now_ns
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FormatError("journal", f"{type(error).__name__}: {error}") from error
    executor.admission.epoch = epoch
    executor.admission.last_statements = last_statements
    if bus_at_ns > 0:
        executor.admission.bus.take(bus_at_ns, bus_since_ns)
    if not same_boot:
        return ["the machine has been started anew: no lease is left"] * any(leases for leases, _ in hosts.values())
    left_out = []
    for name, (leases, kernel_paths) in hosts.items():
        host_state = executor.host_states.get(name)
        if host_state is None:
            left_out += [f"{name} is no host of this agent any more"] * bool(leases)
            continue
        host_state.inventory.kernel_paths = kernel_paths
        left_out += [why for entry in leases if (why := _resume(executor, host_state, entry))]
    return left_out


def _resume(executor: Executor, host_state: HostState, entry: Mapping[str, Any]) -> str:
    """Take up one lease; why not, where it cannot be."""
    try:
        distrust = executor.admission.keys.refuses(entry["data"])
        read = command(entry["data"])
        if distrust:
            return f"command {read.id}: {distrust}"
        state = LeaseState(entry["state"])
        lease = Lease(
            read, entry["data"], terms(read), host_state.name, int(entry["deadline_ns"]), str(entry["src"]),
            state=_RESUMES.get(state, state),
            path=_whole(entry["path"]),
            requested_path=_whole(entry["asked"]),
            requested_rate_bps=_whole(entry["asked_rate_bps"]),
            limit_until_ns=int(entry["limit_until_ns"]),
            undo=bool(entry["undo"]),
            resumed=True,
        )  # fmt: skip
    except (FormatError, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"a lease cannot be read: {error}"
    host_state.leases[read.id] = lease
    host_state.watch(lease)
    return ""


def _paths(raw: Mapping[str, Any]) -> dict[str, int]:
    return {str(qp): int(path) for qp, path in raw.items()}


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
