"""A restricted Boltzmann machine of MNIST: Figures 4, 8 and 9 and Table 4 of the paper.

784 visible and 250 hidden units, trained by CD-10 for one pass. A seed is one run of all chains:

- from Bernoulli(0.01), the maximum mean discrepancy (MMD) to states of long block Gibbs runs, over
  the iterations, learning included,
- from such states, the iterations in which Hamming distances to other such states are forgotten:
  T = -L / log(1 - D), with D the mean of (s(L) - s(0))^2 / (2 var s). 1 / (2 T) is taken as the
  effective draws of an iteration. Some distances are slower, so all of these are upper bounds.

An evaluation is one log-ratio or, for first-order proposals, one gradient; the first state's is free.
`benchmarks/rbm_mnist.py` has longer runs of fewer samplers.
"""

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from sklsb import GibbsSampler, HammingBallSampler, LSBSampler, Network
from sklsb.diagnostics import mmd

from ..rbm_mnist import FEW, block_gibbs, distances, trained
from .report import BOUND, columns, find, said, table

SIZES = {
    "full": {"seeds": 5, "chains": 16, "burn_in": 10_000, "lag": 2000, "sweeps": 5000},
    "quick": {"seeds": 3, "chains": 16, "burn_in": 1000, "lag": 500, "sweeps": 500},
}
SAMPLERS = {
    "GWG": lambda: LSBSampler("sqrt", fast=True),
    "FLSB 1": lambda: LSBSampler("mixture", fast=True, **BOUND),
    "FLSB 2": lambda: LSBSampler(Network(), fast=True, **BOUND),
    "Gibbs-2": lambda: GibbsSampler(block_size=2),
    "Gibbs-4": lambda: GibbsSampler(block_size=4),
    "Gibbs-10": lambda: GibbsSampler(block_size=10),
    "HB-10-1": lambda: HammingBallSampler(10, radius=1),
    "HB-10-2": lambda: HammingBallSampler(10, radius=2),
    "HB-10-3": lambda: HammingBallSampler(10, radius=3),
    "layers": lambda: GibbsSampler("layers"),
}
# Table 4: evaluations and variables of a step.
PUBLISHED = {
    "Gibbs-2": (4, 2),
    "Gibbs-4": (16, 4),
    "Gibbs-10": (1024, 10),
    "HB-10-1": (20, 1),
    "HB-10-2": (180, 2),
    "HB-10-3": (960, 3),
    "FLSB 2": (1, 1),
}
WHERE = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz (x_train and x_test; "
    "grey images, or packed bits of black and white ones)"
)


def fitted(name, machine, start, burn_in, seed):
    sampler = SAMPLERS[name]().set_params(n_chains=len(start), n_burn_in=burn_in, n_jobs=1)
    sampler.set_params(random_state=seed, keep_burn_in=True)
    return sampler.fit(machine, initial_states=start)


def burn_in_of(name, machine, truth, start, burn_in, seed):
    """Return the evaluations of an iteration, and the MMD at some iterations."""
    sampler = fitted(name, machine, start, burn_in, seed)
    seen = sampler.burn_in_["x"].values.reshape(len(start), burn_in, -1)
    at = np.unique(np.geomspace(1, burn_in, 16).astype(int))
    return [[int(step), mmd(seen[:, step - 1], truth)] for step in at]


def mixing_of(name, machine, start, tests, variance, learning, lag, seed):
    """Return what an iteration in equilibrium costs, changes and is worth."""
    sampler = fitted(name, machine, start, learning, seed)
    tail = sampler.burn_in_["x"].values[:, -100:].reshape(len(start), -1, start.shape[1])
    sampler.sample(1)  # compiles
    before, evaluations = sampler.state_.copy(), sampler.n_evaluations_
    began = time.process_time()
    sampler.sample(1, thin=lag)
    seconds = time.process_time() - began
    jump = distances(sampler.state_, tests) - distances(before, tests)
    d = min(float((jump**2).mean() / (2 * variance)), 1 - 1e-6)
    n, forgotten = lag * len(start), -lag / np.log1p(-d)
    each = (sampler.n_evaluations_ - evaluations) / n
    return {
        "evaluations": each,
        "changed": float((np.diff(tail, axis=1) != 0).sum(axis=2).mean()),
        "forgotten": forgotten,
        "per_evaluation": 1e6 / (2 * forgotten * each),
        "per_second": n / (2 * forgotten * seconds),
    }


def run(data, seeds, chains, burn_in, lag, sweeps, n_truth=500):
    rows = []
    path = find(data, "mnist.npz", "mnist_binarized_packed.npz", where=WHERE)
    kept = Path("paper_rbm.npz")  # where the command runs; made if it is not there
    machine, images = trained(SimpleNamespace(data=path, machine=kept, epochs=1, seed=0))
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        begin = images[rng.choice(len(images), n_truth, replace=len(images) < n_truth)]
        truth = block_gibbs(machine, begin, sweeps, rng)
        start = (rng.random((chains, truth.shape[1])) < FEW).astype(np.int8)
        tests = truth[-20:]
        variance = distances(truth[:-20], tests).var(axis=0).mean()
        for name in SAMPLERS:
            decay = burn_in_of(name, machine, truth, start, burn_in, seed)
            row = mixing_of(name, machine, truth[:chains], tests, variance, burn_in, lag, seed)
            rows.append({"name": name, "seed": seed, "mmd": decay} | row)
    return {"rows": rows}


def tables(result):
    cells, decays = [], {name: [] for name in SAMPLERS}
    for row in result["rows"]:
        decays[row["name"]].append(row["mmd"])
    steps = [step for step, _ in result["rows"][0]["mmd"]]
    early = int(np.searchsorted(steps, steps[-1] // 10))
    for name in SAMPLERS:
        published = [f"{n:,}" for n in PUBLISHED.get(name, ())] or ["", ""]
        found = [
            columns(result["rows"], key, name=name)
            for key in ("evaluations", "changed", "forgotten", "per_evaluation", "per_second")
        ]
        mmds = [1000 * np.array([m[k][1] for m in decays[name]]) for k in (early, -1)]
        cells.append([name, published[0], said(found[0], 1), published[1]])
        cells[-1] += [
            said(found[1]),
            *(said(m, 1) for m in mmds),
            *(said(each, -1) for each in found[2:]),
        ]
    heads = ["sampler", "evaluations, Table 4", "ours", "variables, Table 4", "changed"]
    heads += [f"1,000 MMD² at {steps[k]:,}" for k in (early, -1)]
    return table([*heads, "T", "per 10\\ :sup:`6` evaluations", "per CPU s"], cells)


def draw(result):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for k, name in enumerate(SAMPLERS):
        rows = [row for row in result["rows"] if row["name"] == name]
        steps = np.array([step for step, _ in rows[0]["mmd"]])
        found = np.mean([[value for _, value in row["mmd"]] for row in rows], axis=0)
        style = {"label": name, "linestyle": "-" if k < 3 else "--", "color": f"C{k}"}
        axes[0].plot(steps, found, **style)
        axes[1].plot(steps * max(1.0, rows[0]["evaluations"]), found, **style)
    for axis, label in zip(axes, ("iterations", "evaluations"), strict=True):
        axis.set(xscale="log", xlabel=label)
        axis.set_yscale("symlog", linthresh=1e-3)
    axes[0].set(ylabel="MMD² to long runs", title="Figures 4, 8 and 9")
    axes[1].legend(fontsize="x-small", ncols=2)
    return figure
