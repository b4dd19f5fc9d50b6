"""What physicists ask of draws at all temperatures, with standard errors by the jackknife."""

import math
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sklsb._system.warn import warn
from sklsb._words import worded
from sklsb.diagnostics.draws import as_draws
from sklsb.diagnostics.expectation import Expectation, expectation, values_of
from sklsb.exceptions import ModelWarning
from sklsb.targets._checks import integer, positive


@worded
def specific_heat(draws: xr.Dataset, *, betas: ArrayLike | None = None) -> xr.Dataset:
    r"""Specific heat of each site by temperature.

    .. math:: c(\beta) = \frac{\beta^2}{N}\,
              \left(\langle (\log p)^2 \rangle_\beta - \langle \log p \rangle_\beta^2\right)

    Parameters
    ----------
    draws : xarray.Dataset
        From ``ParallelTempering.sample(n, temperatures="all")``, states or statistics. Draws of any
        sampler are taken to be at beta = 1.
    betas : array_like, optional
        Inverse temperatures between, as in `expectation`; by default those of the draws.

    Returns
    -------
    xarray.Dataset
        ``specific_heat`` and its standard error ``mcse``, of the dimension ``beta``.

    Raises
    ------
    ValueError, TypeError
        As `expectation`, or if draws do not say how many variables there are.

    See Also
    --------
    expectation : of any function; of None, the mean of log p, minus the energy at beta = 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, ParallelTempering
    >>> from sklsb.diagnostics import specific_heat
    >>> ring = Ising.lattice(np.zeros(12), coupling=1.0)
    >>> sampler = ParallelTempering(betas=[0.4, 0.7], random_state=0).fit(ring)
    >>> found = specific_heat(sampler.sample(2000, temperatures="all")).sel(beta=[0.4, 0.7])
    >>> exact = found.beta**2 / np.cosh(found.beta) ** 2  # of an infinite ring
    >>> bool((abs(found.specific_heat - exact) < 4 * found.mcse + 1e-3).all())
    True
    """
    draws = _checked(draws)
    found = expectation(draws, of="variance", betas=betas)
    return _labelled("specific_heat", draws, found, betas, 2)


@worded
def susceptibility(
    draws: xr.Dataset,
    function: Any = "sum",
    *,
    absolute: bool = False,
    temperature: float = 1.0,
    betas: ArrayLike | None = None,
) -> xr.Dataset:
    r"""Susceptibility of each site by temperature.

    .. math:: \chi(\beta) = \frac{\beta}{N T}\,\left(\langle M^2 \rangle_\beta
              - \langle M \rangle_\beta^2\right)

    Parameters
    ----------
    draws : xarray.Dataset
        As in `specific_heat`.
    function : str or callable, default="sum"
        M of each state: "sum", the name of a recorded statistic, or a function, as in
        `expectation`. It counts the whole system, not each site.
    absolute : bool, default=False
        Whether M is replaced by its absolute value. Without a field the mean of M is 0, and below
        the critical temperature of a lattice only the fluctuations of :math:`|M|` stay finite.
    temperature : float, default=1.0
        T, the temperature at beta = 1, by which energies were divided to make the target.
    betas : array_like, optional
        As in `specific_heat`.

    Returns
    -------
    xarray.Dataset
        ``susceptibility`` and its standard error ``mcse``, of the dimension ``beta``.

    Raises
    ------
    ValueError, TypeError
        As in `specific_heat`.

    Warns
    -----
    ModelWarning
        If a recorded statistic looks like a mean over many variables.
    """
    draws, temperature = _checked(draws), positive(temperature, "temperature")
    if isinstance(function, str) and function in draws.variables:
        _tell_if_per_site(draws, function)
    if absolute:
        draws = draws.assign({"absolute": (_dims(draws), np.abs(values_of(draws, function)))})
        function = "absolute"
    found = expectation(draws, function, of="variance", betas=betas)
    return _labelled("susceptibility", draws, found, betas, 1) / temperature


@worded
def binder(
    draws: xr.Dataset, function: Any = "sum", *, betas: ArrayLike | None = None
) -> xr.Dataset:
    r"""Binder's ratio by temperature, which systems of all sizes share at a critical point.

    .. math:: U(\beta) = 1 - \frac{\langle M^4 \rangle_\beta}{3 \langle M^2 \rangle_\beta^2}

    Parameters
    ----------
    draws : xarray.Dataset
        As in `specific_heat`; of a glass, what `overlaps` returned, with function "q". Over samples
        of a glass average the moments, not the ratios.
    function : str or callable, default="sum"
        As in `susceptibility`.
    betas : array_like, optional
        As in `specific_heat`.

    Returns
    -------
    xarray.Dataset
        ``binder`` and its standard error ``mcse``, of the dimension ``beta``.

    Raises
    ------
    ValueError, TypeError
        As `expectation`.
    """
    draws = _checked(draws)
    found = expectation(draws, function, of="binder", betas=betas)
    return _labelled("binder", draws, found, betas, None)


@worded
def overlaps(draws: xr.Dataset, *, bins: int = 20) -> xr.Dataset:
    r"""Overlaps of independent chains at the same temperature, and their distribution.

    .. math:: q = \frac{1}{N} \sum_i x_i x'_i \quad\text{for spins, else}\quad
              q = \frac{1}{N} \sum_i [x_i = x'_i]

    Parameters
    ----------
    draws : xarray.Dataset
        States of at least two chains, as in `specific_heat`. The first is compared with the second,
        the third with the fourth, and so on, so that pairs are independent.
    bins : int, default=20
        About as many bins, each of the same number of the N + 1 values that q can take, and as many
        below the middle one as above.

    Returns
    -------
    xarray.Dataset
        ``q`` of the dimensions chain (the pair), draw and beta, for `expectation` and `binder`, and
        ``lp``, the sum of log p of the pair, by which these reweight; the density ``p`` of the
        dimensions beta and bin, with its standard error ``mcse``, and ``bin``, the middle of each.
        Errors are by batches: of 200 draws of one pair they were 10 to 20%
        too small.

    Raises
    ------
    ValueError
        If there are no states of two chains, or bins is not a positive integer.

    Examples
    --------
    The susceptibility of a spin glass, :math:`N \langle q^2 \rangle`:

    >>> import numpy as np
    >>> from sklsb import GibbsSampler, Ising
    >>> from sklsb.diagnostics import expectation, overlaps
    >>> glass = Ising.lattice(np.zeros((4, 4)), np.random.default_rng(0).normal(size=(2, 4, 4)))
    >>> found = overlaps(GibbsSampler(random_state=0).fit(glass).sample(1000))
    >>> chi = 16 * expectation(found.assign(q2=found["q"] ** 2), "q2").value
    """
    draws, bins = _checked(draws), integer(bins, "bins", 1, 1 << 16)
    x = draws["x"].values if "x" in draws else np.empty((0, 0))
    if len(x) < 2:
        raise ValueError(
            f"draws has the sizes {dict(draws.sizes)}; give the states x of at least two chains."
        )
    lead = _dims(draws)
    x = x.reshape(*x.shape[: len(lead)], -1)
    n = len(x) // 2 * 2
    spins = bool(np.isin(x, (-1, 1)).all())
    size = x.shape[-1]
    equal = (x[:n:2] == x[1:n:2]).sum(axis=-1)
    q = (1.0 + spins) * equal / size - spins
    # Edges lie between values; where their number is no multiple, bins go on beyond both ends.
    width = -(-(size + 1) // bins)
    width += width % 2 == 0 and size % 2 == 0
    bins = -(-(size + 1) // width)
    bins += (bins * width - size - 1) % 2
    first = -((bins * width - size - 1) // 2)
    edges = (1.0 + spins) * (first - 0.5 + width * np.arange(bins + 1)) / size - spins
    place = (equal - first) // width
    kept = {name: draws[name].values for name in lead[1:]}
    found = xr.Dataset({"q": (lead, q)}, {"chain": np.arange(n // 2), **kept})
    if "lp" in draws:
        lp = draws["lp"].transpose(*lead).values
        found = found.assign_coords(lp=(lead, lp[:n:2] + lp[1:n:2]))
    within = found.assign(p=((*lead, "bin"), place[..., np.newaxis] == np.arange(bins)))
    density = [part / np.diff(edges) for part in expectation(within, "p")]
    dims = (*lead[2:], "bin")
    return found.assign(
        p=(dims, density[0]), mcse=(dims, density[1]), bin=0.5 * (edges[1:] + edges[:-1])
    )


def _checked(draws: Any) -> xr.Dataset:
    if not isinstance(draws, xr.Dataset):
        raise TypeError(
            f"draws is of type {type(draws).__name__}; give what sample returned, as "
            'sample(n, temperatures="all").'
        )
    return as_draws(draws)


def _tell_if_per_site(draws: xr.Dataset, name: str) -> None:
    values, n_sites = draws[name].values, draws.attrs.get("n_sites", 0)
    if n_sites > 20 and (abs(values) <= 1).all() and (values != np.round(values)).any():
        warn(
            f"{name!r} is between -1 and 1 in all draws of {n_sites} variables. susceptibility "
            f"wants a sum over them; if this is a mean, multiply by {n_sites}**2.",
            ModelWarning,
        )


def _dims(draws: xr.Dataset) -> tuple[str, ...]:
    return ("chain", "draw", "beta") if "beta" in draws.dims else ("chain", "draw")


def _labelled(
    name: str, draws: xr.Dataset, found: Expectation, betas: Any, power: int | None
) -> xr.Dataset:
    """Return a statistic and its error by temperature, times beta^power / n_sites."""
    beta = draws["beta"].values if betas is None and "beta" in draws.coords else betas
    beta = np.ones(1) if beta is None else np.atleast_1d(np.asarray(beta, dtype=np.float64))
    scale: Any = 1.0
    if power is not None:
        n_sites = draws.attrs.get("n_sites")
        if n_sites is None and "x" in draws:
            n_sites = math.prod(as_draws(draws)["x"].shape[len(_dims(draws)) :])
        if not n_sites:
            raise ValueError(
                f"draws has {sorted(map(str, draws.variables))} and no attribute n_sites; give "
                'states, or what sample(n, temperatures="all") returned. Of overlaps, '
                "n_sites * <q^2> is the susceptibility of a glass: help(overlaps) has it."
            )
        scale = beta**power / n_sites
    value, error = map(np.atleast_1d, found)
    if value.shape != beta.shape:
        raise ValueError(
            f"function gave {value.size} numbers of the draws at {beta.size} temperatures; give "
            "one that returns a number for each state, and for arrays use expectation."
        )
    value, error = value * scale, error * scale
    return xr.Dataset({name: ("beta", value), "mcse": ("beta", error)}, {"beta": beta})
