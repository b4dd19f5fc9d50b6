"""Spike and slab: squared error of inclusion probabilities times CPU seconds, fits included.

Regressions with n = 500 rows, correlated columns, ten of which matter weakly. The reference is the
mean of long fits by other seeds; its own error is subtracted.

error           mean over columns of the squared difference from the reference
CPU s x error   of a fit with default settings (compiled before); smaller is better
warned          fits that warned

With ``--peer``, millipede (weighted tempered Gibbs sampling) runs beside it on the same posterior but
for the intercept's prior: y and columns are centred, so that none is needed. Its error is half the
mean squared difference of two seeds, and its burn-in counts.

With ``--hidden``: supports that no single column shows, by the regressor and by the classifier;
how many fits missed a column of the support (probability below 1/2), and how many of these did not
say so.

    python benchmarks/spike_slab.py [--columns 200 2000 20000] [--seeds 4] [--tol 0.001] [--peer]
    python benchmarks/spike_slab.py --hidden [--seeds 10]
"""

import argparse
import time
import warnings

import numpy as np

from sklsb import SpikeSlabClassifier, SpikeSlabRegressor

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


def fitted(X, y, kind=SpikeSlabRegressor, **settings):
    """A fit, its CPU seconds, and whether it warned."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = kind(**settings).fit(X, y)
    return model, time.process_time() - began, bool(caught)


def common(k, p, n, seed):
    """k columns, their common part taken out, of which y is the rest."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, k))
    u = Z.mean(axis=1, keepdims=True)
    X = np.column_stack([Z - 0.9 * u, rng.normal(size=(n, p - k))])
    return X, np.sqrt(k) * u[:, 0], 0.2, k


def pair(p, n, seed):
    """Two columns that are nearly the same, of which y is the difference."""
    rng = np.random.default_rng([9, seed])
    X = rng.normal(size=(n, p))
    X[:, 1] = X[:, 0] + 0.05 * X[:, 1]
    return X, (X[:, 1] - X[:, 0]) / 0.05, 0.5, 2


HIDDEN = {
    "6 of 60": lambda seed, n: common(6, 60, n, seed),
    "6 of 30": lambda seed, n: common(6, 30, n, seed),
    "8 of 12": lambda seed, n: common(8, 12, n, seed),
    "pair of 3,000": lambda seed, n: pair(3_000, 3 * n // 2, seed),
    "pair of 20,000": lambda seed, n: pair(20_000, 3 * n // 2, seed),
}


def hidden(seeds):
    """Print how many fits missed a hidden support, and how many of these were silent."""
    for kind, n in ((SpikeSlabRegressor, 100), (SpikeSlabClassifier, 300)):
        for name, make in HIDDEN.items():
            missed, silent, alarms, seconds = [], [], [], []
            for seed in range(seeds):
                X, signal, noise, k = make(seed, n)
                rng = np.random.default_rng([7, seed])
                y = signal + noise * rng.normal(size=len(X))
                settings = {"random_state": seed}
                if kind is SpikeSlabClassifier:
                    y = rng.random(len(X)) < 1 / (1 + np.exp(-4 * signal))
                    # By default the prior refuses coefficients as large as a difference needs.
                    settings["slab_sd"] = 3.0 if k == 2 else 1.0
                model, spent, warned = fitted(X, y, kind=kind, **settings)
                missed.append(model.inclusion_probabilities_[:k].min() < 0.5)
                silent.append(missed[-1] and not warned)
                alarms.append(warned and not missed[-1])
                seconds.append(spent)
            print(
                f"{kind.__name__}, {name}: missed {sum(missed)}, silent {sum(silent)}, false "
                f"alarms {sum(alarms)} of {seeds}; {np.mean(seconds):.1f} CPU s",
                flush=True,
            )


def peer(X, y, seeds, n_steps):
    """Print CPU seconds times squared error of millipede."""
    import pandas as pd
    from millipede import NormalLikelihoodVariableSelector

    n, p = X.shape
    frame = pd.DataFrame(X - X.mean(axis=0, dtype=np.float64))
    frame["y"] = y - y.mean()
    found, seconds = [], []
    for seed in range(seeds):
        settings = {"S": (1.0, 1.0), "prior": "gprior", "c": float(n), "include_intercept": False}
        if p > 5_000:
            settings["subset_size"] = p // 10
        began = time.process_time()
        selector = NormalLikelihoodVariableSelector(
            frame, "y", nu0=0.0, precompute_XX=p <= 2_000, **settings
        )
        selector.run(T=n_steps, T_burnin=n_steps // 4, verbosity=None, seed=seed)
        seconds.append(time.process_time() - began)
        found.append(selector.summary["PIP"].to_numpy()[:p])
    found = np.array(found)
    error = found.var(axis=0, ddof=1).mean()
    print(
        f"p {p}: millipede, {n_steps} steps: error {error:.2g}, {np.mean(seconds):.2f} CPU s, "
        f"CPU s x error {error * np.mean(seconds):.2g}",
        flush=True,
    )
    return found.mean(axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[200, 2000, 20000])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--tol", type=float, default=0.001)
    parser.add_argument("--reference-seconds", type=float, default=60.0)
    parser.add_argument("--peer", action="store_true", help="needs millipede")
    parser.add_argument("--hidden", action="store_true", help="hidden supports only")
    given = parser.parse_args()
    fitted(*regression(50, 0), random_state=0)
    if given.hidden:
        hidden(given.seeds)
        return
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
            f"CPU s x error {error * seconds:.2g}, largest mcse stated "
            f"{max(m.inclusion_mcse_.max() for m, _, _ in fits):.2g}, largest error "
            f"{max(np.abs(m.inclusion_probabilities_ - reference).max() for m, _, _ in fits):.2g}, "
            f"warned {sum(t for _, _, t in fits)} of {len(fits)}",
            flush=True,
        )
        if given.peer:
            other = peer(X, y, given.seeds, 4_000 if p <= 2_000 else 1_000)
            print(f"   largest difference from the reference {np.abs(other - reference).max():.2g}")


if __name__ == "__main__":
    main()
