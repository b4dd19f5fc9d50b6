"""Log Z of restricted Boltzmann machines by tempering of layers, beside annealed importance sampling.

First, machines of 50 visible and 20 hidden units with weights and biases of standard deviation 1, whose
log Z is enumerated: how often the stated error covers. Then a machine of 784 visible and 250 hidden
units trained on MNIST: log Z with its error by both, from several seeds. Both take the same path, from
independent visible units with the means of the data to the machine (Salakhutdinov and Murray, "On the
quantitative analysis of deep belief networks", ICML 2008). A sweep draws both layers once. Prints
tables and writes JSON.

    python benchmarks/rbm_log_z.py [--data mnist.npz] [--machine rbm_mnist.npz] [--small-only]
"""

import argparse
import json
import time
import warnings
from itertools import pairwise, product
from pathlib import Path

import numpy as np
from rbm_mnist import trained
from scipy.special import expit, logsumexp

from sklsb import RBM, ParallelTempering


def enumerated(machine):
    """Log Z by the sum over all hidden states."""
    hidden = np.array(list(product((0.0, 1.0), repeat=machine.hidden_bias.size)))
    of_visible = np.logaddexp(0.0, machine.visible_bias + hidden @ machine.weights.T).sum(axis=1)
    return float(logsumexp(hidden @ machine.hidden_bias + of_visible))


def small(n_machines, n_seeds):
    """Errors of log Z in stated errors, for machines times seeds."""
    rows = []
    for m in range(n_machines):
        rng = np.random.default_rng(m)
        machine = RBM(rng.normal(size=(50, 20)), rng.normal(size=50), rng.normal(size=20))
        truth = enumerated(machine)
        for seed in range(n_seeds):
            sampler = ParallelTempering(n_burn_in=1024, random_state=seed).fit(machine)
            sampler.sample(1000)
            rows.append((sampler.log_z_ - truth, sampler.log_z_error_))
    return np.array(rows)


def annealed(machine, p, n_runs, n_betas, rng):
    """Log Z by annealed importance sampling, and its standard error.

    Runs start at the independent visible units with probabilities p.
    """
    weights, visible, hidden = machine.weights, machine.visible_bias, machine.hidden_bias
    odds = np.log(p) - np.log1p(-p)
    betas = np.linspace(0.0, 1.0, n_betas + 1)
    x = (rng.random((n_runs, p.size)) < p).astype(float)
    log_w = np.full(n_runs, np.logaddexp(0.0, odds).sum() + hidden.size * np.log(2.0))
    for before, beta in pairwise(betas.tolist()):
        activation = hidden + x @ weights
        log_w += (beta - before) * (x @ (visible - odds))
        more = np.logaddexp(0.0, beta * activation) - np.logaddexp(0.0, before * activation)
        log_w += more.sum(axis=1)
        h = rng.random(activation.shape) < expit(beta * activation)
        field = beta * (visible + h @ weights.T) + (1.0 - beta) * odds
        x = (rng.random(field.shape) < expit(field)).astype(float)
    w = np.exp(log_w - log_w.max())
    error = w.std(ddof=1) / w.mean() / np.sqrt(n_runs)
    return float(np.log(w.mean()) + log_w.max()), float(error)


def tempered(machine, p, options, seed):
    """Log Z by tempering, its error, and the sampler."""
    sampler = ParallelTempering(
        reference=np.stack([1.0 - p, p], axis=1), n_burn_in=options.burn_in, random_state=seed
    ).fit(machine)
    sampler.sample(options.scans)
    return sampler


def large(options):
    """Print and return log Z of the trained machine by both, over seeds."""
    machine, data = trained(options)
    p = 0.95 * data[:60_000].mean(axis=0) + 0.05 * 0.5
    test = data[60_000:]
    rows = []
    for seed in range(options.seeds):
        began = time.perf_counter()
        sampler = tempered(machine, p, options, seed)
        took = time.perf_counter() - began
        sweeps = 4 * int(sampler.history_["scans"] @ sampler.history_["n_replicas"])
        sweeps += 4 * options.scans * sampler.betas_.size
        rows.append(("tempering", seed, sampler.log_z_, sampler.log_z_error_, sweeps, took))
        show(rows[-1], machine, test)
        print(
            f"    {sampler.betas_.size} temperatures, barrier {sampler.barrier_:.2f}, "
            f"{int(sampler.n_round_trips_.sum())} round trips, {sampler.n_visits_.sum():.0f} visits"
        )
    for seed in range(options.seeds):
        for n_betas in options.betas:
            began = time.perf_counter()
            found = annealed(machine, p, options.runs, n_betas, np.random.default_rng(seed))
            took = time.perf_counter() - began
            name = f"AIS, {n_betas} betas"
            rows.append((name, seed, *found, options.runs * n_betas, took))
            show(rows[-1], machine, test)
    return rows


def show(row, machine, test):
    name, seed, log_z, error, sweeps, took = row
    likelihood = machine.log_prob(test).mean() - log_z
    print(
        f"{name:18s} seed {seed}: log Z {log_z:9.3f} +- {error:.3f}, test log-likelihood "
        f"{likelihood:8.2f}, {sweeps:11,} sweeps, {took:6.1f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="as of rbm_mnist.py")
    parser.add_argument("--machine", type=Path, default=Path("rbm_mnist.npz"), help="kept here")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--machines", type=int, default=1, help="small ones")
    parser.add_argument("--small-only", action="store_true")
    parser.add_argument("--small-seeds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--burn-in", type=int, default=1024)
    parser.add_argument("--scans", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=100, help="of AIS")
    parser.add_argument("--betas", type=int, nargs="*", default=[1000, 4000])
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument("--json", type=Path, default=Path("rbm_log_z.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = small(options.machines, options.small_seeds)
    off = found[:, 0] / found[:, 1]
    print(
        f"20 hidden units, weights of sd 1: error {found[:, 0].std():.4f}, stated "
        f"{found[:, 1].mean():.4f}; within 2 stated errors: {(np.abs(off) < 2).mean():.3f} of "
        f"{off.size}"
    )
    result = {"small": found.tolist(), "large": [] if options.small_only else large(options)}
    options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
