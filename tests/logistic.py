"""Logistic regression with a spike and a slab: two truths that share no code with the package."""

import itertools

import numpy as np
from scipy.special import betaln, expit, logsumexp


def log_likelihood(psi, y, m):
    """Log of the binomial likelihood without binomial coefficients; psi has rows of data last."""
    return psi @ y - (np.maximum(psi, 0.0) + np.log(1.0 + np.exp(-np.abs(psi)))) @ (m + 0.0 * y)


class Quadrature:
    """All models of a few columns; integrals over coefficients by Gauss and Hermite's rule.

    The intercept has a flat prior, coefficients the prior N(0, slab_sd^2), and columns in
    ``always`` are in every model. ``log_prior`` is a function of the mask of a model.
    """

    known = {}  # integrals by data and model: priors of models do not change them

    def __init__(self, X, y, log_prior, *, m=1, slab_sd=1.0, always=(), n_nodes=11):
        self.X, self.y, self.m = X, y, np.broadcast_to(m, y.shape)
        self.slab_sd, self.n_nodes = slab_sd, n_nodes
        free = [j for j in range(X.shape[1]) if j not in always]
        self.masks, logs, firsts, seconds, above = [], [], [], [], []
        for values in itertools.product((False, True), repeat=len(free)):
            mask = np.isin(np.arange(X.shape[1]), always)
            mask[free] = values
            key = (*(part.tobytes() for part in (X, y, self.m, mask)), slab_sd, n_nodes)
            if key not in self.known:
                self.known[key] = self._integrate(mask)
            log_z, mean, square, positive = self.known[key]
            self.masks.append(mask)
            logs.append(log_z + log_prior(mask))
            firsts.append(mean)
            seconds.append(square)
            above.append(positive)
        self.masks = np.array(self.masks)
        self.log_z = logsumexp(logs)
        self.probabilities = np.exp(logs - self.log_z)
        self.inclusion = self.probabilities @ self.masks
        mean = self.probabilities @ firsts  # the intercept first
        self.intercept, self.coef = mean[0], mean[1:]
        self.coef_sd = np.sqrt(self.probabilities @ seconds - mean**2)[1:]
        self.positive = (self.probabilities @ above)[1:]

    def _integrate(self, mask):
        """Return log of the marginal likelihood, and means of b, b^2 and b > 0 of all columns."""
        design = np.column_stack([np.ones(len(self.y)), self.X[:, mask]])
        k = design.shape[1]

        def log_joint(b):
            result = log_likelihood(b @ design.T, self.y, self.m)
            result = result - 0.5 * (b[..., 1:] ** 2).sum(axis=-1) / self.slab_sd**2
            return result - (k - 1) * np.log(self.slab_sd * np.sqrt(2 * np.pi))

        ridge = np.full(k, self.slab_sd**-2.0)
        ridge[0] = 0.0
        mode, step = np.zeros(k), np.ones(k)
        while np.abs(step).max() > 1e-9:
            p = expit(design @ mode)
            hessian = (design.T * (self.m * p * (1 - p))) @ design + np.diag(ridge)
            step = np.linalg.solve(hessian, design.T @ (self.y - self.m * p) - ridge * mode)
            mode += step
        # A little wider than the normal distribution at the mode: the tails are heavier.
        root = 1.1 * np.linalg.cholesky(np.linalg.inv(hessian))
        x, w = np.polynomial.hermite_e.hermegauss(self.n_nodes)
        grid = np.stack(np.meshgrid(*[x] * k, indexing="ij"), axis=-1).reshape(-1, k)
        log_w = sum(np.meshgrid(*[np.log(w)] * k, indexing="ij")).ravel()
        keep = log_w > log_w.max() - 60
        grid, log_w = grid[keep], log_w[keep]
        b = mode + grid @ root.T
        parts = np.array_split(b, max(1, b.shape[0] * len(self.y) // 2_000_000))
        values = np.concatenate([log_joint(part) for part in parts])
        values += log_w + 0.5 * (grid**2).sum(axis=1) + np.log(np.diag(root)).sum()
        log_z = logsumexp(values)
        share = np.exp(values - log_z)
        full = np.zeros((3, mask.size + 1))
        places = np.concatenate([[0], 1 + np.flatnonzero(mask)])
        full[:, places] = share @ b, share @ b**2, share @ (b > 0)
        return log_z, *full


def by_size(p, a=1.0, b=1.0):
    """Log of the beta-binomial prior of a model of p columns."""
    return lambda mask: betaln(mask.sum() + a, p - mask.sum() + b) - betaln(a, b)


def gamma_sums(rng, m, c, n_terms=60):
    """Polya-Gamma variables as their sums of gamma variables, the rest by its mean."""
    a = (np.arange(n_terms)[:, None] + 0.5) ** 2 + (c / (2 * np.pi)) ** 2
    g = rng.standard_gamma(np.broadcast_to(m, a.shape).astype(float))
    half = np.maximum(np.abs(c), 1e-4) / 2
    total = m * np.pi**2 * np.tanh(half) / (2 * half)
    return ((g / a).sum(axis=0) + total - m * (1 / a).sum(axis=0)) / (2 * np.pi**2)


def plain_gibbs(X, y, log_odds_of_size, rng, *, m=1, slab_sd=1.0, n_sweeps=1000, n_burn_in=200):
    """One column after another, with the other coefficients and omega given.

    ``log_odds_of_size[k]`` is the log prior odds of one more column than k. Returns inclusion
    probabilities and coefficients, averaged given the rest, by sweep: shape (2, n_sweeps, p).
    """
    n, p = X.shape
    m = np.broadcast_to(m, n)
    kappa = y - m / 2
    intercept, b, psi = 0.0, np.zeros(p), np.zeros(n)
    found = np.empty((2, n_burn_in + n_sweeps, p))
    for sweep in range(n_burn_in + n_sweeps):
        omega = gamma_sums(rng, m, psi)
        square = (X**2).T @ omega + slab_sd**-2.0
        psi -= intercept
        sd = omega.sum() ** -0.5
        intercept = sd**2 * (kappa - omega * psi).sum() + sd * rng.normal()
        psi += intercept
        for j in rng.permutation(p):
            x = X[:, j]
            rest = psi - b[j] * x
            mean = x @ (kappa - omega * rest) / square[j]
            size = np.count_nonzero(b) - (b[j] != 0)
            log_odds = log_odds_of_size[size] - np.log(slab_sd) - 0.5 * np.log(square[j])
            probability = expit(log_odds + 0.5 * mean**2 * square[j])
            found[:, sweep, j] = probability, probability * mean
            b[j] = 0.0
            if rng.random() < probability:
                b[j] = mean + rng.normal() / np.sqrt(square[j])
            psi = rest + b[j] * x
    return found[:, n_burn_in:]
