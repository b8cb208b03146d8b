"""Commands as published."""

from __future__ import annotations

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.ledger import PEER, CommandLedger, IssuedCommand
from sdfstream.records.command import Outcome
from sdfstream.records.fabric import QueuePair
from sdfstream.records.signature import KeyRing, Signer
from sdfstream.records.units import NS_PER_S

S = NS_PER_S


def test_a_renewal_is_later_and_signed_anew() -> None:
    signer = Signer(b"k" * 32)
    ledger = CommandLedger(ActuateConfig(lease_s=30.0), signer, epoch=7)
    lease = ledger.open("steer", {"id": "q", "host": "h0"}, {"path": 1}, {"path": 2}, {"path": 1}, ("f",), "enforce")
    first, second = (ledger.publish(lease, 5 * S).body.data for _ in range(2))  # type: ignore[union-attr]
    assert first["issued_at_ns"] < second["issued_at_ns"] and first["id"] == second["id"]
    assert second["expires_at_ns"] - second["issued_at_ns"] == 30 * S and second["epoch"] == 7
    ring = KeyRing([signer.public])
    assert not ring.refuses(first) and not ring.refuses(second) and ring.refuses(dict(second, epoch=8)) == "forged"


def test_only_the_commanded_host_can_answer_and_only_forwards() -> None:
    ledger = CommandLedger(ActuateConfig(), Signer(b"k" * 32), epoch=7)
    lease = ledger.open("steer", {"id": "q", "host": "h0"}, {}, {"path": 2}, {"path": 1}, (), "enforce")
    ledger.publish(lease, S)
    assert ledger.take(Outcome(lease.id, "applied", "", "h1", 5), S) is None
    assert ledger.take(Outcome("other", "applied", "", "h0", 5), S) is None
    assert ledger.take(Outcome(lease.id, "applied", "", "h0", 5), S) is lease and lease.state == "applied"
    assert ledger.take(Outcome(lease.id, "accepted", "", "h0", 4), S) is None and lease.state == "applied"
    ledger.forget(100 * S)
    assert not list(ledger)


def test_commands_of_a_queue_pair_are_found_after_forgetting_and_after_a_restart() -> None:
    ledger = CommandLedger(ActuateConfig(lease_s=30.0), Signer(b"k" * 32), epoch=7)

    def opened(qp: str, at_ns: int) -> IssuedCommand:
        command = ledger.open("steer", {"id": qp, "host": "h0"}, {}, {"path": 2}, {"path": 1}, (), "enforce")
        ledger.publish(command, at_ns)
        return command

    old, other, new = opened("q", S), opened("r", 50 * S), opened("q", 50 * S)
    assert list(ledger.of_qp("q")) == [old, new] and list(ledger.of_qp("r")) == [other]
    ledger.forget(60 * S)
    assert list(ledger.of_qp("q")) == [new] and not ledger.of_qp("s")
    again = CommandLedger(ActuateConfig(lease_s=30.0), Signer(b"k" * 32), epoch=8)
    again.restore(ledger.snapshot())
    assert list(again.of_qp("q")) == [new] and len(again) == 2


def test_a_kernel_flow_is_received_once_its_far_end_translates() -> None:
    ledger = CommandLedger(ActuateConfig(), Signer(b"k" * 32), epoch=7)
    socket, kernel = (
        QueuePair("q", 0, 1, "h0/r0", "h1/r0", "10.0.1.1", 1, 4791, steering=steering)
        for steering in ("socket", "kernel")
    )
    assert ledger.is_received(socket, "enforce") and ledger.is_received(kernel, "dry-run")
    assert not ledger.is_received(kernel, "enforce")
    target = {"type": "qp", "id": "q", "host": "h1"}
    peer = ledger.open("failover", target, {}, {"part": PEER, "paths": [2]}, {"path": 1}, (), "enforce")
    ledger.publish(peer, S)
    assert not ledger.is_received(kernel, "enforce")
    ledger.take(Outcome(peer.id, "applied", "", "h1", 5), S)
    assert ledger.is_received(kernel, "enforce")
