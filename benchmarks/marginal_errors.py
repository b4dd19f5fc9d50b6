"""How often a marginal probability lies within two of its stated errors.

Simulated chains whose marginals are known: of two states; of several, where the next value is drawn
anew or is a neighbour of the last; and of two modes, one of them rare, where a value comes and goes.
Real chains: of samplers of the package on small random networks, against enumeration. 4 chains each.
Values are grouped by the number of their visits (runs of draws that have the value, or that do not,
if these are fewer) that are expected: the mean over the replicates. Prints, for the plain error by
ArviZ and that of diagnostics.marginals, the coverage among the replicates that saw the value, among
all (not seen: NaN, so not covered), and the mean ratio of the two errors. Takes ten minutes.

    python benchmarks/marginal_errors.py [--replicates 100] [--json marginal_errors.json]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import arviz
import numpy as np
import xarray as xr

from sklsb import FunctionTarget, GibbsSampler, Ising, LSBSampler, MarkovNetwork, Potts, exact
from sklsb.diagnostics import marginals

N_CHAINS = 4
GROUPS = ((1, 2), (2, 5), (5, 10), (10, 20), (20, 50), (50, 200), (200, 1000), (1000, np.inf))


# ----------------------------------------------------------------- simulated chains


def stationary(matrix):
    """Distribution that a transition matrix leaves as it is."""
    size = len(matrix)
    equations = np.vstack([matrix.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]


def walk(matrix, n_draws, n_copies, rng):
    """Copies of a chain from its stationary distribution, (n_copies, N_CHAINS, n_draws)."""
    bounds = matrix.cumsum(axis=1)[:, :-1]
    x = np.empty((n_draws, n_copies, N_CHAINS), dtype=np.int8)
    u = rng.random(x.shape)
    x[0] = np.searchsorted(stationary(matrix).cumsum()[:-1], u[0])
    for t in range(1, n_draws):
        x[t] = (bounds[x[t - 1]] < u[t][..., None]).sum(axis=-1)
    return x.transpose(1, 2, 0)


def anew(p, hold):
    """Keep the value with a probability, or draw it from p."""
    return hold * np.eye(len(p)) + (1 - hold) * np.asarray(p)


def neighbours(p, hold):
    """Go up or down by one, Metropolis."""
    size = len(p)
    matrix = np.zeros((size, size))
    for a in range(size):
        for b in (a - 1, a + 1):
            if 0 <= b < size:
                matrix[a, b] = (1 - hold) / 2 * min(1.0, p[b] / p[a])
        matrix[a, a] = 1 - matrix[a].sum()
    return matrix


def simulated(n_replicates, rng):
    """Yield kind, length of a chain, draws of all replicates, and the marginals."""
    for n_draws in (200, 1000, 5000):
        n = N_CHAINS * n_draws
        for length in (1, 3, 10, 40):
            hold = 1 - 1 / length
            for visits in (1.4, 3, 7, 14, 30, 100, 400, 2000):
                rare = visits * length / n
                if rare > 0.4:
                    continue
                x = walk(anew([1 - rare, rare], hold), n_draws, n_replicates, rng)
                yield "two states", n_draws, x, [1 - rare, rare]
                if length > 1:
                    # In the rare mode the value is there in half of the draws; a run lasts for two.
                    mode = walk(anew([1 - rare, rare], hold), n_draws, n_replicates, rng)
                    x = mode * (rng.random(mode.shape) < 0.5).astype(np.int8)
                    yield "rare mode", n_draws, x, [1 - rare / 2, rare / 2]
            p = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
            for tilt in (0.7, 1.0, 1.4):
                q = p**tilt / (p**tilt).sum()
                x = walk(anew(q, hold), n_draws, n_replicates, rng)
                yield "five states", n_draws, x, q
                x = walk(neighbours(q, hold), n_draws, n_replicates, rng)
                yield "neighbours", n_draws, x, q


# ----------------------------------------------------------------- real chains


def random_couplings(d, share, scale, rng):
    upper = np.triu(rng.normal(0.0, scale, (d, d)), 1) * (rng.random((d, d)) < share)
    return upper + upper.T


def networks(rng):
    """Small targets with rare values."""
    sizes = [2, 3, 4, 2, 5, 3, 2, 3]
    pairs = [(i, i + 1) for i in range(7)] + [(0, 3), (2, 6), (1, 5)]
    tied = np.zeros((8, 8))
    for a, b in ((0, 1), (1, 2), (3, 4), (5, 6)):
        tied[a, b] = tied[b, a] = 1.5
    for _ in range(5):
        yield "Ising", Ising(random_couplings(10, 0.4, 0.6, rng), rng.normal(0.0, 1.6, 10))
        yield "Potts", Potts(random_couplings(6, 0.6, 0.8, rng), rng.normal(0.0, 2.5, (6, 4)))
        factors = [((a, b), np.exp(rng.normal(0.0, 1.8, (sizes[a], sizes[b])))) for a, b in pairs]
        yield "MarkovNetwork", MarkovNetwork(sizes, factors)
        yield "tied pairs", Ising(tied, rng.uniform(-1.5, -0.7, 8))


def enumerated(target):
    hit = exact.states(target)[:, :, None] == np.asarray(target.values)
    return np.einsum("n,niv->iv", exact.probabilities(target), hit)


def real(n_replicates, rng):
    """Yield kind, length of a chain, draws of all replicates of one variable, and its marginals."""
    for name, target in networks(rng):
        p = enumerated(target)
        settings = {"n_chains": N_CHAINS * n_replicates, "n_burn_in": 2000}
        for sampler, n_draws, thin in (
            (LSBSampler("sqrt", random_state=1, **settings), 2000, 1),
            (LSBSampler("barker", random_state=2, **settings), 1000, 1),
            (LSBSampler("sqrt", random_state=3, **settings), 250, "sweep"),
            (GibbsSampler("random", random_state=4, **settings), 500, 1),
        ):
            draws = sampler.fit(target).sample(n_draws, thin=thin)["x"].values
            draws = draws.reshape(n_replicates, N_CHAINS, n_draws, target.n_sites)
            for site in range(target.n_sites):
                values = np.searchsorted(target.values, draws[..., site]).astype(np.int8)
                yield name, n_draws, values, p[site]


# ----------------------------------------------------------------- coverage


def n_visits(hit):
    """Runs of True or of False, the fewer, of arrays (n_replicates, N_CHAINS, n_draws)."""
    changes = np.diff(hit.astype(np.int8), axis=2)
    inside = hit[:, :, 0].sum(axis=1) + (changes == 1).sum(axis=(1, 2))
    outside = (~hit[:, :, 0]).sum(axis=1) + (changes == -1).sum(axis=(1, 2))
    return np.minimum(inside, outside)


def measure(kind, n_draws, x, p):
    """One row for each value: what the replicates say of it."""
    draws = xr.Dataset({"x": (("chain", "draw", "site"), np.moveaxis(x, 0, 2))})
    target = FunctionTarget(lambda state: 0.0, len(x), n_states=max(2, len(p)))
    found = marginals(draws, target)
    rows = []
    # Both values of a variable that has two say the same.
    for value in range(len(p)) if np.count_nonzero(p) > 2 else (1,):
        if not 0.0 < p[value] < 1.0:
            continue
        estimate, mcse = (found[name].values[:, value] for name in ("p", "mcse"))
        hit = x == value
        seen = (estimate > 0) & (estimate < 1)
        plain = np.full(len(x), np.nan)
        if seen.any():
            series = np.moveaxis(hit[seen], 0, 2).astype(float)
            series = xr.Dataset({"x": (("chain", "draw", "site"), series)})
            plain[seen] = arviz.mcse(series, method="mean")["x"].values
        off = np.abs(estimate - p[value])
        rows.append(
            {
                "kind": kind,
                "n_draws": n_draws,
                "visits": float(n_visits(hit).mean()),
                "n": len(x),
                "seen": int(seen.sum()),
                "plain": int((off <= 2 * plain).sum()),
                "covered": int((off <= 2 * mcse).sum()),
                "ratio": float((mcse[seen] / plain[seen]).sum()),
            }
        )
    return rows


def table(rows, title):
    print(
        f"\n{title}\nexpected visits  values   seen  plain  covered  covered of all  error / plain"
    )
    for low, high in (*GROUPS, (1, 20)):
        group = [row for row in rows if low <= row["visits"] < high]
        if not group:
            continue
        n, seen, plain, covered, ratio = (
            sum(row[name] for row in group) for name in ("n", "seen", "plain", "covered", "ratio")
        )
        print(
            f"{low:6d} to {high:6.0f}  {len(group):6d}  {seen / n:5.3f}  {plain / seen:5.3f}  "
            f"{covered / seen:7.3f}  {covered / n:14.3f}  {ratio / seen:13.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("marginal_errors.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(options.seed)
    began = time.perf_counter()
    everything = {}
    for title, cases in (("simulated chains", simulated), ("chains of the package", real)):
        rows = [row for case in cases(options.replicates, rng) for row in measure(*case)]
        everything[title] = rows
        table(rows, f"{title}, all ({time.perf_counter() - began:.0f} s)")
        for kind in dict.fromkeys(row["kind"] for row in rows):
            table([row for row in rows if row["kind"] == kind], f"{title}: {kind}")
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
