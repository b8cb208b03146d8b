"""Module memory maps by SFF-8472, SFF-8636 and CMIS, built octet by octet."""

import pytest

from sdfstream.probes.ports.optics import NO_MODULE, Fetch, MemoryWindow, identify, read_module

Memory = dict[tuple[int, int], bytearray]
"""(address, page) to 256 octets; the lower half is read from page 0."""


def fetch_from(memory: Memory, asked: list[MemoryWindow] | None = None) -> Fetch:
    def fetch(window: MemoryWindow) -> bytes:
        if asked is not None:
            asked.append(window)
        page = memory.get((window.address, window.page))
        return bytes(page[window.offset : window.offset + window.length]) if page else b""

    return fetch


def put16(page: bytearray, at: int, *values: int) -> None:
    for i, value in enumerate(values):
        page[at + 2 * i : at + 2 * i + 2] = value.to_bytes(2, "big", signed=value < 0)


def sfp(**octets: int) -> Memory:
    a0, a2 = bytearray(256), bytearray(256)
    a0[0], a0[92] = 0x03, 0x60
    put16(a2, 96, 0x1B80, 33_000, 2000, 5011, 2500)  # 27.5 °C, −3 dBm out, −6.02 dBm in
    for octet, value in octets.items():
        a0[int(octet[1:])] = value
    return {(0x50, 0): a0, (0x51, 0): a2}


def qsfp(**octets: int) -> Memory:
    page = bytearray(256)
    page[0], page[220] = 0x11, 0x04
    put16(page, 22, -256)
    put16(page, 34, 10_000, 9000, 100, 8000)
    put16(page, 50, 12_000, 12_000, 12_000, 11_000)
    for octet, value in octets.items():
        page[int(octet[1:])] = value
    return {(0x50, 0): page}


def cmis(**octets: int) -> Memory:
    page, one, eleven = bytearray(256), bytearray(256), bytearray(256)
    page[0], page[85], page[210], one[160] = 0x19, 2, 0xF0, 0x06
    put16(page, 14, 45 * 256)
    put16(eleven, 154, 20_000, 20_000, 19_953, 20_000)
    put16(eleven, 186, 6310, 6310, 6310, 6309)
    for octet, value in octets.items():
        page[int(octet[1:])] = value
    return {(0x50, 0): page, (0x50, 1): one, (0x50, 0x11): eleven}


@pytest.mark.parametrize(
    ("memory", "temperature", "tx", "rx"),
    [(sfp(), 27.5, -3.0, -6.02), (qsfp(), -1.0, 0.414, -20.0), (cmis(), 45.0, 3.0, -2.0)],
)
def test_monitors_of_each_kind(memory: Memory, temperature: float, tx: float, rx: float) -> None:
    module = identify(fetch_from(memory))
    assert module is not None
    values = read_module(module, fetch_from(memory)).values
    assert values["module_temp_c"] == pytest.approx(temperature)
    assert values["tx_power_dbm"] == pytest.approx(tx, abs=0.01)
    assert values["rx_power_dbm"] == pytest.approx(rx, abs=0.01)


def test_channels_that_do_not_exist_are_not_dark() -> None:
    memory = qsfp(b113=0b1100)
    put16(memory[0x50, 0], 34, 10_000, 10_000, 0, 0)
    module = identify(fetch_from(memory))
    assert module is not None
    assert read_module(module, fetch_from(memory)).values["rx_power_dbm"] == pytest.approx(0.0)


def test_no_light_is_minus_forty_and_not_null() -> None:
    memory = sfp()
    put16(memory[0x51, 0], 104, 0)
    module = identify(fetch_from(memory))
    assert module is not None
    assert read_module(module, fetch_from(memory)).values["rx_power_dbm"] == -40.0


@pytest.mark.parametrize(
    "memory",
    [
        sfp(b8=0x04),  # passive copper
        sfp(b92=0x00),  # no diagnostics
        sfp(b92=0x50),  # externally calibrated
        qsfp(b147=0xA0),  # copper
        cmis(b2=0x80),  # flat memory
        cmis(b85=0x03),  # passive copper
        {(0x50, 0): bytearray(256)},  # unknown identifier
    ],
)
def test_what_has_no_optical_monitors_is_remembered_as_such(memory: Memory) -> None:
    module = identify(fetch_from(memory))
    assert module is NO_MODULE
    assert read_module(module, fetch_from(memory)).values == {}


def test_a_module_that_does_not_answer_is_not_identified() -> None:
    assert identify(fetch_from({})) is None
    assert identify(fetch_from({(0x50, 0): cmis()[0x50, 0]})) is None, "page 01h is missing"


def test_once_identified_only_monitors_are_fetched() -> None:
    asked: list[MemoryWindow] = []
    module = identify(fetch_from(cmis()))
    assert module is not None
    read_module(module, fetch_from(cmis(), asked))
    assert asked == [MemoryWindow(0, 14, 2), MemoryWindow(0x11, 154, 48)]


def test_transmit_power_is_left_out_where_the_module_does_not_measure_it() -> None:
    memory = qsfp(b220=0)
    module = identify(fetch_from(memory))
    assert module is not None
    assert "tx_power_dbm" not in read_module(module, fetch_from(memory)).values
