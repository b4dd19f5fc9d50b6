"""Annealed importance sampling: log Z by independent runs from a reference to the target."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sklsb._kernels.rules.layers import Layers
from sklsb._kernels.tempering import anneal as kernels
from sklsb._system.arrays import Array
from sklsb._system.memory import at_once
from sklsb._system.warn import warn
from sklsb._words import worded
from sklsb.diagnostics.batches import jackknife_error
from sklsb.diagnostics.draws import evenly, flat_states
from sklsb.ensembles.base import MOST_NUMBERS
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.streams import Streams, seed_sequence, spawn
from sklsb.exceptions import TemperingWarning
from sklsb.samplers._run.checks import check_count
from sklsb.samplers._tempering.explorers import explorer_of
from sklsb.samplers._tempering.paths import PathMaker, product_of
from sklsb.targets._checks import n_threads, not_a_target
from sklsb.targets.base import States, Target

# Warn if the weights are worth a smaller share of the runs, or fewer of them.
_FEWEST, _LEAST = 0.1, 3.0


class LogPartition(NamedTuple):
    """Estimates of log Z with their standard errors; the reverse ones are NaN without draws."""

    value: float
    mcse: float
    reverse: float
    reverse_mcse: float


@worded
def annealed_log_partition(
    target: Target,
    *,
    n_chains: int = 100,
    n_temperatures: int = 1000,
    reference: ArrayLike | None = None,
    draws: xr.Dataset | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> LogPartition:
    r"""Log Z by annealed importance sampling, forward and in reverse.

    Each run begins at a draw from the reference, whose Z is known, and makes a sweep at each of the
    levels :math:`p_k` of `ParallelTempering`, from beta = 0 to 1 [1]_. Its weight is

    .. math:: w = \prod_k \frac{p_{k+1}(x_k)}{p_k(x_k)}, \qquad
              \mathrm{E}\, w = \frac{Z}{Z_0}, \qquad \mathrm{E}\, \log w \le \log \frac{Z}{Z_0}

    Reverse runs go from draws of the target to the reference; the mean of their weights is
    :math:`Z_0 / Z`. Forward runs that are too few or too short give too small a log Z, reverse ones
    too large a one [2]_: where both agree, it is right.

    Parameters
    ----------
    target : Target
        Any target. A function of Python and a module of torch are evaluated at the states of all
        runs at once, as often as there are variables at each level.
    n_chains : int, default=100
        Independent runs.
    n_temperatures : int, default=1000
        Levels after the first one.
    reference : array_like of shape (n_sites, n_states), optional
        As in `ParallelTempering`, uniform by default; for a trained model the means of the data,
        mixed with a little of a uniform one.
    draws : xarray.Dataset, optional
        Draws of the target, from `sample` or `sklsb.exact.sample`: as many runs in reverse, at most
        ``n_chains``, begin at some of them. They should be independent.
    n_jobs, random_state
        As in `GibbsSampler`.

    Returns
    -------
    value, mcse, reverse, reverse_mcse : float
        As a named tuple: natural logarithms of the sum of exp(log_prob) over all states, with
        standard errors by the jackknife over runs.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Warns
    -----
    TemperingWarning
        If few of the runs, or fewer than three, have nearly all of the weight. Then errors are too
        small.

    See Also
    --------
    ParallelTempering : log Z with draws, where single runs do not find all modes.
    sklsb.exact.log_partition : exactly, by elimination.

    References
    ----------
    .. [1] R. M. Neal, "Annealed importance sampling", Statistics and Computing 11 (2001).
    .. [2] R. B. Grosse, Z. Ghahramani and R. P. Adams, "Sandwiching the marginal likelihood using
       bidirectional Monte Carlo" (2015).

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, annealed_log_partition, exact
    >>> ising = Ising.lattice(np.zeros((6, 6)), coupling=0.3)
    >>> independent = exact.sample(ising, 100, random_state=0)
    >>> found = annealed_log_partition(ising, draws=independent, random_state=0)
    >>> truth = exact.log_partition(ising)
    >>> bool(abs(found.value - truth) < 3 * found.mcse < 0.1)
    True
    >>> bool(abs(found.reverse - truth) < 3 * found.reverse_mcse < 0.1)
    True
    """
    if not isinstance(target, Target):
        raise not_a_target(target)
    n = check_count(n_chains, "n_chains", 2)
    check_count(n_temperatures, "n_temperatures", 1)
    product = None if reference is None else product_of(reference, target)
    rule = explorer_of("auto", target)[1]
    maker = PathMaker(target, rule.facts.sees_all_moves, product, isinstance(rule, Layers))
    seed, threads = seed_sequence(random_state), n_threads(n_jobs)
    log_size, beta = maker.log_size + target.constant, np.linspace(0.0, 1.0, n_temperatures + 1)

    def weights(states: States, first: int, way: int) -> Array:
        streams = Streams(spawn(seed, len(states), first))
        if target.offers.may_change:
            rng = np.random.default_rng(streams.root("coin"))
            return _in_step(target, maker, product, states, beta[::way], rng)
        return _each(Ensemble(target, states, streams, threads, rule), maker, beta, way)

    streams = Streams(spawn(seed, n))
    states = np.array([target.draw_state(rng) for rng in streams.of("start")], target.dtype)
    states = maker.drawn(states, np.random.default_rng(streams.root("start")))
    value, mcse = _log_mean(weights(states, 0, 1))
    if draws is None:
        return LogPartition(log_size + value, mcse, np.nan, np.nan)
    found = flat_states(draws, target)
    back, back_mcse = _log_mean(weights(found[evenly(len(found), n)], n, -1))
    # Runs back never see states that are possible in the reference alone.
    share = 1.0 if maker.softened else float((target.log_prob(states) > -np.inf).mean())
    reverse = log_size - back + (math.log(share) if share else -math.inf)
    of_share = math.sqrt((1.0 / share - 1.0) / n) if share else math.inf
    return LogPartition(log_size + value, mcse, reverse, math.hypot(back_mcse, of_share))


def _log_mean(log_w: Array) -> tuple[float, float]:
    """Return the logarithm of the mean weight, and its error by the jackknife."""
    n = len(log_w)
    top = log_w.max()
    w = np.exp(log_w - (top if top > -np.inf else 0.0))
    worth = w.sum() ** 2 / max((w**2).sum(), 1e-300)
    if not worth > max(_FEWEST * n, min(_LEAST, n / 2)):
        warn(
            f"The weights of {n} runs of annealing are worth {worth:.1f} equal ones: log Z may be "
            "off by more than the stated error. Give more n_temperatures, or a reference nearer "
            "to the target; or take ParallelTempering.",
            TemperingWarning,
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        without = np.log(np.maximum(w.sum() - w, 0.0) / (n - 1))
        error = jackknife_error(without)
    return float(top + np.log(w.mean())), error


def _each(ensemble: Ensemble, maker: PathMaker, beta: Array, way: int) -> Array:
    """Return the log weights of runs in the kernels, from beta = 0 to 1, or by way -1 back."""
    facts, path, levels = ensemble.rule.facts, maker.at(beta), np.arange(beta.size)[::way]
    n_steps = facts.transitions_per_sweep or ensemble.target.n_sites
    width = n_steps * facts.n_uniforms
    size, found = at_once(MOST_NUMBERS, width), np.zeros(len(ensemble))

    def work(span: tuple[int, int]) -> None:
        for c in range(*span):
            for k in range(0, beta.size - 1, size):
                part = np.ascontiguousarray(levels[k : k + size + 1])
                u = ensemble.streams.chain[c].random((part.size - 1) * width)
                given = path, ensemble.rule, ensemble.chains, c, part
                found[c] += kernels.travel(*given, n_steps, facts.n_uniforms, u)

    with ensemble.threads():
        ensemble._over_chains(work)
    return found


def _in_step(
    target: Target,
    maker: PathMaker,
    product: list[Array] | None,
    x: States,
    beta: Array,
    rng: np.random.Generator,
) -> Array:
    """Return the log weights of runs that make Metropolis steps together: one call for all."""
    n, values = len(x), np.asarray(target.values)
    free = maker.domains.free.tolist()
    possible = [np.flatnonzero(own) for own in maker.domains.possible]
    log_q = np.zeros((target.n_sites, values.size))
    if product is not None:
        for i in free:
            log_q[i, possible[i]] = np.log(product[i][possible[i]])

    def log_p(x: States) -> tuple[Array, Array]:
        places = np.searchsorted(values, x)
        return target.log_prob(x) - target.constant, log_q[np.arange(target.n_sites), places].sum(1)

    (lp, lq), log_w = log_p(x), np.zeros(n)
    for before, b in pairwise(beta.tolist()):
        log_w += np.where(lp > -np.inf, (b - before) * (lp - lq), -np.inf)
        for i in free if b > 0.0 else []:
            own = values[possible[i]]
            new = x.copy()
            move = rng.integers(1, own.size, n)
            new[:, i] = own[(np.searchsorted(own, x[:, i]) + move) % own.size]
            new_lp, new_lq = log_p(new)
            with np.errstate(invalid="ignore"):
                ratio = b * (new_lp - lp) + (1.0 - b) * (new_lq - lq)
            yes = np.log(rng.random(n)) < np.where(lp > -np.inf, ratio, 0.0)
            x = np.where(yes[:, np.newaxis], new, x)
            lp, lq = np.where(yes, new_lp, lp), np.where(yes, new_lq, lq)
    return log_w
