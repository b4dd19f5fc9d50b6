"""Polya-Gamma variables: against their characteristic function, inverted numerically."""

from types import FunctionType

import numpy as np
import pytest
from scipy.special import kolmogi

from sklsb._kernels.selection import polya_gamma
from sklsb._kernels.selection.polya_gamma import MOST_SUMMED, draw_polya_gamma

N = 100_000
CASES = [
    *((1, c) for c in (0.0, 1e-5, 1.0, 3.1, 3.2, 12.0, 39.0, 41.0, 300.0)),
    *((m, c) for m in (2, MOST_SUMMED, MOST_SUMMED + 1, 30) for c in (0.0, 2.5, 30.0, 50.0)),
    *((100_000, c) for c in (0.0, 1e-5, 1.0, 45.0, 60.0)),
]


def draws(m, c, u=0.3, n=N):
    out = np.empty(n)
    draw_polya_gamma(np.full(n, m), np.full(n, c), u, out)
    return out


def log_characteristic(m, c, t):
    """Log E exp(i t X) = m log(cosh(c / 2) / cosh(sqrt(c^2 / 4 - i t / 2)))."""
    root = np.sqrt(c * c / 4 - 0.5j * t)
    half = abs(c) / 2
    # cosh without overflow
    upper = half + np.log1p(np.exp(-2 * half))
    return m * (upper - root - np.log1p(np.exp(-2 * root)))


def moments(m, c):
    """Mean and variance from derivatives of the logarithm of the Laplace transform."""
    if c < 1e-3:
        return m / 4, m / 24
    decay = np.exp(-c)
    variance = (1 - decay**2 - 2 * c * decay) / (1 + decay) ** 2 / (2 * c**3)
    return m * np.tanh(c / 2) / (2 * c), m * variance


def distribution(m, c, x):
    """P(X <= x) by J. Gil-Pelaez's formula, with the trapezoidal rule."""
    mean, variance = moments(m, c)
    # The sum takes X modulo 2 pi / step, far beyond all probability.
    step = 2 * np.pi / (mean + 60 * np.sqrt(variance))
    t = step * (np.arange(60_000) + 0.5)
    log_values = log_characteristic(m, c, t)
    t, log_values = t[log_values.real > -35], log_values[log_values.real > -35]
    assert t.size < 60_000
    waves = np.array([(np.exp(log_values - 1j * t * value).imag / t).sum() for value in x])
    return 0.5 - step / np.pi * waves


def test_the_formula_of_the_distribution_is_that_of_the_series():
    """Of PG(1, 0), whose density for large x is pi/2 e^(-pi^2 x / 2) - ... in x / 4."""
    x = np.array([0.2, 0.5, 1.0, 2.0])
    n = np.arange(40)[:, None]
    power = (n + 0.5) ** 2 * np.pi**2 / 2 * 4 * x
    beyond = ((-1.0) ** n * (2 / (np.pi * (n + 0.5))) * np.exp(-power)).sum(axis=0)
    np.testing.assert_allclose(distribution(1, 0.0, x), 1 - beyond, atol=1e-10)


@pytest.mark.parametrize(("m", "c"), CASES)
def test_draws_have_the_distribution(m, c):
    """The largest distance on a grid is at most Kolmogorov's statistic."""
    found = np.sort(draws(m, c))
    mean, variance = moments(m, c)
    assert abs(found.mean() - mean) < 4 * np.sqrt(variance / N)
    x = np.quantile(found, np.linspace(0.001, 0.999, 150))
    wanted = distribution(m, c, x)
    shares = np.searchsorted(found, x, side="right") / N
    assert np.abs(shares - wanted).max() < kolmogi(1e-4) / np.sqrt(N)


@pytest.mark.parametrize("c", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("m", [1, 3, 40])
def test_laplace_transform(m, c):
    x = draws(m, c, u=0.8)
    for s in (0.5 / m, 3.0 / m):
        values = np.exp(-s * x)
        root = np.sqrt(c * c / 4 + s / 2)
        wanted = (np.cosh(c / 2) / np.cosh(root)) ** m
        assert abs(values.mean() - wanted) < 4 * values.std() / np.sqrt(N)


def plain():
    """The functions of the module as Python, which is where compiled code cannot be asked."""
    names = {}
    for name, value in vars(polya_gamma).items():
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType) and function.__module__ == polya_gamma.__name__:
            value = FunctionType(function.__code__, names)
        names[name] = value
    return names


@pytest.mark.parametrize("c", [0.0, 1e-4, 1.1e-4, 0.5, 3.0, 6.4, 11.0, 25.0, 42.0])
@pytest.mark.parametrize("m", [MOST_SUMMED + 1, 60, 10**6])  # more: rounding of the formula
def test_sums_with_a_remainder_are_as_near_as_is_said(m, c):
    """|F - G| <= 1 / (2 pi) times the integral of |difference of the transforms| / |t|."""
    functions = plain()
    shift, scale, shape = functions["remainder"](c)
    a = (np.arange(functions["n_terms"](c))[:, None] + 0.5) ** 2 + (c / (2 * np.pi)) ** 2
    log_t = np.linspace(-25, 8, 8000)
    t = np.exp(log_t) / np.sqrt(moments(m, c)[1])
    s = -1j * t / (2 * np.pi**2)
    log_used = -m * (np.log1p(s / a).sum(axis=0) + s * shift + shape * np.log1p(s * scale))
    difference = np.abs(np.exp(log_used) - np.exp(log_characteristic(m, c, t)))
    assert difference.sum() * (log_t[1] - log_t[0]) / np.pi < 1e-8


def test_large_arguments_are_inverse_gaussian_to_rounding():
    """What all terms but the first of the density add, absolutely: sum of C(n+m-1, n) e^(-nc)."""
    for m in (1, 50, 10**6):
        c = 40 + np.log(m)
        assert np.expm1(-m * np.log1p(-np.exp(-c))) < 2.0**-53


def test_numbers_depend_on_the_seed_alone():
    np.testing.assert_array_equal(draws(1, 2.0, n=50), draws(1, 2.0, n=100)[:50])
    assert (draws(1, 2.0, u=0.3, n=50) != draws(1, 2.0, u=0.4, n=50)).all()
    assert (draws(5, -2.0, n=50) == draws(5, 2.0, n=50)).all()
    spread = draws(1, 0.0, u=0.6)
    assert abs(np.corrcoef(spread[1:], spread[:-1])[0, 1]) < 4 / np.sqrt(N)
