"""Errors planted in the trials: factors, candidates, prices, scouts, where blocks are redrawn."""

from types import SimpleNamespace

import numpy as np
import pytest
from planted import Mutant, both_tests, inside


def small(package):
    """Three spins in a row, in a field, at all states."""
    target = package.Ising([[0, 0.9, 0], [0.9, 0, -0.6], [0, -0.6, 0]], [0.4, -0.3, 0.1])
    x = package.exact.states(target)
    seen = inside(package, "trials.candidates").Visited(target, x, target.log_ratios(x))
    return target, seen


def check_factors(package):
    """No other factors have a smaller bound of the variances, times the number of jumps."""
    _, seen = small(package)
    table = package.balancing.Barker().table()
    odds = np.exp(seen.ratios)
    weights = odds / (1.0 + odds)
    flow = (2.0 / (1.0 + odds) * weights).mean(axis=0)
    p = (1.0 / (1.0 + odds), odds / (1.0 + odds))
    values = np.where(seen.states > 0, *p), np.where(seen.states > 0, *p[::-1])
    variance = 1.0 - sum(one.mean(axis=0) ** 2 for one in values)

    def bound(factors):
        return (variance / (factors * flow)).sum() * (factors * weights.mean(axis=0)).sum()

    best = inside(package, "trials.factors").flux_factors(seen, table)
    rng = np.random.default_rng(0)
    others = [best * np.exp(0.1 * rng.normal(size=3)) for _ in range(20)]
    assert min(map(bound, others)) > bound(best), "factors are the best by flow"


def check_times_of_jumps(package):
    _, seen = small(package)
    weights = 1.0 / (1.0 + np.exp(-seen.ratios))
    plain = inside(package, "trials.candidates").Candidate(package.balancing.Barker(), True)
    time = np.exp(plain.timed(seen).log_time)
    assert np.isclose(time * np.median(weights.sum(axis=1)), 4.0, rtol=0.01), "four jumps"


def check_prices(package):
    prices = inside(package, "trials.prices")
    price = prices.Price(10.0, 2.0, 3.0)
    assert price.work(5, 7, 4.0) == 5 * 10.0 + 7 * (2.0 + 3.0 * 4.0), "work is as its formula says"
    assert prices.neighbours(small(package)[0]) == 4 / 3, "neighbours, on average"


def check_scouts(package):
    target, seen = small(package)
    scouts = inside(package, "trials.scouts")
    p = package.exact.probabilities(target).ravel()
    rng = np.random.default_rng(0)
    y = seen.states[rng.choice(len(p), size=(4, 128), p=p)]
    exact = y.reshape(-1, 3), target.log_prob(y).ravel()
    assert not scouts._differ(target, (y[::-1], target.log_prob(y[::-1])), exact), "alike"
    up = np.ones_like(y)
    found = scouts._differ(target, (up, target.log_prob(up)), exact)
    assert "with exact draws" in found, "scouts in one mode are found out"


def check_draws(package):
    """Draws 3 apart are the same in parts of 4 transitions."""
    draws = inside(package, "trials.draws")
    settings = {"n_chains": 2, "n_burn_in": 5, "init": "uniform", "random_state": 0}
    sampler = package.GibbsSampler("random", **settings).fit(small(package)[0])
    chains = [sampler.run_.ensemble.copy() for _ in range(2)]
    wanted = draws.draw(chains[0], 6, 3)
    with pytest.MonkeyPatch.context() as patch:
        segments = inside(package, "ensembles.base")
        patch.setattr(segments, "MOST_NUMBERS", 4 * sampler.run_.ensemble.n_numbers)
        found = draws.draw(chains[1], 6, 3)
    assert np.array_equal(found[0], wanted[0]), "states in parts"
    assert np.array_equal(found[1], wanted[1], equal_nan=True), "lp in parts"


def check_blocks(package):
    parity = np.zeros((2, 2, 2))
    parity.flat[[0, 3, 5, 6]] = 1.0
    target = package.MarkovNetwork([2, 2, 2], [((0, 1, 2), parity)])
    redraws = inside(package, "samplers._lsb.redraws")
    ensemble = SimpleNamespace(chains=SimpleNamespace(evaluations=np.zeros(1)))
    assert redraws._why(target, ensemble, "auto", 100)[0], "zeros that tie variables need blocks"


MUTANTS = {
    "factors that undo what the flow needs": Mutant(
        "trials/factors.py",
        "variance[moving] / (flow[moving] * rate[moving])",
        "rate[moving] * flow[moving] / variance[moving]",
        check_factors,
        "best by flow",
    ),
    "the time of jumps at the rate instead of its inverse": Mutant(
        "trials/candidates.py",
        "math.log(n) - log_typical_rate(",
        "math.log(n) + log_typical_rate(",
        check_times_of_jumps,
        "four jumps",
    ),
    "evaluations that cost the same with many neighbours": Mutant(
        "trials/prices.py",
        "self.of_evaluation + self.of_neighbour * k",
        "self.of_evaluation + self.of_neighbour",
        check_prices,
        "formula",
    ),
    "scouts in one mode that are never found out": Mutant(
        "trials/scouts.py",
        "if p[worst] * (1 + int(target.cardinalities.sum())) >= _CHANCE:",
        "if p[worst] * (1 + int(target.cardinalities.sum())) >= 0.0:",
        check_scouts,
        "one mode",
    ),
    "all parts of draws in one place": Mutant(
        "ensembles/base.py",
        "return slice(self.drawing.at - self.lp.shape[1], self.drawing.at)",
        "return slice(0, self.lp.shape[1])",
        check_draws,
        "in parts",
    ),
    "transitions before a segment not counted": Mutant(
        "ensembles/base.py",
        "here, drawing = slice(at, at + number), drawing.after(size)",
        "here, drawing = slice(at, at + number), drawing._replace(at=drawing.at + number)",
        check_draws,
        "in parts",
    ),
    "zeros that tie variables not seen": Mutant(
        "samplers/_lsb/redraws.py",
        'return True, "zeros of tables',
        'return False, "zeros of tables',
        check_blocks,
        "need blocks",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)
