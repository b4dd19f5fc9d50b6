"""Tempering and annealing beyond networks: glasses, the critical point, single modes, cuts.

    python benchmarks/tempering_glasses.py glasses|critical|single|anneal [--seconds 60] [--seeds 5]
        [--data DIRECTORY] [--only NAME ...]

- glasses: +-J glasses of 20 x 20 and 6 x 6 x 6 at beta = 2, an instance for each seed: whether the
  ground state was seen (by elimination, or the best of long annealing runs), R-hat of the energy
  and of the overlap of ladders, those of plain chains beside them.
- critical: effective size of |m| per second of processor time, 30 x 30 at the critical point.
- single: BN_1 of DIRECTORY and case 3 of the paper: effective sizes per evaluation beside plain
  chains, and whether the warning says so.
- anneal: the best value in so many seconds beside simulated annealing of dwave-samplers, cuts and
  quadratic problems of DIRECTORY. Medians over seeds.

Times are of the processor, compilation apart.
"""

import argparse
import time
import warnings
from pathlib import Path

import arviz
import numpy as np
import scipy.sparse as sp
import xarray as xr
from sklearn.base import clone

from sklsb import GibbsSampler, Ising, LSBSampler, MarkovNetwork, ParallelTempering, anneal, exact
from sklsb.exceptions import TemperingWarning
from sklsb.io import read_maxcut, read_qubo

CUTS = {
    "G1": "gset/G1.txt",
    "G11": "gset/G11.txt",
    "G14": "gset/G14.txt",
    "G32": "gset/G32.txt",
    "pm1s_80": "rudy/pm1s_80.0",
    "pm1d_80": "rudy/pm1d_80.0",
    "w01_100": "rudy/w01_100.0",
    "t2g15": "ising/t2g15_5555",
    "t3g5": "ising/t3g5_6666",
    "bqp250": "qubo/bqp250-1.sparse",
}


def glass(shape, seed, beta=2.0):
    """Couplings of +-beta between neighbours of a grid with open ends."""
    index = np.arange(np.prod(shape)).reshape(shape)
    pairs = []
    for axis in range(len(shape)):
        n = shape[axis]
        ends = [index.take(range(a, b), axis=axis).ravel() for a, b in ((0, n - 1), (1, n))]
        pairs.append(np.stack(ends, axis=1))
    pairs = np.concatenate(pairs)
    sign = np.random.default_rng([seed, len(shape)]).choice([-beta, beta], len(pairs))
    upper = sp.csr_array((sign, pairs.T), shape=(index.size, index.size))
    return Ising(upper + upper.T)


def compiled(sampler, target):
    """Compile what a sampler needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clone(sampler).set_params(n_burn_in=1024).fit(target).sample(1)


def for_seconds(sampler, target, seconds, record=None):
    """Fit and draw for so many seconds of processor time; return what was recorded, and both."""
    compiled(sampler, target)
    began, parts, size = time.process_time(), [], 64
    sampler.fit(target)
    fitted = time.process_time() - began
    while (left := seconds - (time.process_time() - began)) > 0 or not parts:
        before = time.process_time()
        parts.append(sampler.sample(size, record=record))
        rate = size / max(1e-6, time.process_time() - before)
        size = max(1, min(4 * size, int(rate * min(5.0, max(0.1, left / 2)))))
    return xr.concat(parts, "draw"), fitted, time.process_time() - began


def r_hat(values):
    """Of an array of shape (chains, draws), split and by ranks."""
    data = xr.Dataset({"x": (("chain", "draw"), values)})
    return float(arviz.rhat(data)["x"])


def overlaps(x):
    """Of pairs of ladders at the same draws, absolute: none of their signs means anything."""
    x = x.reshape(*x.shape[:2], -1).astype(np.float32)
    return np.abs((x[::2] * x[1::2]).mean(axis=2))


def glasses(given):
    print(f"{'glass':9}{'seed':>5}{'ground':>8}{'tempered':>9}{'plain':>7}{'first s':>8}", end="")
    print(f"{'barrier':>8}{'trips':>7}{'R-hat E':>9}{'overlap':>8}{'plain E':>8}{'overlap':>8}")
    for shape in ((20, 20), (6, 6, 6)):
        for seed in range(given.seeds):
            target = glass(shape, seed)
            if len(shape) == 2:
                ground = float(exact.most_likely(target)["lp"])
            else:
                ground = max(
                    float(anneal(target, n_sweeps=20000, n_chains=8, random_state=k)["lp"].max())
                    for k in range(2)
                )
            rows = []
            for sampler in (
                ParallelTempering(random_state=seed),
                GibbsSampler("chromatic", random_state=seed),
            ):
                thin = {} if isinstance(sampler, ParallelTempering) else {"thin": 16}
                rows.append(_glass_row(sampler, target, given.seconds, thin))
            tempered, plain = rows
            print(
                f"{'x'.join(map(str, shape)):9}{seed:5}{ground / 2:8.0f}{tempered[0] / 2:9.0f}"
                f"{plain[0] / 2:7.0f}{tempered[3]:8.1f}{tempered[4]:8.2f}{tempered[5]:7}"
                f"{tempered[1]:9.3f}{tempered[2]:8.3f}{plain[1]:8.3f}{plain[2]:8.3f}",
                flush=True,
            )


def _glass_row(sampler, target, seconds, thin):
    compiled(sampler, target)
    began, parts, lp, first, best = time.process_time(), [], [], np.nan, -np.inf
    sampler.fit(target)
    while not lp or time.process_time() - began < seconds:
        drawn = sampler.sample(500, **thin)
        parts.append(overlaps(drawn["x"].values))
        lp.append(drawn["lp"].values)
        found = lp[-1].max()
        if isinstance(sampler, ParallelTempering):
            found = float(sampler.best_state_["lp"].max())
        if found > best + 1e-9:
            best, first = found, time.process_time() - began
    energy, overlap = np.concatenate(lp, axis=1), np.concatenate(parts, axis=1)
    barrier = getattr(sampler, "barrier_", np.nan)
    trips = int(getattr(sampler, "n_round_trips_", np.zeros(1)).sum())
    return best, r_hat(energy), r_hat(overlap), first, barrier, trips


def critical(given):
    target = Ising.lattice(np.zeros((30, 30)), coupling=0.5 * np.log(1 + np.sqrt(2)))
    record = {"m": lambda x: np.abs(x.astype(float).mean(axis=(1, 2)))}
    samplers = {
        "ParallelTempering": ParallelTempering(random_state=0),
        "GibbsSampler('chromatic')": GibbsSampler("chromatic", random_state=0),
        "LSBSampler('barker'), thin=100": LSBSampler("barker", random_state=0),
    }
    print(f"{'sampler':32}{'ESS of |m| per s':>18}{'R-hat':>8}")
    for name, sampler in samplers.items():
        if "thin" in name:
            plain = sampler.sample
            sampler.sample = lambda n, record, plain=plain: plain(n, thin=100, record=record)
        found, _, spent = for_seconds(sampler, target, given.seconds, record)
        ess = float(arviz.ess(xr.Dataset({"m": found["m"]}))["m"])
        print(f"{name:32}{ess / spent:18.1f}{r_hat(found['m'].values):8.3f}", flush=True)


def single(given):
    data = Path(given.data or ".") / "uai"
    field = np.full((30, 30), -1.0)
    field[7:23, 7:23] = 1.0
    field += 3.0 * np.random.default_rng([0, 3]).uniform(-1, 1, field.shape)
    targets = {"Ising, case 3": lambda: Ising.lattice(field, 1.0)}
    if (data / "BN_1.uai").exists():
        targets["BN_1"] = lambda: MarkovNetwork.from_uai(data / "BN_1.uai")
        evidence = data / "BN_1.synthetic.evid"
        targets["BN_1, evidence"] = lambda: MarkovNetwork.from_uai(data / "BN_1.uai", evidence)
    print(f"{'target':16}{'sampler':36}{'replicas':>9}{'least ESS per 1e6 evaluations':>31}")
    for name, made in targets.items():
        target = made()
        for sampler in (
            ParallelTempering(random_state=0),
            ParallelTempering(random_state=0, eliminate=None),
            GibbsSampler("chromatic", random_state=0),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TemperingWarning)
                x = sampler.fit(target)
                before = sampler.n_evaluations_
                x = sampler.sample(4000)["x"].values.reshape(4, 4000, -1)
            free = xr.Dataset({"x": (("chain", "draw", "site"), x[:, :, target.n_possible > 1])})
            ess = float(arviz.ess(free, method="mean")["x"].min())
            work = (sampler.n_evaluations_ - before) / 1e6
            shown = repr(sampler)[:34]
            n = getattr(sampler, "betas_", np.ones(1)).size
            print(f"{name:16}{shown:36}{n:9}{ess / work:31.0f}")


def problem(folder, name):
    """Return a target whose log p is the value, and the same for dimod: (h, J), to be lowered."""
    path = folder / CUTS[name]
    if name == "bqp250":
        target = Ising.from_qubo(read_qubo(path))
    else:
        target = Ising.from_maxcut(read_maxcut(path))
    pairs = sp.coo_array(target.couplings)
    field = np.broadcast_to(target.field, target.n_sites)
    linear = dict(enumerate((-field).tolist()))
    quadratic = {(i, j): -w for i, j, w in zip(*pairs.coords, pairs.data, strict=True) if i < j}
    return target, (linear, quadratic)


def dwave(model, target, n_runs, n_sweeps, seed):
    """Return the best value of simulated annealing of dwave-samplers, and the time."""
    from dwave.samplers import SimulatedAnnealingSampler

    began = time.process_time()
    found = SimulatedAnnealingSampler().sample_ising(
        *model, num_reads=n_runs, num_sweeps=n_sweeps, seed=seed
    )
    x = found.record.sample[:, np.argsort(np.array(list(found.variables)))]
    spent = time.process_time() - began
    return float(target.log_prob(x.astype(np.int8)).max()), spent


def ours(target, n_sweeps, seed):
    """Return the best value of `anneal`, and the time."""
    began = time.process_time()
    value = float(anneal(target, n_sweeps=n_sweeps, random_state=seed)["lp"].max())
    return value, time.process_time() - began


def annealing(given):
    folder = Path(given.data) / "maxcut"
    names = given.only or list(CUTS)
    print(f"{'':18}{'best value':^30}{'seconds spent':^24}")
    print(f"{'problem':10}{'seconds':>8}", end="")
    print(f"{'anneal':>10}{'theirs':>10}{'one run':>10}" + f"{'anneal':>8}{'theirs':>8}{'one':>8}")
    for name in names:
        target, model = problem(folder, name)
        ours(target, 64, 0)
        per_second = 256.0
        for seed in range(3):
            # The first sweeps of a run, which are hot, take longest: the last run has a second.
            per_second /= ours(target, round(per_second), seed)[1]
            per_second = round(per_second)
        # What building the problem takes there is not counted: that of a run of one sweep.
        empty = min(dwave(model, target, 1, 1, 0)[1] for _ in range(3))
        per_sweep = max(1e-9, dwave(model, target, 1, 20000, 0)[1] - empty) / 20000
        for seconds in given.times:
            rows = []
            for seed in range(given.seeds):
                mine = ours(target, max(1, round(seconds * per_second)), seed)
                n = max(1, round(seconds / per_sweep / 1000))
                runs = dwave(model, target, n, 1000, seed)
                rows.append((mine, runs, dwave(model, target, 1, 1000 * n, seed)))
            values, spent = np.median(rows, axis=0).T
            spent[1:] -= empty
            level = values[0] >= values.max() - 1e-6 * abs(values[0])
            print(
                f"{name:10}{seconds:8.0f}"
                + "".join(f"{value:10.0f}" for value in values)
                + "".join(f"{value:8.2f}" for value in spent)
                + f"  {'level' if level else 'BELOW'}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"glasses": glasses, "critical": critical, "single": single, "anneal": annealing}
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--times", type=float, nargs="*", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data")
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    parts[given.part](given)


if __name__ == "__main__":
    main()
