"""The tests of the numpy reflector, and the golden answers, with the packet engine's reflector in its place."""

from __future__ import annotations

from typing import Any

import pytest

from sdfstream.probes.config import HostConfig
from sdfstream.probes.engine.reflector_io import PacketReflector
from sdfstream.probes.stamp.known_senders import KnownSender
from tests.golden import test_probes_stamp_packets as golden
from tests.golden.test_probes_stamp_packets import *  # noqa: F403 - every test of it
from tests.unit.probes.stamp import test_reflector
from tests.unit.probes.stamp.test_reflector import *  # noqa: F403
from tests.wire import SOCKET_B, A


def engine_of(host: HostConfig, **more: Any) -> PacketReflector:
    return PacketReflector(host, {SOCKET_B: "hb/r0"}, {A: KnownSender("ha/r0")}, **more)


@pytest.fixture(autouse=True)
def the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (golden, test_reflector):
        if hasattr(module, "reflector_of"):
            monkeypatch.setattr(module, "reflector_of", engine_of)
        if hasattr(module, "SessionReflector"):
            monkeypatch.setattr(module, "SessionReflector", PacketReflector)
