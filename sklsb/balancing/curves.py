"""Curves with parameters, inside the learnable functions of `sklsb.balancing`.

Each class is one curve and holds no state. ``initial`` returns the parameters theta to start with.
``forward`` returns the values of the curve at some places, and a memory for ``backward``, which
turns the gradient of a loss by these values into its gradient by theta.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from sklsb._system.arrays import Array


def softplus(x: Array) -> Array:
    """Return log(1 + exp x)."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


class Knots:
    """psi linear between the values theta at places, denser where most log-ratios are."""

    places = np.concatenate(
        [np.arange(0, 4, 0.25), np.arange(4, 8, 0.5), np.arange(8, 16, 1.0), np.arange(16, 33, 2.0)]
    )

    learning_rate = 0.05

    @classmethod
    def initial(cls) -> Array:
        return np.zeros(cls.places.size)

    @classmethod
    def forward(cls, theta: Array, v: Array) -> tuple[Array, Any]:
        k = np.clip(np.searchsorted(cls.places, v, side="right") - 1, 0, cls.places.size - 2)
        upper = (v - cls.places[k]) / (cls.places[k + 1] - cls.places[k])
        return theta[k] * (1.0 - upper) + theta[k + 1] * upper, (k, upper)

    @classmethod
    def backward(cls, theta: Array, memory: Any, by_psi: Array) -> Array:
        k, upper = memory
        n = theta.size
        below = np.bincount(k, by_psi * (1.0 - upper), n)
        return np.asarray(below + np.bincount(k + 1, by_psi * upper, n), dtype=np.float64)


class SlopeNetwork:
    """psi = w2 . tanh(w1 s + b1) + b2 with s = v / (1 + v); theta = (w1, b1, w2, b2)."""

    n_hidden = 10
    learning_rate = 0.02

    @classmethod
    def initial(cls) -> Array:
        # Bends spread over (0, 1), and an output layer of zeros.
        w1 = np.full(cls.n_hidden, 8.0)
        b1 = -8.0 * np.linspace(0.05, 0.95, cls.n_hidden)
        return np.concatenate([w1, b1, np.zeros(cls.n_hidden + 1)])

    @classmethod
    def forward(cls, theta: Array, v: Array) -> tuple[Array, Any]:
        w1, b1, w2, b2 = np.split(theta, cls.n_hidden * np.arange(1, 4))
        s = v / (1.0 + v)
        hidden = np.tanh(np.multiply.outer(s, w1) + b1)
        return hidden @ w2 + b2[0], (s, hidden)

    @classmethod
    def backward(cls, theta: Array, memory: Any, by_psi: Array) -> Array:
        s, hidden = memory
        w2 = theta[2 * cls.n_hidden : 3 * cls.n_hidden]
        by_input = by_psi[:, None] * (1.0 - hidden**2) * w2
        return np.concatenate([s @ by_input, by_input.sum(0), by_psi @ hidden, [by_psi.sum()]])


# The architectures of `sklsb.Lipschitz`.
SLOPES: dict[str, type[Knots] | type[SlopeNetwork]] = {"knots": Knots, "network": SlopeNetwork}


class MLP:
    """log softplus(w2 . relu(w1 s + b1) + b2), s = sigmoid(u) - 1/2; theta = (w1, b1, w2, b2)."""

    n_hidden = 10

    @classmethod
    def _split(cls, theta: Array) -> tuple[Array, Array, Array, float]:
        n = cls.n_hidden
        return theta[:n], theta[n : 2 * n], theta[2 * n : 3 * n], float(theta[-1])

    @classmethod
    def forward(cls, theta: Array, u: Array) -> tuple[Array, Any]:
        w1, b1, w2, b2 = cls._split(theta)
        s = 0.5 * np.tanh(0.5 * u)
        hidden = np.multiply.outer(w1, s)
        hidden += b1[:, None]
        np.maximum(hidden, 0.0, out=hidden)
        out = w2 @ hidden + b2
        plus = softplus(out)
        return np.log(plus), (s, hidden, expit(out) / plus)

    @classmethod
    def backward(cls, theta: Array, memory: Any, by_log_f: Array) -> Array:
        s, hidden, slope = memory
        w2 = cls._split(theta)[2]
        by_out = by_log_f * slope
        active = (hidden > 0).astype(np.float64)
        by_w1, by_b1 = w2 * (active @ (by_out * s)), w2 * (active @ by_out)
        return np.concatenate([by_w1, by_b1, hidden @ by_out, [by_out.sum()]])

    @classmethod
    @lru_cache
    def initial(cls) -> Array:
        # f(t) = 1/cosh(u/2) gives exactly sqrt(t). Ten kinks approximate it,
        # denser towards the ends of s, where t is extreme; least squares then fits the even part
        # itself to 0, the even part of sqrt(t), up to abs(u) = 8.
        u = np.arange(0.0, 8.01, 0.125)
        both = np.concatenate([u, -u])
        kink = 0.5 * np.tanh(0.5 * np.array([0.5, 2.0, 3.5, 5.0, 6.5]))
        sign, kink = np.repeat([1.0, -1.0], 5), np.concatenate([kink, kink])
        hidden = np.maximum(sign * 0.5 * np.tanh(0.5 * both)[:, None] - kink, 0.0)
        wanted = np.log(np.expm1(1.0 / np.cosh(0.5 * both)))
        w2, b2 = np.split(np.linalg.lstsq(np.c_[hidden, np.ones(both.size)], wanted)[0], [10])
        scale = np.sqrt(np.abs(w2) + 0.01)
        guess = np.concatenate([sign * scale, -kink * scale, w2 / scale, b2])

        def residual(theta: Array) -> Array:
            log_f = cls.forward(theta, both)[0]
            one, other = log_f[: u.size], log_f[u.size :] + u
            h = np.logaddexp(one, other) - np.log(2)
            return np.concatenate([h - 0.5 * u, 1e-3 * (theta - guess)])

        return least_squares(residual, guess, max_nfev=100).x
