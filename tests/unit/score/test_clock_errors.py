"""Clock errors against true clocks: sign, reference, drift, bounds, and what is not judged."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.records.units import NS_PER_S
from sdfstream.score.clock_errors import TrueClocks, clock_errors

T0 = 1_800_000_000 * NS_PER_S


def rows(clock: str, at_ns: Any, offset_ns: Any, err_ns: float = 100.0, status: str = "synced") -> dict[str, list[Any]]:
    n = len(at_ns)
    return {
        "clock": [clock] * n,
        "at_ns": list(at_ns),
        "offset_ns": list(offset_ns),
        "err_ns": [err_ns] * n,
        "status": [status] * n,
        "kind": ["causal"] * n,
    }


def joined(*batches: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [value for batch in batches for value in batch[name]] for name in batches[0]}


def line(clock: str, at_s: float, offset_ns: float) -> dict[str, Any]:
    return {"clock": clock, "at_ns": T0 + int(at_s * NS_PER_S), "offset_ns": offset_ns}


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e5, 1e5), st.floats(-1e5, 1e5))
def test_a_perfect_estimate_has_no_error_whatever_the_clocks(
    a_ns: float, b_ns: float, a_ppb: float, b_ppb: float
) -> None:
    truth = TrueClocks(
        [line("a", s, a_ns + a_ppb * s) for s in (0, 100)] + [line("b", s, b_ns + b_ppb * s) for s in (0, 100)]
    )
    true_ns = T0 + np.arange(10, 90, 10) * NS_PER_S
    seconds = (true_ns - T0) / NS_PER_S
    a, b = a_ns + a_ppb * seconds, b_ns + b_ppb * seconds
    estimates = joined(
        rows("a", true_ns + np.rint(a).astype(np.int64), np.zeros(8), 0.0),
        rows("b", true_ns + np.rint(b).astype(np.int64), b - a),
    )
    result = clock_errors(truth, estimates)
    if result["reference"] == "a":  # equal clocks have no one to choose between
        assert result["clocks"]["b"]["error_max_ns"] < 2.0


def test_sign_bound_and_bias() -> None:
    truth = TrueClocks([line("a", 0, 0.0), line("b", 0, 1000.0)])
    at = [T0 + i for i in range(4)]
    result = clock_errors(truth, joined(rows("a", at, [0.0] * 4, 0.0), rows("b", at, [1050.0, 1050.0, 1050.0, 1250.0])))
    b = result["clocks"]["b"]
    assert (b["n"], b["bias_ns"], b["error_p50_ns"], b["error_max_ns"], b["bound_held"]) == (
        4,
        100.0,
        50.0,
        250.0,
        0.75,
    )
    assert result["all"] == b


def test_unsynced_rows_and_clocks_without_truth_are_not_assessed() -> None:
    truth = TrueClocks([line("a", 0, 0.0), line("b", 0, 5.0), line("b", 1, 5.0)])
    at = [T0 + 100, T0 + 2 * NS_PER_S]
    batches = [rows("a", at, [0.0, 0.0], 0.0), rows("b", at, [5.0, 5.0]), rows("c", at, [1.0, 1.0])]
    result = clock_errors(truth, joined(*batches, rows("b", at, [9e9, 9e9], status="unsynced")))
    assert result["clocks"]["b"]["n"] == 1, "one row lies after the last line of truth"
    assert result["not_judged"] == 5
    assert "c" not in result["clocks"]


def test_without_a_reference_nothing_is_assessed() -> None:
    truth = TrueClocks([line("a", 0, 0.0)])
    assert clock_errors(truth, rows("a", [T0], [3.0])) == {
        "reference": None,
        "kind": "causal",
        "clocks": {},
        "not_judged": 1,
    }
    assert clock_errors(truth, rows("a", [], []))["not_judged"] == 0


def test_a_line_without_its_fields_is_an_error() -> None:
    with pytest.raises(KeyError):
        TrueClocks([{"clock": "a", "at_ns": 1}])
