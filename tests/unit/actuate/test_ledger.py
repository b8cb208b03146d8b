"""Commands as published."""

from __future__ import annotations

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.ledger import CommandLedger
from sdfstream.records.command import Outcome
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
