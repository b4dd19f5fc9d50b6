"""Speed of first-order sampling (GWG, FLSB) on an RBM with 784 visible and 250 hidden units.

Random weights of standard deviation 0.05. All samplers take turns in one run, so that their ratios
can be trusted on a busy machine; the best of several rounds counts. The floor is the product of
matrices that gives the gradient. Prints a table and writes JSON.

    python benchmarks/flsb.py [--n-jobs 1] [--chains 16] [--device cpu]
"""

import argparse
import json
import time
import warnings

import numpy as np
import torch

from sklsb import RBM, LSBSampler, Mixture, Network
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


def floor(n_chains, device, n=200):
    """Seconds of the product of matrices alone, float32."""
    a = torch.rand(-(-n_chains // 16) * 16, 250, device=device)
    b = torch.rand(250, 784, device=device)
    bias = torch.zeros(784, device=device)

    def work():
        for _ in range(n):
            torch.addmm(bias, a, b)

    work()
    return min(seconds(work, device) for _ in range(5)) / n


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--output", default="flsb.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    torch.set_num_threads(options.n_jobs)
    rng = np.random.default_rng(0)
    machine = RBM(rng.normal(0.0, 0.05, (784, 250)))
    common = {"fast": True, "n_chains": options.chains, "n_jobs": options.n_jobs}
    common |= {"device": options.device, "random_state": 0, "pilot": False}
    fitted, burn_in = {}, {}
    for name, (balancing, more) in SAMPLERS.items():
        for _ in range(2):  # the first one loads
            sampler = LSBSampler(balancing, **common, **more).set_params(n_burn_in=2000)
            took = seconds(lambda s=sampler: s.fit(machine), options.device)
            burn_in[name] = max(burn_in.get(name, 0.0), options.chains * 2000 / took)
        fitted[name] = sampler
    times = {name: np.inf for name in fitted}
    ground = np.inf
    for _ in range(options.rounds):
        ground = min(ground, floor(options.chains, options.device))
        for name, sampler in fitted.items():
            took = seconds(lambda s=sampler: s.sample(1, thin=options.steps), options.device)
            times[name] = min(times[name], took / options.steps)
    place = options.device
    if place.startswith("cuda"):
        place = torch.cuda.get_device_name(place)
    result = {
        "device": place,
        "chains": options.chains,
        "threads": options.n_jobs,
        "floor_us": 1e6 * ground,
        "us_per_step": {name: 1e6 * took for name, took in times.items()},
        "chain_steps_per_s": {name: options.chains / took for name, took in times.items()},
        "burn_in_chain_steps_per_s": burn_in,
        "n_flips": {name: sampler.n_flips_ for name, sampler in fitted.items()},
    }
    print(f"{place}, {options.chains} chains, {options.n_jobs} threads")
    print(f"floor (gradient alone): {1e6 * ground:.0f} us per step")
    print(f"{'':14} {'us/step':>8} {'chain-steps/s':>14} {'/ GWG':>6} {'fit, /s':>9} {'flips':>5}")
    for name, took in times.items():
        print(
            f"{name:14} {1e6 * took:8.0f} {options.chains / took:14,.0f} "
            f"{times['GWG'] / took:6.2f} {burn_in[name]:9,.0f} {fitted[name].n_flips_:5}"
        )
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
