"""Whether chains agree."""

import numpy as np
import xarray as xr

from sklsb.diagnostics.batches import CHANCE
from sklsb.diagnostics.draws import states_of
from sklsb.diagnostics.tally import FEWEST_DRAWS, Tally
from sklsb.targets.base import Target


def disagreement(draws: "xr.Dataset | Tally", target: Target) -> xr.Dataset:
    r"""Compare chains, and halves of chains: R-hat, ESS, and p-values of their differences.

    Each chain is split into halves. R-hat is the split R-hat of the indicators of the values, where
    ranks change nothing, and the rank-normalised split R-hat of log p [1]_. How large it may be by
    chance follows from the means of batches in the halves: with b batches in each of m halves,

    .. math:: F = \frac{\mathrm{var}(\text{means of halves})}
                      {\mathrm{var}(\text{means of batches in a half}) / b}
              \sim F_{m - 1, m (b - 1)}

    so the threshold depends on the numbers of draws, variables and independent visits.

    If the target has a `symmetry`, like an Ising model without fields, chains are also compared
    with their images: where all values are equally probable, the halves are compared with the known
    mean, with m degrees of freedom. So chains that are all in one of two opposite modes disagree,
    though they agree with each other.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, with the coordinate lp; at least 64 draws per chain that are a
        quarter of a sweep apart or more, according to the attributes ``thin`` and ``sweep``.
        Without these every draw counts, and p-values rest on the longer batches alone.
    target : Target
        What was sampled.

    Returns
    -------
    xarray.Dataset
        With the target's dims: ``r_hat``, the largest over the values of a variable; ``ess``, the
        smallest; ``p_value``, the smallest probability of such a large F in chains that agree. For
        log p: ``r_hat_lp``, ``ess_lp`` (of its mean), ``p_value_lp``. NaN for variables that never
        changed. Attributes: ``agree``, 0 if anything is lost or the smallest p_value times the
        number of values is below 0.01 / (1 + log2(n_draws / 64)), a bound that allows for repeated
        checks of a growing run, else 1; ``worst``, the variable with the smallest p_value (or
        "lp"); ``n_draws``, the draws per chain that were compared; ``lost``, for draws that a
        sampler checks itself, variables with a rare value that was found before the burn-in, that
        chains keep for long, and that the draws visit fewer than four times: they cannot tell its
        probability.

    Raises
    ------
    ValueError
        If there are fewer than 64 draws per chain, or they are not draws of this target.

    Notes
    -----
    Chains that agree may be wrong together: modes that neither they nor their images have visited
    go unnoticed.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner, "Rank-normalization,
       folding, and localization: an improved R-hat", Bayesian Analysis 16 (2021).
    """
    tally = draws if isinstance(draws, Tally) else _tally_of(draws, target)
    if tally.n_draws < FEWEST_DRAWS:
        apart = f" that are {tally.every} transitions apart" if tally.every > 1 else ""
        raise ValueError(
            f"There are {tally.n_draws} draws of each chain{apart}; to compare chains takes at "
            f"least {FEWEST_DRAWS}."
        )
    of_lp = tally.of_lp()._asdict()
    sites = {name: np.full(target.n_sites, np.nan) for name in ("r_hat", "ess", "p_value")}
    n_values = tally.first.size and tally.counts.sums.shape[2]
    if n_values:
        of_values = tally.of_values()._asdict()
        for name, best in (("r_hat", np.fmax), ("ess", np.fmin), ("p_value", np.fmin)):
            sites[name][tally.sites] = tally.by_site(of_values[name], best)
    p_value = np.append(sites["p_value"], of_lp["p_value"])
    seen = np.where(np.isnan(p_value), 1.0, p_value)
    worst = int(seen.argmin())
    lost = tally.lost()
    looks = 1.0 + np.log2(tally.n_draws / FEWEST_DRAWS)
    agree = not lost and seen[worst] * (n_values + 1) * looks >= CHANCE
    found = {
        name: (target.dims, values.reshape(target.shape)) for name, values in sites.items()
    } | {f"{name}_lp": float(of_lp[name]) for name in sites}
    attrs = {
        "agree": int(agree),
        "worst": "lp" if worst == target.n_sites else str(target.label(worst)),
        "n_draws": tally.n_draws,
        "lost": list(dict.fromkeys(str(target.label(site)) for site in lost)),
    }
    return xr.Dataset(found, coords=target.coords, attrs=attrs)


def _tally_of(draws: xr.Dataset, target: Target) -> Tally:
    x = states_of(draws, target)
    if "lp" not in draws.coords:
        raise ValueError("draws has no lp; give what sample returned.")
    thin, sweep = draws.attrs.get("thin", 1), draws.attrs.get("sweep")
    if sweep is None:  # so long a sweep that no batch counts as long
        tally = Tally(target, x.shape[0], sweep=1 << 62)
    else:
        tally = Tally.by_sweep(target, x.shape[0], int(sweep))
    if draws.attrs.get("conserves_counts"):
        tally.symmetry = None
    tally.add(x, draws["lp"].values, int(thin))
    return tally
