"""The step for discrete variables of models of PyMC: against enumeration of conditional laws."""

import itertools
import logging
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sklsb import exact, from_pymc
from sklsb._kernels.elimination.sums import log_sums
from sklsb.exceptions import FrozenSitesWarning, SamplerWarning

pm = pytest.importorskip("pymc", reason="PyMC is optional, and needs Python 3.12 or later")
import pytensor  # noqa: E402
import pytensor.tensor as pt  # noqa: E402
from pymc.blocking import DictToArrayBijection  # noqa: E402
from pymc.step_methods.state import equal_dataclass_values  # noqa: E402

from sklsb.pymc import DiscreteStep, moves  # noqa: E402
from sklsb.pymc.numbers import impossible  # noqa: E402
from sklsb.pymc.summed import log_sum  # noqa: E402
from sklsb.pymc.variables import SUPPORTS, kind  # noqa: E402

PLAIN = pytensor.compile.Mode(linker="py", optimizer="fast_compile")
RNG = np.random.default_rng(0)


def law(model, step, point):
    """States of the block, and their probabilities given the rest, as PyMC computes log p."""
    block = step._block
    values = [range(a, b + 1) for a, b in zip(block.low, block.high, strict=True)]
    states = np.array(list(itertools.product(*values)))
    f = model.compile_logp(mode=PLAIN)
    with np.errstate(all="ignore"):
        log_p = np.array([f(block.put(x, point)) for x in states], dtype=float)
    log_p = np.where(np.isnan(log_p), -np.inf, log_p)
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def steps(step, point, n):
    for _ in range(n):
        point, _ = step.step(point)
    return point


class Branches:
    """In place of `moves.chosen`: each choice in turn, with its probability."""

    def __init__(self):
        self.left, self.path = [()], ()

    def begin(self):
        self.path, self.made, self.p = self.left.pop(), [], 1.0

    def __call__(self, log_p, u, now):
        top = log_p.max(axis=0)
        stays = top == -np.inf
        weights = np.exp(log_p - np.where(stays, 0.0, top))
        weights[:, stays] = np.arange(len(log_p))[:, None] == now[stays]
        weights /= weights.sum(axis=0)
        options = [
            c
            for c in itertools.product(range(len(log_p)), repeat=log_p.shape[1])
            if np.prod(weights[list(c), range(len(c))]) > 0
        ]
        depth = len(self.made)
        if depth < len(self.path):
            choice = self.path[depth]
        else:
            choice, *others = options
            self.left += [(*self.made, other) for other in others]
        self.made.append(choice)
        self.p *= np.prod(weights[list(choice), range(len(choice))])
        return np.array(choice)


def transition_matrix(monkeypatch, step, point, states):
    index = {tuple(x): i for i, x in enumerate(states.tolist())}
    found = np.zeros((len(states), len(states)))
    block = step._block
    for i, x in enumerate(states):
        branches = Branches()
        monkeypatch.setattr(moves, "chosen", branches)
        while branches.left:
            branches.begin()
            step.n_steps = 10
            new, _ = step.step(block.put(x, point))
            reached = tuple(block.flat(new).tolist())
            assert reached in index, "an impossible state"
            found[i, index[reached]] += branches.p
    monkeypatch.undo()
    return found


def mixture():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=3, initval=[-1.0, 0.2, 1.0])
        z = pm.Categorical("z", [0.2, 0.3, 0.5], shape=3)
        pm.Normal("y", mu[z], 1.0, observed=[-1.0, 0.3, 2.0])
    return model


def chain():
    with pm.Model() as model:
        stay = pm.Beta("stay", 2, 1, shape=2)
        z = pm.Bernoulli("z", 0.4, shape=4)
        k = pm.Categorical("k", [0.5, 0.2, 0.3])
        p = pt.stack([pt.stack([stay[0], 1 - stay[0]]), pt.stack([1 - stay[1], stay[1]])])
        pm.Potential("moves", pt.log(p[z[:-1], z[1:]]).sum() - 0.3 * k * z[3])
        pm.Normal("y", z - 0.5, 1.0, observed=[1.0, 0.3, -0.4, 0.2])
    return model


def regression():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.3, shape=3)
        b = pm.Normal("b", 0, 1, shape=3, initval=[0.4, -0.2, 0.9])
        pm.Normal(
            "y", pt.as_tensor(rng.normal(size=(6, 3))) @ (g * b), 1.0, observed=rng.normal(size=6)
        )
    return model


def supports():
    """Sites with different values, of which some are impossible."""
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", 1, 3)
        pm.Bernoulli("j", 0.3)
        k = pm.DiscreteUniform("k", [-1, 0], [1, 0], shape=2)
        pm.Potential("apart", pt.switch(pt.eq(k[0] + n, 3), -np.inf, 0.3 * k[0]))
        pm.Normal("y", k.sum(), pt.switch(pt.eq(n, 2), 0.5, 2.0), observed=0.2)
    return model


def occupancy():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        z = pm.Bernoulli("z", 0.6, shape=3)
        pm.Bernoulli("y", p * z[:, None], observed=[[0, 0], [1, 0], [0, 0]])
    return model


MODELS = [mixture, chain, regression, supports, occupancy]


@pytest.mark.parametrize("method", ["colours", "lsb"])
@pytest.mark.parametrize("make", MODELS)
def test_the_conditional_law_is_invariant(monkeypatch, make, method):
    model = make()
    step = DiscreteStep(method=method, model=model)
    step.stop_tuning()
    point = model.initial_point()
    if make is occupancy:
        point["z"] = np.array([0, 1, 0])
    states, p = law(model, step, point)
    possible = p > 0
    matrix = transition_matrix(monkeypatch, step, point, states[possible])
    p = p[possible]
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(p @ matrix, p, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", ["elimination", "with_nuts"])
@pytest.mark.parametrize("make", [mixture, chain, supports, occupancy])
def test_the_block_is_drawn_from_the_conditional_law(make, way):
    model = make()
    point = model.initial_point()
    if make is occupancy:
        point["z"] = np.array([0, 1, 0])
    if way == "with_nuts":
        if make is supports:
            with model:
                pm.Normal("free")
            point = model.initial_point()
        step = DiscreteStep(model=model)
        for _ in range(2):  # a second time, it begins anew
            step.with_nuts(initial_point=point)
        assert type(step._moves[0]).__name__ == "Whole"
    else:
        step = DiscreteStep(method="elimination", model=model)
    states, p = law(model, step, point)
    seen = []
    block = step._block
    index = {tuple(x): i for i, x in enumerate(states.tolist())}
    for _ in range(3000):
        point, _ = step.step(point)
        seen.append(index[tuple(block.flat(point).tolist())])
    counts = np.bincount(seen, minlength=len(p))
    assert not counts[p == 0].any()
    assert stats.chisquare(counts[p > 0], 3000 * p[p > 0]).pvalue > 1e-4


# ----------------------------------------------------------------- structure


def hidden():
    """Models whose sites depend on each other in ways that a few states may not show."""
    n = 6
    data = np.zeros(n)

    def normal(f):
        return lambda z: pm.Normal("y", f(z), 1.0, observed=np.zeros(f(np.ones(n)).eval().shape))

    yield "product", normal(lambda z: pt.as_tensor(z)[:-1] * z[1:] * 1.0)
    yield "product of all", lambda z: pm.Potential("p", -pt.prod(z))
    yield "switch", normal(lambda z: pt.switch(pt.eq(z[0] + z[1], 2), pt.as_tensor(z) * 1.0, 0.0))
    yield "sum", lambda z: pm.Potential("s", -0.1 * pt.sum(z) ** 2)
    yield "cumulative sum", normal(lambda z: pt.cumsum(pt.as_tensor(z)) * 0.5)
    yield "maximum", lambda z: pm.Potential("m", -pt.max(z[2:]))
    yield (
        "index by sums",
        lambda z: pm.Potential("i", pt.as_tensor(np.arange(7.0) ** 2)[z.sum()] / -9),
    )
    yield "lookup", lambda z: pm.Potential("l", -pt.as_tensor(np.eye(2))[z[:3], z[3:]].sum())
    yield "matrix", normal(lambda z: pt.as_tensor(np.tri(n)[:, ::-1].copy()) @ (z * 1.0))
    yield "reshaped", normal(lambda z: pt.as_tensor(z).reshape((2, 3)).sum(axis=0) * 1.0)
    yield "set", normal(lambda z: pt.set_subtensor(pt.zeros(n)[:3], z[3:] * 1.0) * z)
    yield "joined", normal(lambda z: pt.concatenate([z[:3], z[3:]])[::-1] * z * 1.0)
    yield "sorted", normal(lambda z: pt.sort(pt.as_tensor(z)) * 1.0)
    yield "softmax", lambda z: pm.Categorical("y", pt.special.softmax(z * 1.0), observed=2)
    yield "scale", lambda z: pm.Normal("y", 0.0, 0.5 + z[0] + z[1:], observed=data[1:])
    yield "check", lambda z: pm.Normal("y", 0.0, z[:3] - z[3:] + 0.5, observed=data[:3])
    yield "matrix normal", lambda z: pm.MvNormal("y", z[:2] * 1.0, np.eye(2) + 0.5, observed=[0, 1])
    yield "count", lambda z: pm.Binomial("y", n=2, p=0.1 + 0.1 * pt.eq(z, 1).sum(), observed=1)
    yield (
        "by pairs",
        lambda z: pm.Potential("e", -0.4 * pt.eq(z[1:], z[:-1]).sum() + (z * 0.1).sum()),
    )

    def total(f):
        return lambda z: pm.Potential("f", f(pt.as_tensor(z)))

    steps, pairs = np.arange(n) / 10, np.array([0, 1, 0, 1, 2, 2])
    yield "argmax", total(lambda z: 0.5 * pt.argmax(z * (1 + steps)))
    yield "argsort", total(lambda z: (pt.argsort(z + steps) * steps).sum())
    yield "cumulative product", total(lambda z: pt.cumprod(z + 0.5).sum())
    yield "difference", normal(lambda z: pt.diff(pt.as_tensor(z)) * 1.0)
    yield "outer product", total(lambda z: -pt.outer(z[:2], z[2:]).sum())
    yield "exclusive or", total(lambda z: 0.3 * (z[1:] ^ z[:-1]).sum())
    yield "parity", total(lambda z: 0.9 * (z.sum() % 2))
    yield "rounded sum", total(lambda z: (0.4 * z).sum().astype("int64"))
    yield "any", total(lambda z: 1.3 * z.sum().astype("bool"))
    yield "all", total(lambda z: -1.0 * pt.eq(z, 1).all())
    yield "number of ones", total(lambda z: -(pt.eq(z, 1).sum() ** 2) / 9)
    yield "added by repeated indices", normal(lambda z: pt.zeros(3)[pairs].inc(z * 1.0))
    yield "set at an index", total(lambda z: pt.zeros(3)[z[0] + z[1]].set(z[2] + 1.0)[1:].sum())
    yield (
        "added at an index",
        total(lambda z: (pt.zeros(3)[z[1:] + z[:-1]].inc(1.0) ** 2).sum() / 9),
    )
    yield "index of itself", total(lambda z: z[z[:4] + z[1:5] + 2].sum() * 0.4)
    yield (
        "mask and index",
        total(lambda z: 0.5 * (pt.ones((2, 2, n)) * z)[np.tri(2) > 0, z[:3] + z[3:]].sum()),
    )
    yield "elements where one", total(lambda z: pt.as_tensor(steps)[pt.eq(z, 1)].prod())
    yield "how many ones", total(lambda z: 0.4 * z.nonzero()[0].shape[0] ** 2)
    yield "how many values", total(lambda z: 0.8 * pt.unique(z).shape[0])
    yield "slice up to a site", total(lambda z: (z * steps)[: z[0] + 2].sum() * z[1])
    yield "range", total(lambda z: -0.1 * pt.arange(z[0] + 2 * z[1]).sum())
    yield "repeated", total(lambda z: pt.repeat(steps, z).sum() ** 2)
    yield "mean and variance", total(lambda z: z.mean() + z.var())
    yield "log of a sum", total(lambda z: pt.logsumexp(pt.stack([z[:3], z[3:]]), axis=0).sum())
    yield "determinant", total(lambda z: pt.linalg.slogdet(pt.diag(1.0 + z[:4]) + 0.3)[1])
    yield "chained", total(lambda z: pt.switch(z[0] > 0, pt.switch(z[1] > 0, z[2], 0), z[3]))
    yield (
        "check in a branch",
        total(lambda z: pt.switch(z > 0, pm.logp(pm.Normal.dist(0, z[::-1] + 0.5), 0.7), 0)),
    )
    yield (
        "scan",
        lambda z: pm.Potential(
            "scan",
            pytensor.scan(
                lambda here, last: last * here + 0.5,
                sequences=[z * 1.0],
                outputs_info=[pt.ones(())],
                return_updates=False,
            )[-1],
        ),
    )


HIDDEN = dict(hidden())


def with_coupling(name):
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.6, shape=6)
        HIDDEN[name](z)
    return model


def depends(states, p):
    """Which pairs of sites depend on each other, given all others."""
    at = {tuple(x): q for x, q in zip(states.tolist(), p, strict=True)}
    n = states.shape[1]
    found = np.zeros((n, n), bool)
    for i, j in itertools.combinations(range(n), 2):
        for x in states[(states[:, i] == 0) & (states[:, j] == 0)].tolist():
            a = []
            for u, v in itertools.product((0, 1), repeat=2):
                x[i], x[j] = u, v
                a.append(at[tuple(x)])
            if abs(a[0] * a[3] - a[1] * a[2]) > 1e-9 * max(a) ** 2:
                found[i, j] = found[j, i] = True
    return found


@pytest.mark.parametrize("name", HIDDEN)
def test_couplings_are_found(name):
    model = with_coupling(name)
    step = DiscreteStep(method="colours", model=model)
    wanted = depends(*law(model, step, model.initial_point()))
    scopes = step.structure_.scopes
    found = np.zeros_like(wanted)
    for scope in scopes:
        found[np.ix_(scope, scope)] = True
    assert (found | ~wanted).all()


@pytest.mark.parametrize("name", ["product", "reshaped", "by pairs", "scale", "set", "lookup"])
def test_structure_is_no_larger_than_needed(name):
    step = DiscreteStep(model=with_coupling(name))
    assert step.structure_.width == 2
    assert step.structure_.probed == ()


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_what_an_unknown_operation_hides_is_found_while_drawing():
    class Hides(pytensor.graph.op.Op):
        """z_i, but for states that probes do not reach."""

        itypes, otypes = [pt.lvector], [pt.dvector]

        def perform(self, node, inputs, outputs):
            z = inputs[0]
            outputs[0][0] = z + (z.sum() > 28) * z[::-1] * 0.7

        def infer_shape(self, node, shapes):
            return shapes

    with pm.Model() as model:
        z = pm.DiscreteUniform("z", 0, 9, shape=4, initval=[0, 0, 0, 0])
        pm.Normal("y", Hides()(z), 1.0, observed=[9.0, 9.0, 8.0, 9.0])
    step = DiscreteStep(model=model, rng=0)
    assert step.structure_.probed == ("Hides",)
    assert step.structure_.width == 1
    point = model.initial_point()
    with pytest.warns(SamplerWarning, match=r"z\[0\], .* depend on each other in a way that"):
        steps(step, point, 50)
    assert step.structure_.width == 4
    state = pickle.loads(pickle.dumps(step.sampling_state))
    other = DiscreteStep(model=model, rng=0)
    other.sampling_state = state
    assert other.structure_.scopes == step.structure_.scopes


def test_structure_is_printed():
    step = DiscreteStep(model=chain())
    assert str(step.structure_).splitlines() == [
        "5 sites, 13 elements of terms of log p, read off the graph",
        "an element sees at most 2 of the sites; 9 different sets",
        '"elimination": 5 sites, z[0] to k; colours: 2; evaluations a step: 6',
    ]
    with pm.Model() as model:
        pm.Bernoulli("z", 0.5)
    assert str(DiscreteStep(model=model).structure_).splitlines()[:2] == [
        "1 site, 1 element of terms of log p, read off the graph",
        "an element sees at most 1 of the sites; 1 different set",
    ]
    with pm.Model() as years:
        pm.DiscreteUniform("at", 0, [20, 39, 300])
    assert str(DiscreteStep(model=years).structure_).splitlines()[2:] == [
        '"slices": 3 sites, at[0] to at[2]; colours: 1; evaluations a step: 8',
        '"colours": of these, now and then from all values: 2 sites, at[0] to at[1]; '
        "colours: 1; evaluations then: 40",
    ]


def test_sites_that_only_joint_changes_move_are_told():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=4, initval=[0, 0, 0, 1])
        pm.Potential("same", pt.switch(pt.eq(z[0], z[1]), 0.0, -np.inf))
        pm.Bernoulli("y", z[3] * 0.5, observed=1)  # z[3] must be 1: nothing to tell
    step = DiscreteStep(method="colours", model=model, rng=0)
    point = model.initial_point()
    with pytest.warns(FrozenSitesWarning, match=r"^z\[0\], z\[1\] could not change alone in 200"):
        steps(step, point, 250)
    with pm.Model() as counts:
        pm.Multinomial("k", n=30, p=[0.2, 0.3, 0.5])
    with pytest.warns(FrozenSitesWarning, match=r"^k\[0\], k\[1\], k\[2\] could not change alone"):
        steps(DiscreteStep(model=counts, rng=0), counts.initial_point(), 200)
    together = DiscreteStep(method="elimination", model=model, rng=0)
    seen = set()
    for _ in range(30):
        point, _ = together.step(point)
        seen.add(tuple(point["z"][:2].tolist()))
    assert seen == {(0, 0), (1, 1)}


@pytest.mark.parametrize("count", [False, True])
def test_sites_that_an_elimination_draws_together_are_not_told(count):
    """Species that were seen are there; a count that is not eliminated holds sites all the same."""
    y = np.array([[1, 0, 2], [0, 3, 0], [0, 0, 0]])
    with pm.Model() as model:
        w = pm.Bernoulli("w", 0.5, shape=3, initval=[1, 1, 1])
        z = pm.Bernoulli("z", w[:, None] * 0.5, shape=(3, 3), initval=y > 0)
        pm.Binomial("y", 5, z * 0.4, observed=y)
        if count:
            n = pm.Poisson("n", 20.0, initval=9)
            pm.Potential("same", pt.switch(pt.eq(w[2], n > 0), 0.0, -np.inf))
    step, point = DiscreteStep(model=model, rng=0), model.initial_point()
    assert step.structure_.groups[0][0] == "elimination"
    if count:
        with pytest.warns(FrozenSitesWarning, match=r"^w\[2\] could not change alone in 200 steps"):
            steps(step, point, 200)
    else:
        assert steps(step, point, 200)["w"][:2].tolist() == [1, 1]


# ----------------------------------------------------------------- draws


def test_choices_have_their_probabilities():
    p = np.array([[0.0, 1.0, 0.2, 0.0], [1.0, 0.0, 0.5, 0.0], [3.0, 0.0, 0.3, 0.0]])
    log_p = np.log(p, out=np.full(p.shape, -np.inf), where=p > 0)
    u = (np.arange(1000) + 0.5) / 1000
    found = np.array(
        [moves.chosen(log_p - 900.0, np.full(4, v), np.array([0, 1, 2, 2])) for v in u]
    )
    counts = np.stack([(found == k).sum(axis=0) for k in range(3)])
    assert counts.tolist() == [[0, 1000, 200, 0], [250, 0, 500, 0], [750, 0, 300, 1000]]
    assert (moves.chosen(log_p, np.zeros(4), np.zeros(4, int)) == [1, 0, 0, 0]).all()
    for j in range(4):  # one column alone is summed elsewhere
        now = np.array([[0, 1, 2, 2][j]])
        alone = [moves.chosen(log_p[:, [j]], np.array([v]), now)[0] for v in u]
        assert np.array_equal(alone, found[:, j])


COUNTS = {
    "Poisson": (lambda **k: pm.Poisson("k", 4.2, **k), 0),
    "geometric": (lambda **k: pm.Geometric("k", 0.15, **k), 1),
    "negative binomial": (lambda **k: pm.NegativeBinomial("k", mu=6.0, alpha=1.5, **k), 0),
    "binomial": (lambda **k: pm.Binomial("k", n=400, p=0.02, **k), 0),
    "two modes": (lambda **k: pm.ZeroInflatedPoisson("k", psi=0.6, mu=8.0, **k), 0),
}


@pytest.mark.parametrize("together", [1, 40])
@pytest.mark.parametrize("name", COUNTS)
def test_counts_without_bounds(name, together):
    """Alone, and many of one colour at once."""
    make, first = COUNTS[name]
    with pm.Model() as model:
        make(shape=together)
    step = DiscreteStep(model=model, rng=3)
    assert step.structure_.groups == (("slices", tuple(range(together)), 1, 8),)
    step.setup_chain(np.random.default_rng(5), 300, 8000)
    point, seen = steps(step, model.initial_point(), 300), []
    step.stop_tuning()
    for _ in range(8000 // together):
        point = steps(step, point, 8)  # nearly independent
        seen.append(point["k"])
    values = np.arange(first, 60)
    log_p = model.compile_logp(mode=PLAIN, sum=False)
    p = np.array([np.exp(log_p({"k": np.full(together, v)})[0][0]) for v in values])
    counts = np.bincount(np.ravel(seen), minlength=60)[first:60]
    keep = p * counts.sum() > 5
    wanted = np.append(p[keep], 1 - p[keep].sum()) * counts.sum()
    got = np.append(counts[keep], counts.sum() - counts[keep].sum())
    assert stats.chisquare(got, wanted).pvalue > 1e-3


@pytest.mark.parametrize("count", ["poisson", "binomial"])
def test_slices_beside_few_values(count):
    """Sites drawn at once see the counts of their own block where these are."""
    y, n = np.array([9.0, 1.0, 8.0, 2.0, 10.0, 5.0]), 20
    with pm.Model() as model:
        z = pm.Categorical("z", [0.5, 0.5], shape=6)
        if count == "poisson":
            c = pm.Poisson("c", pt.as_tensor([1.0, 9.0])[z], shape=6)
        else:
            c = pm.Binomial("c", n, pt.as_tensor([0.1, 0.4])[z], shape=6)
        pm.Normal("y", c, 1.5, observed=y)
    step = DiscreteStep([z, c], model=model, rng=0)
    assert [group[0] for group in step.structure_.groups][:2] == ["colours", "slices"]
    values = np.arange(60)
    both = [
        stats.poisson.pmf(values, [[1.0], [9.0]]),
        stats.binom.pmf(values, n, [[0.1], [0.4]]),
    ][count == "binomial"]
    joint = both[None] * stats.norm.pdf(y[:, None, None], values, 1.5)
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    point, seen = steps(step, model.initial_point(), 100), []
    for _ in range(6000):
        point = steps(step, point, 1)
        seen.append((point["z"], point["c"]))
    mean_z, mean_c = np.mean(seen, axis=0)
    np.testing.assert_allclose(mean_z, joint.sum(axis=2)[:, 1], atol=0.08)
    np.testing.assert_allclose(mean_c, joint.sum(axis=1) @ values, atol=0.25)


def test_bounds_that_depend_on_continuous_values():
    with pm.Model() as model:
        top = pm.Uniform("top", 3.0, 12.0)
        k = pm.DiscreteUniform("k", 0, pt.floor(top).astype("int64"), shape=5)
        pm.Normal("y", k, 2.0, observed=[1.0, 9.0, 4.0, 0.0, 2.0])
    step = DiscreteStep(model=model, rng=0)
    point = model.initial_point()
    point["top_interval__"] = np.array(-0.5)  # top is 6.4
    seen = []
    for _ in range(3000):
        point, _ = step.step(point)
        seen.append(point["k"])
    p = np.exp(-0.5 * ((np.arange(7) - np.array([[1.0], [9], [4], [0], [2]])) / 2) ** 2)
    p /= p.sum(axis=1, keepdims=True)
    found = np.stack([np.bincount(one, minlength=7) for one in np.array(seen).T]) / 3000
    assert found.shape == (5, 7)
    np.testing.assert_allclose(found, p, atol=0.05)


def test_bounds_of_truncated_counts():
    with pm.Model() as model:
        rate, most = pm.Gamma("rate", 2, 1), pm.Data("most", [7, 20])
        pm.Truncated("a", pm.Poisson.dist(rate), upper=[3, 15])
        pm.Truncated("b", pm.Binomial.dist(most, 0.3), lower=1.5, upper=[9.5, np.inf])
        pm.Truncated("c", pm.Poisson.dist(3.0), lower=2)
        pm.Truncated("d", pm.Poisson.dist(3.0), upper=rate + 4)
    block, far = DiscreteStep(model=model)._block, 2**52
    assert block.low.tolist() == [0, 0, 2, 2, 2, 0]
    assert block.high.tolist() == [3, 15, 7, 20, far, far]
    with pm.Model() as known:
        pm.Truncated("n", pm.Poisson.dist(4.0), lower=1, upper=6)
    target = from_pymc(known)
    p = stats.poisson.pmf(np.arange(1, 7), 4.0)
    np.testing.assert_allclose(exact.marginals(target).p[0], p / p.sum(), rtol=1e-7)


@pytest.mark.parametrize("step", ["alone", "with NUTS"])
def test_it_samples(step):
    model = occupancy()
    if step == "alone":
        model = pm.observe(model, {"p": 0.4})
    with model:
        steps = [DiscreteStep()] if step == "alone" else [pm.NUTS([model["p"]]), DiscreteStep()]
        trace = pm.sample(
            400,
            tune=100,
            chains=2,
            cores=1,
            step=steps,
            progressbar=False,
            random_seed=1,
            compute_convergence_checks=False,
        )
    assert trace.posterior["z"].shape == (2, 400, 3)
    assert trace.posterior["z"].dtype == np.int64
    assert 0 < float(trace.sample_stats["moved"].mean()) < 1


def test_processes_give_the_same_draws():
    logging.getLogger("pymc").setLevel(logging.ERROR)
    made = []
    for cores in (1, 2):
        with chain() as model:
            step = [pm.NUTS([model["stay"]]), DiscreteStep()]
            trace = pm.sample(
                20,
                tune=20,
                chains=2,
                cores=cores,
                step=step,
                progressbar=False,
                random_seed=1,
                compute_convergence_checks=False,
            )
        made.append(trace.posterior["z"].values)
    np.testing.assert_array_equal(made[0], made[1])


def test_a_step_can_be_pickled():
    import cloudpickle

    model = chain()
    step = DiscreteStep(model=model, rng=1)
    point = model.initial_point()
    again = cloudpickle.loads(cloudpickle.dumps(step))
    for _ in range(3):
        one, other = step.step(point)[0], again.step(point)[0]
        np.testing.assert_array_equal(one["z"], other["z"])
        point = one


def test_sizes_bounds_and_zeros_of_present_data_are_used():
    """What the data of the first run did not show."""
    with pm.Model() as model:
        most, weights = pm.Data("most", [1, 1]), pm.Data("weights", np.eye(2))
        k = pm.DiscreteUniform("k", 0, most, shape=most.shape)
        pm.Normal("y", weights @ (1.0 * k), 1.0, observed=np.zeros(2))
    step = DiscreteStep([k], model=model, rng=0)
    assert (step._block.high.tolist(), step.structure_.width) == ([1, 1], 1)
    with model:
        pm.set_data({"most": [2, 3, 1], "weights": np.ones((2, 3))})
    step.setup_chain(np.random.default_rng(0), 0, 1)
    assert steps(step, model.initial_point(), 3)["k"].shape == (3,)
    assert (step._block.high.tolist(), step.structure_.width) == ([2, 3, 1], 3)


def test_present_data_are_used():
    with pm.Model() as model:
        seen = pm.Data("seen", [-30.0, 30.0])
        z = pm.Bernoulli("z", 0.5, shape=2)
        pm.Normal("y", 20.0 * z - 10.0, 1.0, observed=seen)
        step = DiscreteStep([z], rng=0)
        assert step.step(model.initial_point())[0]["z"].tolist() == [0, 1]
        pm.set_data({"seen": [30.0, -30.0]})
        step.setup_chain(np.random.default_rng(0), 0, 1)
        assert step.step(model.initial_point())[0]["z"].tolist() == [1, 0]


def test_values_of_a_scan_are_probed():
    with pm.Model() as model:
        a, z = pm.Beta("a", 1, 1), pm.Bernoulli("z", 0.5, shape=4)
        sums = pytensor.scan(
            lambda here, last, a: last * a + here,
            sequences=[z * 1.0],
            outputs_info=[pt.zeros(())],
            non_sequences=[a],
            return_updates=False,
        )
        pm.Normal("y", sums, 1.0, observed=np.zeros(4))
    step = DiscreteStep(model=model)
    assert step.structure_.probed == ("Scan",)
    assert sorted(s for s in step.structure_.scopes if len(s) > 1) == [
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
    ]


def test_what_probes_of_a_scan_miss_is_found_by_elimination():
    """A factor 0 hides what came before; then all that the scan may see is heeded."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=5)
        sums = pytensor.scan(
            lambda here, last: last * here + 0.5,
            sequences=[z * 1.0],
            outputs_info=[pt.ones(())],
            return_updates=False,
        )
        pm.Normal("y", sums, 1.0, observed=np.ones(5))
    step = DiscreteStep(method="elimination", model=model, rng=1)
    assert step.structure_.width == 3
    point = model.initial_point()
    with pytest.warns(SamplerWarning, match=r"in a way that did not show before"):
        point = steps(step, point, 300)
    assert step.structure_.width == 5
    (way,), (states, p) = step._moves, law(model, step, point)
    logs = way.tables.logs(way.block.low, way.block.given(point))
    parts, total = np.split(logs, way.tables.starts[1:-1]), np.zeros(len(states))
    for (scope, shape), part in zip(way.tables.shapes, parts, strict=True):
        total += part.reshape(shape)[tuple(states[:, list(scope)].T)]
    found = np.exp(total - total.max())
    np.testing.assert_allclose(found / found.sum(), p, rtol=0, atol=1e-12)


def test_hidden_chain_is_that_of_forward_filtering():
    rng = np.random.default_rng(4)
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    y = rng.normal(size=12)
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=12)
        pm.Potential("moves", pt.log(pt.as_tensor(p)[z[:-1], z[1:]]).sum())
        pm.Normal("y", 2.0 * z - 1.0, 1.0, observed=y)
    step = DiscreteStep(model=model, rng=0)
    assert step.structure_.groups[0][0] == "elimination"
    step.step(model.initial_point())
    local = np.exp(-0.5 * (y[:, None] - [-1.0, 1.0]) ** 2)
    forward, backward = [local[0] * 0.5], [np.ones(2)]
    for t in range(1, 12):
        forward.append(local[t] * (forward[-1] @ p))
        backward.append(p @ (local[12 - t] * backward[-1]))
    both = np.array(forward) * np.array(backward[::-1])
    (way,) = step._moves
    logs = way.tables.logs(way.block.flat(model.initial_point()), [])
    found = way._plan.with_tables(np.exp(logs)).marginals().p
    np.testing.assert_allclose(found, both / both.sum(axis=1, keepdims=True), rtol=1e-12)


PAGE = Path(__file__).parent.parent / "doc" / "mixed.rst"


@pytest.mark.skipif(not PAGE.exists(), reason="this distribution has no pages")
def test_the_code_of_the_page_runs():
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(
        r"^\.\. code-block:: python\n\n((?: {3}.*\n|\n)+)", text, flags=re.MULTILINE
    )
    assert len(blocks) == 3
    space = {}
    few = "progressbar=False, draws=20, tune=20, chains=1, compute_convergence_checks=False"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks:
            code = re.sub(r"^ {3}", "", block, flags=re.MULTILINE)
            code = code.replace("step=DiscreteStep()", f"step=DiscreteStep(), {few}")
            code = code.replace("3.0], 100)", "3.0], 10)")
            exec(code.replace("accept=0.9)", f"accept=0.9), {few}"), space)
    assert space["trace"].posterior["z"].shape == (1, 20, 30)


# ----------------------------------------------------------------- summed out


def several_values():
    """Sites of one colour with different values, and elements that see none of them."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.3, 1.0, shape=2)
        k = pm.DiscreteUniform("k", [-1, 0, 2], [1, 0, 3], shape=3)
        j = pm.Bernoulli("j", pm.math.sigmoid(a[0]), shape=(2, 2))
        pm.Normal("y", k * a[1] + a[0], 1.0, observed=[0.3, 1.0, -0.4])
        pm.Potential("t", pt.as_tensor([0.0, 0.0, 1.0, 2.0]) * j.ravel() * a[1] + a[0])
        pm.Potential("order", a.sum() * j[0, 1] - 0.2 * a[0] ** 2)
    return model


def crowd():
    """Elements taken from elements that were taken, and conditions, some not met."""
    worker, item = np.array([0, 1, 1, 0, 1]), np.array([0, 0, 1, 2, 2])
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=3)
        theta = pm.Dirichlet("theta", np.eye(2) + 1.0, shape=(2, 2, 2))
        pm.Categorical("y", theta[worker, z[item]], observed=[0, 1, 1, 0, 1])
        a = pm.Normal("a", 0.0, 1.0, shape=(2, 2))
        scale = pt.exp(pt.as_tensor(a)[worker][np.arange(5), z[item]])
        pm.Normal("x", 0.0, scale, observed=[0.3, -0.2, 1.0, 0.5, 2.0])
        total = pt.as_tensor(a)[z[item]].sum(axis=1)
        pm.Potential("t", pt.switch(total < 1.0, 0.3, -np.inf))
    return model


def abundance(truncated=True):
    """Counts of animals at sites, of which each visit sees some."""
    y = np.array([[0, 1], [2, 1], [0, 0]])
    with pm.Model() as model:
        a, p = pm.Normal("a", 0.3, 1.0), pm.Beta("p", 1, 1)
        many = pm.Poisson.dist(pt.exp(a))
        if truncated:
            n = pm.Truncated("n", many, upper=4, shape=3, initval=y.max(axis=1))
        else:
            shares = pm.math.softmax(pm.logp(many, np.arange(5)))
            n = pm.Categorical("n", p=shares, shape=3, initval=y.max(axis=1))
        pm.Binomial("y", n[:, None], p, observed=y)
    return model


def test_truncated_counts_are_categories():
    one, other = abundance(), abundance(truncated=False)
    point = {**one.initial_point(), "a": np.array(0.7)}
    blocks = [DiscreteStep(model=model)._block for model in (one, other)]
    states = [np.array([i, j, 4]) for i in (1, 3) for j in (2, 4)]
    found = [[block.total(x, *block.given(point)) for x in states] for block in blocks]
    np.testing.assert_allclose(*found, rtol=1e-10)


def seasons():
    """Chains of whether a site is occupied, where some sightings leave one value."""
    y = np.array([[[0, 0], [0, 1], [0, 0]], [[1, 1], [0, 0], [0, 0]]])
    with pm.Model() as model:
        psi, stays, comes, p = (pm.Beta(name, 1, 1) for name in ("psi", "stays", "comes", "p"))
        z = [pm.Bernoulli("z0", psi, shape=2, initval=y[:, 0].any(axis=1))]
        for t in (1, 2):
            back = z[-1] * stays + (1 - z[-1]) * comes
            z.append(pm.Bernoulli(f"z{t}", back, shape=2, initval=y[:, t].any(axis=1)))
        pm.Bernoulli("y", p * pt.stack(z, axis=1)[:, :, None], observed=y)
    return model


def tree():
    """A site that three others depend on, of several values, and a loop."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.3, 1.0, shape=(3, 2))
        root = pm.Categorical("root", [0.2, 0.3, 0.5])
        leaf = pm.Bernoulli("leaf", pm.math.sigmoid(a[root]), shape=2)
        more = pm.DiscreteUniform("more", -1, 1, shape=2)
        pm.Potential("loop", a[0, 0] * leaf[0] * leaf[1] - pt.exp(a[2, 1]) * pt.eq(more, leaf))
        pm.Normal("y", a[1, 0] * root + more[0] * a[1, 1], 1.0, observed=0.7)
    return model


@pytest.mark.parametrize(
    ("make", "n_left_out"),
    [
        *((mixture, 0), (occupancy, 1), (several_values, 5), (crowd, 0), (abundance, 3)),
        *((chain, 4), (seasons, 2), (tree, 2)),
    ],
)
def test_sums_over_sites_are_those_of_enumeration(make, n_left_out):
    model = make()
    step, point = DiscreteStep(model=model), model.initial_point()
    if make is occupancy:
        point["z"] = np.array([0, 1, 0])
    step.with_nuts(initial_point=point)
    (way,), block, variables = step._moves, step._block, model.continuous_value_vars
    never, other, _ = impossible(block, way.sites, way.states, block.given(point))
    assert never.sum() == n_left_out
    # Where sightings leave one value, log 0 has no gradient.
    states = other if make in (occupancy, abundance, seasons) else way.states
    f = log_sum(block, way.sites, states, never, variables, point)
    log_p = model.compile_logp(mode=PLAIN)
    rng = np.random.default_rng(0)
    every = law(model, step, point)[0]

    def summed(q):
        at = {v.name: part for v, part in zip(variables, split(q), strict=True)}
        with np.errstate(all="ignore"):
            return np.logaddexp.reduce([log_p({**point, **block.put(x, at)}) for x in every])

    def split(q):
        sizes = [point[v.name].size for v in variables]
        parts = np.split(q, np.cumsum(sizes)[:-1])
        return [p.reshape(point[v.name].shape) for p, v in zip(parts, variables, strict=True)]

    differences = []
    for _ in range(3):
        q = rng.normal(size=sum(point[v.name].size for v in variables))
        value, slope = f._pytensor_function(q)
        differences.append(value - summed(q))
        for i, e in enumerate(1e-5 * np.eye(q.size)):
            assert slope[i] == pytest.approx((summed(q + e) - summed(q - e)) / 2e-5, abs=1e-6)
    assert np.ptp(differences) < 1e-9


def test_nuts_with_the_block_summed_out_draws_from_the_same_law():
    rng = np.random.default_rng(2)
    y = rng.binomial(4, 0.4 * rng.binomial(1, 0.6, 20))
    with pm.Model():
        p, z = pm.Beta("p", 1, 1), pm.Bernoulli("z", 0.6, shape=20, initval=y > 0)
        rest = pm.Poisson("rest", 3.0)
        pm.Potential("more", -p * rest)
        pm.Binomial("y", 4, p * z, observed=y)
        step = [DiscreteStep([z]).with_nuts(target_accept=0.9), DiscreteStep([rest])]
        trace = pm.sample(
            1500,
            tune=300,
            chains=2,
            cores=2,
            step=step,
            progressbar=False,
            random_seed=1,
            compute_convergence_checks=False,
        ).posterior
    grid = np.linspace(0, 1, 4001)[1:-1]
    zero = 0.6 * (1 - grid) ** 4
    log_p = np.log(grid) * y.sum() + np.log1p(-grid) * (4 - y[y > 0]).sum()
    log_p += np.log(zero + 0.4) * (y == 0).sum() + 3.0 * np.expm1(-grid)
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert float(trace["p"].mean()) == pytest.approx(mean, abs=0.1 * sd)
    assert float(trace["p"].std()) == pytest.approx(sd, rel=0.1)
    there = float(trace["z"].values[..., y == 0].mean())
    assert there == pytest.approx(weights @ (zero / (zero + 0.4)), abs=0.02)


def test_values_at_which_log_p_is_no_number_are_told():
    with pm.Model():
        a, z = pm.Normal("a"), pm.Bernoulli("z", 0.5, shape=2)
        pm.Bernoulli("y", pt.switch(z, pt.as_tensor([0.4, 0.99]) + 0.3 * a, 0.5), observed=[0, 0])
        with pytest.warns(SamplerWarning, match=r"Log p is NaN where z\[1\] is 1, at values of"):
            DiscreteStep().with_nuts()
        with pytest.raises(TypeError, match=r"no option 'targetaccept'; see help\(pymc.NUTS"):
            DiscreteStep().with_nuts(targetaccept=0.9)
        with pytest.raises(TypeError, match="'z' is discrete; give with_nuts continuous"):
            DiscreteStep().with_nuts([z])


def test_a_gradient_sees_no_element_that_is_not_taken():
    """Distances of pairs: the root has no derivative at 0, which each has from itself."""
    i, j = (np.tile(k, 5) for k in np.triu_indices(3, 1))
    with pm.Model() as model:
        place = pm.Normal("place", 0, 2, shape=(3, 2), initval=[[0, 0], [1, 0.5], [-1, 2]])
        z = pm.Bernoulli("z", 0.3, shape=i.size)
        square = ((place[:, None] - place[None]) ** 2).sum(-1)
        pm.Normal("y", pt.sqrt(square[i, j]) + z, 0.3, observed=np.arange(15.0) / 5)
        nuts, _ = DiscreteStep([z]).with_nuts().methods
        at_0 = {"place": np.zeros((3, 2)), "z": np.zeros(15, dtype=int)}
        with pytest.warns(SamplerWarning, match="gradient of log p .* is not finite at initial"):
            DiscreteStep([z]).with_nuts(initial_point=at_0)
    point = {"place": model.initial_point()["place"]}
    x = DictToArrayBijection.map(point)
    slope = nuts._logp_dlogp_func(x)[1]
    for k, own in enumerate(slope):
        ends = [x._replace(data=x.data + h * np.eye(6)[k]) for h in (-1e-5, 1e-5)]
        low, high = (nuts._logp_dlogp_func(end)[0] for end in ends)
        assert own == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-4)


def test_blocks_that_cannot_be_summed_out():
    with pytest.raises(ValueError, match=r"(?s)with_nuts needs sites .*3 sites, 9 el.*two steps"):
        DiscreteStep(method="lsb", model=regression()).with_nuts()
    with pm.Model() as counts:
        pm.Normal("mu", pm.Poisson("k", 3.0), 1.0)
        pm.Poisson("m", 3.0, shape=6)
    step, k = (
        DiscreteStep(model=counts),
        r"k, m\[0\], m\[1\], m\[2\], m\[3\] and 2 more: their bounds are not known",
    )
    with pytest.raises(
        ValueError, match=rf"(?s)with at most 16 values each .*\n{k}\. In any case pm.NUTS"
    ):
        step.with_nuts()
    with pm.Model():
        w = pm.Bernoulli("w", 0.5, shape=2)
        z = pm.Bernoulli("z", pm.Beta("p", 1, 1) * w[:, None], shape=(2, 3))
        other = pm.Categorical("other", [0.2, 0.8])
        pm.Poisson("m", 3.0)
        said = r"m: their bounds are not known. Alone would fit: w, z, other. Write step=\[Discrete"
        said += r"Step\(\[w, z, other\]\).with_nuts\(\), DiscreteStep\(\[m\]\)\]\. In any case"
        with pytest.raises(ValueError, match=said):
            DiscreteStep().with_nuts()
        assert len(DiscreteStep([w, other]).with_nuts().methods) == 2
        assert len(DiscreteStep([z]).with_nuts().methods) == 2
        with pytest.raises(
            ValueError, match=r"Write step=\[DiscreteStep\(\[w\]\).with_nuts\(\)\]\."
        ):
            DiscreteStep([w], method="lsb").with_nuts()
    with pm.Model() as certain:
        pm.Normal("mu", pm.DiscreteUniform("k", 3, 3, shape=2).sum(), 1.0)
    with pytest.raises(ValueError, match="with_nuts needs sites"):
        DiscreteStep(model=certain).with_nuts()
    with pm.Model() as model:
        a, data = pm.Normal("a", 0, 3), pm.Data("data", [5.0, 6.0])
        z = pm.Bernoulli("z", 0.5, shape=2)
        pm.Potential("far", pt.switch(z[0] * (a < 4) > 0, -np.inf, 0.0))
        pm.Normal("y", a + z, 1.0, observed=data)
        step = DiscreteStep().with_nuts()
    point = model.initial_point()
    step.methods[1].step({**point, "a": np.array(3.0)})
    with pytest.raises(ValueError, match=r"z\[0\] took values that were impossible when with_nuts"):
        steps(step.methods[1], {**point, "a": np.array(4.5)}, 100)
    with model:
        pm.set_data({"data": [6.0, 5.0]})
    step.setup_chain(np.random.default_rng(0), 1, 1)
    with pytest.raises(ValueError, match=r"The data changed; call with_nuts again"):
        step.step(point)


# ----------------------------------------------------------------- as PyMC tests its steps


@pytest.mark.parametrize("kind", ["categorical", "multinomial"])
def test_moments_states_and_statistics(kind):
    """What PyMC asks of the steps of its own, on its own discrete models."""
    with pm.Model() as model:
        if kind == "categorical":
            pm.Categorical("x", [0.1, 0.2, 0.3, 0.4], size=3, initval=[1, 2, 3])
            mean, sd = 2.0, 1.0
        else:
            pm.Multinomial("x", 5, np.array([0.15, 0.85]), initval=[1, 4])
            mean, sd = np.array([0.75, 4.25]), np.sqrt(0.6375)
        step = DiscreteStep(rng=1)
        other, before = DiscreteStep(rng=2), step.sampling_state
        point = model.initial_point()
        one = [step.step(point) for _ in range(3)]
        after, step.sampling_state = step.sampling_state, before
        again = [step.step(point) for _ in range(3)]
        for (a, _), (b, _) in zip(one, again, strict=True):
            np.testing.assert_array_equal(a["x"], b["x"])
        other.sampling_state = after
        assert equal_dataclass_values(other.sampling_state, step.sampling_state)
        assert other.sampling_state is not after
        trace = pm.sample(
            2000,
            tune=20,
            chains=1,
            step=step,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            discard_tuned_samples=False,
        )
    assert trace.warmup_posterior.sizes["draw"] == 20
    x = trace.posterior["x"].sel(chain=0)
    assert (np.abs(x.mean("draw") - mean) < sd / 10).all()
    assert (np.abs(x.std("draw") - sd) < sd / 10).all()
    assert trace.sample_stats["moved"].dtype == np.float64
    with model:
        assert DiscreteStep([model["x"]]).vars == [model.rvs_to_values[model["x"]]]


# ----------------------------------------------------------------- what is refused


def test_wrong_arguments():
    model = chain()
    with pytest.raises(ValueError, match=r"method is 'gibbs'; give one of auto, colours, elim"):
        DiscreteStep(method="gibbs", model=model)
    with pytest.raises(TypeError, match=r"'stay.*' is continuous; give discrete variables here"):
        DiscreteStep([model["stay"]], model=model)
    with pytest.raises(TypeError, match=r"'z' is a name; give variables, as model\[name\]"):
        DiscreteStep(["z"], model=model)
    with pytest.raises(ValueError, match=r"y is no free variable of the model, which has \['stay'"):
        DiscreteStep([model["y"]], model=model)
    with pytest.raises(
        TypeError, match=r"'target_accept'; DiscreteStep\(...\).with_nuts\(target_a"
    ):
        DiscreteStep(model=model, target_accept=0.9)
    with pytest.raises(ValueError, match=r"compile_kwargs is {'mode': 'C'}; leave it out"):
        DiscreteStep(model=model, compile_kwargs={"mode": "C"})
    with pm.Model() as dense:
        pm.Potential("sum", -(pm.Bernoulli("z", 0.5, shape=8).sum() ** 2))
    with pytest.raises(ValueError, match=r'is "elimination", which needs elements that see few'):
        DiscreteStep(method="elimination", model=dense)
    with pm.Model() as continuous:
        pm.Normal("x")
    with pytest.raises(ValueError, match="has no discrete free variable; DiscreteStep needs one"):
        DiscreteStep(model=continuous)


# ----------------------------------------------------------------- many models


def random_model(seed):
    """A few sites of all kinds, with random tables of pairs, sums and switches between them."""
    rng = np.random.default_rng(seed)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        made = []
        for i in range(rng.integers(2, 4)):
            name, size = f"z{i}", int(rng.integers(1, 3)) if i < 1 else 1
            match rng.integers(5):
                case 0:
                    z = pm.Bernoulli(name, rng.uniform(0.2, 0.8), shape=size)
                case 1:
                    z = pm.Categorical(name, rng.dirichlet(np.ones(3)), shape=size)
                case 2:
                    z = pm.DiscreteUniform(name, -1, rng.integers(0, 2, size))
                case 3:
                    z = pm.Binomial(name, 2, rng.uniform(0.2, 0.8), shape=size)
                case 4:
                    z = pm.Bernoulli(name, pm.math.sigmoid(scale - 1), shape=size)
            made.append(z)
        every = pt.concatenate(made)
        for j in range(rng.integers(1, 4)):
            a, b = (made[i] for i in rng.integers(0, len(made), 2))
            match rng.integers(4):
                case 0:
                    table = pt.as_tensor(rng.normal(size=(4, 4)))
                    term = table[a[0] + 1, b[-1] + 1] * scale
                case 1:
                    term = pt.switch(a[-1] > 0, -np.inf, -scale)
                    term = pt.switch(pt.eq(a[0], b[-1]), 0.3, term)
                case 2:
                    term = -0.3 * (a.sum() - b.sum()) ** 2
                case 3:
                    term = 0.2 * a[0] * b[0] - 0.1 * scale * a[-1]
            pm.Potential(f"term{j}", term)
        if rng.random() < 0.5:
            shape = 3, sum(z.type.shape[0] for z in made)
            weights = pt.as_tensor(rng.normal(size=shape) * (rng.random(shape) < 0.5))
            pm.Normal("y", weights @ (every * 1.0), 1.0, observed=rng.normal(size=3))
    return model


def check_random_model(monkeypatch, seed):
    model = random_model(seed)
    method = ("colours", "lsb", "elimination")[seed % 3]
    step = DiscreteStep(method=method, model=model)
    step.stop_tuning()
    for way in step._moves:
        way.n_changes = 1
    point = model.initial_point()
    states, p = law(model, step, point)
    possible = p > 0
    if method == "elimination":
        block = step._block
        for way in step._moves:
            logs = way.tables.logs(block.low, block.given(point))
            parts = np.split(logs, way.tables.starts[1:-1])
            total = np.zeros(len(states))
            for (scope, shape), part in zip(way.tables.shapes, parts, strict=True):
                at = (states - block.low)[:, way.sites[list(scope)]]
                total += part.reshape(shape)[tuple(at.T)]
            found = np.exp(total - total.max())
            np.testing.assert_allclose(found / found.sum(), p, rtol=0, atol=1e-12)
        return
    matrix = transition_matrix(monkeypatch, step, point, states[possible])
    np.testing.assert_allclose(p[possible] @ matrix, p[possible], rtol=0, atol=1e-12)


def check_sum(model):
    """The sum over the block, and draws beside it, are those of enumeration, or an error says why.

    Return whether there is a sum.
    """
    step, point = DiscreteStep(model=model), model.initial_point()
    block, variables = step._block, model.continuous_value_vars
    with warnings.catch_warnings(record=True) as told:
        warnings.filterwarnings("always", "The gradient of log p", SamplerWarning)
        try:
            nuts, _ = step.with_nuts().methods
            steps(step, point, 20)
        except ValueError as error:
            if "with_nuts needs sites" in str(error) or "did not show before" in str(error):
                return False
            raise
    whole, f, log_p = step._whole, nuts._logp_dlogp_func, model.compile_logp(mode=PLAIN)
    order, axes, stride, start, message, first_message = whole._way_back
    (parts, starts, first), differences = whole._arrays, []
    for _ in range(3):
        for v in variables:
            point[v.name] = RNG.normal(size=point[v.name].shape)
        states, p = law(model, step, point)
        with np.errstate(all="ignore"):
            logs = np.array([log_p(block.put(x, point)) for x in states])
        total = np.logaddexp.reduce(logs[~np.isnan(logs)])
        at = DictToArrayBijection.map({v.name: point[v.name] for v in variables})
        differences.append(f(at)[0] - total)
        numbers = whole._numbers(*block.given(point))
        numbers[np.isnan(numbers)] = -np.inf
        every, share = np.append(numbers, np.empty(first.size - 1)), np.empty(starts.size - 1)
        log_sums(every, parts, starts, first, share, np.empty(0))
        found = np.ones(len(states))
        for x, i in zip((states - block.low)[:, whole.sites], range(len(states)), strict=True):
            for b in range(order.size):
                own = slice(start[b], start[b + 1])
                m = message[first_message[b] + x[axes[own]] @ stride[own]]
                terms = slice(first[m], first[m + 1]) if m >= 0 else slice(0)
                found[i] *= share[terms] @ (whole._value[terms] == x[order[b]])
        np.testing.assert_allclose(found, p, rtol=0, atol=1e-12)
    assert np.abs(differences).max() < 1e-9 or (told and np.isnan(differences).all())
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_couplings_are_summed_or_refused(name):
    model = with_coupling(name)
    with model:
        pm.Potential("tilt", pm.Normal("a") * model["z"])
    check_sum(model)


@pytest.mark.parametrize("seed", [0, 4])
def test_sums_of_random_models(seed):
    assert check_sum(random_model(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 205))
def test_sums_of_many_random_models(seed):
    check_sum(random_model(seed))


@pytest.mark.parametrize("seed", range(3))
def test_random_models(monkeypatch, seed):
    check_random_model(monkeypatch, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 203))
def test_many_random_models(monkeypatch, seed):
    check_random_model(monkeypatch, seed)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["colours", "elimination", "lsb"])
def test_simulation_based_calibration(method):
    """Ranks of parameters among posterior draws, given data simulated from them, are uniform."""
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    rng, ranks = np.random.default_rng(0), []
    n, n_draws = 6, 9
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(n))
        w, mu = pm.Beta("w", 2, 2), pm.Normal("mu", 0, 1)
        z = pm.Bernoulli("z", w, shape=n)
        pm.Potential("alike", 0.5 * pt.eq(z[1:], z[:-1]) - pt.log(2 * pt.cosh(0.25)))
        pm.Normal("y", mu + 2.0 * z, 1.0, observed=data)
        step = [pm.NUTS([w, mu]), DiscreteStep(method=method)]
    everything = np.array(list(itertools.product((0, 1), repeat=n)))
    alike = 0.5 * (everything[:, 1:] == everything[:, :-1]).sum(axis=1)
    grid = np.linspace(0, 1, 2001)[1:-1]
    ones = everything.sum(axis=1)
    mass = np.exp(alike)[:, None] * grid ** ones[:, None] * (1 - grid) ** (n - ones[:, None])
    prior_w = mass.sum(axis=0) * grid * (1 - grid)  # the potential changes the law of w
    for _ in range(200):
        true_w, true_mu = rng.choice(grid, p=prior_w / prior_w.sum()), rng.normal()
        p = np.exp(alike) * true_w**ones * (1 - true_w) ** (n - ones)
        true_z = everything[rng.choice(len(p), p=p / p.sum())]
        with model, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pm.set_data({"data": true_mu + 2.0 * true_z + rng.normal(size=n)})
            trace = pm.sample(
                20 * n_draws,
                tune=150,
                chains=1,
                cores=1,
                step=step,
                progressbar=False,
                random_seed=rng,
                compute_convergence_checks=False,
            )
        draws = trace.posterior.isel(chain=0, draw=slice(19, None, 20))
        ranks.append([(draws["w"] < true_w).sum(), (draws["mu"] < true_mu).sum()])
    for one in np.array(ranks, dtype=int).T:
        assert stats.chisquare(np.bincount(one, minlength=n_draws + 1)).pvalue > 1e-3


def test_bounds_of_all_distributions_are_known():
    """By the names that PyMC has for them."""
    with pm.Model():
        made = {
            "Bernoulli": pm.Bernoulli("a", 0.3),
            "Categorical": pm.Categorical("b", [0.3, 0.7]),
            "DiscreteUniform": pm.DiscreteUniform("c", 1, 4),
            "Binomial": pm.Binomial("d", 5, 0.3),
            "BetaBinomial": pm.BetaBinomial("e", 1.0, 2.0, 5),
            "HyperGeometric": pm.HyperGeometric("f", 10, 3, 4),
            "Multinomial": pm.Multinomial("g", 3, [0.3, 0.7]),
            "Poisson": pm.Poisson("h", 2.0),
            "NegBinomial": pm.NegativeBinomial("i", mu=2.0, alpha=2.0),
            "Geometric": pm.Geometric("j", 0.3),
            "DiscreteWeibull": pm.DiscreteWeibull("k", 0.3, 1.0),
        }
        few = pm.Truncated("l", pm.NegativeBinomial.dist(mu=2.0, alpha=2.0), upper=9, shape=2)
        structure = DiscreteStep([few]).structure_
    assert {kind(rv) for rv in made.values()} == {*SUPPORTS} == {*made}
    assert [name for name, *_ in structure.groups] == ["colours"]


def test_an_index_for_each_column():
    rng = np.random.default_rng(0)
    log_p = rng.normal(scale=3.0, size=(5, 1000))
    log_p[rng.random(log_p.shape) < 0.3] = -np.inf
    log_p[:, 7] = -np.inf  # and some others
    u, now = rng.random(1000), np.full(1000, 9)
    p = np.exp(log_p).cumsum(axis=0)
    expected = np.where(p[-1] > 0.0, (p[:-1] <= u * p[-1]).sum(axis=0), 9)
    np.testing.assert_array_equal(moves.chosen(log_p, u, now), expected)
    assert now[0] == 9, "what was given stays"
