"""Kernels of spike and slab: odds, rates and averages against least squares for every model."""

import itertools
import math

import numpy as np
import pytest
from scipy import sparse
from scipy.special import betaln, expit
from scipy.stats import norm
from scipy.stats import t as student

from sklsb._kernels.selection.process import run_window
from sklsb._kernels.selection.state import BORDER, JUMPS, K_COLUMNS, LOG_FIT, Rates
from sklsb.selection.chains import new_models, new_sums, new_window, set_window
from sklsb.selection.logistic import logistic_problem
from sklsb.selection.problem import Inclusion, Prior, linear_problem
from sklsb.selection.rows import distinct_rows

GROUPS = {"single": [[0], [1], [2], [3]], "grouped": [[0, 2], [1], [3]]}
RATES = [Rates(1.0, 0.0, 1.0, 0.0), Rates(1.0, 0.3, 1.0, 0.0), Rates(0.05, 1.0, 0.5, 0.0)]


def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(14, 5))
    X[:, 1] = 0.8 * X[:, 0] + 0.6 * X[:, 1]
    return X, 0.8 * X[:, 0] - 0.6 * X[:, 3] + rng.normal(size=14)


class Given:
    """A problem, its kernels' view of the columns, and log p and coefficients of any model."""

    def __init__(self, kind, groups, thin=False):
        X, y = data()
        self.X, self.groups = X, [np.array(group) for group in GROUPS[groups]]
        self.kind, self.df = kind, len(y) - 2.0
        n_units = len(self.groups)
        if kind == "logistic":
            trials = np.array([1, 3] * 7)
            successes = np.random.default_rng(5).binomial(trials, expit(y)).astype(float)
            rows = distinct_rows(X, successes, trials)
            Z = sparse.csc_array(rows.X) if thin else rows.X
            order = np.concatenate([*self.groups, [4]])
            self.problem = logistic_problem(
                rows, Z[:, order], order, np.ones(5), self.groups, 0.7, Inclusion((1.0, 2.0))
            )
            self.omega = np.random.default_rng(6).gamma(2.0, 0.2, size=14)
            self.columns = self.problem.columns._replace(weight=self.omega)
            self.A = np.column_stack([rows.X, np.ones(14)])
            self.z = self.A.T @ (rows.n_successes - 0.5 * rows.n_trials)
        else:
            prior = Prior(kind, 9.0, 0.7, Inclusion((1.0, 2.0)))
            Z = sparse.csc_array(X) if thin else X
            args = self.groups, np.array([4]), prior, False, range(5)
            self.problem = linear_problem(Z, y, np.ones(14), *args)
            self.columns = self.problem.columns
            F = np.column_stack([np.ones(14), X[:, 4]])
            off = np.eye(14) - F @ np.linalg.pinv(F)
            self.A, self.y = off @ X, off @ y
        self.sizes = [betaln(k + 1.0, n_units - k + 2.0) for k in range(n_units + 1)]

    def model(self, x):
        """Return log p, and mean, variance and sign of the coefficient of each column."""
        free = [j for unit, inside in zip(self.groups, x, strict=True) if inside for j in unit]
        mean, variance, positive = np.zeros(5), np.zeros(5), np.zeros(5)
        log_p = self.sizes[sum(x)]
        if self.kind == "logistic":
            used = [*free, 4, 5]
            A, ridge = self.A[:, used], np.array([0.7**-2.0] * (len(used) - 1) + [0.0])
            C = np.linalg.inv((A.T * self.omega) @ A + np.diag(ridge))
            b = C @ self.z[used]
            log_p += 0.5 * self.z[used] @ b + 0.5 * np.linalg.slogdet(C)[1]
            log_p -= len(free) * math.log(0.7)
            law, scale = norm, np.sqrt(np.diag(C))
            spread = scale**2
        else:
            used, A, k = free, self.A[:, free], len(free)
            M = A.T @ A
            if self.kind == "g":
                C, shrink = np.linalg.inv(M) * 0.9, 0.9
                log_p -= 0.5 * k * math.log(10.0)
            else:
                M = M + np.eye(k) / 0.7**2
                C, shrink = np.linalg.inv(M), 1.0
                log_p -= 0.5 * np.linalg.slogdet(M * 0.7**2)[1]
            b = shrink * np.linalg.solve(M, A.T @ self.y)
            error = self.y @ self.y - b @ (A.T @ self.y)
            log_p -= 0.5 * self.df * math.log(error)
            law, scale = student(self.df), np.sqrt(np.diag(C) * error / self.df)
            spread = np.diag(C) * error / (self.df - 2.0)
        n = len(free)
        mean[free], variance[free] = b[:n], spread[:n]
        positive[free] = law.cdf(b[:n] / scale[:n])
        return log_p, mean, variance, positive

    def all_models(self):
        return list(itertools.product((0, 1), repeat=len(self.groups)))

    def window(self, x):
        problem = self.problem
        window = new_window(problem, problem.n_free, problem.n_columns)
        units = np.concatenate([np.flatnonzero(x), np.arange(problem.n_free, problem.n_units)])
        set_window(problem, window, np.arange(problem.n_free), units.astype(np.int64))
        return window


def cases():
    for kind in ("g", "independent", "logistic"):
        for groups in GROUPS:
            yield pytest.param(kind, groups, False, id=f"{kind}-{groups}")
        # That sparse columns are as dense ones is seen in test_spike_slab.py.
        yield pytest.param(kind, "grouped", True, id=f"{kind}-sparse", marks=pytest.mark.slow)


def check_odds(kind, groups, thin):
    """Odds, probabilities and balanced rates at every model, rebuilt or reached by jumps."""
    given = Given(kind, groups, thin)
    problem, models = given.problem, given.all_models()
    log_p = {x: given.model(x)[0] for x in models}
    base = np.array([given.model(x)[0] for x in models]).max()
    rates, fits, reached, table = {}, {}, set(), new_models(problem)

    def looked_at(rate, x, n_jumps, seed=0):
        """Check odds after so many jumps from x; return where that is, rates and what it fits."""
        window = given.window(x)
        window.word[0] = seed
        span = np.array([1e9 if n_jumps else 0.0, n_jumps])
        sums = new_sums(problem)
        run_window(given.columns, problem.posterior, rate, window, sums, table, span)
        inside = window.unit[window.unit_of[window.included[: window.size[K_COLUMNS]]]]
        there = tuple(int(j in inside) for j in range(len(x)))
        assert sums.total[JUMPS] == n_jumps
        for j in range(len(x)):
            with_j, without = (tuple((*there[:j], b, *there[j + 1 :])) for b in (1, 0))
            odds = math.exp(log_p[with_j] - log_p[without])
            assert window.share[j] == pytest.approx(odds / (1 + odds), rel=1e-9), (there, j)
        return there, window.rate[: len(x)].copy(), window.number[LOG_FIT]

    for rate in RATES:
        for x in models:
            there, rates[x], fits[x] = looked_at(rate, x, 0)
            assert there == x
        for x in models:
            for seed, n_jumps in enumerate((1, 1, 2, 2, 3, 20)):
                there, now, fit = looked_at(rate, x, n_jumps, seed)
                reached.add(there)
                np.testing.assert_allclose(now, rates[there], rtol=1e-9)
                assert fit == pytest.approx(fits[there], rel=1e-9, abs=1e-9)
        for x in models:
            for j in range(len(x)):
                other = (*x[:j], 1 - x[j], *x[j + 1 :])
                # Under the power, the likelihood counts less.
                flows = [
                    math.exp(log_p[a] - base - (1 - rate.power) * fits[a]) * rates[a][j]
                    for a in (x, other)
                ]
                assert flows[0] == pytest.approx(flows[1], rel=1e-9), (x, j)
                if rate.leave and rate.power == 1.0:
                    odds = math.exp(
                        log_p[(*x[:j], 1, *x[j + 1 :])] - log_p[(*x[:j], 0, *x[j + 1 :])]
                    )
                    wanted = rate.barker * (odds if not x[j] else 1.0) / (1.0 + odds)
                    wanted += rate.leave * (odds if not x[j] else 1.0)
                    assert rates[x][j] == pytest.approx(wanted, rel=1e-9)
    assert reached == set(models)
    for rate in RATES:  # far from any rebuild
        looked_at(rate, models[0], 300)


@pytest.mark.parametrize(("kind", "groups", "thin"), [*cases()])
def test_odds_and_rates_at_every_model(kind, groups, thin):
    check_odds(kind, groups, thin)


def check_windows(kind, groups, rate, n_windows=400, time=3.0):
    """What windows sum up: probabilities, coefficients, signs, sizes, models; fixed time each."""
    given = Given(kind, groups)
    problem, models = given.problem, given.all_models()
    log_p, mean, variance, positive = (
        np.array(v) for v in zip(*map(given.model, models), strict=True)
    )
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    flat = np.concatenate(given.groups)
    x = np.array(models)
    own = np.repeat(np.arange(len(given.groups)), [g.size for g in given.groups])
    truth = {
        "share": weight @ x,
        "mean": (weight @ mean)[flat],
        "square": (weight @ (mean**2 + variance))[flat],
        "positive": (weight @ positive)[flat],
        "sizes": np.bincount(x.sum(axis=1), weight),
    }
    window = given.window(models[0])
    table = new_models(problem)
    shift = 0.0 if rate.power == 1.0 else 4.0
    window.word[0] = 5
    parts = {name: [] for name in (*truth, "time", "present", "total")}
    for _ in range(n_windows):
        sums = new_sums(problem)
        run_window(
            given.columns,
            problem.posterior,
            rate._replace(shift=shift),
            window,
            sums,
            table,
            np.array([time, 0.0]),
        )
        for name in parts:
            parts[name].append(getattr(sums, name).copy())
    parts = {name: np.array(values) for name, values in parts.items()}
    if rate.power == 1.0:  # the expected time at each state, given that it is reached
        whole = parts["total"][:, 0]
        assert whole.mean() == pytest.approx(time, abs=5 * whole.std() / math.sqrt(n_windows))
        np.testing.assert_allclose(parts["time"][:, 0], whole)
        assert table.time.sum() == pytest.approx(whole.sum())
    unit = (
        (problem.scale * problem.y_norm)[: flat.size] if kind != "logistic" else np.ones(flat.size)
    )
    spent = parts["total"][:, 0]
    ends = parts["total"][:, BORDER]  # the weight of the last state

    def check(name, top, bottom, scale=1.0):
        ratio = top.sum(axis=0) / bottom.sum()
        rest = (top - ratio * bottom[:, None])[: n_windows // 20 * 20]
        error = rest.reshape(20, -1, rest.shape[1]).sum(axis=1).std(axis=0) * math.sqrt(20)
        error = error / bottom.sum() * scale
        z = (ratio * scale - truth[name]) / np.maximum(error, 1e-3 * np.abs(truth[name]) + 1e-9)
        assert np.abs(z).max() < 5.0, (name, z)

    n = len(given.groups)
    check("share", parts["share"][:, :n], spent)
    check("mean", parts["mean"][:, : flat.size], spent, unit)
    check("square", parts["square"][:, : flat.size], spent, unit**2)
    check("positive", parts["positive"][:, : flat.size], ends)
    check("sizes", parts["sizes"][:, : n + 1], spent)
    shares = parts["share"][:, :n].sum(axis=0) / spent.sum()
    present = parts["present"][:, : flat.size].sum(axis=0) / ends.sum()
    assert np.abs(present - shares[own]).max() < 0.1
    # The table of models: times by model, and log p up to a constant.
    at = np.flatnonzero(table.key)
    found = {tuple(sorted(table.units[i, : table.size[i]].tolist())): i for i in at}
    assert len(found) == at.size
    for x, p, log in zip(models, weight, log_p, strict=True):
        i = found.get(tuple(np.flatnonzero(x).tolist()))
        assert p < 0.05 or table.time[i] / table.time.sum() == pytest.approx(p, abs=0.1)
        if i is not None:
            top = found[tuple(np.flatnonzero(models[int(weight.argmax())]).tolist())]
            gap = table.log_p[i] - table.log_p[top]
            assert gap == pytest.approx(log - log_p.max(), abs=1e-8)


@pytest.mark.parametrize("rate", RATES, ids=["barker", "default", "tempered"])
@pytest.mark.parametrize(("kind", "groups"), [("g", "single"), ("independent", "grouped")])
def test_averages_of_windows(kind, groups, rate):
    check_windows(kind, groups, rate, n_windows=2000)


@pytest.mark.parametrize("groups", GROUPS)
def test_averages_of_windows_with_weights_of_rows(groups):
    check_windows("logistic", groups, RATES[1], n_windows=2000)
