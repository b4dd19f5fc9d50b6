"""Whether wrong answers come with a warning.

An answer is *wrong* if a marginal is off by more than 5 of its stated errors and by more than 0.01.
sklsb *warned* if fit or sample gave a warning about the chains. All runs are LSBSampler by default,
sample(1000, thin="sweep").

mixtures: two product distributions, a broad and a sharp one, as an RBM of one hidden unit, 10 to 60
sites. The first of them that are wrong from uniform starts, then by default, by the size of the
basin of the sharp one: the share of uniform draws from which the steepest way leads there. Once
more as if there were no hidden layer, which is what a function of one's own gets.
unimodal: targets of all classes with a single mode. A warning there is a false alarm.
alarm: the network of a BIF file with evidence to which few draws lead, against exact marginals; by
single changes, and by default, where blocks of variables are redrawn, too.
small: all samplers on models of few states, where draws are compared with exact answers: glasses of
8 spins (complete graph, couplings of standard deviation 0.6, fields of 0.5), the first of which is
hard for sweeps; a function whose support falls into two parts; one that is flat over 3^9 states
but for three, which are very probable.
others: all samplers by default on fresh mixtures, on magnets, whose two modes weigh the same, on cold
glasses, and on networks with strong factors and zeros; --only names some of the samplers.

Takes half an hour on one core.

    python benchmarks/told.py [mixtures] [unimodal] [small] [others] [alarm --bif alarm.bif]
        [--json told.json]
"""

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np

from sklsb import (
    RBM,
    AutoSampler,
    ClusterSampler,
    FunctionTarget,
    GibbsSampler,
    HammingBallSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    VariableSelection,
    exact,
)
from sklsb.diagnostics import marginals
from sklsb.exceptions import SamplerWarning

GROUPS = ((0.0, 0.001), (0.001, 0.003), (0.003, 0.01), (0.01, 1.0))
EVIDENCE = {"HRBP": "HIGH", "CVP": "LOW", "PRESS": "HIGH", "MINVOL": "ZERO"}


def run(target, seed, truth=None, sampler=LSBSampler, **options):
    """Whether the answer is wrong (None without the truth), by how much, and the warnings."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        draws = sampler(random_state=seed, **options).fit(target).sample(1000, thin="sweep")
    names = {w.category.__name__ for w in given if issubclass(w.category, SamplerWarning)}
    row = {"seed": seed, "warned": sorted(names), "wrong": None}
    if truth is not None:
        found = marginals(draws, target)
        off = np.abs(found["p"].values - truth)
        row["off"] = float(off.max())
        # A value that was never seen has an error of NaN.
        far = off > 5 * np.nan_to_num(found["mcse"].values)
        row["wrong"] = bool((far & (off > 0.01)).any())
    return row


def summary(rows):
    """Numbers of runs that are wrong and with a warning, and so on."""
    wrong, warned = (np.array([bool(r[k]) for r in rows], bool) for k in ("wrong", "warned"))
    return {
        "runs": len(rows),
        "warned": int(warned.sum()),
        "wrong, warned": int((wrong & warned).sum()),
        "wrong, no warning": int((wrong & ~warned).sum()),
        "right, warned": int((~wrong & warned).sum()),
        "right, no warning": int((~wrong & ~warned).sum()),
    }


def show(title, rows):
    print(f"{title}: " + ", ".join(f"{name} {n}" for name, n in summary(rows).items()), flush=True)


# ----------------------------------------------------------------- mixtures


class Layerless(RBM):
    """A machine of which the sampler sees no hidden layer, as if it were a function."""

    layers = None

    def scattered_state(self, rng):
        return self.draw_state(rng)


def mixture(seed, kind=RBM):
    """Return a machine, its marginals, and how large the sharp basin is."""
    rng = np.random.default_rng([11, seed])
    d, mass = int(rng.integers(10, 61)), rng.uniform(0.3, 0.7)
    broad, sharp = rng.uniform(0.6, 0.75, d), rng.uniform(0.93, 0.99, d)
    signs = rng.integers(2, size=d)
    others = 1 - signs if rng.integers(2) else rng.integers(2, size=d)
    p = np.where(signs, broad, 1 - broad), np.where(others, sharp, 1 - sharp)
    bias = np.log(p[0] / (1 - p[0]))
    weights = np.log(p[1] / (1 - p[1])) - bias
    # The unit is off in the broad component, on in the sharp one.
    reach = np.sum(np.logaddexp(0, bias + weights) - np.logaddexp(0, bias))
    hidden_bias = np.log(mass / (1 - mass)) - reach
    target = kind(weights[:, None], bias, np.array([hidden_bias]))
    on = (1 - mass) * p[0] + mass * p[1]
    return target, np.stack([1 - on, on], axis=1), basin(target, rng)


def basin(target, rng, n_draws=4000):
    """Share of uniform draws from which the steepest way up leads to where the unit is on."""
    x = rng.integers(2, size=(n_draws, target.n_sites), dtype=target.dtype)
    walking = np.arange(n_draws)
    while walking.size:
        ratios = target.log_ratios(x[walking])
        best = ratios.argmax(axis=1)
        up = ratios[np.arange(walking.size), best] > 0
        walking = walking[up]
        x[walking, best[up]] = 1 - x[walking, best[up]]
    return float((target.hidden_probabilities(x)[:, 0] > 0.5).mean())


def mixtures(n_wrong):
    """The first that are wrong from uniform starts, and what is said of them by default."""
    rows = {"uniform": []}
    seed = 0
    while sum(row["wrong"] for row in rows["uniform"]) < n_wrong:
        target, truth, share = mixture(seed)
        row = run(target, seed, truth, init="uniform")
        rows["uniform"].append(row | {"n_sites": target.n_sites, "basin": share})
        seed += 1
    show("mixtures, from uniform starts", rows["uniform"])
    chosen = [row for row in rows["uniform"] if row["wrong"]]
    for kind in (RBM, Layerless):
        rows[kind.__name__] = []
        for old in chosen:
            target, truth, share = mixture(old["seed"], kind)
            row = run(target, old["seed"], truth)
            rows[kind.__name__].append(row | {"n_sites": target.n_sites, "basin": share})
        show(f"those that are wrong, by default, {kind.__name__}", rows[kind.__name__])
        for low, high in GROUPS:
            group = [row for row in rows[kind.__name__] if low <= row["basin"] < high]
            if group:
                show(f"  sharp basin {low:g} to {high:g}", group)
    return rows


# ----------------------------------------------------------------- unimodal


def small(kind, rng):
    """A unimodal target of one of eight kinds."""
    n = int(rng.integers(10, 60))
    if kind == "Ising lattice":
        field = rng.normal(size=(int(rng.integers(6, 31)),) * 2)
        return Ising.lattice(field, coupling=float(rng.uniform(0, 0.3)))
    if kind == "Ising, dense":
        n *= 2
        upper = np.triu(rng.normal(size=(n, n)), 1) * 0.25 / np.sqrt(n)
        return Ising(upper + upper.T, rng.normal(size=n))
    if kind == "Potts lattice":
        side, n_states = int(rng.integers(4, 16)), int(rng.integers(3, 6))
        field = rng.normal(size=(side, side, n_states))
        return Potts.lattice(field, coupling=float(rng.uniform(0, 0.4)))
    if kind == "RBM":
        m = n // 2
        return RBM(rng.normal(size=(n, m)) * 0.3, rng.normal(size=n), rng.normal(size=m) * 0.5)
    if kind == "MarkovNetwork":
        sizes = rng.integers(2, 5, size=n).tolist()
        factors = []
        for _ in range(int(1.3 * n)):
            i, j = (int(k) for k in rng.choice(n, 2, replace=False))
            factors.append(((i, j), np.exp(0.5 * rng.normal(size=(sizes[i], sizes[j])))))
        return MarkovNetwork(sizes, factors)
    if kind == "VariableSelection":
        columns = rng.normal(size=(100, int(rng.integers(5, 30))))
        return VariableSelection(columns, 0.3 * columns[:, 0] + rng.normal(size=100))
    if kind == "product":
        p = rng.uniform(0.02, 0.98, n)
        return Ising(np.zeros((n, n)), np.log(p / (1 - p)) / 2)
    slope = rng.normal(size=int(rng.integers(8, 25)))

    def log_prob(x):
        return (x * slope).sum(-1) - 0.1 * np.abs(x[..., 1:] - x[..., :-1]).sum(-1)

    return FunctionTarget(log_prob, slope.size)


KINDS = (
    "Ising lattice",
    "Ising, dense",
    "Potts lattice",
    "RBM",
    "MarkovNetwork",
    "VariableSelection",
    "product",
    "function",
)


def unimodal(n_targets):
    rows = []
    for k in range(n_targets):
        kind = KINDS[k % len(KINDS)]
        target = small(kind, np.random.default_rng([77, k]))
        rows.append(run(target, k) | {"kind": kind, "n_sites": target.n_sites})
        if rows[-1]["warned"]:
            print(f"  {k} {kind}: {', '.join(rows[-1]['warned'])}", flush=True)
    print(
        f"unimodal: warnings in {sum(bool(row['warned']) for row in rows)} of {n_targets}",
        flush=True,
    )
    return rows


# ----------------------------------------------------------------- other samplers


OTHERS = {
    "AutoSampler": AutoSampler,
    "LSBSampler": LSBSampler,
    "LSBSampler, sqrt": partial(LSBSampler, "sqrt"),
    "GibbsSampler, systematic": partial(GibbsSampler, "systematic"),
    "GibbsSampler, layers": partial(GibbsSampler, "layers"),
    "HammingBallSampler": partial(HammingBallSampler, 8, radius=2),
    "ParallelTempering": ParallelTempering,
}


def magnet(n_sites, seed, beta=1.5):
    """Return spins all of which are coupled, with as much weight up as down, and the marginals."""
    couplings = (np.ones((n_sites, n_sites)) - np.eye(n_sites)) * beta / n_sites
    return Ising(couplings, np.zeros(n_sites)), np.full((n_sites, 2), 0.5)


def glass(seed):
    """Return a cold glass with weak fields, dense or on a lattice in turn, and its marginals."""
    rng = np.random.default_rng([12, seed])
    graph = nx.complete_graph(22) if seed % 2 else nx.grid_2d_graph(12, 12)
    n, beta = len(graph), 2.0
    scale = beta / np.sqrt(n) if seed % 2 else beta
    upper = scale * np.triu(nx.to_numpy_array(graph), 1) * rng.normal(size=(n, n))
    return with_truth(Ising(upper + upper.T, 0.2 * rng.normal(size=n)))


def network(seed):
    """Return a random network of pairs with strong factors, a tenth of them zeros."""
    rng = np.random.default_rng([13, seed])
    n, k = 40, 3
    factors = []
    for edge in nx.random_regular_graph(3, n, seed=seed).edges:
        table = np.exp(1.5 * rng.normal(size=(k, k)))
        table[rng.random((k, k)) < 0.1] = 0.0
        table[0, 0] = 1.0  # so that some state is possible
        factors.append((edge, table))
    return with_truth(MarkovNetwork([k] * n, factors))


def with_truth(target):
    return target, exact.marginals(target)["p"].values.reshape(target.n_sites, -1)


# What makes a target and its marginals, and how many of it for each mixture.
FAMILIES = {
    "mixtures": (lambda seed: mixture(seed)[:2], 1.0),
    "magnets of 60": (partial(magnet, 60), 1 / 3),
    "magnets of 200": (partial(magnet, 200), 1 / 3),
    "glasses": (glass, 2 / 3),
    "networks": (network, 2 / 3),
}


def others(n_targets, only):
    rows = {}
    for name, sampler in OTHERS.items():
        if only and name not in only:
            continue
        for family, (make, share) in FAMILIES.items():
            if name == "GibbsSampler, layers" and family != "mixtures":
                continue
            title = f"{family}, {name}"
            rows[title] = []
            for seed in range(1000, 1000 + max(1, round(share * n_targets))):
                target, truth = make(seed)
                rows[title].append(run(target, seed, truth, sampler))
            show(title, rows[title])
    return rows


# ----------------------------------------------------------------- small models


def listed(target):
    """Return a target and its marginals, from a list of all states."""
    values = np.asarray(target.values)
    index = np.indices(target.cardinalities).reshape(target.n_sites, -1).T
    log_p = target.log_prob(values[index])
    p = np.exp(log_p - log_p.max())
    hit = values[index] == values[:, None, None]
    return target, np.moveaxis((hit * (p / p.sum())[:, None]).sum(axis=1), 0, 1)


def small_glass(seed):
    rng = np.random.default_rng(seed)
    upper = 0.6 * np.triu(rng.normal(size=(8, 8)), 1)
    return listed(Ising(upper + upper.T, 0.5 * rng.normal(size=8)))


def in_two_parts(x):
    ones = x.sum(axis=-1)
    return np.where((ones > 3) & (ones < 7), -np.inf, 0.3 * ones - 0.4 * x[..., 0])


HOLES = np.random.default_rng(4).integers(3, size=(3, 9))


def golf(x):
    """Half of the probability is in three states that nothing leads to."""
    inside = (x[..., None, :] == HOLES).all(axis=-1).any(axis=-1)
    return np.where(inside, np.log(3**8), 0.0)


SMALL = {
    "glass of 8 spins": (lambda: small_glass(29), 200),
    "function in two parts": (lambda: listed(FunctionTarget(in_two_parts, 10)), 50),
    "golf holes": (lambda: listed(FunctionTarget(golf, 9, 3)), 50),
}
OF_SMALL = {
    "GibbsSampler, systematic": partial(GibbsSampler, "systematic"),
    "LSBSampler, barker": partial(LSBSampler, "barker"),
    "HammingBallSampler": partial(HammingBallSampler, 4),
    "ClusterSampler": ClusterSampler,
    "LSBSampler": LSBSampler,
    "ParallelTempering": ParallelTempering,
    "AutoSampler": AutoSampler,
}


def small_models(share, only):
    rows = {}
    for family, (make, n) in SMALL.items():
        target, truth = make()
        for name, sampler in OF_SMALL.items():
            if (only and name not in only) or (
                name == "ClusterSampler" and not isinstance(target, Ising)
            ):
                continue
            title = f"{family}, {name}"
            seeds = range(max(1, round(share * n)))
            rows[title] = [run(target, seed, truth, sampler) for seed in seeds]
            show(title, rows[title])
    return rows


# ----------------------------------------------------------------- alarm


def alarm(path, n_seeds):
    target = MarkovNetwork.from_bif(path).condition(EVIDENCE)
    truth = exact.marginals(target)["p"].values
    rows = {}
    for name, options in (("single changes", {"blocks": None}), ("by default", {})):
        rows[name] = [run(target, seed, truth, **options) for seed in range(1, n_seeds + 1)]
        show(f"alarm with evidence, {name}", rows[name])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "part", nargs="*", help="mixtures, unimodal, small, others, alarm; the first 4 if not said"
    )
    parser.add_argument("--wrong", type=int, default=50, help="mixtures that are wrong")
    parser.add_argument("--targets", type=int, default=100, help="unimodal targets")
    parser.add_argument("--fresh", type=int, default=60, help="mixtures for other samplers")
    parser.add_argument("--only", nargs="*", help="samplers of the parts small and others")
    parser.add_argument("--share", type=float, default=1.0, help="of the seeds of the part small")
    parser.add_argument("--seeds", type=int, default=40, help="of the alarm network")
    parser.add_argument("--bif", type=Path, help="file of the alarm network")
    parser.add_argument("--json", type=Path, default=Path("told.json"))
    options = parser.parse_args()
    usual = ["mixtures", "unimodal", "small", "others"]
    parts = options.part or usual + ["alarm"] * (options.bif is not None)
    if unknown := set(parts) - {*usual, "alarm"}:
        parser.error(f"unknown: {', '.join(unknown)}")
    if "alarm" in parts and options.bif is None:
        parser.error("alarm needs --bif")
    everything = {}
    for part in parts:
        began = time.perf_counter()
        if part == "mixtures":
            everything[part] = mixtures(options.wrong)
        elif part == "unimodal":
            everything[part] = unimodal(options.targets)
        elif part == "small":
            everything[part] = small_models(options.share, options.only)
        elif part == "others":
            everything[part] = others(options.fresh, options.only)
        else:
            everything[part] = alarm(options.bif, options.seeds)
        print(f"{part} took {time.perf_counter() - began:.0f} s", flush=True)
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
