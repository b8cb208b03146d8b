"""Netlink answers built byte by byte, and the reader over a pretended kernel."""

import errno
import struct
from collections.abc import Sequence

import pytest

from sdfstream.errors import FormatError
from sdfstream.probes.config import NicConfig
from sdfstream.probes.net import netlink as nl
from sdfstream.probes.net.netlink_io import NetlinkAnswer
from sdfstream.probes.ports import rtnetlink as pn
from sdfstream.probes.ports.device_io import NetDevice
from sdfstream.probes.ports.driver_stats import counter_indexes
from sdfstream.probes.ports.optics import MemoryWindow
from sdfstream.probes.ports.reader_io import PortReader
from sdfstream.probes.ports.reading import NOT_SET_64, PortReading
from sdfstream.stats import Counters
from tests.unit.probes.ports.test_optics import fetch_from, sfp


def u64(kind: int, *values: int) -> bytes:
    return nl.attribute(kind, struct.pack(f"={len(values)}Q", *values))


def genl(*attributes: bytes) -> bytes:
    return struct.pack("=BBH", 0, 1, 0) + b"".join(attributes)


def newlink(flags: int = 0x1003, *attributes: bytes) -> bytes:
    return struct.pack("=BxHiII", 0, 1, 7, flags, 0) + b"".join(attributes)


ANSWERS = {
    pn.LINKMODES_GET: genl(nl.u32(5, 400_000)),
    pn.LINKSTATE_GET: genl(nl.u8(2, 1), nl.u32(7, 300)),
    pn.PAUSE_GET: genl(nl.nested(5, u64(2, 21), u64(3, 31))),
    pn.FEC_GET: genl(nl.nested(5, u64(2, 41, 20, 21), u64(3, 5, 2, 3))),
    pn.STATS_GET: genl(
        nl.nested(4, nl.u32(2, 0), nl.u32(3, 17), nl.nested(4, u64(0, 61))),
        nl.nested(4, nl.u32(2, 1), nl.nested(4, u64(0, 71)), nl.nested(4, u64(3, 72)), nl.nested(4, u64(6, 73))),
        nl.nested(4, nl.u32(2, 1), nl.nested(4, u64(12, 74))),
        nl.nested(4, nl.u32(2, 9), nl.nested(4, u64(0, 99))),
    ),
}


def test_ethtool_answers() -> None:
    assert pn.ethtool_reading(ANSWERS, Counters("ports")).values == {
        "speed_mbps": 400_000,
        "link_downed": 300,
        "tx_pause": 21,
        "rx_pause": 31,
        "fec_corrected": 41,
        "fec_uncorrectable": 5,
        "symbol_errors": 61,
        "tx_packets": 71,
        "rx_packets": 72,
        "tx_bytes": 73,
        "rx_bytes": 74,
    }


def test_unset_and_odd_values_are_left_out_and_counted() -> None:
    refused = Counters("ports")
    answers = {
        pn.LINKMODES_GET: genl(nl.u32(5, 0xFFFFFFFF)),
        pn.PAUSE_GET: genl(nl.nested(5, u64(2, 0xFFFFFFFFFFFFFFFF), nl.attribute(3, b"abc"))),
        pn.FEC_GET: genl(nl.attribute(5, b"\xff")),
        pn.STATS_GET: genl(b"\x02\x00\x04\x00"),
    }
    assert pn.ethtool_reading(answers, refused).values == {}
    assert refused.as_dict() == {
        "ports.refused.ethtool-32.truncated": 1,
        "ports.refused.speed_mbps.not-known": 1,
        "ports.refused.tx_pause.not-known": 1,
    }


@pytest.mark.parametrize(
    ("flags", "attributes", "state"),
    [
        (0x1003, [nl.u8(33, 1), nl.u8(16, 6)], "up"),
        (0x1003, [nl.u8(33, 0), nl.u8(16, 2)], "down"),
        (0x1002, [nl.u8(33, 0), nl.u8(16, 2)], "disabled"),
        (0x1003, [nl.u8(16, 6)], "up"),
        (0x1003, [nl.u8(16, 5)], "down"),
        (0x1003, [nl.u8(16, 1)], "absent"),
        (0x1003, [nl.u8(16, 0)], "unknown"),
        (0x1003, [], "unknown"),
    ],
)
def test_states_of_a_link(flags: int, attributes: list[bytes], state: str) -> None:
    link = pn.link(newlink(flags, *attributes), Counters("ports"))
    assert (link.ifindex, link.reading.state) == (7, state)


def test_link_statistics() -> None:
    link = pn.link(newlink(0x1003, u64(23, *range(24)), nl.u32(35, 9), nl.u32(4, 1500)), Counters("ports"))
    assert link.reading.values == {
        "mtu_bytes": 1500,
        "carrier_changes": 9,
        "rx_packets": 0,
        "tx_packets": 1,
        "rx_bytes": 2,
        "tx_bytes": 3,
        "rx_errors": 4,
        "tx_errors": 5,
        "rx_discards": 6 + 15,
        "tx_discards": 7,
    }
    short = pn.link(newlink(0x1003, nl.attribute(23, b"\1" * 12)), Counters("ports"))
    assert short.reading.values == {}


def test_messages_round_trip_and_truncation() -> None:
    data = nl.request(18, 5, b"abcd") + nl.request(19, 6, b"efghij")
    assert [(p.kind, p.seq, p.body) for p in nl.packets(data)] == [(18, 5, b"abcd"), (19, 6, b"efghij")]
    for cut in (3, 17, 23):
        with pytest.raises(FormatError, match="truncated"):
            list(nl.packets(data[:cut]))
    assert nl.error_of(struct.pack("=i", -19)) == 19


class PretendedKernel:
    """A kernel with one port; `refuse` maps ethtool commands to errors."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.refuse = {pn.PAUSE_GET: errno.EOPNOTSUPP, pn.FEC_GET: errno.EBUSY}
        self.has_ethtool = True
        self.present = True
        self.index = 7
        self.memory = fetch_from(sfp())
        self.driver: dict[str, int] = {}
        self.driver_takes_ns = 0
        self.now_ns = 0
        self.driver_asked = 0

    def driver_names(self, device: str) -> list[str]:
        if not self.driver:
            raise OSError(errno.EOPNOTSUPP, "none")
        return list(self.driver)

    def driver_values(self, device: str) -> tuple[int, ...]:
        self.driver_asked += 1
        self.now_ns += self.driver_takes_ns
        return tuple(self.driver.values())

    def link(self, device: str, refused: Counters) -> pn.LinkMessage | None:
        values: dict[str, int | float] = {"carrier_changes": self.index}
        return pn.LinkMessage(self.index, b"", PortReading("rtnetlink", "up", values)) if self.present else None

    def ethtool(self, bodies: Sequence[bytes]) -> list[NetlinkAnswer]:
        commands = [body[0] for body in bodies]
        self.asked += commands
        return [self._answer(command, body) for command, body in zip(commands, bodies, strict=True)]

    def close(self) -> None:
        pass

    def _answer(self, command: int, body: bytes) -> NetlinkAnswer:
        if command in self.refuse:
            return NetlinkAnswer(self.refuse[command], [])
        if command != pn.EEPROM_GET:
            return NetlinkAnswer(0, [ANSWERS[command]])
        asked = {kind: nl.number(value) or 0 for kind, value in nl.walk(body[4:]) if kind != 1}
        memory = self.memory(MemoryWindow(asked[4], asked[2], asked[3], asked[6]))
        return NetlinkAnswer(0, [genl(nl.attribute(7, memory))]) if memory else NetlinkAnswer(errno.EIO, [])


@pytest.fixture
def kernel() -> PretendedKernel:
    return PretendedKernel()


@pytest.fixture
def ports(kernel: PretendedKernel, monkeypatch: pytest.MonkeyPatch) -> PortReader:
    monkeypatch.setattr(NetDevice, "clock_ns", staticmethod(lambda: kernel.now_ns))
    ports = PortReader("h", [NicConfig("h/x", "sdf-none", "10.0.0.1")])
    ports._kernels = {None: kernel}  # type: ignore[dict-item]
    return ports


def columns(ports: PortReader, now_ns: int, *names: str) -> list[object]:
    batch = ports.read(now_ns)
    assert batch is not None
    return [batch.column(name)[0].as_py() for name in names]


def test_commands_a_driver_does_not_know_are_asked_once(kernel: PretendedKernel, ports: PortReader) -> None:
    assert columns(ports, 0, "rx_pause", "fec_corrected", "rx_bytes") == [None, None, 74]
    kernel.asked.clear()
    kernel.refuse.clear()
    assert columns(ports, 1, "rx_pause", "fec_corrected") == [None, 41]
    assert pn.PAUSE_GET not in kernel.asked
    kernel.index = 8  # the device was made anew
    assert columns(ports, 2, "rx_pause") == [31]


def test_optics_are_read_every_ten_seconds_and_null_in_between(kernel: PretendedKernel, ports: PortReader) -> None:
    assert columns(ports, 0, "module_temp_c") == [27.5]
    assert columns(ports, 5_000_000_000, "module_temp_c", "rx_power_dbm") == [None, None]
    assert columns(ports, 11_000_000_000, "module_temp_c") == [27.5]
    kernel.memory = fetch_from({})
    assert columns(ports, 22_000_000_000, "module_temp_c") == [None]
    kernel.memory = fetch_from(sfp())
    assert columns(ports, 33_000_000_000, "module_temp_c") == [27.5]


def test_a_driver_without_module_access_is_not_asked_again(kernel: PretendedKernel, ports: PortReader) -> None:
    kernel.refuse[pn.EEPROM_GET] = errno.EPERM
    columns(ports, 0)
    columns(ports, 11_000_000_000)
    assert kernel.asked.count(pn.EEPROM_GET) == 1


def test_a_kernel_that_fails_gives_unknown_and_no_exception(kernel: PretendedKernel, ports: PortReader) -> None:
    columns(ports, 0)

    def fail(device: str, refused: Counters) -> pn.LinkMessage | None:
        raise TimeoutError

    kernel.link = fail  # type: ignore[method-assign]
    assert columns(ports, 1, "state", "rx_bytes") == ["unknown", None]
    assert ports.counters.get("refused", "nic.TimeoutError") == 1


MLX5 = {"rx_packets": 1, "rx_prio0_pause": 5, "rx_prio3_pause": 7, "tx_prio3_pause": 2, "rx_discards_phy": 9}


def test_priority_pause_comes_from_the_drivers_own_counters(kernel: PretendedKernel, ports: PortReader) -> None:
    kernel.driver = dict(MLX5)
    del kernel.refuse[pn.PAUSE_GET]
    assert columns(ports, 0, "rx_pause", "tx_pause", "rx_discards") == [12, 2, 9]
    kernel.driver["rx_prio3_pause"] = NOT_SET_64
    assert columns(ports, 1, "rx_pause", "tx_pause") == [None, 2]


def test_counters_that_moved_are_not_read_at_their_old_index(kernel: PretendedKernel, ports: PortReader) -> None:
    kernel.driver = dict(MLX5)
    columns(ports, 0)
    kernel.driver = {"rx_bytes": 77, **MLX5}
    assert columns(ports, 1, "rx_pause") == [None]
    assert columns(ports, 2, "rx_pause") == [12]


def test_a_slow_driver_is_asked_seldom(kernel: PretendedKernel, ports: PortReader) -> None:
    kernel.driver, kernel.driver_takes_ns = dict(MLX5), 3_000_000
    got = [columns(ports, i * 1_000_000_000, "rx_pause")[0] for i in range(13)]
    assert [i for i, value in enumerate(got) if value is not None] == [0, 1, 11]
    kernel.driver_takes_ns = 10_000
    got = [columns(ports, i * 1_000_000_000, "rx_pause")[0] for i in range(20, 25)]
    assert [i for i, value in enumerate(got) if value is not None] == [1, 2, 3, 4], "one quick answer is enough"


def test_a_driver_with_nothing_to_add_is_asked_once(kernel: PretendedKernel, ports: PortReader) -> None:
    kernel.driver = {"rx_queue_0_packets": 3}
    columns(ports, 0)
    columns(ports, 1)
    assert kernel.driver_asked == 0


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("rx_prio7_pause", "rx_pause"),
        ("rx_global_pause", "rx_pause"),
        ("rx_pause_prio_0", "rx_pause"),
        ("rx_priority_3_xoff.nic", "rx_pause"),
        ("port.tx_priority_3_xoff", "tx_pause"),
        ("link_xoff_tx.nic", "tx_pause"),
        ("tx_pfc_frames", "tx_pause"),
        ("tx_discards_phy", "tx_discards"),
        ("rx_prio0_pause_duration", None),
        ("rx_pause_storm", None),
        ("rx_prio0_bytes", None),
    ],
)
def test_names_of_several_drivers(name: str, column: str | None) -> None:
    assert counter_indexes([name]) == ({column: (0,)} if column else {})
