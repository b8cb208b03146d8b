"""What the rdma command prints, as recorded on rxe and damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.errors import FormatError
from sdfstream.probes.rdma.observed_qps import observed_qps, statistics
from sdfstream.stats import Counters

RECORDED = """[{"ifindex":0,"ifname":"rxa0","port":1,"lqpn":17,"rqpn":18,"type":"RC","state":"RTS","rq-psn":0,
"sq-psn":4,"path-mig-state":"MIGRATED","pdn":1,"pid":146,"comm":"python"},{"ifindex":0,"ifname":"rxa0","port":1,"lqpn":1,
"type":"GSI","state":"RTS","sq-psn":0,"comm":"ib_core"}]"""
STATISTIC = '[{"ifname":"rxa0","port":1,"sent_pkts":4,"completer_retry_err":2}]'


def test_queue_pairs_with_their_owners() -> None:
    refused = Counters("rdma")
    own, kernel = observed_qps(RECORDED, refused)
    assert (own.device, own.number, own.peer_number, own.kind, own.state) == ("rxa0", 17, 18, "RC", "RTS")
    assert (own.pid, own.program, own.send_psn) == (146, "python", 4)
    assert (kernel.pid, kernel.peer_number, kernel.program) == (None, None, "ib_core")
    assert not refused.as_dict()


@pytest.mark.parametrize("text", ["", "[]", "[[]]", "[{}]"])
def test_nothing_to_list(text: str) -> None:
    refused = Counters("rdma")
    assert observed_qps(text, refused) == []
    assert statistics(text, refused) == {}
    assert not refused.as_dict()


@pytest.mark.parametrize("text", ["{", "{}", "3", '"x"', "null"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(FormatError):
        observed_qps(text, Counters("rdma"))


def test_a_damaged_row_is_refused_and_the_others_stay() -> None:
    rows = [*json.loads(RECORDED), 3, {"ifname": "x"}, {"ifname": "x", "lqpn": -1}, {"ifname": 7, "lqpn": 1}, [1]]
    refused = Counters("rdma")
    assert len(observed_qps(json.dumps(rows), refused)) == 2
    assert refused.get("refused", "qp") == 5


def test_statistics_by_port() -> None:
    assert statistics(STATISTIC, Counters("rdma")) == {("rxa0", 1): {"sent_pkts": "4", "completer_retry_err": "2"}}
    refused = Counters("rdma")
    assert statistics('[{"port":1},{"ifname":"a"},7]', refused) == {}
    assert refused.get("refused", "statistic") == 3


KEYS = st.sampled_from(["ifname", "lqpn", "port", "pid", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=5))
def test_any_rows_are_read_or_counted(rows: list[object]) -> None:
    try:
        observed_qps(json.dumps(rows), Counters("rdma"))
        statistics(json.dumps(rows), Counters("rdma"))
    except FormatError:
        pass  # an integer beyond 64 bits, or the like
