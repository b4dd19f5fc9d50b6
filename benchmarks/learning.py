"""What learned balancing functions are worth beside the four fixed ones.

All figures are ratios inside one run. ESS per step: of every site by Geyer's initial monotone
sequence, over all chains; then the harmonic mean over the sites, "weighted" by their variances
(the pilot's criterion) or "plain". Parts, each with a table:

cases     the four Ising cases of the paper: hit95 (iterations until the mean over the chains of
          sum(x) has covered 95% of its way), paper ESS, ESS per step, final mean of sum(x)
variants  cases 3 and 4 with free boundary, and with couplings of random sign
glasses   thirty random spin glasses, d = 100 to 1,000, default settings
tied      lattices of dimers and near-deterministic pairs among free sites
potts     Potts lattices of 3 and 5 values with fields
networks  an RBM of digits and, with --data, networks of the UAI competitions, many of them tied
costs     time of an update, and what a fit spends on what
dense     Sherrington-Kirkpatrick: sampled neighbours against all of them

The best fixed function of a case is the one with the best mean over the seeds. Elsewhere it is
found on one half of the run and measured on the other, both ways round: the largest of four
noisy numbers is too large. Parts that are not run are kept as they are in the JSON file.

    python benchmarks/learning.py [--only tied glasses] [--quick] [--seeds 4] [--json FILE]
"""

import argparse
import json
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import networkx as nx
import numpy as np
from paper.ising import CASES, paper_field
from scipy import fft

import sklsb.balancing.learning
import sklsb.samplers._lsb.choosing
import sklsb.samplers.lsb
from sklsb import RBM, Ising, Lipschitz, LSBSampler, MarkovNetwork, Potts
from sklsb.balancing import BalancingFunction, Network
from sklsb.balancing.functions import FIXED, get_balancing
from sklsb.diagnostics import paper_ess
from sklsb.exceptions import SamplerWarning

# Figures were tuned on other fields than those of these seeds.
FIRST_SEED = 2000
NETWORKS = ["BN_1", "BN_8", "Segmentation_11", "Pedigree_11", "Promedus_24", "linkage_21"]
# A longer autocorrelation time does not make runs longer.
LONGEST = 20_000
PLACES = np.arange(0.0, 16.01, 0.25)
# Learned functions of the paper's cases; of each also the one without a choice by the pilot.
LEARNED = {
    "learned": "learned",
    "knots": Lipschitz(0.5, "knots"),
    "network": Network(),
    "mixture": "mixture",
}


# ----------------------------------------------------------------------------------- targets


def weighted_graph(graph, weights, field):
    for (_, _, attributes), weight in zip(graph.edges(data=True), weights, strict=True):
        attributes["weight"] = float(weight)
    return Ising(graph, field)


def paper_case(case, seed, variant="periodic"):
    coupling, mu, sigma, _ = CASES[case]
    rng = np.random.default_rng([seed, case])
    field = paper_field(mu, sigma, rng)
    if variant != "random signs":
        return Ising.lattice(field, coupling, periodic=variant == "periodic")
    graph = nx.grid_2d_graph(*field.shape, periodic=True)
    signs = rng.choice([-1, 1], graph.number_of_edges())
    return weighted_graph(graph, coupling * signs, field.ravel())


def dimers(seed, field_sd=1.0, n=10, tied=3.0, weak=0.3, share=0.6):
    """Lattice in which a share of the sites is tied in pairs of neighbours."""
    rng = np.random.default_rng([seed, 1])
    graph = nx.grid_2d_graph(n, n)
    edges = list(graph.edges)
    used, pairs = set(), set()
    for k in rng.permutation(len(edges)):
        if len(used) < share * n * n and not used & set(edges[k]):
            used |= set(edges[k])
            pairs.add(edges[k])
    weights = [tied if edge in pairs else weak for edge in edges]
    return weighted_graph(graph, weights, field_sd * rng.standard_normal(n * n))


def tied_pairs(seed, field_on_free=0.0, n_pairs=30, n_free=40, differ=0.001):
    """Pairs that differ with probability 0.001, and sites coupled to nothing."""
    rng = np.random.default_rng([seed, 2])
    graph = nx.empty_graph(2 * n_pairs + n_free)
    graph.add_edges_from((2 * k, 2 * k + 1) for k in range(n_pairs))
    scale = np.repeat([1.0, field_on_free], [2 * n_pairs, n_free])
    weight = 0.5 * np.log((1 - differ) / differ)
    return weighted_graph(graph, [weight] * n_pairs, scale * rng.standard_normal(len(graph)))


def sherrington_kirkpatrick(rng, n, beta, field_sd):
    couplings = np.triu(rng.standard_normal((n, n)) * beta / np.sqrt(n), 1)
    return Ising(couplings + couplings.T, field_sd * rng.standard_normal(n))


def glass(k, seed=FIRST_SEED):
    """Name and target of the k-th random spin glass."""
    rng = np.random.default_rng([seed, 3, k])
    kind = ("2D Gaussian", "2D +-J", "3-regular Gaussian", "3-regular +-J", "SK")[k % 5]
    n = int(rng.integers(100, 301 if kind == "SK" else 1001))
    field_sd = rng.uniform(0, 1)
    if kind == "SK":
        beta = rng.uniform(0.3, 0.8)
        target = sherrington_kirkpatrick(rng, n, beta, field_sd)
    else:
        beta = rng.uniform(0.2, 0.6)
        side = round(np.sqrt(n))
        if kind.startswith("2D"):
            graph = nx.grid_2d_graph(side, side, periodic=True)
        else:
            graph = nx.random_regular_graph(3, n + n % 2, seed=int(rng.integers(2**31)))
        size = graph.number_of_edges()
        signs = rng.standard_normal(size) if "Gauss" in kind else rng.choice([-1, 1], size)
        target = weighted_graph(graph, beta * signs, field_sd * rng.standard_normal(len(graph)))
    return f"{kind} d={target.n_sites} beta={beta:.2f} field={field_sd:.2f}", target


def potts(seed, k, n=15, coupling=0.6):
    rng = np.random.default_rng([seed, 4, k])
    return Potts.lattice(rng.standard_normal((n, n, k)), coupling)


# ------------------------------------------------------------------------------ measurements


def with_function(target, function, states, seed):
    """Sampler that goes on from given states with one function, learned or not."""
    if isinstance(function, BalancingFunction):
        function = function.tabulated()
    seed = np.random.SeedSequence(seed)
    sampler = LSBSampler(function, n_chains=len(states), n_burn_in=0, random_state=seed)
    return sampler.fit(target, initial_states=states)


def fixed_run(target, function, states, n, thin, seed):
    """Draws of chains that use one function, after a twentieth of the run."""
    sampler = with_function(target, function, states, seed)
    sampler.sample(1 + n // 20, thin=thin)
    return sampler.sample(n, thin=thin)["x"].values.reshape(len(states), n, -1)


def indicators(draws, values):
    """Series whose autocorrelation counts: the spins, or which value each site has."""
    if len(values) == 2:
        return draws
    return np.concatenate([(draws == value).astype(np.int8) for value in values], axis=2)


def autocorrelation_times(draws):
    """Time in draws, and variance, of each series of shape (n_chains, n_draws, n_series)."""
    _, n, n_series = draws.shape
    size = fft.next_fast_len(2 * n, real=True)
    times, variances = np.empty(n_series), np.empty(n_series)
    for first in range(0, n_series, 64):
        part = slice(first, first + 64)
        x = np.moveaxis(draws[:, :, part], 1, 2).astype(np.float32)
        means = x.mean(axis=2, keepdims=True)
        power = np.abs(fft.rfft(x - means, size, axis=2)) ** 2
        covariance = fft.irfft(power.mean(axis=0), size, axis=1)[:, :n] / n
        within = covariance[:, 0] * n / (n - 1)
        total = covariance[:, 0] + means[:, :, 0].var(axis=0, ddof=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = 1.0 - (within[:, None] - covariance) / total[:, None]
        even = n // 2 * 2
        pairs = rho[:, 0:even:2] + rho[:, 1:even:2]
        positive = np.logical_and.accumulate(pairs > 0, axis=1)
        sums = (np.minimum.accumulate(pairs, axis=1) * positive).sum(axis=1)
        times[part] = np.where(within > 0, np.maximum(2 * sums - 1, 1e-3), np.nan)
        variances[part] = total
    return times, variances


def mean_times(runs, values, thin):
    """Mean autocorrelation times, in steps, of each run and half: {criterion: {name: [2]}}."""
    found = {}
    for name, draws in runs.items():
        halves = np.array_split(indicators(draws, values), 2, axis=1)
        found[name] = np.array([autocorrelation_times(half) for half in halves])
    variance = np.mean([both[:, 1] for both in found.values()], axis=(0, 1))
    # A site that stood still in some run has no time there; it is left out in all.
    known = np.all([np.isfinite(both[:, 0]).all(axis=0) for both in found.values()], axis=0)
    weights = {"weighted": variance * known, "plain": 1.0 * known}
    return {
        criterion: {
            name: thin * both[:, 0, known] @ w[known] / w.sum() for name, both in found.items()
        }
        for criterion, w in weights.items()
    } | {"left_out": int((~known).sum())}


def ratio_to_best(times, name):
    """ESS of a function / that of the best fixed one, which is found on the other half."""
    best = [min(FIXED, key=lambda f: times[f][half]) for half in (1, 0)]
    of_best = np.array([times[best[half]][half] for half in (0, 1)])
    return float(np.exp(np.log(of_best / times[name]).mean()))


def half_difference(times, name):
    """Relative standard error of a mean time, from how its halves differ."""
    return float(abs(np.log(times[name][0] / times[name][1])) / 2)


def fitted(target, seed, balancing="learned", **settings):
    sampler = LSBSampler(balancing, random_state=np.random.SeedSequence(seed), **settings)
    began = time.perf_counter()
    sampler.fit(target)
    return sampler, time.perf_counter() - began


def what_fit_found(sampler):
    """What the pilot saw and chose, and whether learning went astray."""
    candidates = sampler.candidates_
    names, sizes = candidates["candidate"].values, candidates["ess_per_step"].values
    parts = (
        sampler.history_["theta"],
        sampler.burn_in_balancing_.table().value,
        sampler.balancing_.table().value,
    )
    return {
        "chosen": candidates.attrs["chosen"],
        "pilot": dict(zip(names.tolist(), sizes.tolist(), strict=True)),
        "pilot_transitions": candidates["transitions"].values.tolist(),
        "skipped_updates": sampler.history_.attrs["skipped_updates"],
        "finite": all(bool(np.isfinite(part).all()) for part in parts),
        "even_part": sampler.balancing_.even_part(PLACES).tolist(),
    }


def compare(target, sampler, seed, ess):
    """Run the chosen and the fixed functions from the fitted states; a row of the table.

    If the chosen one is one of these, it runs once. ``ess`` is the effective sample size, of a
    site over all chains, that a run is made to have.
    """
    row = what_fit_found(sampler)
    tau = min(1.0 / np.nanmax(list(row["pilot"].values())), LONGEST)
    thin = max(1, round(tau / 20))
    n = round(ess * tau / (sampler.n_chains * thin))
    functions = {name: name for name in FIXED} | {"learned": sampler.balancing_}
    if row["chosen"] in FIXED:
        del functions["learned"]
    runs = {
        name: fixed_run(target, function, sampler.state_, n, thin, [seed, k])
        for k, (name, function) in enumerate(functions.items())
    }
    times = mean_times(runs, target.values, thin)
    row["left_out"] = times.pop("left_out")
    for criterion, by_name in times.items():
        by_name.setdefault("learned", by_name.get(row["chosen"]))
        row[criterion] = ratio_to_best(by_name, "learned")
        row[f"{criterion}_noise"] = half_difference(by_name, "learned")
        row[f"{criterion}_tau"] = {name: float(both.mean()) for name, both in by_name.items()}
    return row


def compare_all(targets, options, ess):
    """Rows for a list of (label, target), with default settings."""
    rows = []
    print(f"{'target':45s} {'chosen':11s} weighted  plain")
    for k, (label, target) in enumerate(targets):
        sampler, seconds = fitted(target, FIRST_SEED + k)
        row = compare(target, sampler, FIRST_SEED + k, ess / options.shorter)
        rows.append({"label": label, "fit_seconds": seconds, **row})
        print(
            f"{label:45s} {row['chosen']:11s} {row['weighted']:8.3f} {row['plain']:6.3f}",
            flush=True,
        )
    print_ratios(rows)
    print(
        f"skipped updates: {sum(row['skipped_updates'] for row in rows)}; "
        f"fits that are not finite: {sum(not row['finite'] for row in rows)}"
    )
    return rows


def print_ratios(rows):
    for criterion in ("weighted", "plain"):
        ratios = np.array([row[criterion] for row in rows])
        noise = np.sqrt(np.mean([2 * row[f"{criterion}_noise"] ** 2 for row in rows]))
        print(
            f"{criterion}: median {np.median(ratios):.3f}, least {ratios.min():.3f}, largest "
            f"{ratios.max():.3f}; standard error of one {noise:.3f}"
        )


# ------------------------------------------------------------------------------ the paper's cases


def sums(x):
    return x.sum(axis=(1, 2), dtype=np.int16)


def sum_statistics(sampler, case, n_draws, n_windows):
    """Paper ESS and mean of sum(x) of each chain, after 50,000 transitions."""
    sampler.sample(1, thin=50_000)
    values = sampler.sample(n_draws * n_windows, record={"sum": sums})["sum"].values
    windows = values.reshape(len(values), n_windows, n_draws)
    return paper_ess(windows, CASES[case][3]).mean(axis=1), values.mean(axis=1)


def without_pilot(sampler, balancing):
    """The function that a fit with objective="flux" and pilot=False would have learned."""
    trace = sampler.history_.sel(candidate="flux")
    best = int(np.nanargmin(trace["mixing_objective"].values))
    theta = trace["mixing_theta"].values[best]
    return get_balancing(balancing).with_theta(theta[np.isfinite(theta)])


def samplers_of(target, seed, learned, options):
    """One fitted sampler for every function."""
    settings = {"n_chains": options.chains, "n_burn_in": 2000}
    given = {name: name for name in FIXED} | {name: LEARNED[name] for name in learned}
    samplers = {
        name: fitted(target, [*seed, k], balancing, **settings)[0]
        for k, (name, balancing) in enumerate(given.items())
    }
    for k, name in enumerate(learned):
        function = without_pilot(samplers[name], LEARNED[name])
        state = samplers[name].state_
        samplers[f"{name}, no pilot"] = with_function(target, function, state, [*seed, 90 + k])
    return samplers


def mixing_of(case, seed, variant, learned, options):
    """Fit every function, measure its draws; the target and {name: measurements}."""
    target = paper_case(case, seed, variant)
    samplers = samplers_of(target, [seed, case], learned, options)
    tau = 1.0 / float(np.nanmax(samplers[learned[0]].candidates_.ess_per_step))
    thin = max(1, round(tau / 20))
    runs, found = {}, {}
    for name, sampler in samplers.items():
        size, mean = sum_statistics(sampler, case, options.draws, options.windows)
        draws = sampler.sample(options.draws // 20, thin=thin)["x"].values
        runs[name] = draws.reshape(*draws.shape[:2], -1)
        found[name] = {"paper_ess": size.tolist(), "mean": mean.tolist()}
        if name not in FIXED:
            found[name]["even_part"] = sampler.balancing_.even_part(PLACES).tolist()
        if hasattr(sampler, "candidates_"):
            found[name]["chosen"] = sampler.candidates_.attrs["chosen"]
            found[name]["burn_in_even_part"] = sampler.burn_in_balancing_.even_part(PLACES).tolist()
    times = mean_times(runs, target.values, thin)
    for name, measured in found.items():
        measured |= {key: float(1 / times[key][name].mean()) for key in ("weighted", "plain")}
    return target, found


def hit95(target, balancing, start, final, seed):
    """First iteration at which the mean of sum(x) has covered 95% of the way to its end."""
    # The burn-in as it is by default; nothing is learned for sampling.
    sampler = LSBSampler(
        balancing,
        objective="kl",
        pilot=False,
        n_chains=len(start),
        n_burn_in=2000,
        keep_burn_in=True,
        random_state=np.random.SeedSequence(seed),
    ).fit(target, initial_states=start)
    states = sampler.burn_in_["x"].values.reshape(len(start), 2000, -1)
    mean = states.sum(axis=2, dtype=np.int64).mean(axis=0)
    covered = (mean - start.sum(axis=1).mean()) / (final - start.sum(axis=1).mean())
    return int(np.argmax(covered >= 0.95)) + 1 if (covered >= 0.95).any() else 2000


def burn_in_of(target, case, seed, final, learned, options):
    """hit95 of every function, from the same starts: {name: one per start}."""
    given = {name: name for name in FIXED} | {name: LEARNED[name] for name in learned}
    found = {name: [] for name in given}
    for k in range(options.starts):
        rng = np.random.default_rng([seed, case, 5, k])
        start = rng.choice([-1, 1], size=(options.chains, target.n_sites))
        for name, balancing in given.items():
            found[name].append(hit95(target, balancing, start, final, [seed, case, k]))
    return found


def ratio_of_means(values, name, best):
    """Ratio of the mean over the seeds to that of the best fixed, and its standard error.

    ``values`` maps names to arrays (n_seeds, n). Rows share the target, so the error is that of
    the mean of each row.
    """
    pick = max if best == "largest" else min
    of = pick(FIXED, key=lambda f: values[f].mean())
    squares = []
    for x in (values[name], values[of]):
        errors = x.std(axis=1, ddof=1) / np.sqrt(x.shape[1])
        squares.append(np.mean(errors**2) / len(x) / x.mean() ** 2)
    ratio = values[name].mean() / values[of].mean()
    return {"ratio": float(ratio), "error": float(ratio * np.sqrt(sum(squares))), "best": of}


def paired_ratio(values, name):
    """The same for hit95: few values, all from the same starts; the error is over these."""
    of = min(FIXED, key=lambda f: values[f].mean())
    ratios = values[name].mean() / values[of].mean()
    spread = (values[name] - ratios * values[of]).ravel() / values[of].mean()
    error = spread.std(ddof=1) / np.sqrt(spread.size) if spread.size > 1 else np.nan
    return {"ratio": float(ratios), "error": float(error), "best": of}


def z_against_barker(found, name):
    """Final mean of sum(x) against Barker's in standard errors, over the seeds together."""
    one, other = (np.array([f[which]["mean"] for f in found]) for which in (name, "barker"))
    variance = (one.var(axis=1, ddof=1) + other.var(axis=1, ddof=1)) / one.shape[1]
    per_seed = (one.mean(axis=1) - other.mean(axis=1)) / np.sqrt(variance)
    together = (one - other).mean(axis=1).sum() / np.sqrt(variance.sum())
    return float(together), float(np.abs(per_seed).max())


def case_rows(case, variant, learned, seeds, options):
    """Rows of one case, one per function."""
    found, times = [], []
    for seed in seeds:
        target, measured = mixing_of(case, seed, variant, learned, options)
        found.append(measured)
        if options.starts:
            final = float(np.mean(measured["barker"]["mean"]))
            times.append(burn_in_of(target, case, seed, final, learned, options))
    sizes = {name: np.array([f[name]["paper_ess"] for f in found]) for name in found[0]}
    hits = {name: np.array([t[name] for t in times]) for name in (times[0] if times else ())}
    rows = []
    for name in found[0]:
        row = {"case": case, "variant": variant, "function": name, "seeds": list(seeds)}
        row["paper_ess"] = {"mean": float(sizes[name].mean())} | ratio_of_means(
            sizes, name, "largest"
        )
        for key in ("weighted", "plain"):
            per_seed = {f: np.array([m[f][key] for m in found]) for f in found[0]}
            best = max(FIXED, key=lambda f: per_seed[f].mean())
            row[key] = {"best": best, "ratio": float((per_seed[name] / per_seed[best]).mean())}
        row["z"], row["largest_z"] = z_against_barker(found, name)
        if name in hits:
            row["hit95"] = {"mean": float(hits[name].mean())} | paired_ratio(hits, name)
        row |= {
            key: [f[name][key] for f in found]
            for key in ("chosen", "even_part", "burn_in_even_part")
            if key in found[0][name]
        }
        rows.append(row)
        print_case(row)
    return rows


def print_case(row):
    size, hit = row["paper_ess"], row.get("hit95")
    text = f"{hit['mean']:6.0f} {hit['ratio']:.3f} ±{hit['error']:.3f}" if hit else " " * 20
    print(
        f"{row['case']} {row['variant']:12s} {row['function']:18s} {size['mean']:6.2f} "
        f"{size['ratio']:.3f} ±{size['error']:.3f}   {row['weighted']['ratio']:.3f} "
        f"{row['plain']['ratio']:.3f}   {text}  {row['z']:5.1f} {row['largest_z']:4.1f}  "
        f"{' '.join(row.get('chosen', []))}",
        flush=True,
    )


CASE_HEAD = (
    "case               function           paper ESS  / best      weighted plain    hit95  / best"
    "       z  max|z| chosen"
)


def cases(options):
    print(CASE_HEAD)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    return [
        r for c in options.cases for r in case_rows(c, "periodic", options.learned, seeds, options)
    ]


def variants(options):
    print(CASE_HEAD)
    seeds = range(FIRST_SEED + 100, FIRST_SEED + 100 + max(1, options.seeds // 2))
    return [
        row
        for case in (3, 4)
        for variant in ("free", "random signs")
        for row in case_rows(case, variant, ["learned"], seeds, options)
    ]


# --------------------------------------------------------------------------------- other targets


def glasses(options):
    return compare_all([glass(k) for k in range(options.glasses)], options, ess=3000)


def tied(options):
    families = {
        "dimers, fields of sd 1": lambda s: dimers(s),
        "dimers, fields of sd 0.5": lambda s: dimers(s, 0.5),
        "pairs, fields on pairs": lambda s: tied_pairs(s),
        "pairs, fields everywhere": lambda s: tied_pairs(s, 1.0),
    }
    targets = [
        (f"{label} #{s}", make(FIRST_SEED + s))
        for label, make in families.items()
        for s in range(options.instances)
    ]
    rows = compare_all(targets, options, ess=6000)
    for label in families:
        print(label)
        print_ratios([row for row in rows if row["label"].startswith(f"{label} #")])
    return rows


def networks(options):
    """Networks of the UAI competitions, with their evidence, and a machine trained on digits."""
    targets = [("RBM of digits, 64-24", trained_rbm())]
    for name in NETWORKS if options.data else ():
        path = next(options.data.rglob(f"{name}.uai"))
        evidence = [path.with_suffix(".uai.evid"), path.with_suffix(".synthetic.evid")]
        given = next((file for file in evidence if file.exists()), None)
        targets.append((name, MarkovNetwork.from_uai(path, given)))
    return compare_all(targets, options, ess=3000)


def trained_rbm():
    from sklearn.datasets import load_digits
    from sklearn.neural_network import BernoulliRBM

    images = load_digits().data > 7
    machine = BernoulliRBM(24, learning_rate=0.02, n_iter=40, random_state=0).fit(images)
    return RBM.from_sklearn(machine)


def potts_lattices(options):
    targets = [(f"Potts k={k} #{s}", potts(FIRST_SEED + s, k)) for k in (3, 5) for s in range(2)]
    return compare_all(targets, options, ess=4000)


# ----------------------------------------------------------------------------------------- costs


def timed_fit(target, balancing, **settings):
    """Seconds of a fit, in all and by phase, and the sampler."""
    seconds = {}

    def stopwatch(name, module):
        function = getattr(module, name)

        def timed(*args, **kwargs):
            began = time.perf_counter()
            result = function(*args, **kwargs)
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
            return result

        return mock.patch.object(module, name, timed)

    with ExitStack() as stack:
        stack.enter_context(stopwatch("burn_in", sklsb.samplers.lsb))
        for name in ("fit_flux", "compare"):
            stack.enter_context(stopwatch(name, sklsb.samplers._lsb.choosing))
        sampler, seconds["fit"] = fitted(target, FIRST_SEED, balancing, **settings)
    return seconds, sampler


def costs(options):
    """What the fit of case 3 with 30 chains spends its time on."""
    target = paper_case(3, FIRST_SEED)
    settings = {"n_chains": options.chains, "n_burn_in": 2000}
    fitted(target, 0, "learned", **settings)  # compiles
    rows = []
    print("seconds     fit  moving learning mixing  pilot; an update / a step")
    plain = min(timed_fit(target, "barker", **settings)[0]["burn_in"] for _ in range(3))
    for name, balancing in LEARNED.items():
        seconds, sampler = min(
            (timed_fit(target, balancing, **settings) for _ in range(2)), key=lambda t: t[0]["fit"]
        )
        updates = sampler.history_.sizes["iteration"]
        learning = seconds["burn_in"] - plain
        both = (learning + seconds["fit_flux"]) / updates / (plain / 2000)
        counts = {k: v for k, v in sampler.history_.attrs.items() if k.endswith("evaluations")}
        row = {
            "function": name,
            "d": target.n_sites,
            "seconds": seconds | {"moving": plain, "learning": learning},
            "update_per_step": both,
            "updates": updates,
            "flux_evaluations": sampler.history_.sizes["evaluation"],
            "log_ratios": counts,
        }
        rows.append(row)
        shares = ", ".join(f"{k[:-12]} {v / sum(counts.values()):.2f}" for k, v in counts.items())
        print(
            f"{name:8s} {seconds['fit']:6.2f} {plain:7.2f} {learning:8.2f} "
            f"{seconds['fit_flux']:6.2f} {seconds['compare']:6.2f}; {both:.1f}; log-ratios: {shares}",
            flush=True,
        )
    return rows


def dense(options):
    """Sampled neighbours against all of them: time to fit, and the functions that are found."""
    rows = []
    unlimited = {"UPDATE_COST": 1 << 60, "FLUX_COST": 1 << 60, "MOST_STATES": 64}
    for n in (500,) if options.quick else (500, 1000):
        rng = np.random.default_rng([FIRST_SEED, 6, n])
        target = sherrington_kirkpatrick(rng, n, 0.5, 0.5)
        samplers, seconds = {}, {}
        for name, limits in {"sampled": {}, "all": unlimited}.items():
            with ExitStack() as stack:
                for limit, value in limits.items():
                    stack.enter_context(mock.patch.object(sklsb.balancing.learning, limit, value))
                seconds[name], samplers[name] = timed_fit(target, "learned", pilot=False)
        state = samplers["sampled"].state_
        functions = {k: s.balancing_ for k, s in samplers.items()}
        functions |= {name: name for name in ("barker", "sqrt")}
        thin, tau = max(1, n // 8), 3 * n
        n_draws = round(600 / options.shorter * tau / (4 * thin))
        runs = {
            name: fixed_run(target, function, state, n_draws, thin, [n, k])
            for k, (name, function) in enumerate(functions.items())
        }
        times = mean_times(runs, target.values, thin)["weighted"]
        row = {
            "d": n,
            "seconds": seconds,
            "tau": {name: float(both.mean()) for name, both in times.items()},
            "ratio": float(times["all"].mean() / times["sampled"].mean()),
            "noise": float(np.hypot(*(half_difference(times, k) for k in ("all", "sampled")))),
            "even_parts": {k: s.balancing_.even_part(PLACES).tolist() for k, s in samplers.items()},
            "burn_in_even_parts": {
                k: s.burn_in_balancing_.even_part(PLACES).tolist() for k, s in samplers.items()
            },
        }
        rows.append(row)
        print(
            f"SK d={n}: ESS sampled / all {row['ratio']:.3f} ±{row['noise']:.3f}; tau "
            + ", ".join(f"{k} {v:.0f}" for k, v in row["tau"].items())
            + f"; seconds {seconds['sampled']['fit']:.1f} against {seconds['all']['fit']:.1f}",
            flush=True,
        )
    return rows


# ---------------------------------------------------------------------------------------- figure


def draw(parts, path):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    draw_cases(axes[0, 0], parts.get("cases", []), "paper_ess", "paper ESS / best fixed")
    draw_cases(axes[0, 1], parts.get("cases", []), "hit95", "hit95 / best fixed")
    draw_ratios(axes[1, 0], parts)
    draw_even_parts(axes[1, 1], parts)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_cases(ax, rows, key, title):
    names = list(dict.fromkeys(r["function"] for r in rows if key in r))
    names = [name for name in names if name not in FIXED]
    for k, name in enumerate(names):
        own = [r for r in rows if r["function"] == name and key in r]
        x = [r["case"] + 0.8 * ((k + 0.5) / len(names) - 0.5) for r in own]
        error = [r[key]["error"] for r in own]
        ax.errorbar(x, [r[key]["ratio"] for r in own], error, fmt="o", ms=4, label=name)
    ax.axhline(1.0, color="0.5", lw=1)
    ticks = sorted({r["case"] for r in rows})
    ax.set(title=title, xticks=ticks, xticklabels=[f"case {case}" for case in ticks])
    if names:
        ax.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.12))


def draw_ratios(ax, parts):
    for part, marker in (("glasses", "."), ("tied", "s"), ("potts", "^")):
        for criterion, color in (("weighted", "C0"), ("plain", "C1")):
            values = sorted(r[criterion] for r in parts.get(part, []))
            x = np.linspace(0, 1, len(values))
            ax.plot(x, values, marker, color=color, ms=5, mfc="none", label=f"{part}, {criterion}")
    ax.axhline(1.0, color="0.5", lw=1)
    ax.set(
        title="ESS per step, learned / best fixed", xlabel="share of the instances", yscale="log"
    )
    ticks = [0.9, 1.0, 1.2, 1.5, 2.0, 3.0]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.legend(fontsize=7)


def draw_even_parts(ax, parts):
    def line(values, *style, **settings):
        ax.plot(PLACES, np.subtract(values, values[0]), *style, **settings)

    for name, function in FIXED.items():
        line(function().even_part(PLACES), color="0.7", lw=1)
        ax.annotate(name, (3, np.diff(function().even_part([0.0, 3.0]))[0]), fontsize=7)
    for k, case in enumerate((3, 4)):
        for row in parts.get("cases", []):
            if (row["case"], row["function"]) == (case, "learned"):
                line(row["burn_in_even_part"][0], f"C{k}--", label=f"case {case}, burn-in")
                line(row["even_part"][0], f"C{k}-", label=f"case {case}, sampling")
    for k, prefix in enumerate(("dimers", "pairs")):
        own = [r for r in parts.get("tied", []) if r["label"].startswith(prefix)]
        if own:
            line(own[0]["even_part"], f"C{k + 2}-", label=own[0]["label"])
    ax.set(title="even part, h(|u|) - h(0)", xlabel="|u| = |log t|", xlim=(0, 12), ylim=(-6, 6))
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=7, loc="lower left")


PARTS = {
    "tied": tied,
    "cases": cases,
    "glasses": glasses,
    "costs": costs,
    "dense": dense,
    "potts": potts_lattices,
    "networks": networks,
    "variants": variants,
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="shorter runs, fewer targets")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--cases", type=int, nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument(
        "--learned", nargs="+", choices=LEARNED, default=list(LEARNED), help="in cases"
    )
    parser.add_argument("--chains", type=int, default=30)
    parser.add_argument("--draws", type=int, default=30_000)
    parser.add_argument("--windows", type=int, default=1, help="paper ESS is the mean over so many")
    parser.add_argument("--starts", type=int, default=2, help="starts per seed for hit95")
    parser.add_argument("--glasses", type=int, default=30)
    parser.add_argument("--instances", type=int, default=3, help="of each kind, in tied")
    parser.add_argument("--data", type=Path, help="folder of UAI files, for networks")
    parser.add_argument("--json", type=Path, default=Path("learning.json"))
    parser.add_argument("--figure", type=Path, default=Path("learning.png"))
    options = parser.parse_args()
    options.shorter = 4 if options.quick else 1
    if options.quick:
        options.seeds, options.draws = min(options.seeds, 2), options.draws // 3
        options.windows, options.glasses, options.starts = 1, min(options.glasses, 5), 1
    return options


def main():
    options = arguments()
    warnings.simplefilter("ignore", SamplerWarning)
    parts = json.loads(options.json.read_text())["parts"] if options.json.exists() else {}
    for name in options.only:
        began = time.perf_counter()
        print(f"--- {name}")
        parts[name] = PARTS[name](options)
        print(f"{time.perf_counter() - began:.0f} s")
        options.json.write_text(json.dumps({"first_seed": FIRST_SEED, "parts": parts}, indent=1))
    draw(parts, options.figure)


if __name__ == "__main__":
    main()
