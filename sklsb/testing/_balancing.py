"""Checks of balancing functions."""

import pickle
import sys

import numpy as np

from sklsb._system.arrays import Array
from sklsb.balancing.functions import BalancingFunction, LearnableFunction
from sklsb.testing._expect import EPS, expect, expect_equal, expect_near


def check_balancing(function: BalancingFunction) -> None:
    """Check that a function and its table are balancing, and its gradient if it is learnable.

    Parameters
    ----------
    function : BalancingFunction
        Function to check.

    Raises
    ------
    AssertionError
        If a property does not hold; the message says which, and what was found.
    """
    u = np.concatenate([np.linspace(-40, 40, 1281), [1e-300, 1e-9, 63.7, 99.0, 700.0, 1e4]])
    h, of_number = function.even_part(u), function.even_part(1.5)
    expect(
        np.shape(h) == u.shape and np.shape(of_number) == (),
        f"even_part returned shape {np.shape(h)} for an input of shape {u.shape}, and "
        f"{np.shape(of_number)} for a number; it must keep the shape.",
    )
    expect(np.isfinite(h), f"even_part must be finite; it is not at u = {u[~np.isfinite(h)]}.")
    _check_even(function, u)
    value, knots = function.table().value, function.knots
    gate = 8 * EPS * (1 + np.abs(knots) + np.abs(value))
    expect_near(value, function.even_part(knots), gate, "the table at the knots")
    expect_equal(function.tabulated().even_part(knots), value, "tabulated at the knots")
    cls = type(function)
    # A class made inside a function or a console cell cannot be pickled, and need not be.
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls:
        copy = pickle.loads(pickle.dumps(function))
        expect_equal(copy.table().value, value, "the table of an unpickled copy")
    if isinstance(function, LearnableFunction):
        _check_gradient(function)


def _check_even(function: BalancingFunction, u: Array) -> None:
    for which, f in (("function", function), ("tabulated function", function.tabulated())):
        h = f.even_part(u)
        gate = 8 * EPS * (1 + np.abs(u) + np.abs(h))
        what = f"the {which} must have h(-u) = h(u)"
        expect_near(f.even_part(-u), h, gate if f is function else 0.0, what)
        what = f"the {which} must have log g(u) = u + log g(-u)"
        expect_near(f.log_g(u), u + f.log_g(-u), 2 * gate, what)
        what = f"the {which} must have g(0) = 0, log g(-inf)"
        expect_equal(f.log_g(-np.inf), -np.inf, what)


def _check_gradient(function: LearnableFunction) -> None:
    """Compare vjp with central differences by theta."""
    rng = np.random.default_rng(0)
    # Perturbed, since corners of an initial function may be at knots.
    function = function.with_theta(function.theta + 1e-3 * rng.standard_normal(function.theta.size))
    theta, value = function.theta.copy(), function.table().value.copy()
    expect_equal(function.with_theta(theta).table().value, value, "with_theta(theta)")
    function.with_theta(theta + 0.1)
    expect_equal(function.theta, theta, "theta after with_theta made another function")
    expect_equal(function.table().value, value, "the table after with_theta")
    weights = rng.standard_normal(value.size)

    def loss(at: Array) -> float:
        return float(weights @ function.with_theta(at).table().value)

    analytic = np.asarray(function.vjp(weights))
    expect(analytic.shape == theta.shape, f"vjp has shape {analytic.shape}, theta {theta.shape}.")
    step = 1e-7
    numeric = np.array(
        [(loss(theta + e) - loss(theta - e)) / (2 * step) for e in step * np.eye(theta.size)]
    )
    gate = 1e-5 * (1e-3 + np.abs(numeric).max(initial=0.0))
    expect_near(analytic, numeric, gate, "vjp against finite differences")
