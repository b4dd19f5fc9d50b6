"""The public functions of `sklsb.exact` that eliminate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from sklsb import __version__
from sklsb._kernels.elimination.buckets import LINEAR
from sklsb._kernels.run import Drawing
from sklsb._system.memory import at_once, check_fits
from sklsb._system.progress import Progress
from sklsb._words import worded
from sklsb.diagnostics.draws import JOINT, attrs_of, draws_dataset, marginals_dataset, value_labels
from sklsb.ensembles.base import MOST_NUMBERS
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exact.elimination.blocks import Whole
from sklsb.exact.elimination.cost import (
    EliminationCost,
    Limits,
    check_limits,
    fits,
)
from sklsb.exact.elimination.engine import (
    Elimination,
    best_state,
    eliminated,
    log_partition_of,
    ordered,
    shown,
    strike_few,
    that_fits,
    warn_of_defect,
)
from sklsb.exact.elimination.independent import Redraws
from sklsb.exact.elimination.marginals import all_marginals, whole_or_parts
from sklsb.exact.elimination.reduce import Reduced
from sklsb.exact.elimination.schedule import Need
from sklsb.targets._checks import integer, n_threads, not_a_target
from sklsb.targets._evidence import site_called
from sklsb.targets._names import Names, coordinate, labels_of
from sklsb.targets._precision import warn_if_lost
from sklsb.targets.base import Target

# Tasks by what messages are made for.
_TASKS: dict[str, Need] = {
    "log_partition": "sum",
    "marginals": "marginals",
    "most_likely": "state",
    "sample": "draws",
}


def check_target(target: Any) -> Target:
    if not isinstance(target, Target):
        raise not_a_target(target)
    return target


def observing(target: Any, evidence: Mapping[Any, Any] | None) -> Target:
    check_target(target)
    nothing = evidence is None or (isinstance(evidence, Mapping) and not evidence)
    return target if nothing else target.condition(evidence)


def is_affordable(target: Target, task: str, max_memory: float | None = None) -> bool:
    try:
        return fits(*cost_and_limits(target, task, max_memory))
    except (TypeError, ValueError, MemoryError):
        return False


def elimination_cost(
    target: Target, task: str = "log_partition", *, max_memory: float | None = None
) -> EliminationCost:
    """Predict the work and memory that an exact answer takes, without doing the work.

    Parameters
    ----------
    target : Target
        A target made of factors (`Target.log_factors`), as an `Ising`, `Potts` or `MarkovNetwork`,
        with or without evidence; or any of which at most 2**14 states agree with the evidence,
        which are enumerated first.
    task : {"log_partition", "marginals", "most_likely", "sample"}
        Which answer. Log Z and draws often take less than marginals: in a Bayesian network,
        variables below which nothing is observed need no table.
    max_memory : float, optional
        Bytes, by default as in `log_partition`. Messages that do not fit are made repeatedly or
        piece by piece, which takes more work.

    Returns
    -------
    EliminationCost
        ``log2_work``, for the number of table entries, ``log2_memory``, for the number of bytes,
        ``seconds``, about how long it takes on one core of this machine, and ``n_configurations``,
        the number of pieces.

    Raises
    ------
    TypeError
        If the target has no factors and more states.
    ValueError
        If no state has positive probability, or more than 32,768 variables are to be eliminated.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, exact
    >>> for n in (10, 20):
    ...     grid = Ising.lattice(np.zeros((n, n)), 0.3, periodic=False)
    ...     print(round(exact.elimination_cost(grid).log2_work))
    16
    27
    """
    if not isinstance(task, str) or task not in _TASKS:
        raise ValueError(f"task is {task!r}; it must be one of {list(_TASKS)}.")
    return cost_and_limits(check_target(target), task, max_memory)[0]


def cost_and_limits(
    target: Target, task: str, max_memory: float | None, struck: Reduced | None = None
) -> tuple[EliminationCost, Limits]:
    """Return what an exact answer takes, and what it may take; ``struck`` is `strike` of it."""
    limits = check_limits(None, max_memory, _TASKS[task])
    struck = struck or strike_few(target)
    if task == "marginals":
        return whole_or_parts(struck, limits)[1], limits
    found = ordered(struck, pruned=task != "most_likely", need=_TASKS[task], limits=limits)
    return found.cost, limits


@worded
def log_partition(
    target: Target,
    evidence: Mapping[Any, Any] | None = None,
    *,
    max_work: float | None = None,
    max_memory: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> float:
    r"""Natural logarithm of the partition function, by variable elimination.

    .. math:: \log Z = \log \sum_x \exp(\text{log\_prob}(x))

    For a Bayesian network with evidence this is the log-probability of the evidence. The
    difference between two models of the same data is their log Bayes factor.

    Parameters
    ----------
    target : Target
        A target made of factors (`Target.log_factors`), or of at most 2**14 states.
    evidence : mapping of variable to value, optional
        What was observed, as for `Target.condition`.
    max_work : float, optional
        Largest number of table entries to compute. By default as many as take about a minute:
        2**36, or fewer where each takes longer (2**34 for marginals).
    max_memory : float, optional
        Largest number of bytes to hold. By default 2**30, or up to half of the memory that is free
        where that is too little.
    n_jobs : int, optional
        Number of threads (None is 1, -1 all cores), which share large tables; it never changes an
        answer.
    verbose : int, default=0
        1 shows the progress.

    Returns
    -------
    float

    Raises
    ------
    TypeError
        If the target has no factors and more states, or evidence is no mapping.
    ValueError
        If the answer exceeds the limits, no state has positive probability, or the evidence names
        a variable or value that does not exist.

    Warns
    -----
    ModelWarning
        If rows of conditional tables sum to 1 only approximately and the exact answer does not
        fit. The warning says how far the answer may be off.
    PrecisionWarning
        If terms of log p cancel and are so large that rounding loses what they leave.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, exact
    >>> round(exact.log_partition(Ising.lattice(np.zeros((10, 10)), 0.3)), 6)
    79.060017
    """
    target = observing(target, evidence)
    limits = check_limits(max_work, max_memory, "sum")
    found = that_fits(strike_few(target), limits, verbose, need="sum")
    elimination = eliminated(found, verbose, n_threads(n_jobs))
    warn_if_lost(target, elimination.rounding_size)
    return log_partition_of(elimination)


def check_order(variables: Any, evidence: Any) -> None:
    """Refuse a list of variables in place of evidence, or evidence in place of variables."""
    if isinstance(variables, Mapping) or isinstance(evidence, Sequence):
        raise TypeError(
            f"variables is {variables!r:.200} and evidence is {evidence!r:.200}; variables are a "
            "list, and evidence is a dict of variable: value. Name them, as in "
            "marginals(..., variables=[...], evidence={...})."
        )


def sites_of(target: Target, variables: Any) -> list[int]:
    listed = isinstance(variables, Sequence) or hasattr(variables, "tolist")
    if isinstance(variables, str | bytes) or labels_of(variables) is not None or not listed:
        raise TypeError(
            f"variables is {variables!r:.200}; give a list of variables, or evidence as a dict."
        )
    by_name, sites = Names(target.names), []
    if isinstance(variables, tuple) and by_name.find(variables) is not None:
        raise TypeError(
            f"variables is {variables!r}, which is the name of one variable; give a list of "
            f"variables, as [{variables!r}]."
        )
    for name in variables:
        site = site_called(target, by_name, name, "variables names")
        if site in sites:
            raise ValueError(f"variables names {name!r} twice; keep one.")
        sites.append(site)
    return sites


def _dim(target: Target, site: int) -> str:
    """Name a variable's dimension in a joint distribution."""
    label = target.label(site)
    if isinstance(label, str) and label not in ("p", "mcse"):
        return label
    parts = label if isinstance(label, tuple) else (label,)
    if len(parts) != len(target.dims):  # a name that is a tuple
        return "_".join(map(str, parts))
    return "_".join(f"{dim}_{part}" for dim, part in zip(target.dims, parts, strict=True))


def check_joint(struck: Reduced, sites: list[int], limits: Limits) -> None:
    """Refuse variables whose joint distribution is too large."""
    size = math.prod(int(struck.sizes[i]) for i in sites)
    if 8 * size > limits[1] or len(sites) > 32:
        raise ValueError(
            f"variables names {len(sites)} variables with 2**{math.log2(size):.1f} joint values; "
            f"max_memory holds 2**{math.log2(limits[1] / 8):.1f}. Name fewer."
        )


def _joint(
    target: Target, sites: list[int], limits: Limits, verbose: int, n_jobs: int
) -> xr.Dataset:
    struck = strike_few(target)
    check_joint(struck, sites, limits)
    keep = [i for i in sites if struck.sizes[i] > 1]
    found = that_fits(struck, limits, verbose, keep=keep, need="sum")
    elimination = Elimination(found, LINEAR, n_jobs)
    with shown(verbose, 2.0**found.cost.log2_work) as progress, elimination.watched(progress):
        p = elimination.joint(sites)
    warn_if_lost(target, elimination.rounding_size)
    defect = found.model.log_defect
    if defect > 0.0:
        warn_of_defect(found.model, f"probabilities may be off by {math.expm1(defect):.2g}")
    dims = [_dim(target, i) for i in sites]
    coords: dict[str, Any] = {}
    for dim, i, k in zip(dims, sites, p.shape, strict=True):
        own = None if target.state_names is None else target.state_names[i]
        coords[dim] = value_labels(target.values[:k], [own] if own else None)
        if own is not None and f"{dim}_name" not in dims:
            one_axis = tuple not in map(type, own)
            coords[f"{dim}_name"] = (dim, list(own) if one_axis else coordinate(own))
    both = {"p": (dims, p), "mcse": (dims, np.zeros_like(p))}
    return xr.Dataset(both, coords, {JOINT: [str(target.label(i)) for i in sites]})


@worded
def marginals(
    target: Target,
    variables: Sequence[Any] | Mapping[Any, Any] | None = None,
    evidence: Mapping[Any, Any] | None = None,
    *,
    max_work: float | None = None,
    max_memory: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> xr.Dataset:
    """Marginal probabilities, or the joint distribution of some variables, by elimination.

    Parameters
    ----------
    target : Target
        A target made of factors (`Target.log_factors`), or of at most 2**14 states.
    variables : list of variables, optional
        Variables whose joint distribution is wanted, named as in ``target.condition``; a plan of
        `prepare` gives separate ones. A mapping is taken as evidence.
    evidence : mapping of variable to value, optional
        As in `log_partition`.
    max_work, max_memory, n_jobs, verbose
        As in `log_partition`.

    Returns
    -------
    xarray.Dataset
        ``p`` and ``mcse`` (which is 0), with the target's dims and ``state``, as in
        `sklsb.diagnostics.marginals`: ``state`` has the names of values if all variables have
        the same in the same order, else `sklsb.diagnostics.to_frame` has them by name. With
        ``variables``, one dimension per variable, named after it (``site_3`` for variable 3,
        ``rain_0`` for ``("rain", 0)``); its coordinate holds the values, or their names if they
        have any. The names of a variable
        ``smoke`` are also the coordinate ``smoke_name``.

    Raises
    ------
    TypeError
        If the target has no factors and more states, or variables is no list.
    ValueError
        If the answer exceeds the limits, no state has positive probability, or a variable or value
        does not exist.

    Warns
    -----
    ModelWarning, PrecisionWarning
        As in `log_partition`.

    Examples
    --------
    >>> from sklsb import MarkovNetwork, exact
    >>> rain = MarkovNetwork([2, 3], [((0,), [0.8, 0.2]), ((0, 1), [[1, 1, 0], [0, 1, 3]])])
    >>> exact.marginals(rain)["p"].values.round(3)
    array([[0.667, 0.333, 0.   ],
           [0.333, 0.417, 0.25 ]])
    >>> exact.marginals(rain, [0, 1])["p"].sel(site_0=1).values.round(3)
    array([0.   , 0.083, 0.25 ])
    """
    if isinstance(variables, Mapping) and evidence is None:
        variables, evidence = None, variables
    check_order(variables, evidence)
    target = observing(target, evidence)
    limits = check_limits(max_work, max_memory, "marginals" if variables is None else "sum")
    threads = n_threads(n_jobs)
    if variables is not None:
        return _joint(target, sites_of(target, variables), limits, verbose, threads)
    p = all_marginals(target, limits, verbose, threads)
    return marginals_dataset(target, p, np.zeros_like(p))


@worded
def most_likely(
    target: Target,
    evidence: Mapping[Any, Any] | None = None,
    *,
    max_work: float | None = None,
    max_memory: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> xr.Dataset:
    """Find a state of largest probability (MAP, MPE), by variable elimination.

    Parameters
    ----------
    target, evidence, max_work, max_memory, n_jobs, verbose
        As in `log_partition`.

    Returns
    -------
    xarray.Dataset
        Variable ``x`` with the target's dims and the scalar coordinate ``lp``, its log-density, as
        in `sklsb.diagnostics.best_state`. If several states tie, it is always the same one.

    Raises
    ------
    TypeError, ValueError
        As in `log_partition`.

    Warns
    -----
    PrecisionWarning
        As in `log_partition`.

    Examples
    --------
    >>> import networkx as nx
    >>> from sklsb import Ising, exact
    >>> best = exact.most_likely(Ising.from_maxcut(nx.cycle_graph(5)))
    >>> float(best["lp"])  # weight of the largest cut
    4.0
    """
    target = observing(target, evidence)
    limits = check_limits(max_work, max_memory, "state")
    found = that_fits(strike_few(target), limits, verbose, pruned=False, need="state")
    x, elimination = best_state(found, verbose, n_threads(n_jobs))
    warn_if_lost(target, elimination.rounding_size)
    lp = float(target.log_prob(x))
    return xr.Dataset({"x": (target.dims, x.reshape(target.shape))}, target.coords | {"lp": lp})


@worded
def sample(
    target: Target,
    n: int,
    evidence: Mapping[Any, Any] | None = None,
    *,
    random_state: Any = None,
    max_work: float | None = None,
    max_memory: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> xr.Dataset:
    """Make independent exact draws, by variable elimination.

    Parameters
    ----------
    target : Target
        A target made of factors (`Target.log_factors`), or of at most 2**14 states.
    n : int
        Number of draws.
    evidence : mapping of variable to value, optional
        As in `log_partition`.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed. The same int gives the same draws, bit for bit.
    max_work, max_memory, n_jobs, verbose
        As in `log_partition`; the work is done before the first draw.

    Returns
    -------
    xarray.Dataset
        ``x`` with the dims (chain, draw) and the target's, and the coordinate ``lp``, as samplers
        return it. There is one chain, of independent draws.

    Raises
    ------
    TypeError, ValueError
        As in `log_partition`.

    See Also
    --------
    sklsb.EliminationSampler : Draws in several calls, in several chains.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb import Ising, exact
    >>> draws = exact.sample(Ising.lattice(np.zeros((8, 8)), 0.5), 1000, random_state=0)
    >>> dict(draws.sizes)
    {'chain': 1, 'draw': 1000, 'row': 8, 'col': 8}
    """
    target, n = observing(target, evidence), integer(n, "n", 0, np.iinfo(np.int64).max)
    limits = check_limits(max_work, max_memory, "draws")
    streams = Streams(spawn(random_state, 1))
    check_fits(
        n * target.n_sites * target.dtype.itemsize,
        f"n={n} draws of {target.n_sites} sites",
        "Make fewer at a time, or use EliminationSampler, which can write them to disk.",
    )
    found = that_fits(strike_few(target), limits, verbose)
    elimination = eliminated(found, verbose, n_threads(n_jobs))
    nowhere = np.zeros((1, target.n_sites), target.dtype)  # draws do not depend on it
    chains = Redraws(Whole(elimination, 1), nowhere, streams)
    log_partition_of(elimination)  # warns if rows of tables do not sum to 1
    warn_if_lost(target, elimination.rounding_size)
    out = draws, stats = np.empty((1, n, target.n_sites), target.dtype), np.empty((1, n, 1))
    chains.run(1, Drawing(), out)  # the draws are those of `EliminationSampler`
    most = at_once(MOST_NUMBERS, chains.rule.n_uniforms)
    with Progress(verbose, "sample", n, "draws") as progress:
        for begin in range(0, n, most):
            size = min(most, n - begin)
            chains.make_ahead(size, n - begin, lambda: True)
            chains.run(size, Drawing(1, 0, begin), out)
            progress(size)
    attrs = {"inference_library": "sklsb", "inference_library_version": __version__}
    dataset = draws_dataset(draws, target, attrs | attrs_of(target))
    return dataset.assign_coords(lp=(("chain", "draw"), stats[:, :, 0] + target.constant))
