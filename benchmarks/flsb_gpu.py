"""First-order sampling on CUDA: agreement with the CPU, then times.

Agreement: with the same uniform numbers, chains on an Ising, a Potts and an RBM target take the
same decisions in float64 on both, and with float32 ratios report acceptance probabilities that
differ by rounding. Times: a step of 16 and of 4,096 chains on an RBM with 784 visible and 250
hidden units against the floor from its flops and bytes. Without a GPU it says so and ends.

    python benchmarks/flsb_gpu.py [--device cuda]
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from flsb import measure, show

from sklsb import RBM, Barker, Ising, Potts
from sklsb._kernels.rules.balanced import Balanced
from sklsb.ensembles._torch import FastEnsemble
from sklsb.exceptions import SamplerWarning

# Of an H100, per second: float32 operations without tensor cores, bytes of its memory.
FLOPS, BYTES = 60e12, 3.3e12
# Passes over float32 and float64 numbers, one for each chain and unit, that a step cannot avoid:
# ratios, log weights and cumulative weights written, read to be compared, and kept.
PASSES = 3 * (4 + 4 + 8)


def targets(rng):
    couplings = np.triu(rng.normal(size=(40, 40)) * (rng.random((40, 40)) < 0.2), 1)
    couplings += couplings.T
    yield "Ising", Ising(couplings, rng.normal(size=40))
    yield "Potts", Potts(couplings, rng.normal(size=(40, 3)))
    yield "RBM", RBM(rng.normal(0, 0.3, (100, 40)), rng.normal(size=100), rng.normal(size=40))


def both(target, device, n_flips, dtype, n_steps, n_chains=8):
    """Chains on the CPU and on the device after the same steps."""
    rng = np.random.default_rng(1)
    states = np.stack([target.draw_state(rng) for _ in range(n_chains)])
    uniforms = rng.random((n_chains, n_steps, 2))
    chains = []
    for place in ("cpu", device):
        ensemble = FastEnsemble(
            target, states, [rng] * n_chains, device=place, n_flips=n_flips, dtype=dtype
        )
        ensemble.start(Balanced(Barker().table()))
        ensemble.advance(uniforms)
        chains.append(ensemble.chains)
    return chains


def agreement(device):
    """Steps on which both agree; ends with an error where they do not."""
    for name, target in targets(np.random.default_rng(0)):
        for n_flips in (1, 4):
            cpu, gpu = both(target, device, n_flips, torch.float64, 5000)
            if not np.array_equal(cpu.x, gpu.x):
                sys.exit(f"{name}, {n_flips} flips: other states on {device} than on the CPU")
            cpu, gpu = both(target, device, n_flips, torch.float32, 1)
            off = float(np.abs(cpu.acceptance - gpu.acceptance).max())
            if off > 1e-4:
                sys.exit(f"{name}, {n_flips} flips: acceptance off by {off:g} on {device}")
            print(f"{name}, {n_flips} flips: the same 40,000 decisions; float32 off by {off:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--chains", type=int, nargs="*", default=[16, 4096])
    parser.add_argument("--json", type=Path, default=Path("flsb_gpu.json"))
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device here: nothing was run.")
    warnings.simplefilter("ignore", SamplerWarning)
    agreement(options.device)
    results = []
    for chains in options.chains:
        result = measure(chains, 1, options.device, names=("GWG", "FLSB 1", "FLSB 2", "GWG auto"))
        flops, moved = 2 * chains * 784 * 250, PASSES * chains * 784
        result["bound_us"] = 1e6 * max(flops / FLOPS, moved / BYTES)
        show(result)
        print(f"bound from flops and bytes: {result['bound_us']:.1f} us per step")
        results.append(result)
    options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
