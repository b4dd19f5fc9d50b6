"""How many partners an exchange should have: effective sample sizes per second of SwapSampler.

The effective sample size is that of log p, and the variance-weighted harmonic mean over the variables
(of up to five values each).

    python benchmarks/swaps.py [--seconds 2] [--page doc/measured/swaps.inc]
"""

import argparse
import time
import warnings

import arviz
import numpy as np
from record import write_table

from sklsb import Ising, Potts, SwapSampler
from sklsb.exceptions import SamplerWarning

N_PARTNERS = (1, 2, 4, 8, 16, None)


def lattice(coupling):
    start = np.where(np.random.default_rng(0).permutation(400) < 200, 1, -1)
    return Ising.lattice(np.zeros((20, 20)), coupling=coupling), start


def glass(n):
    rng = np.random.default_rng(0)
    half = np.triu(rng.normal(size=(n, n)) / np.sqrt(n), 1)
    return Ising(half + half.T, 0.3 * rng.normal(size=n)), np.where(np.arange(n) < n // 2, 1, -1)


def assignment(n):
    """A permutation, kept by the start alone."""
    gain = 2.0 * np.random.default_rng(0).normal(size=(n, n))
    return Potts(np.zeros((n, n)), gain), np.arange(n)


CASES = {
    "lattice 20 x 20, coupling 0.2": lattice(0.2),
    "lattice 20 x 20, coupling 0.4": lattice(0.4),
    "dense glass, 100 spins": glass(100),
    "assignment of 20": assignment(20),
    "assignment of 60": assignment(60),
}


def sizes(sampler, seconds):
    """Effective sample sizes per second: of the variables together, and of log p."""
    thin = max(1, sampler.n_sites_ // 4)
    began = time.process_time()
    sampler.sample(50, thin=thin)
    n = int(np.clip(50 * seconds / (time.process_time() - began), 400, 20_000))
    began = time.process_time()
    draws = sampler.sample(n, thin=thin)
    took = time.process_time() - began
    x = draws["x"].values.reshape(sampler.run_.ensemble.chains.x.shape[0], n, -1)
    values = np.unique(x)[1:][:5]
    found = []
    for i in range(0, x.shape[2], max(1, x.shape[2] // 100)):
        for value in values:
            seen = (x[..., i] == value).astype(float)
            if 0 < seen.mean() < 1:
                found.append((seen.var(), float(arviz.ess(seen, method="mean"))))
    variance, ess = np.array(found).T
    together = variance.sum() / (variance / ess).sum()
    return together / took, float(arviz.ess(draws["lp"].values, method="mean")) / took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--page", help="writes the table of the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    rows = []
    for name, (target, start) in CASES.items():
        rows.append([name])
        for n_partners in N_PARTNERS:
            sampler = SwapSampler(n_partners=n_partners, random_state=0)
            sampler.fit(target, initial_states=start)
            one, two = sizes(sampler, options.seconds)
            print(f"{name:27s} {n_partners!s:>5s} {one:8.0f} {two:8.0f}", flush=True)
            rows[-1].append(f"{one:,.0f}")
    if options.page:
        header = ["target", *(str(n or "all") for n in N_PARTNERS)]
        arguments = ["--seconds", f"{options.seconds:g}"]
        sources = ["sklsb/samplers/swap.py", "sklsb/_kernels/rules/swap.py"]
        write_table(options.page, header, rows, arguments, sources)


if __name__ == "__main__":
    main()
