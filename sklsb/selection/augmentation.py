r"""Weights of the rows under which a logistic regression is a linear one.

With y_i successes in m_i trials and linear predictor psi_i, Polya-Gamma variables omega_i make the
likelihood Gaussian: prod_i exp(kappa_i psi_i - omega_i psi_i^2 / 2) PG(omega_i | m_i, 0), with
kappa = y - m / 2 (N. G. Polson, J. G. Scott and J. Windle, JASA 2013). For the included columns D,
a diagonal ridge (0 for a flat prior), F = D' Omega D + ridge and Z = D' kappa, the coefficients
given omega are N(F^-1 Z, F^-1), and with them integrated out

    log p(omega | model, y) = L(omega) + sum_i log PG(omega_i | m_i, 0),
    L(omega) = Z' F^-1 Z / 2 - log det F / 2.

Two updates leave this invariant, and a coin that does not depend on the state chooses:

- *plain*: coefficients are drawn, then omega_i from PG(m_i, psi_i), with no rejection;
- *integrated*: omega' is drawn from PG(m, psi), psi the predictor at the mean of the coefficients
  under omega, psi' that under omega', and accepted with probability min(1, exp r),

      r = L(omega') - L(omega) + sum_i (omega'_i psi_i^2 - omega_i psi'_i^2) / 2
          + sum_i m_i (log cosh(psi'_i / 2) - log cosh(psi_i / 2)),

  as PG(omega | m, psi) is cosh(psi / 2)^m exp(-omega psi^2 / 2) PG(omega | m, 0).

The integrated update alone may never move away from a bad start, hence the coin.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtrs

from sklsb._kernels.selection.polya_gamma import draw_polya_gamma
from sklsb._system.arrays import Array, Ints

INTEGRATED = 0.5  # probability of the integrated update


def solve_lower(root: Array, b: Array, transposed: bool = False) -> Array:
    """Solve L x = b, or L' x = b; the checks of `solve_triangular` take ten times as long."""
    if not root.size:
        return b
    x: Array = dtrtrs(root, b, lower=1, trans=int(transposed))[0]
    return x


class Conditional(NamedTuple):
    """Coefficients of the included columns given the weights."""

    design: Array  # (k, n), the included columns
    mean: Array  # (k,)
    root: Array  # (k, k) lower triangular factor of F
    log_p: float  # L

    @property
    def predictor(self) -> Array:
        """The linear predictor at the mean, shape (n,)."""
        return np.asarray(self.mean @ self.design)

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw coefficients, shape (k,)."""
        noise = rng.standard_normal(self.mean.size)
        return self.mean + solve_lower(self.root, noise, transposed=True)


class Augmentation:
    """The weights ``omega`` of the rows of one chain, and its counts of integrated updates."""

    def __init__(self, n_successes: Array, n_trials: Ints):
        self.n_trials = n_trials
        self.kappa = n_successes - 0.5 * n_trials
        self.omega = np.asarray(0.25 * n_trials, dtype=np.float64)  # means of PG(m, 0)
        self.n_proposed = self.n_accepted = 0

    def conditional(self, design: Array, ridge: Array, omega: Array | None = None) -> Conditional:
        """Return the coefficients of columns with prior precisions ``ridge``, given weights."""
        precision = (design * (self.omega if omega is None else omega)) @ design.T
        precision.flat[:: ridge.size + 1] += ridge
        root = cholesky(precision, lower=True, check_finite=False)
        half = solve_lower(root, design @ self.kappa)
        mean = solve_lower(root, half, transposed=True)
        log_p = 0.5 * float(half @ half) - float(np.log(np.diag(root)).sum())
        return Conditional(design, mean, root, log_p)

    def _propose(self, predictor: Array, rng: np.random.Generator) -> Array:
        omega = np.empty(predictor.size)
        draw_polya_gamma(self.n_trials, predictor, rng.random(), omega)
        return omega

    def update(self, now: Conditional, ridge: Array, rng: np.random.Generator) -> Array:
        """Draw new weights; ``now`` is the conditional distribution under the present ones.

        Returns coefficients drawn from it.
        """
        coefficients = now.draw(rng)
        if rng.random() >= INTEGRATED:
            self.omega = self._propose(coefficients @ now.design, rng)
        else:
            self._integrated(now, ridge, rng)
        return coefficients

    def _integrated(self, now: Conditional, ridge: Array, rng: np.random.Generator) -> None:
        psi = now.predictor
        omega = self._propose(psi, rng)
        then = self.conditional(now.design, ridge, omega)
        psi_then = then.predictor
        r = then.log_p - now.log_p
        r += 0.5 * float(omega @ psi**2 - self.omega @ psi_then**2)
        # Logarithms of 2 cosh(psi / 2).
        then_cosh, now_cosh = (np.logaddexp(0.5 * p, -0.5 * p) for p in (psi_then, psi))
        r += float(self.n_trials @ (then_cosh - now_cosh))
        self.n_proposed += 1
        if np.log1p(-rng.random()) < r:
            self.omega = omega
            self.n_accepted += 1
