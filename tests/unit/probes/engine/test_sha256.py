"""SHA-256 and HMAC of the packet engine against published vectors and the standard library."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest

from tests.fixtures.engine_packets import functions, hmac_sha256_128, sha256

# FIPS 180-4 examples, as in NIST's SHA256 example file and CAVP short messages
VECTORS = {
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklm"
    b"ghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu": (
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
    b"\xbd": "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b",
    b"\xc9\x8c\x8e\x55": "7abc22c0ae5af26ce93dbb94433a0e0b2e119d014f8e7f65bd56c61ccccd9504",
}


@pytest.mark.parametrize("message", VECTORS, ids=lambda m: f"{len(m)} octets")
def test_nist_vectors(message: bytes) -> None:
    assert sha256(message).hex() == VECTORS[message]


def test_every_length_up_to_four_blocks() -> None:
    data = np.random.default_rng(1).bytes(256)
    for n in range(257):
        assert sha256(data[:n]) == hashlib.sha256(data[:n]).digest(), n


def test_any_cut_gives_the_same_digest() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        data = rng.bytes(int(rng.integers(0, 400)))
        cuts = sorted(int(c) for c in rng.integers(0, len(data) + 1, 4))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert sha256(*pieces) == hashlib.sha256(data).digest()


# RFC 4231 section 4, cases 1 to 4, 6 and 7, cut to 128 bits
RFC_4231 = [
    (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b"),
    (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c7"),
    (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46854db8ebd09181a7"),
    (bytes(range(1, 26)), b"\xcd" * 50, "82558a389a443c0ea4cc819899f2083a"),
    (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First", "60e431591ee0b67f0d8a26aacbf5b77f"),
    (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
        b"hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944",
    ),
]


@pytest.mark.parametrize(("key", "message", "wanted"), RFC_4231)
def test_hmac_vectors(key: bytes, message: bytes, wanted: str) -> None:
    assert hmac_sha256_128(key, message).hex() == wanted


def test_hmac_of_any_key_and_pieces() -> None:
    rng = np.random.default_rng(3)
    for n in [0, 1, 63, 64, 65, 200, *rng.integers(0, 300, 200).tolist()]:
        key, first, second = (rng.bytes(int(k)) for k in (n, rng.integers(0, 200), rng.integers(0, 200)))
        assert hmac_sha256_128(key, first, second) == hmac.digest(key, first + second, "sha256")[:16]


def test_comparison() -> None:
    rng = np.random.default_rng(4)
    one = rng.bytes(16)
    assert functions().pe_mac_equal(one, bytes(one))
    for bit in range(128):
        other = bytearray(one)
        other[bit // 8] ^= 1 << bit % 8
        assert not functions().pe_mac_equal(one, bytes(other))
