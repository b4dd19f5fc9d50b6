"""Effective sample sizes of the four Ising cases of the LSB paper, beside the published ones.

30x30 periodic lattice, 30 chains. Field +mu in the central square and -mu elsewhere, plus
sigma U(-1, 1), drawn anew for every chain as in the paper; the learned functions are fitted on
one field with all chains. As in the paper these are a mixture and a network, each learned by the mutual
information and used for sampling whatever it is worth; what sklsb does by default is measured by
learning.py. Prints a table and writes JSON.

    python benchmarks/paper_ising.py [--chains 30] [--json paper_ising.json]
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np

from sklsb import Ising, LSBSampler, Network
from sklsb.diagnostics import paper_ess
from sklsb.exceptions import SamplerWarning

# coupling, mu, sigma, lags of the paper's effective sample size
CASES = {
    1: (0.0, 1.0, 3.0, 500),
    2: (0.0, 3.0, 3.0, 400),
    3: (1.0, 1.0, 3.0, 500),
    4: (1.0, 3.0, 3.0, 100),
}
# Published (mean, sd over 30 chains): cases 1 to 3 from the final paper, 4 from its first version.
PUBLISHED = {
    1: {"barker": (2.55, 0.30), "sqrt": (2.29, 0.23), "min": (2.43, 0.22), "max": (1.71, 0.13), "mixture": (2.32, 0.27), "learned": (2.34, 0.23)},
    2: {"barker": (3.30, 0.36), "sqrt": (2.89, 0.28), "min": (2.96, 0.30), "max": (1.68, 0.11), "mixture": (2.85, 0.28), "learned": (2.30, 0.29)},
    3: {"barker": (2.39, 0.98), "sqrt": (1.83, 0.56), "min": (2.31, 0.92), "max": (1.20, 0.10), "mixture": (2.01, 0.70), "learned": (2.44, 0.96)},
    4: {"barker": (32.8, 9.2), "sqrt": (18.5, 6.8), "min": (31.8, 10.0), "max": (2.60, 1.46), "mixture": (18.4, 8.0), "learned": (30.8, 9.2)},
}  # fmt: skip


def paper_field(mu, sigma, rng, n=30):
    field = np.full((n, n), -mu)
    field[n // 4 : n - n // 4, n // 4 : n - n // 4] = mu
    return field + sigma * rng.uniform(-1, 1, (n, n))


def effective_sizes(balancing, case, n_chains, seed, n_draws, n_burn_in):
    """Paper ESS of sum(x) of each chain, and the acceptance rate."""
    coupling, mu, sigma, lags = CASES[case]
    rng = np.random.default_rng([seed, case])
    learned = balancing in ("mixture", "learned")
    sizes, acceptance = [], []
    for c in range(1 if learned else n_chains):
        model = Ising.lattice(paper_field(mu, sigma, rng), coupling)
        sampler = LSBSampler(
            Network() if balancing == "learned" else balancing,
            objective="exact",
            pilot=False,
            n_chains=n_chains if learned else 1,
            n_burn_in=n_burn_in,
            init="uniform",  # as in the paper
            random_state=np.random.SeedSequence([seed, case, c]),
        ).fit(model)
        sums = sampler.sample(n_draws, record={"sum": lambda x: x.sum(axis=(1, 2), dtype=np.int64)})
        sizes.append(paper_ess(sums["sum"].values, lags))
        acceptance.append(float(sampler.sample_stats_.acceptance_rate.mean()))
    return np.concatenate(sizes), float(np.mean(acceptance))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=30)
    parser.add_argument("--draws", type=int, default=30_000)
    parser.add_argument("--burn-in", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("paper_ising.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    print(f"{'case':4s} {'function':8s} {'published':>13s} {'measured':>14s} {'z':>6s} acceptance")
    for case, published in PUBLISHED.items():
        for balancing, (mean, sd) in published.items():
            sizes, acceptance = effective_sizes(
                balancing, case, options.chains, options.seed, options.draws, options.burn_in
            )
            error = np.hypot(sd / np.sqrt(30), sizes.std(ddof=1) / np.sqrt(sizes.size))
            row = {
                "case": case,
                "balancing": balancing,
                "published": [mean, sd],
                "mean": float(sizes.mean()),
                "sd": float(sizes.std(ddof=1)),
                "z": float((sizes.mean() - mean) / error),
                "acceptance_rate": acceptance,
            }
            rows.append(row)
            print(
                f"{case:4d} {balancing:8s} {mean:6.2f} ±{sd:5.2f} {row['mean']:7.2f} "
                f"±{row['sd']:5.2f} {row['z']:6.1f} {acceptance:.3f}",
                flush=True,
            )
    options.json.write_text(
        json.dumps({"options": vars(options) | {"json": str(options.json)}, "rows": rows}, indent=1)
    )


if __name__ == "__main__":
    main()
