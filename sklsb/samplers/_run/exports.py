"""The draws of a sampler in the containers of other packages."""

from abc import ABC, abstractmethod
from typing import Any

import xarray as xr
from sklearn.utils.validation import check_is_fitted

from sklsb.diagnostics.draws import to_datatree, to_dimod, to_inference_data
from sklsb.targets.base import Target


class Exports(ABC):
    """What `BaseSampler` offers besides the draws themselves."""

    target_: Target
    sample_stats_: xr.Dataset
    burn_in_: xr.Dataset
    _draws: xr.Dataset

    @abstractmethod
    def _attrs(self) -> dict[str, Any]:
        """Return the attributes of what was drawn: settings, target and version."""

    def _groups(self) -> dict[str, xr.Dataset]:
        check_is_fitted(self, "target_")
        if not hasattr(self, "_draws"):
            raise ValueError("There are no draws (a pickle leaves them out); call sample first.")
        groups = {"posterior": self._draws, "sample_stats": self.sample_stats_}
        if hasattr(self, "burn_in_"):
            groups["warmup_posterior"] = self.burn_in_
        return groups

    def to_datatree(self) -> xr.DataTree:
        """Put what the last call of `sample` returned, and what belongs to it, into one object.

        Returns
        -------
        xarray.DataTree
            Groups as in the ArviZ schema: ``posterior``, the draws (or recorded statistics) of the
            last call; ``sample_stats``, ``lp`` and what else is known of each of them;
            ``warmup_posterior``, the states of the burn-in, if it was kept. The attributes have the
            settings of the sampler, what was fitted, the target and the version of sklsb.

        Raises
        ------
        ValueError
            If nothing was drawn since `fit`, or the sampler comes from a pickle.
        """
        return to_datatree(self._groups(), self._attrs())

    def to_inference_data(self) -> Any:
        """Return the same as ArviZ's own: InferenceData before ArviZ 1.0, DataTree since.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
        """
        return to_inference_data(self._groups(), self._attrs())

    def to_dimod(self, beta: float = 1.0) -> Any:
        r"""Return the draws of the last `sample` as dimod has them, with energies -log p / beta.

        Parameters
        ----------
        beta : float, default=1.0
            Inverse temperature, positive: that of `Ising.from_bqm`, to get energies of its model.

        Returns
        -------
        dimod.SampleSet
            One row per draw, chain after chain, with the vectors ``chain`` and ``draw``. Variables
            are called as in ``target_.names``, on a grid by their numbers; those of an `Ising` as
            in its `to_bqm`. The vartype is SPIN for values -1 and 1, BINARY for 0 and 1, else
            INTEGER.

        Raises
        ------
        ImportError
            If dimod is not installed.
        ValueError
            If there are no draws, or statistics were recorded instead of states.

        See Also
        --------
        sklsb.Ising.to_bqm : the model.
        """
        return to_dimod(self._groups()["posterior"], self.target_, beta)
