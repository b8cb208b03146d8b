"""Laws of the noisy-or: what is worked out for many answers at once, or for a change alone, is what each one gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.numeric.noisy_or import NoisyOr, Rules, TrialCounts


@st.composite
def models(draw: st.DrawFn) -> NoisyOr:
    rows, elements = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    crosses = chance.random((rows, elements)) < 0.5
    row, element = np.nonzero(crosses)
    mixed = chance.permutation(row.size)
    weight = np.where(chance.random(row.size) < 0.6, 1.0, chance.random(row.size))
    tried = np.floor(1 + 60 * chance.random(rows))
    failed = np.floor(tried * chance.random(rows) * (chance.random(rows) < 0.5))
    count = np.where(failed > 0, 1.0, np.floor(1 + 5 * chance.random(rows)))
    observed = TrialCounts(failed, tried, row[mixed], element[mixed], weight, count)
    log_prior = np.log(np.full(elements, 1e-3))
    return NoisyOr(observed, Rules(log_prior, 1e-3, draw(st.sampled_from([0.0, 0.99])), None, None, 3.0, 16))


@given(models(), st.data())
def test_total_gains_are_what_each_answer_gains_alone(model: NoisyOr, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(model.elements)))
    shares = st.floats(0.001, 1.0)
    whole = [(element, data.draw(shares)) for element in order]
    fewer = [[(element, data.draw(shares)) for element, _ in whole[:i] + whole[i + 1 :]] for i in range(len(whole))]

    assert model.total_gains([whole, *fewer]) == [model.total_gain(answer) for answer in (whole, *fewer)]


@given(models(), st.data())
def test_gains_after_a_change_are_the_gains(model: NoisyOr, data: st.DataObject) -> None:
    free = np.ones(model.elements, np.bool_)
    survive = np.ones(model.observed.failed.size)
    known = model.gains(survive, free)
    for element in data.draw(st.permutations(range(model.elements))):
        rows = model.row[model.entries(element)]
        survive = model.survival([(element, data.draw(st.floats(0.01, 1.0)))]) * survive
        free[element] = False
        known = model.gains_after(rows, survive, free, known)

        for got, expected in zip(known, model.gains(survive, free), strict=True):
            assert np.array_equal(got, expected)


@given(models(), st.data())
def test_the_gain_of_one_element_is_its_log_likelihood_ratio(model: NoisyOr, data: st.DataObject) -> None:
    """By the formula of `blame`, trial by trial."""
    element, share = data.draw(st.integers(0, model.elements - 1)), data.draw(st.floats(0.01, 0.99))
    observed, noise = model.observed, model.rules.noise
    expected = float(model.rules.log_prior[element])
    for j in np.flatnonzero(observed.element == element).tolist():
        i = observed.row[j]
        failed, passed = observed.failed[i], observed.tried[i] - observed.failed[i]
        sick, well = 1 - (1 - noise) * (1 - share), noise
        ratio = failed * np.log(sick / well) + passed * np.log((1 - sick) / (1 - well))
        crossed, missed = np.log(observed.weight[j]), np.log(max(1 - observed.weight[j], 1e-300))
        expected += observed.count[i] * np.logaddexp(crossed + ratio, missed)

    assert np.isclose(model.total_gain([(element, share)]), expected, rtol=1e-9)


@given(models(), st.data())
def test_what_surely_crosses_is_crossed_however_much_speaks_against_it(model: NoisyOr, data: st.DataObject) -> None:
    element = data.draw(st.integers(0, model.elements - 1))
    survive = model.survival([(element, 1.0)])
    crossed = model.crossed_odds(element, np.ones(survive.size), 1.0)

    assert (crossed[model.weight[model.entries(element)] == 1.0] == 1.0).all()
    assert ((survive > 0) & (survive <= 1)).all()
