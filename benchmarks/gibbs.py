"""Gibbs and Hamming ball samplers: speed, and what their draws are worth beside local balance.

1. Chromatic sweeps of a 30x30 Ising model beside the Gibbs sweeps of dwave-samplers (if it is
   installed), updates per second of one core, in turns; then of lattices of four sizes, and of a
   glass, with a draw every 100 sweeps and with every sweep a draw.
2. Effective sample size (ESS) of sum(x) per second of sampling in the four Ising cases of the LSB
   paper: chromatic sweeps, LSBSampler by default, and with Barker's function.
3. An RBM of 784 and 250 units trained on MNIST: ESS of Hamming distances to test images per second
   for layers, single-site sweeps, Gibbs with gradients and FLSB, from states in equilibrium.
4. Evaluations of log p and variables changed per transition on an RBM, counted by an instrumented
   function, beside Table 4 of the paper.

One chain, one core, fit and compilation apart.

    python benchmarks/gibbs.py [--part 1 2 4] [--data mnist.npz] [--machine rbm_mnist.npz]
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import arviz
import numpy as np
import scipy.sparse as sp
import xarray as xr
from paper.ising import CASES, paper_field
from rbm_mnist import distances, trained

from sklsb import FunctionTarget, GibbsSampler, HammingBallSampler, Ising, LSBSampler, Network
from sklsb.exceptions import SamplerWarning


def seconds(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def sweeps_beside_dwave(n_sweeps=30_000):
    field = np.random.default_rng(0).normal(size=(30, 30))
    target = Ising.lattice(field, coupling=0.4)
    sampler = GibbsSampler("chromatic", n_chains=1, n_burn_in=10, random_state=0).fit(target)
    sampler.sample(10)

    def ours():
        sampler.sample(n_sweeps // 100, thin=100)

    try:
        from dwave.samplers import SimulatedAnnealingSampler
    except ImportError:
        print(f"chromatic {n_sweeps * 900e-6 / seconds(ours):.0f} M/s (dwave-samplers is missing)")
        return
    pairs = target.couplings.tocoo()
    linear = dict(enumerate((-target.field).tolist()))
    quadratic = {(i, j): -w for i, j, w in zip(*pairs.coords, pairs.data, strict=True) if i < j}
    other = SimulatedAnnealingSampler()

    def theirs():
        other.sample_ising(
            linear, quadratic, num_reads=1, num_sweeps=n_sweeps, num_sweeps_per_beta=1, seed=1,
            beta_schedule_type="custom", beta_schedule=np.ones(n_sweeps),
            proposal_acceptance_criteria="Gibbs",
        )  # fmt: skip

    rows = [(seconds(ours), seconds(theirs)) for _ in range(7)]
    for ours_s, theirs_s in rows:
        rates = [n_sweeps * 900e-6 / s for s in (ours_s, theirs_s)]
        print(f"chromatic {rates[0]:.0f} M/s  dwave-samplers {rates[1]:.0f} M/s", flush=True)
    ratio = np.median([b / a for a, b in rows])
    print(f"ratio of the two, median of seven: {ratio:.2f}")


def sweeps_by_size(n_updates=20_000_000):
    """Updates per second, the median of seven runs, and its ratio to that of 30x30."""
    rng = np.random.default_rng(0)
    targets = {
        f"{n}x{n}": Ising.lattice(rng.normal(size=(n, n)), coupling=0.4)
        for n in (30, 64, 256, 1000)
    }
    upper = sp.triu(targets["64x64"].couplings).tocsr()
    upper.data *= rng.normal(size=upper.nnz)
    targets["glass 64x64"] = Ising(upper + upper.T)
    rates = {}
    for name, target in targets.items():
        sampler = GibbsSampler("chromatic", n_chains=1, n_burn_in=20, random_state=0).fit(target)
        for thin in (100, 1):
            n = max(1, n_updates // (target.n_sites * thin))
            work = partial(sampler.sample, n, thin=thin)
            work()
            rates[name, thin] = [n * thin * target.n_sites / seconds(work) / 1e6 for _ in range(7)]
    first = np.median(next(iter(rates.values())))
    for (name, thin), found in rates.items():
        rate = np.median(found)
        print(
            f"{name:12s} a draw every {thin:3d} sweeps: {rate:4.0f} M/s ({min(found):.0f} to "
            f"{max(found):.0f}), {rate / first:.2f} of the first",
            flush=True,
        )


def of_sums(draws):
    """ESS of sum(x), bulk, of all chains."""
    return float(arviz.ess(xr.Dataset({"s": draws["s"]}))["s"])


def paper_cases(seed=0):
    print("ESS of sum(x) per second of one core, 4 chains")
    samplers = {
        "chromatic Gibbs": GibbsSampler("chromatic", random_state=seed),
        "LSBSampler()": LSBSampler(random_state=seed),
        'LSBSampler("barker")': LSBSampler("barker", random_state=seed),
    }
    n = 10_000
    for case, (coupling, mu, sigma, _) in CASES.items():
        field = paper_field(mu, sigma, np.random.default_rng([seed, case]))
        target = Ising.lattice(field, coupling)
        row = []
        for name, sampler in samplers.items():
            sampler.fit(target)
            record = {"s": lambda x: x.sum(axis=(1, 2), dtype=int)}
            # Few transitions apart, so that not the number of draws is what limits the size.
            thin = "sweep" if name.startswith("chromatic") else 20
            sampler.sample(200, thin=thin, record=record)
            found = {}
            took = min(
                seconds(lambda: found.update(s=sampler.sample(n, thin=thin, record=record)))  # noqa: B023
                for _ in range(3)
            )
            row.append((of_sums(found["s"]) / took, name))
        print(f"case {case}: " + "  ".join(f"{name} {rate:,.0f}" for rate, name in row), flush=True)


def machine_of_digits(options):
    machine, data = trained(options)
    starts = data[np.random.default_rng(0).choice(60_000, 16, replace=False)]
    layers = GibbsSampler("layers", n_chains=16, n_burn_in=options.sweeps, random_state=0)
    layers.fit(machine, initial_states=starts)
    ends = layers.state_
    tests = data[60_000 + np.arange(20)]
    record = {"s": lambda x: distances(x.reshape(len(x), -1), tests)}
    shared = {"n_chains": 16, "random_state": 1}
    learned = {"fast": True, "n_flips": "auto", "n_burn_in": 4000, **shared}
    samplers = {
        "layers": (GibbsSampler("layers", n_burn_in=10, **shared), 1, 4000),
        "systematic sweeps": (GibbsSampler("systematic", n_burn_in=10, **shared), 1, 1000),
        "GWG, one flip": (LSBSampler("sqrt", **{**learned, "n_flips": 1}), 200, 500),
        "GWG, auto": (LSBSampler("sqrt", **learned), 100, 1000),
        "FLSB 2, auto": (LSBSampler(Network(), pilot=False, **learned), 100, 1000),
        "FLSB, default learning, auto": (LSBSampler(**learned), 100, 1000),
    }
    print(
        "RBM 784-250: ESS of Hamming distances, median over 20 test images, 16 chains, per second"
    )
    for name, (sampler, thin, n) in samplers.items():
        sampler.fit(machine, initial_states=ends)
        sampler.sample(2, thin=thin, record=record)
        found = {}
        took = seconds(lambda: found.update(s=sampler.sample(n, thin=thin, record=record)))  # noqa: B023
        draws = xr.Dataset({"s": found["s"]["s"]})
        ess = float(np.median(arviz.ess(draws)["s"]))
        rhat = float(arviz.rhat(draws)["s"].max())
        print(
            f"  {name:30s} ESS/s {ess / took:9.2f}  ESS {ess:8.0f}  R-hat {rhat:.3f}  "
            f"{16 * n * thin / took:12,.0f} transitions/s",
            flush=True,
        )


TABLE_4 = {
    "Gibbs-2": (GibbsSampler(block_size=2), 4, 2),
    "Gibbs-4": (GibbsSampler(block_size=4), 16, 4),
    "Gibbs-10": (GibbsSampler(block_size=10), 1024, 10),
    "HB-10-1": (HammingBallSampler(10, 1), 20, 1),
    "HB-10-2": (HammingBallSampler(10, 2), 180, 2),
    "HB-10-3": (HammingBallSampler(10, 3), 960, 3),
}


def counted(n_transitions=300):
    print("evaluations and changed variables per transition, beside Table 4 of the paper")
    rng = np.random.default_rng(0)
    weights, biases = 0.1 * rng.normal(size=(60, 25)), rng.normal(size=60)
    calls = [0]

    def log_prob(x):
        calls[0] += 1
        return float(x @ biases + np.logaddexp(0.0, x @ weights).sum())

    target = FunctionTarget(log_prob, 60, vectorized=False)
    for name, (sampler, evaluations, changed) in TABLE_4.items():
        sampler.set_params(n_chains=1, n_burn_in=5, random_state=0).fit(target)
        calls[0] = 0
        x = sampler.sample(n_transitions)["x"].values[0]
        moved = np.abs(np.diff(x, axis=0)).sum(axis=1)
        print(
            f"  {name:9s} log p called {calls[0] / n_transitions:8.2f} times (paper {evaluations:4d}), "
            f"variables changed: mean {moved.mean():.2f}, largest {moved.max()} (paper {changed})"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--data", type=Path, default=None, help="file of MNIST, see load_mnist")
    parser.add_argument("--machine", type=Path, default=Path("rbm_mnist.npz"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", type=int, default=20_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    parts = {
        1: lambda: (sweeps_beside_dwave(), sweeps_by_size()),
        2: paper_cases,
        3: lambda: machine_of_digits(options),
        4: counted,
    }
    for k in options.part:
        parts[k]()


if __name__ == "__main__":
    main()
