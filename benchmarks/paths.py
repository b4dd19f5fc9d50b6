"""Paths of several moves, and jumps, against single locally balanced steps.

For each target and each rule, the best of the four fixed functions: effective sample size of all
variables together (variance-weighted harmonic mean; of the 25 most uncertain columns in variable
selection) per second of CPU time, divided by that of the best single step. The time of a step is the
least over the functions, since it does not depend on them.

    python benchmarks/paths.py [--seeds 1 2 3] [--targets dimers ...]
"""

import argparse
import time

import numpy as np
from scipy import fft

from sklsb import RBM, Ising, Potts, VariableSelection
from sklsb.balancing.functions import FIXED
from sklsb.balancing.sides import log_mean_rate
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.rules import Balanced, Jump, Path
from sklsb.ensembles.streams import Streams, spawn

N_CHAINS = 4
LENGTHS = (2, 4, 8, 16)
RULES = ("step", *(f"path {length}" for length in LENGTHS), "jump")


def lattice(n, couplings, rng):
    """Couplings of a periodic lattice, drawn by a function of the generator."""
    found = np.zeros((n * n, n * n))
    site = np.arange(n * n).reshape(n, n)
    for axis in (0, 1):
        for a, b in zip(site.ravel(), np.roll(site, -1, axis).ravel(), strict=True):
            found[a, b] = found[b, a] = couplings(rng)
    return found


def hard_case(seed):
    """Case 4 of the paper."""
    rng = np.random.default_rng([11, seed])
    field = np.full((30, 30), -3.0)
    field[7:23, 7:23] = 3.0
    return Ising.lattice(field + 3.0 * rng.uniform(-1, 1, (30, 30)), 1.0)


def dimers(seed):
    """Sixty of 100 spins in strongly tied pairs, among weak couplings."""
    rng = np.random.default_rng([13, seed])
    couplings, tied = lattice(10, lambda rng: 0.3, rng), set()
    for a in rng.permutation(100).tolist():
        free = [b for b in np.flatnonzero(couplings[a]).tolist() if b not in tied]
        if a not in tied and free and len(tied) < 60:
            b = int(rng.choice(free))
            tied |= {a, b}
            couplings[a, b] = couplings[b, a] = 3.0
    return Ising(couplings, rng.normal(size=100))


def colours(seed):
    return Potts(lattice(20, lambda rng: 1.1, None), np.zeros((400, 5)))


def selection(seed, n=500, p=200):
    rng = np.random.default_rng([7, seed])
    x = np.empty((n, p))
    x[:, 0] = rng.normal(size=n)
    for j in range(1, p):
        x[:, j] = 0.6 * x[:, j - 1] + 0.8 * rng.normal(size=n)
    beta = np.array([2, -3, 2, 2, -3, 3, -2, 3, -2, 3]) * np.sqrt(np.log(p) / n)
    return VariableSelection(x, x[:, :10] @ beta + rng.normal(size=n))


def machine(seed):
    rng = np.random.default_rng([5, seed])
    bias = rng.normal(scale=0.5, size=200), rng.normal(scale=0.5, size=50)
    return RBM(rng.normal(scale=0.25, size=(200, 50)), *bias)


# Target, moves per draw, moves of each chain.
TARGETS = {
    "case 4": (hard_case, 4, 60_000),
    "dimers": (dimers, 50, 500_000),
    "potts": (colours, 400, 3_000_000),
    "selection": (selection, 10, 80_000),
    "rbm": (machine, 50, 200_000),
}


def together(draws, target):
    """Variance-weighted harmonic mean of effective sample sizes, by Geyer's sequence."""
    x = draws == target.values[0]
    m, n, k = x.shape
    size = fft.next_fast_len(2 * n, real=True)
    variance, ess = np.zeros(k), np.full(k, np.nan)
    for i in range(k):
        centred = x[:, :, i] - x[:, :, i].mean(dtype=np.float32)
        power = np.abs(fft.rfft(centred, size, axis=1)) ** 2
        covariance = fft.irfft(power, size, axis=1)[:, :n].mean(axis=0) / n
        variance[i] = covariance[0]
        if not covariance[0]:
            continue
        rho = covariance / covariance[0]
        pairs = rho[: n // 2 * 2 : 2] + rho[1 : n // 2 * 2 : 2]
        positive = np.logical_and.accumulate(pairs > 0)
        ess[i] = m * n / (2 * (np.minimum.accumulate(pairs) * positive).sum() - 1)
    most = np.argsort(-variance)[: 25 if isinstance(target, VariableSelection) else None]
    most = most[variance[most] > 1e-3]
    return variance[most].sum() / (variance[most] / ess[most]).sum()


def run(target, rule, states, seed, thin, n):
    """Make n draws; return them, and the CPU time."""
    chains = Ensemble(target, states, Streams(spawn(seed, N_CHAINS)), rule=rule)
    chains.start(rule)
    draws = np.empty((N_CHAINS, n, target.n_sites), target.dtype)
    stats = np.empty((N_CHAINS, n, 2))
    chains.run(thin * (n // 5), (0, 0, 0), draws, stats)
    at, began = 0, time.process_time()
    while at < n:
        size = min(max(1, 50_000 // thin), n - at)
        chains.run(size * thin, (thin, 0, at), draws, stats)
        at += size
    return draws, time.process_time() - began


def measured(target, seed, thin, n_moves):
    """Effective sample size per move, and seconds per move, by rule and function."""
    ess, seconds = {}, {}
    rng = np.random.default_rng(seed)
    sparse = isinstance(target, VariableSelection)
    states = np.stack([target.draw_state(rng) * (not sparse) for _ in range(N_CHAINS)])
    for name, function in FIXED.items():
        table = function().table()
        step = Balanced(table)
        warm, _ = run(target, step, states, seed, thin, 5000 if sparse else 200)
        states = warm[:, -1]
        some = warm[:, -100:].reshape(-1, target.n_sites)[::8]
        log_rate = log_mean_rate(step, target, some, target.log_ratios(some))
        rules = {"step": (step, 1)}
        rules |= {f"path {k}": (Path(table, k, target.n_sites), k) for k in LENGTHS}
        rules["jump"] = (Jump(table, np.log(thin) - log_rate), thin)
        for label, (rule, moves) in rules.items():
            every = max(1, thin // moves)
            n = n_moves // (every * moves)
            draws, took = run(target, rule, states, seed, every, n)
            made = N_CHAINS * n * every * moves
            ess[label, name] = together(draws, target) / made
            seconds[label] = min(seconds.get(label, np.inf), took / made)
    return ess, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    options = parser.parse_args()
    print(f"{'target':12s}" + "".join(f"{label:>14s}" for label in RULES))
    for target in options.targets:
        make, thin, n_moves = TARGETS[target]
        for seed in options.seeds:
            ess, seconds = measured(make(seed), seed, thin, n_moves)
            best = {
                label: max((ess[label, name] / seconds[label], name) for name in FIXED)
                for label in RULES
            }
            row = "".join(f"{v / best['step'][0]:7.2f} {name:6s}" for v, name in best.values())
            print(f"{target:9s} {seed:2d} {row}", flush=True)


if __name__ == "__main__":
    main()
