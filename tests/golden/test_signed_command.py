"""The bytes that a command's signature covers, and the signature: what a verifier in another language must get."""

from __future__ import annotations

import json

from sdfstream.records.command import command, signed_bytes
from sdfstream.records.signature import KeyRing, Signer, key_id

PRIVATE = bytes(range(32))
PUBLIC = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
DATA = {
    "id": "c-é1",
    "epoch": 1_790_000_000_000_000_000,
    "issued_at_ns": 1_790_000_000_123_456_789,
    "expires_at_ns": 1_790_000_030_123_456_789,
    "mode": "enforce",
    "action": "throttle",
    "target": {"type": "qp", "id": "h00/r0#17", "host": "h00", "job": "train-a"},
    "expected": {"path": 50_001},
    "set": {"rate_bps": 12_500_000},
    "undo": {"rate_bps": None},
    "reason": ["f-1"],
}
COVERED = (
    '{"action":"throttle","epoch":1790000000000000000,"expected":{"path":50001},"expires_at_ns":1790000030123456789,'
    '"id":"c-é1","issued_at_ns":1790000000123456789,"key_id":"56475aa75463474c","mode":"enforce","reason":["f-1"],'
    '"set":{"rate_bps":12500000},"target":{"host":"h00","id":"h00/r0#17","job":"train-a","type":"qp"},'
    '"undo":{"rate_bps":null}}'
)


def test_the_covered_bytes_and_the_signature_stay_as_they_are() -> None:
    signer = Signer(PRIVATE)
    assert (signer.public, signer.key_id) == (PUBLIC, key_id(PUBLIC))
    signed = signer.sign(DATA)
    assert signed_bytes(signed).decode() == COVERED
    assert signed["signature"] == SIGNATURE
    assert KeyRing([PUBLIC]).refuses(json.loads(json.dumps(signed))) == ""
    assert command(signed).as_data() == signed


SIGNATURE = "+n6K0MDEztp6CE6LwzFFmXW1QH5OIiAHbDdF+Kinkzn/+Swnrv7swhV5vdV4EWJ7WCDYqHrXjFw17NRL3ZBXBg=="
