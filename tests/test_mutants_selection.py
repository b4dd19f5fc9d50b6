"""Errors planted in spike and slab: its kernels, its rows' weights, its errors of probabilities."""

from types import SimpleNamespace

import numpy as np
import pytest
from planted import Mutant, anew, both_tests

LINEAR, ODDS, PROCESS, POLYA_GAMMA = (
    f"_kernels/selection/{name}.py" for name in ("linear", "odds", "process", "polya_gamma")
)
LOGISTIC, AUGMENTATION, SEARCH, PROBLEM = (
    f"selection/{name}.py" for name in ("logistic", "augmentation", "search", "problem")
)
STATE = "_kernels/selection/state.py"
BASE, REGRESSOR, CLASSIFIER, MOMENTS, CHAINS, STARTS = (
    f"selection/{name}.py"
    for name in ("base", "regressor", "classifier", "moments", "chains", "starts")
)
DIFFERENT = r"\(0|\(1|Not equal|comparison failed|share|mean|square|positive|sizes"


def check_odds(package):
    tests = anew("test_selection_kernels")
    for kind, groups in (("g", "single"), ("independent", "grouped"), ("logistic", "grouped")):
        tests.check_odds(kind, groups, False)


def check_windows(package):
    tests = anew("test_selection_kernels")
    tests.check_windows("g", "single", tests.RATES[1], n_windows=200)
    tests.check_windows("independent", "grouped", tests.RATES[2], n_windows=100)


def check_both(package):
    check_odds(package)
    check_windows(package)


def check_augmentation(package):
    tests = anew("test_augmentation")
    tests.test_the_conditional_distribution_by_integration()
    X, y, m = tests.data(m=2)
    weights = tests.Augmentation(y, m)
    tests.sampled(X, y, m, weights, 250, seed=0)
    rate = weights.n_accepted / weights.n_proposed
    assert 0.5 <= rate < 1.0, "acceptance"


def check_polya_gamma(package):
    tests = anew("test_polya_gamma")
    for m, c in ((1, 0.7), (40, 0.7)):
        x = tests.draws(m, c, n=4000)
        mean, variance = tests.moments(m, c)[:2]
        assert abs(x.mean() - mean) < 5 * np.sqrt(variance / 4000), "mean"
        assert abs(x.var() / variance - 1) < 0.15, "mean"


def check_errors(package):
    anew("test_spike_slab").test_errors_of_ratios()


def check_huge_odds(package):
    tests = anew("test_spike_slab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.search_module, "MOST_UNITS", 0)
        tests.check_huge_odds(0, tol=0.02)


def check_late(package):
    tests = anew("test_spike_slab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.search_module, "MOST_UNITS", 0)
        tests.check_better_models_found_late(patch)


def check_draws(package):
    anew("test_spike_slab").test_models_sizes_and_noise()


def check_predictions(package):
    anew("test_spike_slab").test_predictions()


def check_offset(package):
    with pytest.MonkeyPatch.context() as patch:
        anew("test_spike_slab_classifier").check_offset(patch)


def check_class_weights(package):
    rows = SimpleNamespace(n_successes=np.array([1.0]), n_trials=np.array([5]))
    for given in ({1: 4.0}, "balanced"):
        model = package.SpikeSlabClassifier(class_weight=given)
        model.classes_ = np.array([0, 1])
        assert np.isclose(model._shift(rows), np.log(4.0))


def check_pictures(package):
    tests = anew("test_spike_slab_classifier")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.LogisticChain, "pace", tests.Pace(500, 4, 4, 16, 2))
        tests.check_pictures(60)


def check_full_table(package):
    with pytest.MonkeyPatch.context() as patch:
        anew("test_spike_slab").check_full_table(patch)


def check_pairs(package):
    with pytest.MonkeyPatch.context() as patch:
        anew("test_spike_slab").test_pairs_among_many_columns(patch)


MUTANTS = {
    "bars as long to the left as to the right": Mutant(
        "selection/plots.py",
        "[middle - low, high - middle]",
        "[middle - low, middle - low]",
        check_pictures,
        "Not equal to tolerance",
    ),
    # What is left of columns
    "a column that leaves with the wrong sign": Mutant(
        LINEAR,
        "window.v[m] = by / diagonal",
        "window.v[m] = -by / diagonal",
        check_odds,
        DIFFERENT,
    ),
    "rows of the Gram matrix without the ridge": Mutant(
        LINEAR,
        "    window.gram[s, m] += posterior.ridge[whole]\n",
        "",
        check_odds,
        DIFFERENT,
    ),
    "weights of the rows forgotten on the diagonal": Mutant(
        LINEAR,
        "    if columns.weight.size == 0:\n        return posterior.square[whole]\n",
        "    return posterior.square[whole]\n",
        check_odds,
        DIFFERENT,
    ),
    "a group that left, not computed anew": Mutant(
        LINEAR,
        "    if not enters and window.block.size > 0:\n"
        "        _block_anew(columns, posterior, window, unit)\n",
        "",
        check_odds,
        DIFFERENT,
    ),
    "log p of models without the determinant": Mutant(
        LINEAR,
        "    window.number[LOG_REST] = total - posterior.det_weight * window.number[LOG_DET]\n",
        "    window.number[LOG_REST] = total\n",
        check_windows,
        "gap|comparison failed",
    ),
    # Odds and rates
    "coefficients that the prior does not shrink": Mutant(
        ODDS,
        "mean = posterior.shrink * window.v[j] / window.u[j]",
        "mean = window.v[j] / window.u[j]",
        check_odds,
        DIFFERENT,
    ),
    "the prior of the size one column off": Mutant(
        ODDS,
        "up = posterior.size_term[k + 1] - posterior.size_term[k]",
        "up = posterior.size_term[k + 2] - posterior.size_term[k + 1]",
        check_odds,
        DIFFERENT,
    ),
    "the determinant of a group with the wrong sign": Mutant(
        ODDS,
        "window.rest[unit] += posterior.det_weight * log_det",
        "window.rest[unit] -= posterior.det_weight * log_det",
        check_odds,
        DIFFERENT,
    ),
    "included columns that leave untempered": Mutant(
        ODDS,
        "        o = exp(min(rates.power * window.fit[unit] + window.rest[unit], _LARGEST))\n"
        "        window.rate[unit]",
        "        o = exp(min(window.fit[unit] + window.rest[unit], _LARGEST))\n"
        "        window.rate[unit]",
        check_odds,
        DIFFERENT,
    ),
    "huge odds cut, whatever their ratios": Mutant(
        ODDS, "        _keep_ratios(rates, window)\n", "", check_huge_odds, "inclusion_mcse_"
    ),
    "weights cut at the best model seen before": Mutant(
        SEARCH,
        "                return self.run(replace(plan, rates=rates), tol, end)\n",
        "                pass\n",
        check_late,
        "inclusion_mcse_",
    ),
    # The process
    "a number of jumps instead of a time": Mutant(
        PROCESS,
        "        if left <= 0.0:\n            break",
        "        left = 1e3\n        if jumps >= 8:\n            break",
        check_windows,
        DIFFERENT,
    ),
    "every state for the same time": Mutant(
        PROCESS,
        "            mean_time = -math.expm1(-total * left) / total",
        "            mean_time = min(left, 0.3)",
        check_windows,
        DIFFERENT,
    ),
    "weights of the wrong power": Mutant(
        PROCESS,
        "log_weight = (1.0 - rates.power) * fit - rates.shift",
        "log_weight = rates.power * 0.2 * fit - rates.shift",
        check_windows,
        DIFFERENT,
    ),
    "squares without the variance": Mutant(
        PROCESS,
        "            part, mean = weight * window.share[window.unit_of[j]], window.mean[j]\n"
        "            window.sum_mean[j] += part * mean\n"
        "            window.sum_square[j] += part * (mean * mean + posterior.spread * "
        "window.variance[j])",
        "            part, mean = weight * window.share[window.unit_of[j]], window.mean[j]\n"
        "            window.sum_mean[j] += part * mean\n"
        "            window.sum_square[j] += part * mean * mean",
        check_windows,
        "square",
    ),
    "signs turned round": Mutant(
        PROCESS,
        "positive = positive if z > 0.0 else 1.0 - positive",
        "positive = positive if z < 0.0 else 1.0 - positive",
        check_windows,
        "positive",
    ),
    "a hash that forgets flips": Mutant(
        PROCESS,
        "        window.word[1] ^= _code(window.unit[unit])\n        flip(",
        "        flip(",
        check_windows,
        "assert",
    ),
    # The logistic posterior
    "a group that pays for one column": Mutant(
        LOGISTIC,
        "logit(inclusion.chance) - widths * np.log(slab_sd)",
        "logit(inclusion.chance) - np.log(slab_sd)",
        check_odds,
        DIFFERENT,
    ),
    "successes not counted from their middle": Mutant(
        LOGISTIC,
        "z=whole @ (rows.n_successes - 0.5 * rows.n_trials)",
        "z=whole @ (rows.n_successes - 0.4 * rows.n_trials)",
        check_odds,
        DIFFERENT,
    ),
    "the g prior without its price": Mutant(
        PROBLEM,
        "log_odds -= 0.5 * np.diff(first) * math.log1p(prior.g)",
        "log_odds -= 0.4 * np.diff(first) * math.log1p(prior.g)",
        check_odds,
        DIFFERENT,
    ),
    # Weights of the rows
    "new weights that are always accepted": Mutant(
        AUGMENTATION,
        "        if np.log1p(-rng.random()) < r:\n",
        "        if rng.random() < 2.0:\n",
        check_augmentation,
        "acceptance",
    ),
    "half a determinant missing": Mutant(
        AUGMENTATION,
        "- float(np.log(np.diag(root)).sum())",
        "- 0.5 * float(np.log(np.diag(root)).sum())",
        check_augmentation,
        "comparison failed|assert",
    ),
    "a tail that begins at zero": Mutant(
        POLYA_GAMMA,
        "            x = _CUT + x / rate\n",
        "            x = x / rate\n",
        check_polya_gamma,
        "mean",
    ),
    "no remainder of the sum": Mutant(
        POLYA_GAMMA,
        "    result = m * shift + scale * x\n",
        "    result = 0.0\n",
        check_polya_gamma,
        "mean",
    ),
    "the rest of log p kept where its determinant is": Mutant(
        STATE,
        "LOG_DET, EXPLAINED, LOG_FIT, LOG_REST = range(4)",
        "LOG_DET, EXPLAINED, LOG_FIT, LOG_REST = 0, 1, 2, 0",
        check_windows,
        "gap|comparison failed",
    ),
    # Chains, and where they start
    "a full table that keeps the models with least time": Mutant(
        CHAINS,
        "np.argsort(-models.time, kind=",
        "np.argsort(models.time, kind=",
        check_full_table,
        "the best model is lost|comparison failed",
    ),
    "pairs judged as if their columns were independent": Mutant(
        STARTS,
        " / np.maximum(1.0 - r**2, 1e-6)",
        "",
        check_pairs,
        "1400",
    ),
    # Results
    "standard deviations about zero": Mutant(
        BASE,
        "self.coef_sd_[free] = np.sqrt(np.maximum(square - mean**2, 0.0)) * unit",
        "self.coef_sd_[free] = np.sqrt(square) * unit",
        check_draws,
        "comparison failed",
    ),
    "noise without the uncertainty of its variance": Mutant(
        REGRESSOR,
        "ratio / math.sqrt(2.0))",
        "ratio / 2.0)",
        check_draws,
        "comparison failed",
    ),
    "new measurements without noise": Mutant(
        REGRESSOR,
        "np.sqrt(variance + noise)",
        "np.sqrt(variance)",
        check_predictions,
        "comparison failed",
    ),
    "rows of which the intercept is not taken off": Mutant(
        MOMENTS,
        "as_dense(x[:, state.columns]) - h @ flat.by_x[:, state.columns]",
        "as_dense(x[:, state.columns])",
        check_predictions,
        "comparison failed",
    ),
    "draws about the centre of the columns": Mutant(
        CLASSIFIER,
        "(intercept - coef @ centre + shift, coef, len(chains))",
        "(intercept + shift, coef, len(chains))",
        check_offset,
        "moved",
    ),
    "weights of the other class": Mutant(
        CLASSIFIER,
        "float(np.log(second) - np.log(first))",
        "float(np.log(first) - np.log(second))",
        check_class_weights,
        ".",
    ),
    # Errors of probabilities
    "batches taken for independent": Mutant(
        SEARCH,
        "(gamma + 2.0 * np.maximum(lag, 0.0))",
        "gamma",
        check_errors,
        "too small",
    ),
    "chains that differ, not told": Mutant(
        SEARCH,
        "disagree = (chance * ratio.size < CHANCE) & (c > 1)",
        "disagree = (chance * ratio.size < 0.0) & (c > 1)",
        check_errors,
        "untold",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)
