"""Speed of first-order sampling (GWG, FLSB) on an RBM with 784 visible and 250 hidden units.

Random weights of standard deviation 0.05. All samplers take turns in one run, so that their ratios
can be trusted on a busy machine; the best of many short rounds counts. Steps are timed without what
`sample` does once a call. The floor is the product of matrices that gives the gradient. Last, an
Ising model of 30 x 30 spins, where first order is exact: ``fast=True`` against ``fast=False``, one flip.
Prints a table and writes JSON.

    python benchmarks/flsb.py [--n-jobs 1] [--chains 16] [--device cpu]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from sklsb import RBM, Ising, LSBSampler, Mixture, Network
from sklsb.exceptions import SamplerWarning

SAMPLERS = {
    "GWG": ("sqrt", {}),
    "FLSB 1": (Mixture(), {"objective": "bound"}),
    "FLSB 2": (Network(), {"objective": "bound"}),
    "learned": ("learned", {}),
    "GWG auto": ("sqrt", {"n_flips": "auto"}),
    "learned auto": ("learned", {"n_flips": "auto"}),
}


def seconds(work, device):
    """Time of one call, whatever it left to the device included."""
    began = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began


def floor(n_chains, device, n):
    """Seconds of the product of matrices alone, float32."""
    a = torch.rand(-(-n_chains // 16) * 16, 250, device=device)
    b = torch.rand(250, 784, device=device)
    bias = torch.zeros(784, device=device)

    def work():
        for _ in range(n):
            torch.addmm(bias, a, b)

    return seconds(work, device) / n


def measure(chains, n_jobs=1, device="cpu", steps=25, rounds=60, names=tuple(SAMPLERS)):
    """Time samplers in turns; a dictionary of figures."""
    rng = np.random.default_rng(0)
    machine = RBM(rng.normal(0.0, 0.05, (784, 250)))
    common = {"fast": True, "n_chains": chains, "n_jobs": n_jobs, "device": device}
    common |= {"random_state": 0, "pilot": False, "n_burn_in": 2000}
    fitted, burn_in = {}, {}
    for name in names:
        balancing, more = SAMPLERS[name]
        fitted[name] = LSBSampler(balancing, **common, **more)
        took = min(seconds(lambda s=fitted[name]: s.fit(machine), device) for _ in range(2))
        burn_in[name] = chains * 2000 / took
    times, ground = dict.fromkeys(names, np.inf), np.inf
    before = torch.get_num_threads()
    torch.set_num_threads(n_jobs)
    chains_of = {name: sampler.run_.ensemble for name, sampler in fitted.items()}
    uniforms = rng.random((chains, steps, 2))
    for _ in range(rounds):
        ground = min(ground, floor(chains, device, steps))
        for name, ensemble in chains_of.items():
            with ensemble.threads():
                took = seconds(lambda e=ensemble: e.advance(uniforms), device)
            times[name] = min(times[name], took / steps)
    torch.set_num_threads(before)
    return {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "chains": chains,
        "threads": n_jobs,
        "floor_us": 1e6 * ground,
        "us_per_step": {name: 1e6 * took for name, took in times.items()},
        "chain_steps_per_s": {name: chains / took for name, took in times.items()},
        "fit_chain_steps_per_s": burn_in,
        "n_flips": {name: sampler.n_flips_ for name, sampler in fitted.items()},
    }


def ising(n_jobs=1, steps=2000, rounds=20):
    """Transitions per second of 16 chains on 30 x 30 spins, fast=False and fast=True."""
    target = Ising.lattice(np.random.default_rng(0).normal(size=(30, 30)), coupling=0.3)
    settings = {"n_chains": 16, "n_burn_in": 50, "rejection_free": False, "blocks": None}
    settings |= {"n_jobs": n_jobs, "random_state": 0}
    fitted = [LSBSampler("barker", fast=fast, **settings).fit(target) for fast in (False, True)]
    uniforms, best = np.random.default_rng(0).random((16, steps, 2)), [np.inf, np.inf]
    for _ in range(rounds):
        for k, sampler in enumerate(fitted):
            with sampler.run_.ensemble.threads():
                took = seconds(lambda e=sampler.run_.ensemble: e.advance(uniforms), "cpu")
            best[k] = min(best[k], took)
    return [16 * steps / took for took in best]


def show(result):
    print(f"{result['device']}, {result['chains']} chains, {result['threads']} threads")
    print(f"floor (the gradient alone): {result['floor_us']:.0f} us per step")
    print(
        f"{'':14} {'us/step':>8} {'chain-steps/s':>14} {'/ floor':>7} {'fit, /s':>11} {'flips':>5}"
    )
    speeds = result["chain_steps_per_s"]
    for name, speed in speeds.items():
        print(
            f"{name:14} {result['us_per_step'][name]:8.0f} {speed:14,.0f} "
            f"{result['us_per_step'][name] / result['floor_us']:7.2f} {result['fit_chain_steps_per_s'][name]:11,.0f} "
            f"{result['n_flips'][name]:5}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path, default=Path("flsb.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    result = measure(options.chains, options.n_jobs, options.device, options.steps, options.rounds)
    show(result)
    result["ising_30x30"] = exact, fast = ising(options.n_jobs)
    print(
        f"Ising 30 x 30: fast=False {exact:,.0f}/s, fast=True {fast:,.0f}/s, ratio {fast / exact:.2f}"
    )
    options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
