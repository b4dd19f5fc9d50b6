"""sklsb as a sampler of dimod, and its answers as SampleSets; needs dimod.

Of the extra ``dimod``: ``pip install 'sklsb[dimod]'``.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb.diagnostics.draws import evenly, flat_states, to_dimod
from sklsb.exact.elimination.answers import is_affordable
from sklsb.exceptions import SamplerWarning
from sklsb.samplers import EliminationSampler, ParallelTempering, anneal
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers.tables import draw_from_chains
from sklsb.targets import Ising, MarkovNetwork
from sklsb.targets._checks import integer, positive
from sklsb.targets.base import States, Target

try:
    import dimod
except ImportError as error:
    raise ImportError(
        "sklsb.dimod needs dimod; run `pip install dimod`, or install the extra: sklsb[dimod]."
    ) from error

__all__ = ["SklsbSampler", "to_dimod"]

_METHODS = ("boltzmann", "exact", "tempering", "anneal")
# Least number of draws of each chain with tempering, so that chains can be compared.
_N_CHAINS, _FEWEST = 4, 256
# A factor of e to more than this is not a number.
_LARGEST_EXPONENT = 700.0


# States, of shape (num_reads, n_sites), and facts about them.
_Drawn = tuple[States, dict[str, Any]]


class SklsbSampler(dimod.Sampler):
    r"""Draws of sklsb as a sampler of dimod, for binary and discrete quadratic models.

    .. math:: p(x) \propto \exp(-\beta E(x))

    with E the energy of the model, offset included. Four methods:

    - "boltzmann" draws from p: independent exact draws by elimination where that is affordable, and
      otherwise draws at equal distances from the chains of a `sklsb.AutoSampler`.
    - "exact" makes independent exact draws, or raises a ValueError that says what they would take.
    - "tempering" draws by `sklsb.ParallelTempering`, which estimates log Z, too.
    - "anneal" looks for states of low energy by `sklsb.anneal`; each row is the best state of
      another chain. If ``info["proven"]`` is True, no state has less energy.

    Attributes
    ----------
    parameters : dict
        The keywords of `sample`.
    properties : dict
        Names of the methods.

    See Also
    --------
    sklsb.Ising.from_bqm : the target, to fit any sampler to.

    Notes
    -----
    ``info`` of a SampleSet has ``method``, "elimination", "chains", "tempering" or "anneal";
    ``beta``; ``log_z``, the natural logarithm of the sum of exp(-beta E) over all states, with its
    standard error ``log_z_error``, 0 if exact, both None where chains give no estimate; ``r_hat``,
    the largest of a variable, None for independent draws; ``proven``, whether the first row is
    known to have the least energy; and ``told``, the messages of all warnings, which are also
    raised as warnings.

    Examples
    --------
    >>> import dimod
    >>> from sklsb.dimod import SklsbSampler
    >>> bqm = dimod.BinaryQuadraticModel({"a": 1.0, "b": -1.0}, {("a", "b"): 2.0}, 0.5, "BINARY")
    >>> found = SklsbSampler().sample(bqm, num_reads=1000, beta=2.0, seed=0)
    >>> found.info["method"], round(found.info["log_z"], 6)
    ('elimination', 1.145078)
    >>> float(found.first.energy)
    -0.5
    """

    # Keywords of `sample`, each with the properties that say more.
    parameters = {"num_reads": [], "beta": [], "method": ["methods"], "seconds": [], "seed": []}
    properties = {"methods": list(_METHODS)}

    def sample(
        self,
        bqm: Any,
        *,
        num_reads: int | None = None,
        beta: float = 1.0,
        method: str = "boltzmann",
        seconds: float | None = None,
        seed: Any = None,
        **unknown: Any,
    ) -> Any:
        """Draw states of a binary quadratic model.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel
            Energy. ``sample_ising(h, J)`` and ``sample_qubo(Q)`` take the same keywords.
        num_reads : int, optional
            Number of rows; 1000 by default, or 10 with "anneal", where each takes a chain.
        beta : float, default=1.0
            Inverse temperature, positive. It does not matter to "anneal".
        method : {"boltzmann", "exact", "tempering", "anneal"}, default="boltzmann"
            What to draw, see the class.
        seconds : float, optional
            Time of "anneal"; by default 10, or less where elimination proves the minimum.
        seed : int, SeedSequence, Generator or None, default=None
            The same seed gives the same draws, for "anneal" only if it proves the minimum.
        **unknown
            Are ignored with dimod's SamplerUnknownArgWarning.

        Returns
        -------
        dimod.SampleSet
            ``num_reads`` rows, or fewer after a Ctrl-C, with the model's labels, vartype and own
            energies, and ``info``.

        Raises
        ------
        ValueError, TypeError
            If an argument is not as described; with "exact", if elimination takes too much.

        Warns
        -----
        SamplerWarning
            As the sampler behind, for example if chains disagree.
        """
        self.remove_unknown_kwargs(**unknown)
        if not isinstance(bqm, dimod.BinaryQuadraticModel):
            raise TypeError(
                f"bqm is {bqm!r:.100}; give a dimod.BinaryQuadraticModel. sample_dqm takes a "
                "DiscreteQuadraticModel."
            )
        beta = positive(beta, "beta")
        target = Ising.from_bqm(bqm, 1.0 if method == "anneal" else beta)
        x, info = _drawn(target, num_reads, beta, method, seconds, seed)
        if target._vartype == "BINARY":
            x = (x > 0).astype(x.dtype)
        found = dimod.SampleSet.from_samples_bqm((x, list(bqm.variables)), bqm)
        found.info.update(info)
        return found

    def sample_dqm(
        self,
        dqm: Any,
        *,
        num_reads: int | None = None,
        beta: float = 1.0,
        method: str = "boltzmann",
        seconds: float | None = None,
        seed: Any = None,
        **unknown: Any,
    ) -> Any:
        """Draw states of a discrete quadratic model.

        Parameters
        ----------
        dqm : dimod.DiscreteQuadraticModel
            Energy.
        num_reads, beta, method, seconds, seed, **unknown
            As in `sample`.

        Returns
        -------
        dimod.SampleSet
            As from `sample`; the values are the numbers of cases.

        Raises
        ------
        ValueError, TypeError
            As `sample`; also, but for "anneal", if beta times the range of the biases of a variable
            or pair is above 700, where probabilities can no longer be distinguished from 0.
        """
        self.remove_unknown_kwargs(**unknown)
        if not hasattr(dqm, "num_cases"):
            raise TypeError(
                f"dqm is {dqm!r:.100}; give a dimod.DiscreteQuadraticModel. sample takes a "
                "BinaryQuadraticModel."
            )
        target, shift = _network(dqm, positive(beta, "beta"), any_beta=method == "anneal")
        states, info = _drawn(target, num_reads, beta, method, seconds, seed)
        labels = list(dqm.variables)
        energies = dqm.energies((states, labels)) if labels else np.full(len(states), dqm.offset)
        found = dimod.SampleSet.from_samples((states, labels), "DISCRETE", energies)
        if info["log_z"] is not None:
            info["log_z"] += shift
        found.info.update(info)
        return found


def _network(dqm: Any, beta: float, any_beta: bool) -> tuple[MarkovNetwork, float]:
    """Return the factors of exp(-beta E), scaled to at most 1, and the log of the scale.

    With ``any_beta`` a smaller beta is taken if the user's is too large.
    """
    place = {v: i for i, v in enumerate(dqm.variables)}
    terms: list[tuple[tuple[int, ...], Array]] = [
        ((i,), np.asarray(dqm.get_linear(v), dtype=np.float64)) for v, i in place.items()
    ]
    for v, near in zip(place, dqm.adj.values(), strict=True):
        for u in near:
            if place[v] < place[u]:
                terms.append(((place[v], place[u]), dqm.get_quadratic(v, u, array=True)))
    if any_beta:
        widest = max((float(np.ptp(bias)) for _, bias in terms), default=0.0)
        beta = min(beta, 0.9 * _LARGEST_EXPONENT / max(widest, 1.0))
    shift, factors = -beta * float(dqm.offset), []
    for scope, bias in terms:
        if not np.isfinite(bias).all():
            raise ValueError(
                f"a bias of {[list(place)[i] for i in scope]} is not finite; give finite numbers."
            )
        least = float(bias.min())
        exponent = beta * (bias - least)
        if not exponent.max() <= _LARGEST_EXPONENT:
            raise ValueError(
                f"beta times the range of the biases of {[list(place)[i] for i in scope]} is "
                f"{exponent.max():g}; it must be at most {_LARGEST_EXPONENT:g}, or probabilities "
                "could not be distinguished from 0. Give a smaller beta."
            )
        factors.append((scope, np.exp(-exponent)))
        shift -= beta * least
    return MarkovNetwork([dqm.num_cases(v) for v in place], factors), shift


def _drawn(
    target: Target,
    num_reads: int | None,
    beta: float,
    method: str,
    seconds: float | None,
    seed: Any,
) -> _Drawn:
    """Draw, and keep the messages of all warnings."""
    if num_reads is None:
        num_reads = 10 if method == "anneal" else 1000
    n = integer(num_reads, "num_reads", 1, np.iinfo(np.int64).max)
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {list(_METHODS)}.")
    if seconds is not None and method != "anneal":
        raise ValueError(f'seconds is {seconds!r}; it is for method="anneal" only.')
    kinds: dict[str, Callable[..., _Drawn]] = {
        "boltzmann": _eliminated if is_affordable(target, "sample") else _chained,
        "exact": _eliminated,
        "tempering": _tempered,
        "anneal": _annealed,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        states, info = kinds[method](target, n, seconds, seed)
    for warning in caught:
        warn(warning.message)
    known = {"log_z": None, "log_z_error": None, "r_hat": None, "proven": False}
    # Filters belong to the process: other threads may have warned meanwhile.
    words = [str(w.message) for w in caught if isinstance(w.message, SamplerWarning)]
    return states, known | info | {"beta": float(beta), "told": words}


def _eliminated(target: Target, n: int, seconds: None, seed: Any) -> _Drawn:
    sampler = EliminationSampler(n_chains=1, random_state=seed).fit(target)
    draws = sampler.sample(n)
    info = {"method": "elimination", "log_z": float(sampler.log_z_), "log_z_error": 0.0}
    return flat_states(draws, target), info


def _chained(target: Target, n: int, seconds: None, seed: Any) -> _Drawn:
    x, sampler = draw_from_chains(target, n, seed)
    return x, {"method": "chains"} | _of_chains(sampler, sampler.sampler_)


def _tempered(target: Target, n: int, seconds: None, seed: Any) -> _Drawn:
    sampler = ParallelTempering(n_chains=_N_CHAINS, random_state=seed).fit(target)
    draws = sampler.sample(max(-(-n // _N_CHAINS), _FEWEST))
    x = flat_states(draws, target)
    info = {"method": "tempering"} | _of_chains(sampler, sampler)
    return x[evenly(len(x), n)], info


def _of_chains(sampler: BaseSampler, winner: BaseSampler) -> dict[str, Any]:
    """Return R-hat and the like of chains; no R-hat after few draws, as after a Ctrl-C."""
    known = {}
    if isinstance(winner, ParallelTempering):
        known = {"log_z": float(winner.log_z_), "log_z_error": float(winner.log_z_error_)}
    found = sampler.run_.disagreement
    return known if found is None else known | {"r_hat": float(found["r_hat"].max())}


def _annealed(target: Target, n: int, seconds: float | None, seed: Any) -> _Drawn:
    found = anneal(target, seconds=seconds, n_chains=n, random_state=seed)
    x = found["x"].values.reshape(n, target.n_sites)
    order = np.argsort(-found["lp"].values, kind="stable")
    return x[order], {"method": "anneal", "proven": bool(found.attrs["proven"])}
