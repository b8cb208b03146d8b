"""Making boot files: archive and kernel image, from bytes made here."""

from __future__ import annotations

import lzma
import stat

import pytest

from tests.rdma.guest import group, initramfs
from tests.rdma.guest.packages import GuestUnavailableError


def test_an_elf_kernel_is_found_behind_other_packed_parts() -> None:
    image = b"MZ" + bytes(99) + lzma.compress(b"a setup part") + bytes(7) + lzma.compress(b"\x7fELFkernel") + b"tail"
    assert initramfs.uncompressed(image) == b"\x7fELFkernel"


@pytest.mark.parametrize("image", [b"", bytes(1000), lzma.compress(b"no kernel"), lzma.compress(b"\x7fELFx")[:20]])
def test_an_image_without_a_kernel(image: bytes) -> None:
    with pytest.raises(GuestUnavailableError, match="ELF"):
        initramfs.uncompressed(image)


def test_archive_members_are_aligned() -> None:
    made = initramfs.newc([("ab", stat.S_IFREG, b"12345", (0, 0))])
    assert len(made) % 4 == 0
    assert made.startswith(b"070701" + b"00000001")
    assert made[110:113] == b"ab\0"
    assert made[116:121] == b"12345"
    assert b"TRAILER!!!\0" in made


def test_outcomes_of_a_report() -> None:
    report = (
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure/></testcase>"
        "<testcase name='c'><skipped/></testcase><testcase name='d'><error/></testcase></testsuite></testsuites>"
    )
    assert group.outcomes(report) == {"a": "passed", "b": "failed", "c": "skipped", "d": "failed"}
