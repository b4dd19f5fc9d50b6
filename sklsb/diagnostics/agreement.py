"""Whether chains agree."""

import numpy as np
import xarray as xr

from sklsb.diagnostics.draws import states_of
from sklsb.diagnostics.tally import CHANCE, FEWEST_DRAWS, Tally
from sklsb.targets.base import Target


def disagreement(draws: "xr.Dataset | Tally", target: Target) -> xr.Dataset:
    r"""Whether chains, and halves of chains, agree: R-hat, ESS, and whether that is chance.

    Each chain is split into halves. R-hat is the split one of the indicators of the values, where
    ranks change nothing, and the rank-normalised one of log p [1]_. How large it may be by chance
    follows from the means of batches in the halves: with b batches in each of m halves,

    .. math:: F = \frac{\mathrm{var}(\text{means of halves})}
                      {\mathrm{var}(\text{means of batches in a half}) / b}
              \sim F_{m - 1, m (b - 1)}

    so the threshold depends on the numbers of draws, of variables and of independent visits.

    If the target has a `symmetry`, as an Ising model without fields, chains are compared with their
    images, too: where no value is more probable than another, the halves are compared with the
    known mean, by m degrees of freedom. So chains that are all in one of two opposite modes
    disagree, though they agree with each other.

    Parameters
    ----------
    draws : xarray.Dataset
        As returned by ``sample``, with the coordinate lp; at least 64 draws of each chain that are
        a quarter of a sweep apart or more. The attributes ``thin`` and ``sweep`` say how far apart
        they are; without these every draw counts, and p-values rest on the longer batches alone.
    target : Target
        What was sampled.

    Returns
    -------
    xarray.Dataset
        Of the target's dims: ``r_hat``, the largest over the values of a variable; ``ess``, the
        smallest; ``p_value``, the smallest probability of an F as large in chains that agree. The
        same of log p as ``r_hat_lp``, ``ess_lp`` (of its mean), ``p_value_lp``. NaN where a
        variable never changed. Attributes: ``agree``, 0 if the smallest p_value times the number of
        values is below 0.01 / (1 + log2(n_draws / 64)), or if anything is lost, else 1 (a run that
        goes on is looked at again and again); ``worst``, the variable of the
        smallest (or "lp"); ``n_draws``, of each chain, that were looked at; ``lost``, of a
        sampler's own draws, variables of which a rare value was found before the burn-in that
        chains keep for long, and that the draws have for fewer than four such visits: they cannot
        tell how much it weighs.

    Raises
    ------
    ValueError
        If there are fewer than 64 draws of each chain, or they are not of this target.

    Notes
    -----
    Chains that agree may be wrong together: what neither they nor their images have seen cannot be
    told.

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
    of_lp = tally.of_lp()
    sites = {name: np.full(target.n_sites, np.nan) for name in ("r_hat", "ess", "p_value")}
    n_values = tally.first.size and tally.counts.shape[2]
    if n_values:
        of_values = tally.of_values()
        for name, best in (("r_hat", np.fmax), ("ess", np.fmin), ("p_value", np.fmin)):
            sites[name][tally.sites] = tally.by_site(getattr(of_values, name), best)
    p_value = np.append(sites["p_value"], of_lp.p_value)
    seen = np.where(np.isnan(p_value), 1.0, p_value)
    worst = int(seen.argmin())
    lost = tally.lost()
    looks = 1.0 + np.log2(tally.n_draws / FEWEST_DRAWS)
    agree = not lost and seen[worst] * (n_values + 1) * looks >= CHANCE
    found = {
        name: (target.dims, values.reshape(target.shape)) for name, values in sites.items()
    } | {f"{name}_lp": float(getattr(of_lp, name)) for name in sites}
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
    if sweep is None:  # so long that no batch is
        tally = Tally(target, x.shape[0], sweep=1 << 62)
    else:
        tally = Tally.by_sweep(target, x.shape[0], int(sweep))
    tally.add(x, draws["lp"].values, int(thin))
    return tally
