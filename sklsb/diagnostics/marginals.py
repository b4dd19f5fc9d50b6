"""The probability of each value of each variable, with its Monte Carlo error."""

import numpy as np
import scipy.sparse as sp
import xarray as xr

from sklsb._system.arrays import Array, Bools, Ints
from sklsb.diagnostics.batches import error_of, time_by_visits
from sklsb.diagnostics.draws import check_order, marginals_dataset, states_of
from sklsb.diagnostics.measures import BLOCK, ess_of_means
from sklsb.targets.base import Target

# A marginal is wrong if it is off by more than this, and by more than so many standard errors.
LEAST_OFF, MOST_ERRORS = 0.01, 5.0
# Fewest draws that may be worth an independent one: ArviZ takes no ESS above n log10(n).
_FEWEST_WORTH = 0.1


def marginals(draws: xr.Dataset, target: Target) -> xr.Dataset:
    r"""Probability of each value of each variable, with its Monte Carlo standard error.

    .. math:: \hat p = \frac{1}{n} \sum_t [x_i^{(t)} = s], \qquad
              \mathrm{mcse}^2 = \frac{1}{m} \left(\hat p (1 - \hat p) + \frac{3}{m}\right),
              \qquad m = \frac{n}{\tau}, \qquad
              \tau = \max\left(\frac{n}{\mathrm{ESS}}, \frac{2 n \hat p (1 - \hat p)}{v} - 1\right)

    for variable i and value s, over all n draws of all chains, and at most 1/2; ESS is ArviZ's.
    The *visits* v are the runs of consecutive draws that have the value, or the runs that do not,
    whichever are fewer.

    Draws of `sklsb.ParallelTempering` have the coordinate ``visit``: the same number where the same
    replica made them without returning to beta = 0 in between. For these, tau is at least

    .. math:: \tau_w = \frac{V}{V - 1} \cdot \frac{1}{n \hat p (1 - \hat p)}
              \sum_w \left(\sum_{t \in w} \left([x_i^{(t)} = s] - \hat p\right)\right)^2

    over all V such visits w, which are independent but for crossover. A replica comes and goes many
    times within one visit, so ESS does not see how long it is.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``. Marginals that it has recorded, ``record="marginals"``, are
        returned as they are.
    target : Target
        What was sampled.

    Returns
    -------
    xarray.Dataset
        ``p`` and ``mcse``, with the target's dims and ``state``, whose coordinate holds the
        target's values. If these have names, they are ``state_name``, and the coordinate holds the
        names that all variables share in the same order, or else "value 0", "value 1", ... Both are
        0 where a variable does not have the value. If all draws or none have a value, the draws
        cannot tell how far from 1 or 0 its probability is: mcse is NaN, or 0 if the variable has
        one possible value only (`Target.n_possible`), as with evidence.

    Raises
    ------
    ValueError
        If the draws do not have the dims chain, draw and the target's, or recorded marginals are of
        another target.

    Notes
    -----
    The second bound of tau is exact for a chain of two states, and matters if visits are few. So
    does the term 3 / m, which acts as three more effective draws with (or without) the value, much
    as in the intervals of Agresti and Coull [1]_. Both were chosen by simulation, so that p lies
    within 2 mcse in at least nine cases of ten if 1 to 20 visits are expected and the value was
    seen (``benchmarks/marginal_errors.py``). After hundreds of visits they add 1% or 2% to mcse,
    after thousands less.

    Modes that were not visited leave no trace. If most visits are short and a few very long, draws
    without a long one give too small an error.

    References
    ----------
    .. [1] A. Agresti and B. A. Coull, "Approximate is better than 'exact' for interval estimation
       of binomial proportions", The American Statistician 52 (1998).
    """
    check_order(draws, target)
    if "x" not in draws and "mcse" in draws:
        return _recorded(draws, target)
    return marginals_dataset(target, *marginal_arrays(draws, target))


def marginal_arrays(
    draws: xr.Dataset, target: Target, exact: Array | None = None
) -> tuple[Array, Array]:
    """Return marginals and their errors, (n_sites, n_values), of draws that hold the states.

    With ``exact`` marginals, errors that cannot make an answer wrong are set to 1/2 instead of
    being computed.
    """
    flat = states_of(draws, target)
    p = np.zeros((target.n_sites, len(target.values)))
    mcse = np.zeros_like(p)
    within = _together(draws["visit"].values) if "visit" in draws.coords else None
    pairs = target.cardinalities == 2
    for value_index, value in enumerate(target.values):
        sites = np.flatnonzero((target.cardinalities > value_index) & ~(pairs & (value_index == 1)))
        n_blocks = -(-sites.size * flat.shape[0] * flat.shape[1] // BLOCK)
        for block in np.array_split(sites, min(sites.size, n_blocks) or 1):
            hit = flat[:, :, block] == value
            unknown = target.n_possible[block] > 1
            p[block, value_index] = hit.mean(axis=(0, 1))
            truth = None if exact is None else exact[block, value_index]
            mcse[block, value_index] = _errors(hit, unknown, within, truth)
    if pairs.any():  # one value where the other is not; counted, as 1 - p would be rounded
        n = flat.shape[0] * flat.shape[1]
        p[pairs, 1], mcse[pairs, 1] = (n - np.rint(n * p[pairs, 0])) / n, mcse[pairs, 0]
    return p, mcse


def _recorded(found: xr.Dataset, target: Target) -> xr.Dataset:
    """Return marginals that `sample` has recorded, if they are of this target."""
    sizes = dict(zip((*target.dims, "state"), (*target.shape, len(target.values)), strict=True))
    if dict(found["mcse"].sizes) != sizes:
        raise ValueError(
            f"draws has marginals of {dict(found['mcse'].sizes)}; this target has {sizes}. Give "
            "the target that was sampled."
        )
    return found


def _together(visit: Array) -> sp.csr_array:
    """Return a matrix of 1 where draws, (n_chains, n_draws), are of a visit of a replica."""
    own = [np.unique(numbers, return_inverse=True)[1] for numbers in visit]
    first = np.cumsum([0, *(one.max(initial=-1) + 1 for one in own)])
    rows = np.concatenate([a + one for a, one in zip(first, own, strict=False)])
    return sp.csr_array((np.ones(visit.size), (rows, np.arange(visit.size))))


def _time_within(within: sp.csr_array, hit: Bools, p: Array) -> Array:
    """Return how many draws are worth an independent one, by sums over visits."""
    n_visits, n = within.shape
    if n_visits < 2:
        return np.full(p.shape, float(n))
    left = within @ hit.reshape(n, -1) - within.sum(axis=1)[:, np.newaxis] * p
    return n_visits / (n_visits - 1) * np.square(left).sum(axis=0) / (n * p * (1.0 - p))


def _errors(
    hit: Bools,
    unknown: Bools,
    within: sp.csr_array | None,
    exact: Array | None,
) -> Array:
    """Return errors of the means of indicators of shape (n_chains, n_draws, n_sites)."""
    p = hit.mean(axis=(0, 1))
    # What cannot change has no error; the error of what happened not to change is unknown.
    errors = np.where(unknown, np.nan, 0.0)
    moved, n = (p > 0.0) & (p < 1.0), hit.shape[0] * hit.shape[1]
    if exact is not None:
        errors[moved] = 0.5
        moved[moved] = _may_be_wrong(hit[:, :, moved], p[moved], exact[moved])
    if not moved.any():
        return errors
    hit, p = hit[:, :, moved], p[moved]
    tau = np.maximum(n / ess_of_means(hit), time_by_visits(p, n, _visits(hit)))
    if within is not None:
        tau = np.maximum(tau, _time_within(within, hit, p))
    errors[moved] = error_of(p, n / tau)
    return errors


def _may_be_wrong(hit: Bools, p: Array, exact: Array) -> Bools:
    """Whether means of indicators are wrong by the least errors that they may have.

    Errors by visits alone are no larger, and take no time.
    """
    n, off = hit.shape[0] * hit.shape[1], np.abs(p - exact)
    tau = np.maximum(time_by_visits(p, n, _visits(hit)), _FEWEST_WORTH)
    return np.asarray((off > LEAST_OFF) & (off > MOST_ERRORS * error_of(p, n / tau)))


def _visits(hit: Bools) -> Ints:
    """Count the runs of True draws, or of False ones if these are fewer."""
    before, after = hit[:, :-1], hit[:, 1:]
    inside = hit[:, 0].sum(axis=0) + (after & ~before).sum(axis=(0, 1))
    outside = (~hit[:, 0]).sum(axis=0) + (before & ~after).sum(axis=(0, 1))
    return np.minimum(inside, outside)
