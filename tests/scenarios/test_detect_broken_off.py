"""A host that falls silent with its agent at one moment: told within a second, where nothing excuses it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import LIVENESS
from sdfstream.records.units import NS_PER_S
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Fault, Shape
from tests.fixtures.leafspine_plan import EPOCH

AT_S, BACK_S = 6.0, 14.0
HOST = "h02"


def saying(messages: Iterable[Message], stops: str = "") -> Iterator[Message]:
    """Statements of agents that say whether they are being stopped; `stops` says so in its last second."""
    for message in messages:
        if message.topic == LIVENESS.name and isinstance(message.body, Event):
            last = message.key == stops and message.bus_at_ns > EPOCH + int((AT_S - 1.1) * NS_PER_S)
            body = replace(message.body, data={**message.body.data, "stopping": last})
            message = replace(message, body=body)
        yield message


def statements(messages: Iterable[Message]) -> list[tuple[float, str, str, str, str, float]]:
    """When findings were opened and updated: status, kind, subject, severity and confidence."""
    reported = run(DetectStage(), messages)
    found = [(at_s, f) for status in ("open", "update") for at_s, f in reported.findings(status)]
    return sorted(
        (at_s, f["status"], f["kind"], f["subject"]["id"], f["severity"], f["confidence"]) for at_s, f in found
    )


def fabric(*faults: Fault, seed: int = 3) -> Iterable[Message]:
    return Fabric(seed, list(faults), Shape(hosts=8, leaves=4, ports=2, limits_ms=(600,))).messages(16)


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_host_is_told_within_a_second_and_urgent_once_its_agent_counts_as_gone(seed: int) -> None:
    first, *later = statements(saying(fabric(Fault((), AT_S, BACK_S, host=HOST), seed=seed)))
    assert first[1:] == ("open", "host-silent", HOST, "warning", 0.6)
    assert 0.6 < first[0] - AT_S <= 1.0
    urgent = [at_s for at_s, *said in later if said[3] == "urgent"]
    assert 2.8 < urgent[0] - AT_S < 3.6
    assert {said[2:4] for said in [first, *later]} == {("host-silent", HOST)}


@pytest.mark.parametrize(
    ("faults", "stops"),
    [
        pytest.param([Fault((), AT_S, AT_S + 2.0, host=HOST)], HOST, id="stopped in order"),
        pytest.param([Fault((), AT_S, AT_S + 2.0, host=h) for h in (HOST, "h05")], "", id="two at once"),
        pytest.param([Fault((), AT_S, AT_S + 2.0, agent=HOST)], "", id="its NICs answer"),
        pytest.param(
            [Fault((), AT_S, AT_S + 2.0, agent=HOST), Fault((), AT_S + 0.5, AT_S + 2.0, host=HOST)],
            "",
            id="its NICs answered for half a second more",
        ),
        pytest.param(
            [Fault((), 3.0, 5.0, late=HOST, late_s=1.0), Fault((), AT_S, AT_S + 2.0, host=HOST)], "", id="late before"
        ),
    ],
)
def test_what_may_be_something_else_waits_until_the_agent_counts_as_gone(faults: list[Fault], stops: str) -> None:
    assert statements(saying(fabric(*faults), stops)) == []


def test_agents_that_do_not_say_when_they_are_stopped_are_waited_for() -> None:
    first, *_ = statements(fabric(Fault((), AT_S, BACK_S, host=HOST)))
    assert first[1:5] == ("open", "host-silent", HOST, "urgent")
    assert first[0] - AT_S > 3.0
