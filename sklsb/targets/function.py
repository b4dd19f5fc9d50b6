"""Any function as a target."""

from __future__ import annotations

import copy
import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numba.extending import is_jitted
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.chains import Chains, arrays_of
from sklsb._kernels.targets.function import (
    LARGEST_LOG_PROB,
    FunctionSiteView,
    FunctionView,
    neighbourhood_function,
    state_function,
)
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb._system.progress import tick
from sklsb.targets._checks import (
    all_touched,
    as_array,
    check_names,
    check_shape,
    check_sizes,
    check_state_names,
    integer,
)
from sklsb.targets._names import by_label
from sklsb.targets._terms import of_terms
from sklsb.targets.base import NO_SITES, States, Target

_MOST_TRIES = 1000
# Values of variables in the states that a function is given at once.
_MOST_HELD = 1 << 24
_N_TRIAL = 5  # states
_signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class FunctionTarget(Target):
    r"""Any function as the log-density, of Python or compiled by numba.

    .. math:: \log p(x) = f(x), \qquad x_i \in \{0, \dots, k_i - 1\}

    up to the normalising constant. Only values of f are known, so each transition evaluates f at
    all states that differ from a new one in one variable, in one call if f takes several states. A
    target that knows how log p changes is much faster; see the notes.

    Parameters
    ----------
    log_prob : callable
        The function f. It takes a state, an int64 array of shape (n_sites,), and returns a number;
        or it takes states of shape (n, n_sites) and returns n numbers. They are finite, or -inf
        for impossible states, and depend on the state alone. A function compiled by
        ``numba.njit`` takes one state, and is called without the GIL.
    n_sites : int
        Number of variables.
    n_states : int or sequence of n_sites int, default=2
        Number of values of each variable, up to 32,768.
    vectorized : bool, optional
        Whether f takes several states at once. By default this is found out by calls at a few
        random states.
    initial_state : array_like of shape (n_sites,) or callable, optional
        A state of positive probability where chains start, or a function of a
        `numpy.random.Generator` that returns one; needed if random states are impossible.
    names : iterable, optional
        Names of the variables, distinct and hashable, for draws and evidence; only if the shape has
        one axis.
    state_names : list of names or of iterables, or dict of variable: iterable, optional
        Names of the values of all variables, or of each, which evidence may use; numbers from 0 if
        not given.
    shape : tuple of int, optional
        Shape of the array of variables in draws, such as an image. f takes flat states anyway.
    dims : tuple of str, optional
        Names of the axes of the shape; by default ("site",) or ("row", "col").
    terms : bool, default=False
        Whether f returns numbers of shape (n, terms) that add up to log p. Which variables each
        term depends on is found by trying, and ``FunctionTarget(...)`` returns a `MarkovNetwork`
        of their tables, on which samplers and exact answers are fast, and f is not called again.
        All states are compared with the tables if they are at most 65,536; of more, random ones,
        so that a dependence that shows at too few of them may be missed.

    Attributes
    ----------
    function : callable
        The function f.
    vectorized : bool
        Whether f is given several states at once.
    values : tuple of int
        0 to the largest number of values less 1.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described; if f returns anything but a real number of at most
        1e303 in size or -inf (the message shows the state), changes its argument, or gives another
        value to a state among several. Samplers raise any error of f.

    See Also
    --------
    Target : with compiled functions for the changes of log p.

    Notes
    -----
    With n moves (the other values of all variables), a transition to a new state takes n + 1
    values of f; one that returns to the last state takes none. With evidence, only moves of the
    other variables count. The list of touched moves takes 4 n**2 bytes, for all variables.

    Learning evaluates neighbours of neighbours, so `fit` takes many more values of f than the same
    number of transitions of `sample`. With 1,000 transitions of burn-in and 4 chains, the ratio was
    76 for a sparse quadratic function of 20 variables, 27 for 64 and 13 for 200; with
    ``pilot=False``, 12, 2.5 and 2.6. ``LSBSampler(verbose=1)`` shows the progress. For an expensive
    f use a fixed function, ``LSBSampler(balancing="barker")``.

    The burn-in of `LSBSampler` and `ParallelTempering` by default takes about 2**22 values of a
    function of Python at most, or as many as its fewest transitions need, and learning functions
    for sampling up to 2**23 for each; `fit` says what it leaves out. `GibbsSampler` takes few.

    Code compiled by numba does not check indices: an index beyond the end of an array reads
    whatever is there. Try f with ``numba.njit(boundscheck=True)`` first.

    After an error in f, the chains are as before the last transitions, of about a tenth of a
    second or one of each chain, and `sample` can be called again. Ctrl-C ends `fit` with a
    KeyboardInterrupt; `sample` finishes those transitions and returns the draws so far, with an
    InterruptedWarning, or raises a KeyboardInterrupt on a second Ctrl-C. The target can be
    pickled if f can.

    Examples
    --------
    Nine people around a table, each of whom likes to differ from both neighbours.

    >>> import numpy as np
    >>> from sklsb import FunctionTarget, LSBSampler
    >>> def log_prob(x):
    ...     return 0.8 * (x != np.roll(x, 1, axis=-1)).sum(axis=-1)
    >>> target = FunctionTarget(log_prob, 9, n_states=3)
    >>> target.vectorized
    True
    >>> target.log_prob([[0, 1, 2, 0, 1, 2, 0, 1, 2], [0] * 9])
    array([7.2, 0. ])
    >>> draws = LSBSampler("sqrt", random_state=0, n_burn_in=200).fit(target).sample(500)
    >>> draws["x"].shape
    (4, 500, 9)

    The same by its terms, one for each pair of neighbours:

    >>> target = FunctionTarget(lambda x: 0.8 * (x != np.roll(x, 1, axis=1)), 9, 3, terms=True)
    >>> target
    MarkovNetwork(9 sites, 9 factors, 3 values)
    """

    value_cost = 1  # of a value, in about a thousand operations
    _may_change = True
    _advice = " A function of one state needs vectorized=False."

    def __new__(cls, *args: Any, terms: bool = False, **options: Any) -> Any:
        """Make the target, or a network where the function returns terms."""
        made = super().__new__(cls, **options)  # refuses unknown words
        return of_terms(*args, **options) if terms else made

    def __init__(
        self,
        log_prob: Callable[..., Any],
        n_sites: int,
        n_states: int | Sequence[int] = 2,
        *,
        vectorized: bool | None = None,
        initial_state: ArrayLike | Callable[[np.random.Generator], ArrayLike] | None = None,
        names: Iterable[Any] | None = None,
        state_names: Any = None,
        shape: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
        terms: bool = False,
    ):
        if not callable(log_prob):
            raise TypeError(f"log_prob is {log_prob!r:.100}; give a function of a state.")
        if vectorized not in (None, True, False):
            raise TypeError(f"vectorized is {vectorized!r:.100}; give True, False or None.")
        self.function = log_prob
        if np.ndim(n_sites):
            raise TypeError(f"n_sites is {n_sites!r:.100}; give an integer, and n_states=[...].")
        n_sites = integer(n_sites, "n_sites", 0, np.iinfo(np.int32).max)
        self.shape, self.dims = check_shape(shape, dims, n_sites)
        self._labels = check_names(names, n_sites)
        if names is not None and len(self.shape) > 1:
            raise ValueError(f"names is given, and the shape {self.shape}; give one of them.")
        if self._labels is not None:
            n_states = by_label(n_states, self._labels, "n_states")
        self._cardinalities = check_sizes(n_states, "n_states", n_sites)
        self.values = tuple(range(self._cardinalities.max(initial=1)))
        self.state_names = check_state_names(state_names, self.names, self._cardinalities)
        self.ratio_cost = max(1, self.n_sites)
        self._site = self.offers.site_of_moves
        self._first = np.append(0, np.cumsum(self._cardinalities - 1))
        self._rank = np.arange(self._site.size) - self._first[self._site]
        self._moves = np.arange(self._site.size)  # the moves to evaluate
        self._n_bytes = self.n_sites * self.dtype.itemsize
        self.vectorized = False
        self._try(vectorized)
        self.initial_state = initial_state
        if initial_state is not None:
            self.draw_state(np.random.default_rng(0))

    __new__.__wrapped__ = __init__  # type: ignore[attr-defined]  # whose parameters help shows

    # Cached, as copies and pickles in other processes begin anew.

    @cached_property
    def _c_functions(self) -> list[Any]:
        return []  # views point to them

    @cached_property
    def _runs(self) -> list[_Run]:
        return []

    @cached_property
    def seconds_of_value(self) -> float:
        """The least so far, 0 before the first."""
        return 0.0

    def __repr__(self) -> str:
        name = getattr(self._named, "__name__", type(self._named).__name__)
        most = len(self.values)
        fewest = self._cardinalities.min(initial=most)
        values = str(most) if fewest == most else f"{fewest} to {most}"
        return f"{type(self).__name__}({name}, {self.n_sites} sites, {values} values)"

    @property
    def _named(self) -> Any:
        """The function that names the target."""
        return self.function

    @property
    def cardinalities(self) -> Ints:
        return self._cardinalities.copy()

    @property
    def _compiled(self) -> bool:
        return bool(is_jitted(self.function)) and not self.vectorized

    # ----------------------------------------------------------------- values

    @cached_property
    def _is_single(self) -> bool:  # type: ignore[override]
        return self._is_single_given(NO_SITES, NO_SITES)

    def _is_single_given(self, sites: Ints, observed: Ints) -> bool:
        """Whether values have single precision, or rounding that depends on the batch."""
        states = np.random.default_rng(1).integers(self._cardinalities, size=(32, self.n_sites))
        states[:, sites] = observed
        found = self.function(states) if self.vectorized else self.function(states[0])
        if np.asarray(found).dtype in (np.float16, np.float32):
            return True
        together = self._evaluate(states)
        alone = np.concatenate([self._evaluate(x[None]) for x in states])
        return not np.allclose(together, alone, rtol=1e-12, atol=0.0)

    def _try(self, vectorized: bool | None) -> None:
        """Call the function at random states to find out whether it takes several at once."""
        # Never as many states as variables: the axes could be confused.
        size = (_N_TRIAL + (self.n_sites == _N_TRIAL), self.n_sites)
        states = np.random.default_rng(0).integers(self._cardinalities, size=size)
        given = states.copy()
        if vectorized is None and is_jitted(self.function):
            vectorized = False
        found, errors = {}, []
        for self.vectorized in (False, True) if vectorized is None else (vectorized,):
            try:
                found[self.vectorized] = self._evaluate(given)
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        if not found:
            called = f", where {self._labels[0]!r} is x[..., 0]" if self._labels else ""
            errors[0].add_note(
                f"It came from log_prob, called with an array of shape ({self.n_sites},)"
                f"{f' and one of {size}' if vectorized is None else ''}: the numbers of the values "
                f"of all variables, in one flat row{called}. The function takes this one argument."
            )
            for other in errors[1:]:
                errors[0].add_note(f"With the array of shape {size} the error was: {other}")
            raise errors[0]
        if np.any(given != states):
            raise ValueError("log_prob changes the state that it is given; let it change a copy.")
        # A function that takes both must return the same, up to rounding in single precision.
        self.vectorized = True in found and np.allclose(
            found[True], found.get(False, found[True]), rtol=1e-5, atol=1e-6
        )
        if self.vectorized:
            self._try_one_by_one(states, found[True])

    def _try_one_by_one(self, states: Ints, together: Array) -> None:
        """Check that the value of a state does not depend on the others in the batch."""
        alone = np.concatenate([self._evaluate(states[[i]]) for i in range(len(states))])
        where = f"for it alone, as an array of shape {states[:1].shape}"
        self._compare(states, together, alone, (1e-5, 1e-6), where)

    def _compare(
        self,
        states: Ints,
        values: Array,
        now: Array,
        rounding: tuple[float, float],
        where: str,
        why: str = "",
    ) -> None:
        """Raise if the values of states, or of the first of them, are others ``now``."""
        different = np.flatnonzero(~np.isclose(now, values[: len(now)], *rounding))
        if different.size:
            i = different[0]
            raise ValueError(
                f"log_prob returned {values[i]} for the state {states[i].tolist()} among "
                f"{len(states)}, and {now[i]} {where}; it must depend on the state only."
                f"{why}{self._advice}"
            )

    def _evaluate(self, states: Ints) -> Array:
        """Values at states of shape (n, n_sites), checked."""
        began = time.perf_counter()
        if self.vectorized:
            found: Any = self.function(states)
            tick(len(states))
            given, wanted, shape = f"states of shape {states.shape}", f"{len(states)} numbers", 0
        else:
            found = []
            for x in states:
                found.append(self.function(x))
                tick(1)
            given, wanted, shape = f"a state of shape {states.shape[1:]}", "one number", 1
        # The least so far: first calls compile, or load a library.
        took = (time.perf_counter() - began) / max(1, len(states))
        self.seconds_of_value = min(self.seconds_of_value or took, took)
        values = as_array(found, "the result of log_prob")
        if values.dtype.kind not in "iufb":
            first = found if self.vectorized else found[0]
            raise TypeError(f"log_prob returned {first!r:.100} for {given}; return {wanted}, real.")
        if values.dtype == bool:
            raise TypeError(
                f"log_prob returned True or False for {given}; return {wanted}, the logarithm of "
                "p. For a constraint that is np.where(allowed, 0.0, -np.inf)."
            )
        if values.shape != states.shape[:1]:
            raise ValueError(
                f"log_prob returned shape {values.shape[shape:]} for {given}; return {wanted}."
            )
        values = values.astype(np.float64)
        bad = ~(np.abs(values) <= LARGEST_LOG_PROB) & (values != -np.inf)
        if bad.any():
            k = int(bad.argmax())
            raise ValueError(
                f"log_prob returned {values[k]} at the state {states[k].tolist()}; it must return "
                f"a number of at most {LARGEST_LOG_PROB:g} in size, or -inf if it is impossible."
            )
        return values

    def _values_around(self, x: States) -> Array:
        """Values at a state and its neighbours, shape (1 + n_moves,)."""
        site, rank = self._site[self._moves], self._rank[self._moves]
        new = rank + (rank >= x[site])
        values = np.full(1 + self._site.size, -np.inf)
        most = 1 + at_once(_MOST_HELD, self.n_sites)
        for first in range(0, 1 + site.size, most):
            # The state itself is the first of the first part.
            own = int(first == 0)
            part = slice(first - 1 + own, first - 1 + most)
            states = np.tile(x.astype(np.int64), (own + site[part].size, 1))
            states[own + np.arange(site[part].size), site[part]] = new[part]
            places = 1 + self._moves[part]
            values[np.append(0, places) if own else places] = self._evaluate(states)
        return values

    def log_prob(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        values = self._evaluate(flat.astype(np.int64)) if len(flat) else np.empty(0)
        return values.reshape(leading)

    def log_ratios(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        values = np.empty((len(flat), 1 + self._site.size))
        for row, state in zip(values, flat, strict=True):
            row[:] = self._values_around(state)
        with np.errstate(invalid="ignore"):  # out of an impossible state
            ratios = values[:, 1:] - values[:, :1]
        return ratios.reshape(*leading, self._site.size)

    def observing(self, sites: Ints) -> FunctionTarget:
        """Return a target that skips the moves of these sites; their log-ratios are -inf."""
        made = copy.copy(self)
        made._moves = np.flatnonzero(~np.isin(self._site, sites))
        return made

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw a state by ``initial_state``, or uniformly until one is possible."""
        return self.draw_state_given(rng, NO_SITES, NO_SITES)

    def draw_state_given(self, rng: np.random.Generator, sites: Ints, observed: Ints) -> States:
        fixed = self.initial_state is not None and not callable(self.initial_state)
        for _ in range(1 if fixed else _MOST_TRIES):
            x = super().draw_state(rng) if self.initial_state is None else self._given_state(rng)
            x[sites] = observed
            if self.log_prob(x) > -np.inf:
                return x
        if fixed:
            raise ValueError(
                f"initial_state{' with the evidence put in' if sites.size else ''} is "
                f"{x.tolist()}, where log_prob is -inf; give a state of positive probability"
                f"{' that agrees with the evidence' if sites.size else ''}."
            )
        raise ValueError(
            f"log_prob is -inf at all of {_MOST_TRIES} states where chains could start; give "
            "initial_state, a state of positive probability or a function of a Generator that "
            "returns one, in agreement with the evidence if there is any."
        )

    def _given_state(self, rng: np.random.Generator) -> States:
        given: Any = self.initial_state
        given = given(rng) if callable(given) else given
        x = self.check_states(given, "initial_state")
        if x.shape != (self.n_sites,):
            raise ValueError(f"initial_state has shape {np.shape(given)}; it must be {self.shape}.")
        return x

    # ----------------------------------------------------------------- kernels

    def _call(self, x: int, values: int, around: bool = True) -> None:
        """Write the values at a state, and around it, to an address; called by kernels."""
        try:
            runs = tuple(self._runs)  # other threads may change the list
            errors = next((run.errors for run in runs if run.first <= x < run.end), [])
            if not errors:
                state = np.frombuffer(ctypes.string_at(x, self._n_bytes), dtype=self.dtype)
                if around:
                    found = self._values_around(state)
                else:
                    found = self._evaluate(state[None].astype(np.int64))
                ctypes.memmove(values, found.ctypes.data, found.nbytes)
        except BaseException as error:  # noqa: BLE001
            # It cannot pass through the kernel: ctypes would only print it.
            errors.append(error)

    @cached_property
    def _view(self) -> FunctionView:
        if self._compiled:
            observed = ~np.isin(np.arange(self.n_sites), self._site[self._moves])
            compiled = neighbourhood_function(
                self.function, self._cardinalities, observed, self.dtype
            )
        else:
            compiled = _signature(self._call)
        return FunctionView(*self._located(compiled), *all_touched(self._site.size))

    def _located(self, compiled: Any) -> tuple[int, NDArray[np.uint64], NDArray[np.uint32]]:
        """Address of a C function, which is kept alive, and the places of the moves of sites."""
        self._c_functions.append(compiled)
        found = compiled.address if self._compiled else ctypes.cast(compiled, ctypes.c_void_p).value
        return int(found or 0), self._first.astype(np.uint64), self._site.astype(np.uint32)

    @cached_property
    def _site_view(self) -> FunctionSiteView:
        if self._compiled:
            compiled = state_function(self.function, self.n_sites, self.dtype)
        else:
            compiled = _signature(partial(self._call, around=False))
        return FunctionSiteView(*self._located(compiled))

    def view(self) -> FunctionView:
        return self._view

    def site_view(self) -> FunctionSiteView:
        return self._site_view

    @contextmanager
    def guard(self, chains: Chains) -> Iterator[Callable[[BaseException], None]]:
        """Raise errors of the function in kernels, with the chains as before.

        Yields a callable that, given an error, makes the kernels come to an end.
        """
        carried = [chains.x, chains.cache, chains.acceptance, chains.refusable]
        carried += [values for _, values in arrays_of(chains.part)]
        before = [values.copy() for values in carried]
        first = chains.x.ctypes.data
        run = _Run(first, first + chains.x.nbytes, [])
        self._runs.append(run)
        try:
            yield run.errors.append
        finally:
            self._runs.remove(run)
            failed = np.flatnonzero(chains.scratch[:, :1])  # exact draws have none
            if failed.size or run.errors:
                for now, values in zip(carried, before, strict=True):
                    now[:] = values
                states = chains.scratch[failed[:1], 1 : 1 + self.n_sites].copy()
                chains.scratch[:] = 0
                self._raise(run.errors, states)

    def _raise(self, errors: list[BaseException], states: Ints) -> None:
        """Raise the error of the function, by calling it again around the state if need be."""
        if errors:
            raise errors[0]
        for state in states:
            self._values_around(state)
            if self._compiled:
                raise RuntimeError(
                    f"log_prob failed in compiled code, at or next to the state {state.tolist()}, "
                    "but not when it was called again; it must depend on the state alone."
                )
        raise KeyboardInterrupt  # before the first line of the function


class _Run(NamedTuple):
    """A run of kernels: the addresses of the states of its chains, and its errors."""

    first: int
    end: int
    errors: list[BaseException]
