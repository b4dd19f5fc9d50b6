"""Spike and slab: squared error of inclusion probabilities times CPU seconds, fits included.

Regressions with n = 500 rows, correlated columns, ten of which matter weakly. The reference is the
mean of long fits by other seeds; its own error is subtracted.

error     mean over columns of the squared difference from the reference
product   error times CPU seconds of a fit with default settings (compiled before)
told      fits that warned

    python benchmarks/spike_slab.py [--columns 200 2000 20000] [--seeds 4] [--tol 0.001]
"""

import argparse
import time
import warnings

import numpy as np

from sklsb import SpikeSlabRegressor

N_ROWS = 500
SIGNALS = np.array([2.0, -3.0, 2.0, 2.0, -3.0, 3.0, -2.0, 3.0, -2.0, 3.0])


def regression(p, seed):
    """Columns are an autoregressive process with coefficient .6."""
    rng = np.random.default_rng(seed)
    X = np.empty((N_ROWS, p), dtype=np.float32, order="F")
    column = rng.normal(size=N_ROWS)
    for j in range(p):
        if j:
            column = 0.6 * column + 0.8 * rng.normal(size=N_ROWS)
        X[:, j] = column
    beta = SIGNALS * np.sqrt(np.log(p) / N_ROWS)
    return X, X[:, : SIGNALS.size] @ beta + rng.normal(size=N_ROWS)


def fitted(X, y, **settings):
    """A fit, its CPU seconds, and whether it warned."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = SpikeSlabRegressor(**settings).fit(X, y)
    return model, time.process_time() - began, bool(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[200, 2000, 20000])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tol", type=float, default=0.001)
    parser.add_argument("--reference-seconds", type=float, default=60.0)
    given = parser.parse_args()
    fitted(*regression(50, 0), random_state=0)
    for p in given.columns:
        X, y = regression(p, 1)
        settings = {"tol": given.tol, "max_time": given.reference_seconds}
        long = fitted(X, y, random_state=1000, **settings)[0]
        reference, own = long.inclusion_probabilities_, np.mean(long.inclusion_mcse_**2)
        fits = [fitted(X, y, random_state=seed) for seed in range(given.seeds)]
        errors = [np.mean((m.inclusion_probabilities_ - reference) ** 2) for m, _, _ in fits]
        seconds = np.mean([s for _, s, _ in fits])
        error = np.mean(errors) - own
        print(
            f"p {p}: error {error:.2g} (reference {own:.2g}), {seconds:.2f} CPU s, "
            f"product {error * seconds:.2g}, largest mcse told "
            f"{max(m.inclusion_mcse_.max() for m, _, _ in fits):.2g}, largest error "
            f"{max(np.abs(m.inclusion_probabilities_ - reference).max() for m, _, _ in fits):.2g}, "
            f"told {sum(t for _, _, t in fits)} of {len(fits)}"
        )


if __name__ == "__main__":
    main()
