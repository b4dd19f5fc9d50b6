"""The draws of a sampler in the containers of other packages."""

from typing import Any

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from sklsb._system.arrays import Array
from sklsb.diagnostics.draws import to_datatree, to_dimod, to_inference_data
from sklsb.diagnostics.measures import warn_if_few
from sklsb.samplers._run.run import Run
from sklsb.targets.base import Target


def _given(run: Run, draws: xr.Dataset | None) -> xr.Dataset:
    """Return the given draws, or the draws of the last call."""
    if draws is None:
        if run.last_draws is None:
            raise ValueError("There are no draws (a pickle omits them); call sample first.")
        draws = run.last_draws()
        if draws is None:
            raise ValueError(
                "The draws of the last call are gone: a sampler does not hold them. Keep what "
                "sample returned, or pass it as draws."
            )
    if not isinstance(draws, xr.Dataset):
        raise TypeError(f"draws is {draws!r:.200}; give the Dataset that sample returned.")
    return draws


def _groups(
    run: Run, draws: xr.Dataset | None, attrs: dict[str, Any]
) -> tuple[dict[str, xr.Dataset], dict[str, Any]]:
    posterior = _given(run, draws)
    groups = {"posterior": posterior}
    last = None if run.last_draws is None else run.last_draws()
    if posterior is last and run.sample_stats is not None:
        groups["sample_stats"] = run.sample_stats
    else:  # what the draws themselves know
        known = [k for k, v in posterior.coords.items() if v.dims == ("chain", "draw")]
        groups["sample_stats"] = posterior[known].reset_coords(known)
    if run.burn_in is not None:
        groups["warmup_posterior"] = run.burn_in
    return groups, {k: posterior.attrs.get(k, v) for k, v in attrs.items()}


class Exports:
    """What `BaseSampler` offers besides the draws themselves."""

    target_: Target
    run_: Run

    def _attrs(self) -> dict[str, Any]:
        """Return the attributes of draws: settings, target and version."""
        check_is_fitted(self, "target_")
        return self.run_.attrs()

    def to_datatree(self, draws: xr.Dataset | None = None) -> xr.DataTree:
        """Join draws and what belongs to them in one object.

        Parameters
        ----------
        draws : xarray.Dataset, optional
            What `sample` returned; by default the last call's draws, if you still hold them.

        Returns
        -------
        xarray.DataTree
            Groups as in the ArviZ schema: ``posterior``, the draws or recorded statistics;
            ``sample_stats``, from ``sample_stats_`` for the last call's draws, else ``lp`` and
            ``visit``; ``warmup_posterior``, the states of the burn-in, if it was kept. The
            attributes are the sampler's settings, what was fitted, the target and the version of
            sklsb.

        Raises
        ------
        ValueError
            If no draws are given, and nothing was drawn since `fit`, the draws are gone, or the
            sampler comes from a pickle.
        TypeError
            If draws is not a Dataset.
        """
        attrs = self._attrs()
        return to_datatree(*_groups(self.run_, draws, attrs))

    def to_inference_data(self, draws: xr.Dataset | None = None) -> Any:
        """Return draws as what ArviZ itself uses: InferenceData before ArviZ 1.0, DataTree since.

        Parameters
        ----------
        draws : xarray.Dataset, optional
            As in `to_datatree`.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree

        Warns
        -----
        ShortRunWarning
            If there are fewer than 64 draws of each chain, too few for R-hat.
        """
        attrs = self._attrs()
        groups, attrs = _groups(self.run_, draws, attrs)
        warn_if_few(groups["posterior"])
        return to_inference_data(groups, attrs)

    def to_dimod(self, draws: xr.Dataset | None = None, beta: float | None = None) -> Any:
        r"""Return draws as a SampleSet of dimod, with energies -log p / beta.

        Parameters
        ----------
        draws : xarray.Dataset, optional
            As in `to_datatree`.
        beta : float, optional
            Inverse temperature, positive. By default the one given to `Ising.from_bqm`, `from_qubo`
            or `from_maxcut`, so that energies are the problem's; 1 for other targets.

        Returns
        -------
        dimod.SampleSet
            One row per draw, chain after chain, with the vectors ``chain`` and ``draw``. Variables
            are named as in ``target_.names``, on a grid numbered, and for an `Ising` as in its
            `to_bqm`. The vartype is as in the model given to `Ising.from_bqm`, BINARY after
            `Ising.from_qubo`; otherwise SPIN for values -1 and 1, BINARY for 0 and 1, else INTEGER.

        Raises
        ------
        ImportError
            If dimod is not installed.
        ValueError
            If there are no draws, or statistics were recorded instead of states.
        TypeError
            If draws is not a Dataset.

        See Also
        --------
        sklsb.Ising.to_bqm : the model.
        sklsb.dimod.to_dimod : also the states of `sklsb.anneal` and `sklsb.exact.most_likely`.
        """
        check_is_fitted(self, "target_")
        return to_dimod(_given(self.run_, draws), self.target_, beta)


class Normalised:
    """`score_samples`, for samplers that find log Z."""

    target_: Target

    def score_samples(self, X: Any) -> Array:
        """Log-likelihood of each state under the normalised target.

        Parameters
        ----------
        X : array_like of shape (..., n_sites) or data frame
            States, as ``target_.log_prob`` takes them.

        Returns
        -------
        ndarray of shape (...)
            ``target_.log_prob(X) - log_z_``, whose error by ``log_z_`` all states share.

        Raises
        ------
        ValueError
            If log p of the target has changed since `fit`, as after an edit of its function.
        """
        check_is_fitted(self, "target_")
        fitted: Any = self
        fitted.run_.follow_target()
        return np.asarray(self.target_.log_prob(X) - fitted.log_z_)
