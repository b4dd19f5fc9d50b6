"""Prepared plans, against enumeration, eliminations made anew and finite differences."""

import itertools
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from sklsb import Ising, MarkovNetwork, draw, exact
from sklsb.diagnostics import to_frame
from sklsb.exact.elimination import reduce


class Table:
    """All states of a network with their products, by enumeration."""

    def __init__(self, network):
        self.x = np.array([*itertools.product(*map(range, network.cardinalities))])
        self.factors = network.factors
        self.k = network.cardinalities

    def products(self, weights, factors=None):
        p = np.ones(len(self.x))
        for scope, table in factors or self.factors:
            p *= table[tuple(self.x[:, list(scope)].T)]
        for site, mine in weights.items():
            p *= np.asarray(mine)[self.x[:, site]]
        return p

    def marginals(self, weights):
        p = self.products(weights)
        p /= p.sum()
        return np.array(
            [[p[self.x[:, v] == i].sum() for i in range(self.k.max())] for v in range(self.k.size)]
        )


def random_network(seed, zeros=0.2):
    rng = np.random.default_rng(seed)
    k = rng.integers(1, 4, 6)
    factors = []
    for v in range(k.size):
        scope = (*rng.choice(v, min(v, 2), replace=False).tolist(), v)
        table = rng.random(k[list(scope)])
        table[rng.random(table.shape) < zeros] = 0.0
        if not table.any():
            table[...] = 0.5
        factors.append((scope, table))
    return MarkovNetwork(k, factors)


def random_evidence(network, seed):
    """Return evidence of two variables, one soft, and its weights; None if it is impossible."""
    rng = np.random.default_rng(seed)
    a, b = rng.choice(network.n_sites, 2, replace=False).tolist()
    value = int(rng.integers(network.cardinalities[a]))
    soft = rng.random(network.cardinalities[b])
    soft[rng.random(soft.size) < 0.2] = 0.0
    weights = {a: np.arange(network.cardinalities[a]) == value, b: soft}
    if not Table(network).products(weights).sum():
        return None
    return {a: value, b: dict(enumerate(soft.tolist()))}, weights


def possible(zeros=0.2, n=200):
    """Yield networks with evidence of positive probability."""
    for seed in range(n):
        network = random_network(seed, zeros)
        if Table(network).products({}).any() and (given := random_evidence(network, seed)):
            yield network, *given


def test_soft_evidence_against_enumeration():
    n = 0
    for network, evidence, weights in possible():
        plan, table = exact.prepare(network), Table(network)
        np.testing.assert_allclose(plan.marginals(evidence).p, table.marginals(weights), atol=1e-12)
        log_z = np.log(table.products(weights).sum())
        assert plan.log_partition(evidence) == pytest.approx(log_z, abs=1e-12)
        best = plan.most_likely(evidence)
        p = table.products(weights)
        assert p[(table.x == best).all(axis=1)][0] == pytest.approx(p.max(), rel=1e-12)
        n += 1
    assert n > 100


def test_questions_in_any_order():
    """Messages that are kept never belong to the evidence of another question."""
    for network, evidence, _ in itertools.islice(possible(), 20):
        plan = exact.prepare(network)
        fresh = [exact.prepare(network) for _ in range(3)]
        asked = [evidence, None, dict([*evidence.items()][:1])]
        rng = np.random.default_rng(0)
        for i in rng.integers(3, size=30):
            again = fresh[i].marginals(asked[i]).p
            np.testing.assert_array_equal(plan.marginals(asked[i]).p, again)
            assert plan.log_partition(asked[i]) == fresh[i].log_partition(asked[i])


def test_some_variables():
    for network, evidence, _ in itertools.islice(possible(), 20):
        plan = exact.prepare(network)
        every = plan.marginals(evidence)
        some = plan.marginals(evidence, [3, 1])
        np.testing.assert_allclose(some.p, every.p[[3, 1]], atol=1e-14)
        assert [*some] == [3, 1]
        np.testing.assert_array_equal(plan.marginals(evidence).p, every.p)


def test_draws():
    network, evidence, weights = next(possible(0.0))
    x = exact.prepare(network).sample(20_000, evidence, random_state=0)
    p = np.array([(x == v).mean(axis=0) for v in range(network.cardinalities.max())]).T
    np.testing.assert_allclose(p, Table(network).marginals(weights), atol=0.02)
    again = exact.prepare(network).sample(20_000, evidence, random_state=0)
    np.testing.assert_array_equal(x, again)


def test_the_likeliest_values_of_some_variables():
    differs = False
    for network, evidence, weights in possible(n=60):
        plan, table = exact.prepare(network), Table(network)
        p = table.products(weights)
        joint = {}
        for x, mine in zip(table.x[:, [0, 4]].tolist(), p / p.sum(), strict=True):
            joint[tuple(x)] = joint.get(tuple(x), 0.0) + mine
        values, best = plan.marginal_map([0, 4], evidence)
        assert best == pytest.approx(max(joint.values()), abs=1e-12)
        assert joint[tuple(values.tolist())] == pytest.approx(best, abs=1e-12)
        differs |= (plan.most_likely(evidence)[[0, 4]] != values).any()
    assert differs, "it is not what the likeliest state says of them"


def test_sensitivity_of_many_observations_that_contradict_each_other():
    n, p = 1200, np.array([[0.9, 0.1], [0.2, 0.8]])  # products of 0.1 and 0.2 are below 1e-308
    seen = np.arange(n) % 2
    factors = [((0,), [0.5, 0.5])] + [((0, i + 1), p if seen[i] else p[::-1]) for i in range(n)]
    network = MarkovNetwork([2] * (n + 1), factors)
    found = exact.prepare(network).sensitivity({0: 1}, {i + 1: 0 for i in range(n)})
    np.testing.assert_allclose(found[0], [-0.5, 0.5])  # 1/2 each, as all entries cancel
    np.testing.assert_allclose(found[1], [[-0.25 / 0.2, 0], [0.25 / 0.9, 0]])


def test_sensitivity_against_finite_differences():
    n = 0
    for network, evidence, weights in possible(n=40):
        table = Table(network)
        site = next(v for v in range(network.n_sites) if v not in weights)
        one = {site: np.arange(network.cardinalities[site]) == 0}

        def posterior(factors, table=table, weights=weights, one=one):
            z = table.products(weights, factors).sum()
            return table.products(weights | one, factors).sum() / z

        found = exact.prepare(network).sensitivity({site: 0}, evidence)
        for f, (scope, entries) in enumerate(network.factors):
            for at in np.ndindex(entries.shape):
                ends = []
                for step in (1e-6, -1e-6):
                    changed = entries.copy()
                    changed[at] += step
                    others = [*network.factors]
                    others[f] = (scope, changed)
                    ends.append(posterior(others))
                assert found[f][at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7)
        n += 1
    assert n > 20


@pytest.mark.parametrize("shape", ["tables", "flat"])
def test_other_tables(shape):
    """Entries that were zero may be positive, and the other way round."""
    for network, evidence, _ in itertools.islice(possible(), 40):
        rng = np.random.default_rng(1)
        plan = exact.prepare(network)
        for keeps in (True, False):
            tables = [table * rng.random(table.shape) for _, table in network.factors]
            if not keeps:
                tables = [rng.random(table.shape) for table in tables]
            scopes = [scope for scope, _ in network.factors]
            other = MarkovNetwork(network.cardinalities, zip(scopes, tables, strict=True))
            if shape == "flat":
                tables = np.concatenate([table.ravel() for table in tables])
            filled, made = plan.with_tables(tables), exact.prepare(other)
            np.testing.assert_allclose(
                filled.marginals(evidence).p, made.marginals(evidence).p, atol=1e-12
            )
            assert filled.log_partition() == pytest.approx(made.log_partition(), abs=1e-12)
            x = made.sample(9, random_state=0)
            np.testing.assert_allclose(filled.target.log_prob(x), other.log_prob(x), rtol=1e-12)


def test_a_hidden_markov_model_against_forward_filtering():
    rng = np.random.default_rng(0)
    n, k = 60, 3
    start, moves = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), (n - 1, k))
    emit = rng.random((n, k))
    factors = [((0,), start), *(((i, i + 1), moves[i]) for i in range(n - 1))]
    factors += [((i,), emit[i]) for i in range(n)]
    plan = exact.prepare(MarkovNetwork([k] * n, factors))
    forward, log_z = [start * emit[0]], 0.0
    for i in range(1, n):
        forward.append((forward[-1] @ moves[i - 1]) * emit[i])
        log_z += np.log(forward[-1].sum())
        forward[-1] /= forward[-1].sum()
    assert plan.log_partition() == pytest.approx(log_z, abs=1e-12)
    backward = np.ones(k)
    p = np.empty((n, k))
    for i in reversed(range(n)):
        p[i] = forward[i] * backward / (forward[i] @ backward)
        if i:
            backward = moves[i - 1] @ (emit[i] * backward)
            backward /= backward.sum()
    np.testing.assert_allclose(plan.marginals().p, p, atol=1e-12)


def test_underflow_goes_unnoticed_by_nobody():
    """A chain whose products underflow is made again with logarithms, and back."""
    tiny = np.array([[1e-200, 1e-300], [1e-300, 1e-250]])
    network = MarkovNetwork([2] * 8, [((i, i + 1), tiny) for i in range(7)])
    plan = exact.prepare(network)
    for evidence in ({0: 1, 7: 0}, {0: 0}, {0: 1}, None):
        p = exact.marginals(network, evidence=evidence)["p"].values
        np.testing.assert_allclose(plan.marginals(evidence).p, p, atol=1e-12)
        assert plan.log_partition(evidence) == pytest.approx(exact.log_partition(network, evidence))


def test_copies_and_threads():
    network, evidence, _ = next(possible())
    plan = exact.prepare(network)
    p = plan.marginals(evidence).p
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plan)).marginals(evidence).p, p)
    asked = [evidence, {}] * 40
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda given: plan.marginals(given).p, asked)]
    for given, mine in zip(asked, found, strict=True):
        np.testing.assert_array_equal(mine, plan.marginals(given).p)


def test_names():
    network = MarkovNetwork(
        [2, 2], [((0,), [0.8, 0.2]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])], ["rain", "wet"]
    )
    found = exact.prepare(network).marginals({"wet": 1})
    np.testing.assert_allclose(found["rain"], [1 / 3, 2 / 3])
    assert found["rain", 1] == pytest.approx(2 / 3)
    assert [*found] == ["rain", "wet"]
    assert len(found) == 2
    assert "fever" not in found
    assert found.to_dataset().equals(exact.marginals(network, evidence={"wet": 1}))
    assert "rain" in repr(found)
    with pytest.raises(KeyError, match="fever"):
        found["fever"]
    some = exact.prepare(network).marginals(None, ["wet"])
    with pytest.raises(KeyError, match="rain"):
        some["rain"]
    with pytest.raises(ValueError, match="1 of 2 variables"):
        some.to_dataset()


def test_errors():
    network = MarkovNetwork([2, 2], [((0, 1), [[0.5, 0.5], [0.0, 0.0]])])
    plan = exact.prepare(network)
    with pytest.raises(ValueError, match=r"probability zero: {0: 1} is impossible. Correct"):
        plan.marginals({0: 1})
    with pytest.raises(ValueError, match=r"probability zero: {0: 1} is impossible. Correct"):
        plan.log_partition({0: 1})
    with pytest.raises(TypeError, match="evidence is 3"):
        plan.marginals(3)
    with pytest.raises(ValueError, match="the variable 7"):
        plan.marginals({7: 0})
    with pytest.raises(ValueError, match="query is empty"):
        plan.sensitivity({})
    with pytest.raises(ValueError, match="both have the variable 1"):
        plan.sensitivity({1: 0}, {1: 1})
    with pytest.raises(ValueError, match="probability zero"):
        plan.sensitivity({1: 0}, {0: 1})
    with pytest.raises(ValueError, match=r"table 1 of shape \(2,\), where None is n"):
        plan.with_tables([[[1, 1], [1, 1]], [1, 1]])
    with pytest.raises(ValueError, match=r"table 0 of shape \(2,\)"):
        plan.with_tables([[1, 1]])
    with pytest.raises(ValueError, match=r"entry -1\.0"):
        plan.with_tables([[[1, -1], [1, 1]]])
    spins = exact.prepare(Ising.lattice(np.zeros((2, 2)), 0.3))
    with pytest.raises(TypeError, match="sensitivity needs a MarkovNetwork"):
        spins.sensitivity({(0, 0): 1})
    wide = MarkovNetwork([2] * 30, [((i, j), np.ones((2, 2))) for i in range(30) for j in range(i)])
    with pytest.raises(ValueError, match="max_memory"):
        exact.prepare(wide, max_memory=2.0**20)


def test_spins_against_elimination():
    spins = Ising.lattice(np.linspace(-1, 1, 9).reshape(3, 3), 0.4)
    plan = exact.prepare(spins)
    evidence = {(0, 0): 1, (2, 1): -1}
    p = exact.marginals(spins, evidence=evidence)["p"].values.reshape(9, 2)
    np.testing.assert_allclose(plan.marginals(evidence).p, p, atol=1e-12)
    assert set(np.unique(plan.sample(50, evidence))) == {-1, 1}


def test_values_of_another_plan():
    """A plan for variables eliminated last may have fewer values left than the first one."""
    network = MarkovNetwork([3, 2], [((0,), [0.2, 0.3, 0.5]), ((0, 1), [[9, 1], [2, 8], [5, 5]])])
    tables = [[0.0, 0.4, 0.6], network.factors[1][1]]
    filled = exact.prepare(network).with_tables(tables)
    fresh = exact.prepare(network.with_factors([((0,), [0.0, 4 / 3, 1.2])]))
    for evidence in ({0: 1}, {0: {0: 0.1, 1: 0.2, 2: 0.9}}, {0: 2}):
        values, p = filled.marginal_map([1], evidence)
        wanted, wanted_p = fresh.marginal_map([1], evidence)
        assert values == wanted
        assert p == pytest.approx(wanted_p)
    with pytest.raises(ValueError, match=r"probability zero: {0: 0} is impossible. Correct"):
        filled.marginal_map([1], {0: 0})


def test_plans_of_the_likeliest_values_are_few_and_serve_any_order():
    network = MarkovNetwork([2] * 12, [((i, i + 1), [[3, 1], [1, 2]]) for i in range(11)])
    plan = exact.prepare(network)
    size = len(pickle.dumps(plan))
    for i in range(11):
        values, p = plan.marginal_map([i, i + 1], {0: 0})
        turned, again = plan.marginal_map([i + 1, i], {0: 0})
        assert values.tolist() == turned.tolist()[::-1]
        assert p == again
    assert len(plan._with_last) == 8
    assert len(pickle.dumps(plan)) < 1.2 * size


def test_equal_keys_of_other_kinds():
    network = MarkovNetwork(
        [2, 2], [((0,), [0.3, 0.7]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])], ["True", 1]
    )
    plan = exact.prepare(network)
    plan.marginals({True: 1})
    np.testing.assert_array_equal(
        plan.marginals({1: 1}).p, exact.prepare(network).marginals({1: 1}).p
    )
    turned = plan.marginals(None, [1, "True"])
    with pytest.raises(ValueError, match="of 2 variables"):
        turned.to_dataset()
    assert (1, "typo") not in turned
    alone = MarkovNetwork([2, 2], [((0,), [0.3, 0.7])])
    np.testing.assert_allclose(exact.prepare(alone).sensitivity({0: 1})[0], [-0.7, 0.3])


def cough(**changes):
    yes = {"no": 0.05, "yes": 0.6} | changes
    return MarkovNetwork.from_tables(
        {
            "cold": {"no": 0.9, "yes": 0.1},
            "age": {20: 0.3, 40: 0.5, 60: 0.2},
            "cough": {
                (c, a): {"no": 1 - yes[c] * a / 60, "yes": yes[c] * a / 60}
                for c in ("no", "yes")
                for a in (20, 40, 60)
            },
        },
        {"cough": ["cold", "age"]},
    )


def test_named_states():
    plan = exact.prepare(cough())
    best = plan.named(plan.most_likely({"cough": "yes"}))
    assert best == {"cold": "yes", "age": 40, "cough": "yes"}
    assert type(best["age"]) is int
    values, _ = plan.marginal_map(["age", "cold"], {"cough": "yes"})
    assert plan.named(values, ["age", "cold"]) == {"age": 40, "cold": "yes"}
    x = plan.sample(5, {"age": 60}, random_state=0)
    frame = plan.named(x)
    assert frame["age"].tolist() == [60] * 5
    assert frame["cold"].tolist() == [("no", "yes")[k] for k in x[:, 0]]
    with pytest.raises(ValueError, match=r"states has shape \(2,\); give states of 3 variables"):
        plan.named(values)
    with pytest.raises(ValueError, match=r"states\[0, 1\] is 3; variable 'age' takes one of the v"):
        plan.named([3, 1], ["age", "cold"])
    pair = exact.prepare(Ising.from_binary([[0, 1], [1, 0]]))
    assert pair.named([0, 1]) == pair.named([-1, 1]) == {0: 0, 1: 1}
    assert pair.named([0], [1]) == {1: 0}


def test_sensitivities_by_name():
    """`scaled` is the slope where the rest of a row keeps its sum, by finite differences."""
    network = cough()
    found = exact.prepare(network).sensitivity({"cold": "yes"}, {"cough": "yes", "age": 40})
    table = found.to_frame()
    assert table["scaled"].abs().is_monotonic_decreasing
    by_name = table.set_index(["variable", "parents", "value"])
    assert len(by_name) == sum(t.size for _, t in network.factors)
    assert by_name["derivative"]["cough", "cold=no, age=40", "yes"] == found[2][0, 1, 1]
    assert by_name["entry"]["cold", "", "yes"] == 0.1
    assert {type(v) for v in table["value"][table["variable"] == "age"]} == {int}
    ends = []
    for step in (1e-6, -1e-6):
        other = network.table("cough")
        other.loc[("no", 40)] += [-step, step]
        plan = exact.prepare(network).with_tables({"cough": other})
        ends.append(plan.marginals({"cough": "yes", "age": 40})["cold", "yes"])
    slope = (ends[0] - ends[1]) / 2e-6
    for value, sign in (("yes", 1), ("no", -1)):
        scaled = by_name["scaled"]["cough", "cold=no, age=40", value]
        assert scaled == pytest.approx(sign * slope, abs=1e-8)
    product = MarkovNetwork([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    with pytest.raises(TypeError, match="made of factors, not of conditional tables"):
        exact.prepare(product).sensitivity({0: 1}).to_frame()
    certain = exact.prepare(MarkovNetwork.from_tables({"a": [0.0, 1.0]})).sensitivity({"a": 1})
    assert np.isnan(certain.to_frame()["scaled"].iloc[1])


def test_evidence_that_clashes_is_named():
    plan = exact.prepare(cough(no=0.0))
    seen = {"age": 20, "cold": "no", "cough": "yes"}
    with pytest.raises(ValueError, match=r"zero: {'cold': 'no', 'cough': 'yes'} is impossible tog"):
        plan.marginals(seen)
    never = exact.prepare(cough(no=0.0, yes=0.0))
    soft = {"age": {20: 1.0, 40: 2.0, 60: 3.0}, "cold": "no", "cough": {"no": 0.0, "yes": 0.5}}
    for question in (never.marginals, never.log_partition, never.most_likely):
        with pytest.raises(ValueError, match=r"zero: {'cough': {'no': 0.0, 'yes': 0.5}} is impos"):
            question(soft)
    plan.marginals({"age": 20, "cold": "no"})  # answers go on


def test_evidence_that_clashes_is_named_by_all_functions():
    network, message = cough(no=0.0), r"zero: {'cold': 'no', 'cough': 'yes'} is impossible together"
    seen = {"age": 20, "cold": "no", "cough": "yes"}
    for function in (exact.log_partition, exact.marginals, exact.most_likely):
        with pytest.raises(ValueError, match=message):
            function(network, evidence=seen)
    for function in (exact.sample, draw):
        with pytest.raises(ValueError, match=message):
            function(network, 3, seen)
    # Earlier evidence is named, too, if it matters.
    plan = exact.prepare(network.condition({"age": 20, "cold": "no"}))
    with pytest.raises(ValueError, match=message):
        plan.log_partition({"cough": "yes"})
    with pytest.raises(ValueError, match="sets variable 'cold' to yes; it was observed as no bef"):
        plan.log_partition({"cold": "yes", "cough": "yes"})
    soft = {"cough": {"no": 0.0, "yes": 0.5}}
    message = rf"zero: {{'cold': 'no', 'age': 20, 'cough': {soft['cough']}}} is impossible together"
    with pytest.raises(ValueError, match=message):
        plan.most_likely(soft)


def test_clashes_that_only_elimination_sees_are_named():
    # With both switches on, three variables of two values must all differ.
    differ = np.ones((2, 2, 2, 2))
    differ[1, 1] = 1 - np.eye(2)
    factors = [(["one", "two", i, j], differ) for i, j in ("ab", "bc", "ca")]
    names = ["one", "two", *"abc", "free"]
    network = MarkovNetwork([2] * 6, factors, names, [("off", "on")] * 6)
    seen = {"free": "on", "two": "on", "one": "on"}
    message = "probability zero: {'one': 'on', 'two': 'on'} is impossible together"
    for function in (exact.log_partition, exact.marginals, exact.most_likely):
        with pytest.raises(ValueError, match=message):
            function(network, evidence=seen)
    given = network.condition({"free": "on", "two": "on"})
    with pytest.raises(ValueError, match=message):
        exact.prepare(given).marginals({"one": "on"})
    # Where asking about parts would take too long, all of it is named.
    whole = pytest.raises(ValueError, match=r"{'one': 'on', 'two': 'on', 'free': 'on'} is impos")
    with mock.patch.object(reduce, "_TO_NAME", 1.0), whole:
        exact.log_partition(network, seen)


def test_likelihoods_in_a_series():
    network = cough()
    soft = {"cough": pd.Series({"yes": 0.9, "no": 0.2})}
    p = exact.prepare(network).marginals(soft)["cold"]
    same = exact.prepare(network).marginals({"cough": {"no": 0.2, "yes": 0.9}})["cold"]
    np.testing.assert_array_equal(p, same)
    np.testing.assert_allclose(exact.marginals(network, soft)["p"][0, :2], p)
    with pytest.raises(ValueError, match=r"or likelihoods by name, {name: number, ...}"):
        network.condition({"cough": [0.2, 0.9]})


def test_joint_marginals_of_slices():
    """Names that are tuples are dimensions, too."""
    network = MarkovNetwork.unroll(
        {("a", 0): [0.2, 0.8], ("a", 1): [[0.7, 0.3], [0.4, 0.6]]}, 3, {("a", 1): [("a", 0)]}
    )
    joint = exact.marginals(network, [("a", 0), ("a", 2)])["p"]
    assert joint.dims == ("a_0", "a_2")
    step = np.array([[0.7, 0.3], [0.4, 0.6]])
    np.testing.assert_allclose(joint, np.diag([0.2, 0.8]) @ step @ step)


def test_answers_of_plans_as_frames():
    plan = exact.prepare(cough())
    some = plan.marginals({"cough": "yes"}, ["age", "cold"])
    frame = some.to_frame()
    assert frame["variable"].tolist() == ["age"] * 3 + ["cold"] * 2
    assert frame["value"].tolist() == [20, 40, 60, "no", "yes"]
    assert frame["p"].tolist() == [*some["age"], *some["cold"]]
    assert re.search(r"cold +no +0\.\d+\n +yes +0\.", repr(some))
    whole = plan.marginals({"cough": "yes"})
    pd.testing.assert_frame_equal(
        to_frame(whole),
        to_frame(exact.marginals(plan.target, {"cough": "yes"})),
        check_column_type=False,
    )
    with pytest.raises(ValueError, match=r"draws has the variable .*, which target has not"):
        to_frame(some, Ising(np.zeros((30, 30))))


def test_answers_of_marginal_map_are_named_and_impossible_evidence_of_sensitivity():
    tables = {"a": [0.5, 0.5], "b": [[1.0, 0.0], [0.4, 0.6]], "c": [0.5, 0.5]}
    plan = exact.prepare(MarkovNetwork.from_tables(tables, {"b": ["a"]}))
    assert plan.named(plan.marginal_map(["a", "b"]), ["a", "b"]) == {"a": 0, "b": 0}
    with pytest.raises(TypeError, match="states is a data frame or Series, which has names"):
        plan.named(pd.DataFrame([[0, 1, 0]], columns=["c", "b", "a"]))
    assert len(plan.named(([0, 1], [1, 0]), ["a", "b"])) == 2
    with pytest.raises(ValueError, match=r"\{'a': 0, 'b': 1\} is impossible together"):
        plan.sensitivity({"c": 1}, {"a": 0, "b": 1})


def test_values_that_are_equal_as_keys_are_printed_as_they_are():
    network = MarkovNetwork(
        [2, 2],
        [((0,), [0.3, 0.7]), ((0, 1), [[0.5, 0.5], [0.2, 0.8]])],
        names=["wet", "slips"],
        state_names=[[False, True], [0, 1]],
    )
    shown = [
        line.split()[-2] for line in repr(exact.prepare(network).marginals()).splitlines()[1:5]
    ]
    assert shown == ["False", "True", "0", "1"]
