"""Samplers on a machine trained on the 8 x 8 digits of scikit-learn: effective draws per second.

64 visible and 64 hidden units. The effective sample size is of Hamming distances to ten digits, over
four chains or ladders: the median and the least, per second of processor time of `sample`. Prints a
table.

    python benchmarks/rbm_digits.py
"""

import time
import warnings

import arviz
import numpy as np
from rbm_mnist import contrastive_divergence
from sklearn.datasets import load_digits

from sklsb import AutoSampler, GibbsSampler, LSBSampler, ParallelTempering

TRAINING = {"n_epochs": 60, "rate": 5e-3, "seed": 0}


def samplers(p):
    """Return samplers by name, with numbers of draws and transitions between them."""
    path = {"reference": np.stack([1.0 - p, p], axis=1), "n_burn_in": 1024}
    return {
        "learned": (LSBSampler(), 4000, 64),
        "learned, fast, auto": (LSBSampler(fast=True, n_flips="auto"), 4000, 16),
        "AutoSampler": (AutoSampler(), 4000, "auto"),
        "layers": (GibbsSampler("layers"), 20000, 10),
        "tempering by layers": (ParallelTempering(**path), 4000, 1),
    }


def main():
    warnings.simplefilter("ignore")
    digits = (load_digits().data > 7).astype(np.int8)
    machine = contrastive_divergence(digits, 64, (8, 8), **TRAINING)
    some = digits[::180].astype(float)

    def distances(x):
        flat = x.reshape(len(x), -1).astype(float)
        return flat.sum(axis=1)[:, None] + some.sum(axis=1) - 2.0 * flat @ some.T

    p = 0.95 * digits.mean(axis=0) + 0.05 * 0.5
    print(f"{'':20s} {'fit, s':>7s} {'ESS / s':>9s} {'least':>9s} {'R-hat':>6s}")
    for name, (sampler, n, thin) in samplers(p).items():
        began = time.perf_counter()
        sampler.set_params(random_state=0).fit(machine)
        fitted, began = time.perf_counter() - began, time.process_time()
        draws = sampler.sample(n, thin=thin, record={"s": distances})
        took = time.process_time() - began
        ess = arviz.ess(draws)["s"].values / took
        r_hat = arviz.rhat(draws)["s"].values.max()
        print(f"{name:20s} {fitted:7.1f} {np.median(ess):9,.0f} {ess.min():9,.0f} {r_hat:6.3f}")


if __name__ == "__main__":
    main()
