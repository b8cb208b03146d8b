"""Events of gnmic into updates: vendors' shapes, and what cannot be read."""

import json
from typing import Any

import pytest

from sdfstream.probes.switches import leaves
from sdfstream.probes.switches.gnmic import Update, updates
from sdfstream.stats import Counters
from tests.fixtures.gnmic_events import T0_NS, VENDORS, event, message

OCTETS = "/interfaces/interface/state/counters/in-octets"


def read(raw: bytes) -> tuple[list[Update], dict[str, int]]:
    counters = Counters("s")
    return updates(raw, counters), counters.as_dict()


def good(**changes: Any) -> dict[str, Any]:
    return event("l0", "Ethernet1/1", T0_NS, {OCTETS: 5}) | changes


def test_an_event_is_an_update_of_one_port() -> None:
    (update,), counted = read(message(good()))
    assert update == Update("l0", "Ethernet1/1", T0_NS, {"state/counters/in-octets": 5}, {})
    assert counted == {"s.events": 1}


def test_an_event_without_a_list_around_it_is_read_too() -> None:
    assert len(read(json.dumps(good()).encode())[0]) == 1


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_vendor_says_the_same(vendor: str) -> None:
    counters = Counters("s")
    said = [u for raw in VENDORS[vendor]("l0", "et-0/0/1:0", T0_NS, 1000, 3) for u in updates(raw, counters)]
    numbers = {leaf: n for u in said for leaf, n in u.counters.items()}
    words = {leaf: word for u in said for leaf, word in u.words.items()}
    assert {(u.switch, u.interface) for u in said} == {("l0", "et-0/0/1:0")}
    values = leaves.columns_of(numbers, {})
    assert values == {"rx_bytes": 1000, "tx_bytes": 2000, "rx_packets": 16, "rx_errors": 3}
    assert leaves.state_of(words[leaves.OPER], words[leaves.ADMIN]) == "up"
    speeds = [leaves.speed_mbps(words.get(leaf, "")) for leaf in leaves.SPEEDS]
    assert [s for s in speeds if s] == [400_000]
    assert not counters.total("refused")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\xff", "refused.json"),
        (b"[", "refused.json"),
        (b'{"name": "a", "name": "b"}', "refused.json"),
        (b"[" * 5000, "refused.json"),
        (b"3", "refused.event"),
        (b'["x"]', "refused.event"),
        (b'{"source": "l0", "updates": [{"values": {}}], "tags": {}}', "refused.event"),
        (message(good(timestamp=None)), "refused.timestamp"),
        (message(good(timestamp=True)), "refused.timestamp"),
        (message(good(timestamp=1_800_000_000)), "refused.timestamp"),
        (message(good(timestamp=1 << 63)), "refused.timestamp"),
        (message(good(tags={"interface_name": "e1"})), "refused.switch"),
        (message(good(tags={"interface_name": "e1", "source": "a/b"})), "refused.switch"),
        (message(good(tags={"interface_name": "e1", "source": "x" * 101})), "refused.switch"),
        (message(good(tags={"interface_name": "a\nb", "source": "l0"})), "refused.port"),
        (message(good(tags={"interface_name": 3, "source": "l0"})), "refused.port"),
        (message(good(values={OCTETS: -1})), "refused.value"),
        (message(good(values={OCTETS: "1e3"})), "refused.value"),
        (message(good(values={OCTETS: 1 << 63})), "refused.value"),
        (message(good(values={OCTETS: 0.5})), "refused.value"),
        (message(good(values={OCTETS: [1]})), "refused.value"),
        (message(good(values={"/interfaces/interface/state/oper-status": 1})), "refused.value"),
        (message(good(values={"/interfaces/interface/state/mtu": 9214})), "ignored.leaf"),
        (message(good(tags={"source": "l0", "neighbor_address": "::1"})), "ignored.other"),
        (message(good(values=None, deletes=["/interfaces/interface"])), "ignored.other"),
    ],
)
def test_what_cannot_be_read_is_counted_with_its_reason(raw: bytes, reason: str) -> None:
    found, counted = read(raw)
    assert found == []
    assert {name: n for name, n in counted.items() if name != "s.events"} == {f"s.{reason}": 1}


def test_one_bad_value_or_event_costs_nothing_else() -> None:
    mixed = good(values={OCTETS: "x", "/interfaces/interface/state/counters/in-errors": 2})
    found, counted = read(message(good(timestamp=0), mixed, good()))
    assert [sorted(u.counters) for u in found] == [["state/counters/in-errors"], ["state/counters/in-octets"]]
    assert (counted["s.refused.timestamp"], counted["s.refused.value"]) == (1, 1)


def test_the_port_number_of_an_address_is_no_part_of_the_name() -> None:
    for source, switch in (("10.0.0.7:57400", "10.0.0.7"), ("l0", "l0"), ("[2001:db8::7]:6030", "[2001:db8::7]")):
        ((update,), _) = read(message(good(tags={"source": source, "interface_name": "e1"})))
        assert update.switch == switch
