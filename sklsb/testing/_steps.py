"""Checks of any transition of a Markov chain, from any package."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri
from scipy.stats import binom, geom, poisson

from sklsb import exact
from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.targets.base import States, Target
from sklsb.targets.function import FunctionTarget
from sklsb.testing._cells import Outcomes, matrix_by_bisection
from sklsb.testing._expect import FEWEST, chance_of_counts, expect, log_probabilities

# Random numbers that a call may take to be enumerated; choices of later ones; trials of what was
# found, from each state; rounds of them.
_MOST_NUMBERS, _N_CONTINUATIONS, _N_TRIALS, _MOST_ROUNDS = 12, 10, 1000, 3
_ROUNDING = 1e-9  # differences due to it
_CHANCE = 1e-7  # of a false alarm


class StepReport(NamedTuple):
    """What `check_step` found."""

    matrix: Array
    enumerated: bool
    defect: float
    asymmetry: float


class _NotEnumerable(Exception):
    """A step whose random numbers cannot be chosen."""


class _Chosen(np.random.Generator):
    """A generator that hands out chosen uniform numbers."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers, self.used = np.empty(0), 0

    def choose(self, numbers: Array) -> None:
        # Not 0, as steps take logarithms.
        self.numbers, self.used = np.maximum(numbers, 2.0**-54), 0

    def __reduce__(self) -> Any:
        raise _NotEnumerable("it copies the generator")

    def _map(self, function: Callable[..., Any], size: Any, *args: Any) -> Any:
        """Return a function of uniform numbers, one for each element."""
        shape = np.broadcast_shapes(*map(np.shape, args)) if size is None else size
        n = int(np.prod(shape))
        if self.used + n > self.numbers.size:
            raise _NotEnumerable("it takes ever more random numbers")
        u = self.numbers[self.used : self.used + n].reshape(shape)
        self.used += n
        with np.errstate(divide="ignore"):
            return np.asarray(function(u, *map(np.asarray, args)))[()]

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if out is not None:
            out[...] = self.random(out.shape)
            return out
        return self._map(lambda u: u.astype(dtype), size)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        return self._map(lambda u, a, b: a + (b - a) * u, size, low, high)

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
    ) -> Any:
        low, high = (0, low) if high is None else (low, high)
        return self._map(
            lambda u, a, b: (a + np.floor((b + endpoint - a) * u)).astype(dtype), size, low, high
        )

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        if not (replace or shuffle):
            raise _NotEnumerable("it takes a sample whose order is not random")
        items = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        left = np.ones(items.shape[axis]) if p is None else np.array(p, dtype=np.float64)
        places = np.empty(() if size is None else size, dtype=np.int64)
        for k in range(places.size):
            ends = np.cumsum(left)
            places.flat[k] = np.searchsorted(ends, self.random() * ends[-1], side="right")
            if not replace:
                left[places.flat[k]] = 0.0
        return items.take(places, axis=axis)[()]

    def permutation(self, x: Any, axis: int = 0) -> Any:
        n = x if np.ndim(x) == 0 else np.shape(x)[axis]
        return self.choice(x, n, False, axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        x[:] = self.permutation(np.array(x), axis)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        return self._map(lambda u, s: -s * np.log1p(-u), size, scale)

    def standard_exponential(self, size: Any = None) -> Any:  # type: ignore[override]
        return self.exponential(1.0, size)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._map(lambda u, m, s: m - s * np.log(-np.log(u)), size, loc, scale)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._map(lambda u, m, s: m + s * ndtri(u), size, loc, scale)

    def standard_normal(self, size: Any = None) -> Any:  # type: ignore[override]
        return self.normal(0.0, 1.0, size)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        return self._map(_counts(binom, 0), size, n, p)

    def geometric(self, p: Any, size: Any = None) -> Any:
        return self._map(_counts(geom, 1), size, p)

    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        return self._map(_counts(poisson, 0), size, lam)


def _counts(law: Any, lowest: int) -> Callable[..., Any]:
    return lambda u, *args: np.maximum(law.ppf(u, *args), lowest).astype(np.int64)


def _refuse(name: str) -> Any:
    def refuse(self: Any, *args: Any, **options: Any) -> Any:
        raise _NotEnumerable(f"it calls {name}")

    return refuse


for _name in set(dir(np.random.Generator)) - vars(_Chosen).keys():
    if not _name.startswith("_"):
        setattr(_Chosen, _name, property(_refuse(_name)))


class _Step:
    """A step called with copies of states; what it returns is checked, calls are counted."""

    def __init__(self, step: Callable[..., Any], target: Target, p: Array, x: States, most: int):
        self.step, self.x, self.most, self.calls = step, x, most, 0
        self.possible = {state.tobytes() for state in x[p > 0.0]}

    def __call__(self, state: States, rng: np.random.Generator) -> States:
        self.calls += 1
        given = state.copy()
        found = np.asarray(self.step(given, rng))
        there = found.astype(np.int64) if found.dtype.kind in "biuf" else found
        known = there.shape == state.shape and there.tobytes() in self.possible
        expect(
            known and (there == found).all(),
            f"from {state.tolist()} the step goes to {found.tolist()!r:.200}, which is no state of "
            "positive probability.",
        )
        return there

    def by_numbers(self, states: States, numbers: Array) -> States:
        if self.calls + len(states) > self.most:
            raise _NotEnumerable("enumeration takes too many calls")
        rng = _Chosen()
        there = np.empty_like(states)
        for i, state in enumerate(states):
            rng.choose(numbers[i])
            there[i] = self(state, rng)
        return there

    def n_numbers(self, p: Array) -> int:
        """Return the most random numbers that a call takes, in 64 calls from each state."""
        rng, source, most = _Chosen(), np.random.default_rng(0), 0
        for state in self.x[p > 0.0]:
            for _ in range(64):
                rng.choose(source.random(_MOST_NUMBERS))
                self(state, rng)
                most = max(most, rng.used)
        return most


def _enumerated(step: _Step, p: Array, name: str, n_trials: int) -> Array | None:
    """Return the transition matrix, or None if random numbers cannot be chosen."""
    step.calls = 0
    try:
        n_uniforms = step.n_numbers(p)
        outcomes = Outcomes(step.by_numbers, step.x, n_uniforms, _N_CONTINUATIONS, n_trials)
        return matrix_by_bisection(outcomes, p > 0.0, name, _MOST_ROUNDS)
    except (_NotEnumerable, ValueError, TypeError):
        return None


def _counted(step: _Step, p: Array, n: int, reversible: bool) -> Array:
    """Compare n transitions from exact draws with p; return the frequencies of pairs."""
    rng = np.random.default_rng(1)
    index = {state.tobytes(): i for i, state in enumerate(step.x)}
    start = rng.choice(p.size, n, p=p)
    ends = np.array([index[step(step.x[i], rng).tobytes()] for i in start])
    found = np.bincount(ends, minlength=p.size)
    chance = chance_of_counts(found, n * p)
    k = int(np.abs(found / n - p).argmax())
    expect(
        chance > _CHANCE,
        f"the step does not leave p invariant: of {n} transitions from exact draws of p, "
        f"{found[k] / n:.4g} led to {step.x[k].tolist()}, whose probability is {p[k]:.4g} (chance "
        f"{chance:.1g}).",
    )
    flow = np.bincount(start * p.size + ends, minlength=p.size**2).reshape(p.size, p.size)
    if reversible:
        both = flow + flow.T
        upper = np.triu_indices(p.size, 1)
        half = 0.5 * both[upper].astype(np.float64)
        chance = chance_of_counts(flow[upper], half, 0.5 * half)
        a, b = np.unravel_index(int(np.abs(flow - flow.T).argmax()), flow.shape)
        expect(
            chance > _CHANCE,
            f"the step is not reversible: of {n} transitions from exact draws of p, {flow[a, b]} "
            f"led from {step.x[a].tolist()} to {step.x[b].tolist()}, and {flow[b, a]} back (chance "
            f"{chance:.1g}).",
        )
    return flow / n


def check_step(
    step: Callable[[Any, np.random.Generator], ArrayLike],
    log_prob: Target | Callable[..., Any],
    n_states: int | Sequence[int] | None = None,
    *,
    reversible: bool = False,
    irreducible: bool = True,
    n_calls: int = 400_000,
) -> StepReport:
    r"""Check that any step of a Markov chain leaves a small distribution invariant.

    .. math:: \sum_x p(x) P(x, x') = p(x')

    The step is called with a generator that hands out chosen uniform numbers. Each number at which
    its outcome changes is found by bisection, so that P is exact. A step that takes its numbers
    elsewhere, ever more of them, or too many calls, makes transitions from exact draws of p
    instead, which are counted.

    Parameters
    ----------
    step : callable
        ``step(state, rng) -> state``: one transition from an int64 array of shape (n_sites,), by a
        `numpy.random.Generator`. The state may be changed in place, and must be returned.
    log_prob : callable or Target
        Function of states, shape (n, n_sites), that returns log p up to a constant, shape (n,).
    n_states : int or sequence of int, optional
        Number of values of each variable, from 0; an int for one variable. Not for a Target.
    reversible : bool, default=False
        Whether p(x) P(x, x') = p(x') P(x', x) must hold, too.
    irreducible : bool, default=True
        Whether all states of positive probability must be reached from each other. Give False for
        one part of several, such as the update of one variable.
    n_calls : int, default=400_000
        Most calls of the step for enumeration, and for counting.

    Returns
    -------
    StepReport
        A named tuple of the transition matrix, ``matrix``, in the order of `sklsb.exact.states`;
        whether it was ``enumerated``, else it is of counts; and the largest absolute entries of
        p P - p, ``defect``, and of p(x) P(x, x') - p(x') P(x', x), ``asymmetry``. If enumerated, an
        entry above 1e-9 that raises no error is smaller than what random calls can confirm: a
        small fault, or uniform numbers of single precision.

    Raises
    ------
    AssertionError
        If a property does not hold, or the step returns something else than a state of positive
        probability. The message says what was found.

    Warns
    -----
    ModelWarning
        If what ``log_prob`` returns looks like probabilities.

    See Also
    --------
    check_sampler : more, for samplers of this package.

    Examples
    --------
    >>> import numpy as np
    >>> from sklsb.testing import check_step
    >>> log_p = np.log([0.5, 0.3, 0.2])
    >>> def metropolis(state, rng):
    ...     there = rng.integers(3, size=1)
    ...     accepted = np.log(rng.random()) < log_p[there[0]] - log_p[state[0]]
    ...     return there if accepted else state
    >>> report = check_step(metropolis, lambda x: log_p[x[:, 0]], 3, reversible=True)
    >>> report.enumerated, report.matrix.round(3).tolist()
    (True, [[0.667, 0.2, 0.133], [0.333, 0.444, 0.222], [0.333, 0.333, 0.333]])
    """
    target: Any = log_prob
    if not isinstance(log_prob, Target):
        sizes = np.atleast_1d([] if n_states is None else n_states).tolist()
        target = FunctionTarget(log_prob, len(sizes), n_states=sizes)
    x, p = exact.states(target).astype(np.int64), np.exp(log_probabilities(target))
    values = target.log_prob(x)
    if (values >= 0.0).all() and abs(values.sum() - 1.0) < _ROUNDING:
        warn(
            "log_prob returns values from 0 to 1 that sum up to 1. If these are probabilities, "
            "return their logarithms, np.log(...).",
            ModelWarning,
        )
    name = getattr(step, "__name__", type(step).__name__)
    calls = _Step(step, target, p, x, n_calls)
    report = None
    for n_trials in (_N_TRIALS, max(_N_TRIALS, n_calls // (2 * p.size))):
        found = _enumerated(calls, p, name, n_trials)
        report = None if found is None else _report(found, p[:, None] * found, True)
        worst = max(report.defect, reversible * report.asymmetry) if report else np.inf
        if worst <= _ROUNDING or report is None:
            break
        # Trials may have overlooked as much as that.
        if worst > -math.log(_CHANCE) / n_trials:
            _expect_of_matrix(report, p, x, reversible)
    often = p > 1e-15  # no uniform number leads to rarer ones
    if report is None or worst > _ROUNDING:
        flow = _counted(calls, p, n_calls, reversible)
        if report is None:
            found = flow / np.maximum(flow.sum(axis=1, keepdims=True), 1.0 / n_calls)
            report, often = _report(found, flow, False), n_calls * p >= FEWEST
    _, part = connected_components(report.matrix > 0.0, connection="strong")
    reached, part = x[often], part[often]
    if irreducible and (part != part[:1]).any():
        raise AssertionError(
            f"the step cannot go between all states of positive probability: not between "
            f"{reached[0].tolist()} and {reached[part != part[0]][0].tolist()} and back"
            f"{'' if report.enumerated else f', in {n_calls} transitions'}. Give irreducible=False "
            "for one part of several."
        )
    return report


def _report(matrix: Array, flow: Array, enumerated: bool) -> StepReport:
    defect = float(np.abs(flow.sum(axis=0) - flow.sum(axis=1)).max())
    return StepReport(matrix, enumerated, defect, float(np.abs(flow - flow.T).max()))


def _expect_of_matrix(report: StepReport, p: Array, x: States, reversible: bool) -> None:
    """Raise unless an enumerated matrix leaves p invariant, reversibly if asked for."""
    after = p @ report.matrix
    k = int(np.abs(after - p).argmax())
    at_last = p @ np.linalg.matrix_power(0.5 * (np.eye(p.size) + report.matrix), 10_000)
    expect(
        report.defect <= _ROUNDING,
        f"the step does not leave p invariant: p P is {after[k]:.6g} at {x[k].tolist()}, and p is "
        f"{p[k]:.6g}. In the long run it draws {at_last.round(4).tolist()!r:.200} in place of "
        f"{p.round(4).tolist()!r:.200}, in the order of sklsb.exact.states.",
    )
    flow = p[:, None] * report.matrix
    a, b = np.unravel_index(int(np.abs(flow - flow.T).argmax()), flow.shape)
    expect(
        not reversible or report.asymmetry <= _ROUNDING,
        f"the step is not reversible: p(x) P(x, x') is {flow[a, b]:.6g} from {x[a].tolist()} to "
        f"{x[b].tolist()}, and {flow[b, a]:.6g} back.",
    )
