"""Samplers on a restricted Boltzmann machine of MNIST: the experiment of the LSB paper, section 5.2.

784 visible and 250 hidden units, trained by CD-10 with Adam on binarized MNIST. Ground truth are
block Gibbs chains from three kinds of starts (data, noise, few pixels), one state per chain; every
pair of kinds is compared by the maximum mean discrepancy (MMD), with a permutation test. Then,
for every sampler:

- MMD to the ground truth over the steps, burn-in included, from chains that start with few pixels;
- the decay D(L) = 1 - autocorrelation at lag L of Hamming distances to test images, over chains
  that start in equilibrium, as mean (s(t + L) - s(t))^2 / (2 var s), and the time -L / log(1 - D);
- a long run that starts in equilibrium: effective sample size (ESS) of these distances, per step
  (= per gradient; per sweep of block Gibbs) and per second, R-hat, acceptance.

The paper's own protocol, 16 chains of 1e5 steps, resolves no difference: flips of one pixel forget
a distance in tens of thousands of steps. Prints tables and writes JSON and a figure.

    python benchmarks/rbm_mnist.py [--quick] [--data mnist.npz] [--machine rbm_mnist.npz]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import arviz
import numpy as np
import xarray as xr
from scipy.special import expit
from sklearn.datasets import fetch_openml

from sklsb import RBM, LSBSampler, Network
from sklsb.diagnostics import mmd
from sklsb.exceptions import SamplerWarning

FEW = 0.01  # probability of ink at the starts of the paper
# Name to balancing function, flips per gradient and further parameters. The functions of the paper
# are used whatever the pilot would say.
SAMPLERS = {
    "GWG": ("sqrt", {"fast": True, "n_flips": 1}),
    "GWG auto": ("sqrt", {"fast": True, "n_flips": "auto"}),
    "FLSB 1": ("mixture", {"fast": True, "n_flips": 1, "pilot": False}),
    "FLSB 1 auto": ("mixture", {"fast": True, "n_flips": "auto", "pilot": False}),
    "FLSB 2": (Network(), {"fast": True, "n_flips": 1, "pilot": False}),
    "FLSB 2 auto": (Network(), {"fast": True, "n_flips": "auto", "pilot": False}),
    "learned": ("learned", {"fast": True, "n_flips": 1}),
    "learned auto": ("learned", {"fast": True, "n_flips": "auto"}),
    "exact sqrt": ("sqrt", {}),
}
BLOCK_GIBBS = "block Gibbs"


def block_gibbs(machine, x, n_sweeps, rng):
    """States of shape (n_chains, n_visible) after sweeps visible -> hidden -> visible."""
    weights = machine.weights.astype(np.float32)
    visible, hidden = (b.astype(np.float32) for b in (machine.visible_bias, machine.hidden_bias))

    def draw(activation):
        return (rng.random(activation.shape, dtype=np.float32) < expit(activation)).astype("f")

    x = np.asarray(x, dtype=np.float32)
    for _ in range(n_sweeps):
        x = draw(draw(x @ weights + hidden) @ weights.T + visible)
    return x.astype(np.int8)


def distances(x, tests):
    """Hamming distances of states (n, d), or of images, to test states (k, d), shape (n, k)."""
    x, tests = x.reshape(len(x), -1).astype(np.float32), tests.astype(np.float32)
    return x.sum(axis=1)[:, None] + tests.sum(axis=1) - 2 * x @ tests.T


class BlockGibbs:
    """Same interface as `Local`; a step is a sweep."""

    n_flips = acceptance = None

    def __init__(self, machine, options):
        self.machine, self.rng = machine, np.random.default_rng(options.seed + 1)

    def start(self, states, keep=False):
        self.x = states
        return states[:, None][:, :0]  # no burn-in

    def advance(self, n):
        self.x = block_gibbs(self.machine, self.x, n, self.rng)
        return self.x

    def series(self, n, thin, tests):
        return np.stack([distances(self.advance(thin), tests) for _ in range(n)], axis=1)


class Local:
    """A setting of LSBSampler."""

    def __init__(self, machine, options, name):
        self.machine, self.options = machine, options
        self.balancing, self.more = SAMPLERS[name]
        if self.more.get("fast"):
            self.more = {**self.more, "device": options.device}

    def start(self, states, keep=False):
        self.sampler = LSBSampler(
            self.balancing,
            n_chains=len(states),
            n_burn_in=self.options.burn_in,
            keep_burn_in=keep,
            random_state=self.options.seed,
            **self.more,
        ).fit(self.machine, initial_states=states)
        self.n_flips = int(getattr(self.sampler, "n_flips_", 1))
        if keep:
            return self.sampler.burn_in_["x"].values.reshape(len(states), -1, 784)

    def advance(self, n):
        return self.sampler.sample(1, thin=n)["x"].values.reshape(-1, 784)

    def series(self, n, thin, tests):
        found = self.sampler.sample(n, thin=thin, record={"s": lambda x: distances(x, tests)})
        self.acceptance = float(self.sampler.sample_stats_["acceptance_rate"].mean())
        return found["s"].values


def mnist(path):
    """Images of digits, the 60,000 for training first, as 0 and 1, shape (70000, 784)."""
    if path is None:
        grey = fetch_openml("mnist_784", version=1, as_frame=False).data
    else:
        with np.load(path) as file:
            grey = np.concatenate([file["x_train"], file["x_test"]])
        if grey.shape[1:] == (98,):  # bits of black and white images, packed
            return np.unpackbits(grey, axis=1, count=784).astype(np.int8)
        grey = grey.reshape(-1, 784)
    return (grey > 127.5).astype(np.int8)


def contrastive_divergence(data, n_hidden, shape, **more):
    """The machine that the first cell of `plot_dreamt_digits.py` makes of data."""
    example = Path(__file__).parents[1] / "examples" / "plot_dreamt_digits.py"
    cell = {}
    exec(example.read_text(encoding="utf-8").split("# Dreams\n")[0], cell)
    return RBM(*cell["contrastive_divergence"](data, n_hidden, **more), shape)


def trained(options):
    """The machine, from the file if it is there, and the data."""
    data = mnist(options.data)
    if not options.machine.exists():
        began = time.perf_counter()
        machine = contrastive_divergence(
            data[:60_000], 250, (28, 28), n_epochs=options.epochs, seed=options.seed
        )
        np.savez(
            options.machine,
            weights=machine.weights,
            visible_bias=machine.visible_bias,
            hidden_bias=machine.hidden_bias,
        )
        print(f"trained for {time.perf_counter() - began:.0f} s: {options.machine}", flush=True)
    with np.load(options.machine) as saved:
        machine = RBM(saved["weights"], saved["visible_bias"], saved["hidden_bias"], (28, 28))
    return machine, data


def permutation_p(x, y, rng, n=999):
    """Chance of an MMD as large if the two samples, each of independent states, were of one kind."""
    both = np.concatenate([x, y]).astype(np.float32)
    kernel = np.exp(-distances(both, both).astype(np.float64) / both.shape[1])
    np.fill_diagonal(kernel, 0.0)
    labels = np.repeat([1.0, 0.0], [len(x), len(y)])
    labels = np.stack([labels, *(rng.permutation(labels) for _ in range(n))])

    def within(a, size):
        return ((a @ kernel) * a).sum(axis=1) / (size * (size - 1))

    cross = ((labels @ kernel) * (1 - labels)).sum(axis=1) / (len(x) * len(y))
    found = within(labels, len(x)) + within(1 - labels, len(y)) - 2 * cross
    return float((found >= found[0] - 1e-15).mean())


def ground_truth(machine, data, options):
    """Last states by kind of start, and how far the kinds are from each other."""
    rng = np.random.default_rng(options.seed)
    shape = (options.chains, 784)
    starts = {
        "data": data[rng.choice(len(data), options.chains, replace=False)],
        "noise": rng.random(shape) < 0.5,
        "few": rng.random(shape) < FEW,
    }
    began = time.perf_counter()
    ends = {kind: block_gibbs(machine, x, options.sweeps, rng) for kind, x in starts.items()}
    print(f"ground truth, {options.sweeps} sweeps: {time.perf_counter() - began:.0f} s")
    checks = []
    for a, b in (("data", "noise"), ("data", "few"), ("noise", "few")):
        row = {
            "kinds": [a, b],
            "mmd": mmd(ends[a], ends[b]),
            "at_start": mmd(starts[a].astype(np.int8), starts[b].astype(np.int8)),
            "p": permutation_p(ends[a], ends[b], rng),
        }
        checks.append(row)
        print(
            f"  {a:5s} {b:5s} MMD^2 {row['mmd']:9.2e} from {row['at_start']:.2e}, p {row['p']:.3f}"
        )
    return ends, checks


def discrepancy(sampler, reference, options, rng):
    """MMD to the reference after numbers of steps, burn-in first."""
    start = (rng.random((options.mmd_chains, 784)) < FEW).astype(np.int8)
    seen = sampler.start(start, keep=True)
    made = n_seen = seen.shape[1]
    at = np.unique(np.geomspace(1, options.mmd_steps, 4 * len(str(options.mmd_steps))).astype(int))
    result = []
    for step in at.tolist():
        if step <= n_seen:
            states = seen[:, step - 1]
        else:
            states, made = sampler.advance(step - made), step
        result.append([step, mmd(states, reference)])
    return result


def decay(sampler, starts, tests, options):
    """D(L) with its standard error over chains, and the time it means."""
    sampler.start(starts)
    lags = [options.lag * 2**k for k in range(5)]
    if isinstance(sampler, BlockGibbs):
        lags = [2**k for k in range(9)]
    thin = lags[0]
    s = sampler.series(3 * lags[-1] // thin + 1, thin, tests).astype(float)
    variance = s.var(axis=(0, 1)).sum()
    rows = []
    for lag in lags:
        jump = s[:, lag // thin :] - s[:, : -(lag // thin)]
        chains = (jump**2).sum(axis=2).mean(axis=1) / (2 * variance)
        d = chains.mean()
        rows.append(
            {
                "lag": lag,
                "D": float(d),
                "error": float(chains.std(ddof=1) / np.sqrt(len(chains))),
                "time": float(-lag / np.log1p(-d)) if d < 1 else None,
            }
        )
    return rows


def long_run(sampler, starts, tests, options):
    """ESS of the distances (median over the test images) and R-hat (largest)."""
    sampler.start(starts[: options.long_chains])
    steps, thin = options.long_steps, options.thin
    if isinstance(sampler, BlockGibbs):
        steps, thin = options.sweeps, max(1, options.sweeps // 4000)
    began = time.perf_counter()
    s = sampler.series(steps // thin, thin, tests)
    seconds = time.perf_counter() - began
    draws = xr.Dataset({"s": (("chain", "draw", "image"), s)})
    ess = float(np.median(arviz.ess(draws)["s"]))
    made = len(s) * (steps // thin) * thin
    return {
        "ess": ess,
        "rhat": float(arviz.rhat(draws)["s"].max()),
        "ess_per_1e6_steps": 1e6 * ess / made,
        "ess_per_second": ess / seconds,
        "steps_per_second": made / seconds,
        "acceptance": sampler.acceptance,
        "n_flips": sampler.n_flips,
    }


def measure(name, machine, ends, options):
    rng = np.random.default_rng(options.seed + 2)
    reference = np.concatenate([ends["noise"], ends["few"]])
    tests = reference[rng.choice(len(reference), options.tests, replace=False)]
    sampler = BlockGibbs(machine, options) if name == BLOCK_GIBBS else Local(machine, options, name)
    return {
        "name": name,
        **long_run(sampler, ends["data"], tests, options),
        "decay": decay(sampler, ends["data"], tests, options),
        "mmd": discrepancy(sampler, reference, options, rng),
    }


def show(row):
    acceptance = "" if row["acceptance"] is None else f"{row['acceptance']:.3f}"
    print(
        f"{row['name']:12s} {row['n_flips'] or '':>5} {acceptance:>10} {row['steps_per_second']:10,.0f}"
        f" {row['ess_per_1e6_steps']:12.1f} {row['ess_per_second']:8.2f} {row['rhat']:6.3f}  "
        + " ".join(f"{d['lag']}:{d['D']:.3f}" for d in row["decay"]),
        flush=True,
    )


def draw(rows, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    for row in rows:
        steps, values = np.transpose(row["mmd"])
        axes[0].plot(steps, values, label=row["name"])
        lags = [d["lag"] for d in row["decay"]]
        axes[1].errorbar(lags, [d["D"] for d in row["decay"]], [d["error"] for d in row["decay"]])
    axes[0].set(xscale="log", xlabel="steps", ylabel="MMD² to ground truth")
    axes[0].set_yscale("symlog", linthresh=1e-3)  # unbiased: about zero in the end, of either sign
    axes[0].legend(fontsize="small")
    axes[1].set(xscale="log", yscale="log", xlabel="lag L (steps)", ylabel="D(L)")
    names = [row["name"] for row in rows]
    axes[2].plot([row["ess_per_second"] for row in rows], names, "o")
    axes[2].set(xscale="log", xlabel="ESS per second")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, help=".npz with x_train and x_test; fetched if not given"
    )
    parser.add_argument("--machine", type=Path, default=Path("rbm_mnist.npz"), help="kept here")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--sweeps", type=int, default=20_000, help="of the ground truth")
    parser.add_argument("--chains", type=int, default=256, help="of the ground truth and the decay")
    parser.add_argument("--burn-in", type=int, default=4_000)
    parser.add_argument("--long-steps", type=int, default=1_000_000)
    parser.add_argument("--long-chains", type=int, default=16)
    parser.add_argument("--thin", type=int, default=250)
    parser.add_argument("--lag", type=int, default=250, help="smallest; then 2, 4, 8, 16 times it")
    parser.add_argument("--mmd-steps", type=int, default=50_000)
    parser.add_argument("--mmd-chains", type=int, default=64)
    parser.add_argument("--tests", type=int, default=20, help="images distances are taken to")
    parser.add_argument("--device", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[*SAMPLERS, BLOCK_GIBBS])
    parser.add_argument(
        "--quick", action="store_true", help="half a minute a sampler; figures mean little"
    )
    parser.add_argument("--json", type=Path, default=Path("rbm_mnist.json"))
    parser.add_argument("--figure", type=Path, default=Path("rbm_mnist.png"))
    options = parser.parse_args()
    if options.quick:
        quick = {"sweeps": 1000, "chains": 64, "burn_in": 500, "long_steps": 20_000, "lag": 50}
        vars(options).update(quick, mmd_steps=1000, mmd_chains=32, thin=50)
    warnings.simplefilter("ignore", SamplerWarning)
    machine, data = trained(options)
    ends, checks = ground_truth(machine, data, options)
    result = {"options": {k: str(v) for k, v in vars(options).items()}, "truth": checks, "rows": []}
    print("sampler      flips acceptance    steps/s  ESS/1e6 steps  ESS/s  R-hat  D(L)")
    for name in options.only:
        row = measure(name, machine, ends, options)
        result["rows"].append(row)
        show(row)
        options.json.write_text(json.dumps(result, indent=1))
        draw(result["rows"], options.figure)


if __name__ == "__main__":
    main()
