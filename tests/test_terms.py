"""Functions that return the terms of log p become networks of tables."""

import pickle

import numpy as np
import pytest

from sklsb import FunctionTarget, GibbsSampler, MarkovNetwork, exact

CASES = np.arange(40)


def model(seed):
    """Return terms with couplings that are hidden: products, switches, sums, cumulative sums."""
    rng = np.random.default_rng(seed)
    n, k = 6, int(rng.integers(2, 4))
    w, kinds = rng.normal(size=(8, n)), rng.integers(5, size=8)
    scopes = [rng.choice(n, 3, replace=False) for _ in kinds]

    def terms(x):
        columns = []
        for kind, (a, b, c), weight in zip(kinds, scopes, w, strict=True):
            one, two, three = x[:, a], x[:, b], x[:, c]
            columns.append(
                [
                    weight[0] * one * two * three,
                    np.where((one == k - 1) & (two == k - 1), weight[1] * three, 0.3),
                    weight[2] * (one + two - three) ** 2,
                    np.where(one + two + three == 0, -np.inf, weight[3] * two),
                    weight[4] * np.cumsum(x[:, [a, b]], axis=1)[:, -1] * one,
                ][kind]
            )
        return np.stack(columns, axis=1)

    return terms, n, k


@pytest.mark.parametrize("seed", CASES)
def test_hidden_couplings_are_found(seed):
    terms, n, k = model(seed)
    target = FunctionTarget(terms, n, k, terms=True)
    assert isinstance(target, MarkovNetwork)
    x = exact.states(target)
    np.testing.assert_allclose(target.log_prob(x), terms(x).sum(axis=1), rtol=1e-12, atol=1e-12)
    assert max(len(scope) for scope, _ in target.factors) <= 3


def test_a_switch_that_probes_miss_is_seen_when_tables_are_compared():
    def terms(x):
        return np.stack(
            [0.7 * x[:, 0], np.where(x[:, 1:5].sum(axis=1) == 0, x[:, 5] - 0.5, 0.2)], 1
        )

    target = FunctionTarget(terms, 6, terms=True)
    assert [scope for scope, _ in target.factors] == [(0,), (1, 2, 3, 4, 5)]
    x = exact.states(target)
    np.testing.assert_allclose(target.log_prob(x), terms(x).sum(axis=1), rtol=1e-12, atol=1e-15)


def pair_of_values(x):
    return np.where((x[:, :-1] == 7) & (x[:, 1:] == 3), -np.inf, 0.1 * x[:, 1:])


def all_but_one(x):
    return np.where((x[:, :-1] == 1).all(axis=1), 3.0 * x[:, -1], 0.0)[:, None]


def test_what_shows_at_few_of_few_states_is_found():
    for function, n, k in ((pair_of_values, 4, 12), (pair_of_values, 2, 200), (all_but_one, 12, 2)):
        target = FunctionTarget(function, n, k, terms=True)
        x = np.indices([k] * n).reshape(n, -1).T
        np.testing.assert_allclose(target.log_prob(x), function(x).sum(axis=1), atol=1e-12)


def test_two_values_of_two_of_many_variables_are_found():
    target = FunctionTarget(pair_of_values, 30, 40, terms=True)
    assert [scope for scope, _ in target.factors] == [(i, i + 1) for i in range(29)]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_variables_of_one_value(n):
    assert FunctionTarget(lambda x: np.zeros((len(x), 1)), n, 1, terms=True).n_sites == n


def test_the_function_of_a_lattice_is_called_a_few_times():
    rows = []

    def terms(x):
        rows.append(len(x))
        x = 2 * x.reshape(-1, 10, 12) - 1
        pairs = [(x * np.roll(x, 1, axis=a)).reshape(len(x), -1) for a in (1, 2)]
        return 0.3 * np.concatenate(pairs, axis=1)

    target = FunctionTarget(terms, 120, terms=True, names=[f"s{i}" for i in range(120)])
    assert sum(rows) < 2 + 3 * 121 + 256 + 4 * 16  # no more for each term
    x = np.random.default_rng(0).integers(2, size=(5, 120))
    np.testing.assert_allclose(target.log_prob(x), terms(x).sum(axis=1), rtol=1e-12)
    rows.clear()
    draws = GibbsSampler("chromatic", random_state=0, n_burn_in=50).fit(target).sample(20)
    assert draws["x"].sel(site="s3").shape == (4, 20)
    assert not rows
    assert pickle.loads(pickle.dumps(target)).names == target.names


def test_refusals():
    def wide(x):
        return (x.sum(axis=1, keepdims=True) - 12.0) ** 2 / 50

    with pytest.raises(ValueError, match="term 0 sees 24 variables, with 16777216 joint values"):
        FunctionTarget(wide, 24, terms=True)
    with pytest.raises(ValueError, match=r"numbers of shape \(n, terms\) .* it returned int64 of"):
        FunctionTarget(lambda x: x.sum(axis=1), 3, terms=True)
    with pytest.raises(ValueError, match="term 0 is nan at the state"):
        FunctionTarget(lambda x: np.where(x == 0, 0.0, np.nan)[:, ::-1], 2, terms=True)
    with pytest.raises(ValueError, match=r"always of the same terms; .* of shape \(1, 1\)"):
        FunctionTarget(lambda x: x[:, : len(x)], 3, terms=True)
    with pytest.raises(ValueError, match=r"of shape \(2, 0\)"):
        FunctionTarget(lambda x: x[:, :0], 3, terms=True)
    with pytest.raises(ValueError, match="depends on more than the state"):
        FunctionTarget(lambda x: x - x.mean(axis=0), 3, terms=True)
    calls = []

    def changing(x):
        calls.append(1)
        return x * float(len(calls))

    with pytest.raises(ValueError, match="term 0 depends on more than the state"):
        FunctionTarget(changing, 2, terms=True)
    with pytest.raises(TypeError, match="vectorized"):
        FunctionTarget(lambda x: x, 2, terms=True, vectorized=True)
