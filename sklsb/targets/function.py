"""Any function as a target."""

import copy
import ctypes
from collections.abc import Callable, Iterator, Sequence
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
from sklsb.targets._checks import MOST_VALUES, all_touched, as_array, integer
from sklsb.targets._names import check_names, check_shape
from sklsb.targets.base import States, Target

_MOST_TRIES = 1000
# States of the trial at the beginning.
_N_TRIAL = 5
_signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class FunctionTarget(Target):
    r"""Any function as the log-density, of Python or compiled by numba.

    .. math:: \log p(x) = f(x), \qquad x_i \in \{0, \dots, k_i - 1\}

    up to the normalising constant. Nothing is known of f but its values, so each transition takes
    f at all states that differ from a new one in one variable, in one call where f takes several
    states at once. A target that knows how log p changes is faster by far; see the notes.

    Parameters
    ----------
    log_prob : callable
        The function f. It is given a state, an array of int64 of shape (n_sites,), and returns a
        number; or states of shape (n, n_sites), and returns n numbers. Finite, or -inf for an
        impossible state. It must depend on the state alone. Jitted by numba (``numba.njit``), it
        takes one state, and is called from compiled code without the GIL.
    n_sites : int
        Number of variables.
    n_states : int or sequence of n_sites int, default=2
        Number of values of each variable, up to 32,768.
    vectorized : bool, optional
        Whether f takes several states at once. By default it is tried at a few random states; if
        True, it is found out there whether that is so.
    initial_state : array_like of shape (n_sites,) or callable, optional
        A state of positive probability, or a function of a `numpy.random.Generator` that returns
        one, where chains start; needed if random states are impossible.
    names : sequence of str or of int, optional
        Names of the variables: the coordinate of the dimension site, and names for evidence. Only
        where the shape has one axis.
    shape : tuple of int, optional
        Shape of the array of variables, of n_sites in all, that draws come back in, as of an
        image. f is given flat states all the same.
    dims : tuple of str, optional
        Names of the axes of the shape; ("site",) or ("row", "col") if not given.

    Attributes
    ----------
    function : callable
        f, as given.
    vectorized : bool
        Whether f is given several states at once.
    values : tuple of int
        0 to the largest number of values less 1.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described; if f returns something else than a real number for a
        state, NaN, +inf or a number beyond 1e303 (the message shows the state), or changes the
        state that it is given, or means something else by several states than by each.
        Later, in the methods of a sampler too, whatever f raises.

    See Also
    --------
    Target : with compiled functions for the changes of log p.

    Notes
    -----
    With n moves (in all, the other values of all variables), a transition to a new state costs
    n + 1 values of f; a move that is taken back costs none. With evidence, f is evaluated only
    where the evidence holds, and n is the number of moves of the other variables. The list of
    moves that a move touches takes 4 n**2 bytes (n of all variables). Each chain keeps the values
    of some states where it was.

    Learning looks at the neighbours of neighbours, so `fit` takes many more values of f than as
    many transitions of `sample` do. With 1,000 transitions of burn-in and 4 chains it was 76 times
    as many for a sparse quadratic function of 20 variables, 27 times for 64 and 13 times for 200;
    with ``pilot=False`` 12, 2.5 and 2.6 times. (`ratio_cost`, which is n_sites, tells learning to
    look at few neighbours.) That may take minutes: ``LSBSampler(verbose=1)`` tells how far it
    is. For a costly f take a fixed function, ``LSBSampler(balancing="barker")``, which learns
    nothing.

    In code compiled by numba an index beyond the end of an array is no error: it reads whatever
    is there. Try f with ``numba.njit(boundscheck=True)`` first.

    An error in f ends `fit` or `sample`; the chains are as before the transitions of the last
    tenth of a second, about, and `sample` can be called again. A Ctrl-C ends `fit`, with a
    KeyboardInterrupt. `sample` finishes the transitions of that tenth of a second and returns the
    draws made so far, with an InterruptedWarning; a second Ctrl-C meanwhile raises a
    KeyboardInterrupt. The target can be pickled if f can.

    Examples
    --------
    Each of nine people has two neighbours around a table, and likes to differ from them.

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
    """

    _may_change = True
    _advice = " A function of one state needs vectorized=False."

    def __init__(
        self,
        log_prob: Callable[..., Any],
        n_sites: int,
        n_states: int | Sequence[int] = 2,
        *,
        vectorized: bool | None = None,
        initial_state: ArrayLike | Callable[[np.random.Generator], ArrayLike] | None = None,
        names: Sequence[str] | Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        dims: Sequence[str] | None = None,
    ):
        if not callable(log_prob):
            raise TypeError(f"log_prob is {log_prob!r:.100}; give a function of a state.")
        if vectorized not in (None, True, False):
            raise TypeError(f"vectorized is {vectorized!r:.100}; give True, False or None.")
        self.function = log_prob
        n_sites = integer(n_sites, "n_sites", 1, np.iinfo(np.int32).max)
        self.shape, self.dims = check_shape(shape, dims, n_sites)
        self._names_of_sites = check_names(names, n_sites)
        if names is not None and len(self.shape) > 1:
            raise ValueError(f"names is given, and the shape {self.shape}; give one of them.")
        self._cardinalities = self._check_n_states(n_states)
        self.values = tuple(range(self._cardinalities.max()))
        self.ratio_cost = self.n_sites
        moves = self._cardinalities - 1
        self._site = np.repeat(np.arange(self.n_sites), moves)
        self._first = np.append(0, np.cumsum(moves))
        self._rank = np.arange(self._site.size) - self._first[self._site]
        self._moves = np.arange(self._site.size)  # those that are evaluated
        self._n_bytes = self.n_sites * self.dtype.itemsize
        self._reset()
        self.vectorized = False
        self._try(vectorized)
        self.initial_state = initial_state
        if initial_state is not None:
            self.draw_state(np.random.default_rng(0))

    def _check_n_states(self, n_states: Any) -> NDArray[np.int64]:
        if not np.ndim(n_states):
            given = [n_states] * self.n_sites
        else:
            given = list(n_states)
        if len(given) != self.n_sites:
            raise ValueError(
                f"n_states has {len(given)} entries for {self.n_sites} variables; give one number, "
                "or one for each variable."
            )
        return np.array([integer(k, "n_states", 1, MOST_VALUES) for k in given])

    def _reset(self) -> None:
        """Set what belongs to this process."""
        # Addresses of these are in views; two threads may both make one.
        self._c_functions: list[Any] = []
        self._runs: list[_Run] = []

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_c_functions", "_runs")
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reset()

    def __repr__(self) -> str:
        name = getattr(self._named, "__name__", type(self._named).__name__)
        fewest, most = self._cardinalities.min(), self._cardinalities.max()
        values = str(most) if fewest == most else f"{fewest} to {most}"
        return f"{type(self).__name__}({name}, {self.n_sites} sites, {values} values)"

    @property
    def _named(self) -> Any:
        """What the target is called after."""
        return self.function

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        """Number of values of each variable, shape (n_sites,)."""
        return self._cardinalities.copy()

    @property
    def coords(self) -> dict[str, Any]:
        """Coordinate of each of ``dims``: the names, or 0, 1, ..."""
        if self._names_of_sites is not None:
            return {self.dims[0]: np.asarray(self._names_of_sites)}
        return super().coords

    @property
    def _compiled(self) -> bool:
        return bool(is_jitted(self.function)) and not self.vectorized

    # ----------------------------------------------------------------- values

    @cached_property
    def _is_single(self) -> bool:  # type: ignore[override]
        """Whether values are of single precision, or round so among others."""
        states = np.random.default_rng(1).integers(self._cardinalities, size=(32, self.n_sites))
        found = self.function(states) if self.vectorized else self.function(states[0])
        if np.asarray(found).dtype in (np.float16, np.float32):
            return True
        together = self._evaluate(states)
        alone = np.concatenate([self._evaluate(x[None]) for x in states])
        return not np.allclose(together, alone, rtol=1e-12, atol=0.0)

    def _try(self, vectorized: bool | None) -> None:
        """Call the function at random states; find out whether it takes several at once."""
        # Never as many states as variables: their axes could be taken for each other.
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
            raise errors[0]
        if np.any(given != states):
            raise ValueError("log_prob changes the state that it is given; let it change a copy.")
        # A function that takes both must mean the same by them, up to rounding in single precision.
        self.vectorized = True in found and np.allclose(
            found[True], found.get(False, found[True]), rtol=1e-5
        )
        if self.vectorized:
            self._try_one_by_one(states, found[True])

    def _try_one_by_one(self, states: NDArray[np.int64], together: NDArray[np.float64]) -> None:
        """Find out whether the value of a state depends on the states beside it."""
        alone = np.concatenate([self._evaluate(states[[i]]) for i in range(len(states))])
        different = np.flatnonzero(~np.isclose(together, alone, rtol=1e-5))
        if different.size:
            i = different[0]
            raise ValueError(
                f"log_prob returned {together[i]} for the state {states[i].tolist()} among "
                f"{len(states)}, and {alone[i]} for it alone, as an array of shape "
                f"{states[[i]].shape}; it must depend on the state only.{self._advice}"
            )

    def _evaluate(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        """Values at states of shape (n, n_sites), or say what is wrong with them."""
        if self.vectorized:
            found: Any = self.function(states)
            given, wanted, shape = f"states of shape {states.shape}", f"{len(states)} numbers", 0
        else:
            found = [self.function(x) for x in states]
            given, wanted, shape = f"a state of shape {states.shape[1:]}", "one number", 1
        values = as_array(found, "the result of log_prob")
        if values.dtype.kind not in "iufb":
            first = found if self.vectorized else found[0]
            raise TypeError(f"log_prob returned {first!r:.100} for {given}; return {wanted}, real.")
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

    def _values_around(self, x: States) -> NDArray[np.float64]:
        """Values at a state and at those that the moves lead to, shape (1 + n_moves,)."""
        site, rank = self._site[self._moves], self._rank[self._moves]
        states = np.tile(x.astype(np.int64), (1 + site.size, 1))
        states[1 + np.arange(site.size), site] = rank + (rank >= x[site])
        values = np.full(1 + self._site.size, -np.inf)
        values[np.append(0, 1 + self._moves)] = self._evaluate(states)
        return values

    def log_prob(self, x: ArrayLike) -> NDArray[np.float64]:
        """Values of the function.

        -inf for an impossible state.
        """
        states = self.check_states(x)
        flat = states.reshape(-1, self.n_sites).astype(np.int64)
        values = self._evaluate(flat) if len(flat) else np.empty(0)
        return values.reshape(states.shape[:-1])

    def log_ratios(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return log p(x') - log p(x) for every x' that differs from x in one variable.

        Site by site, and of each the other values in increasing order. Undefined if x itself
        is impossible.
        """
        states = self.check_states(x)
        flat = states.reshape(-1, self.n_sites)
        values = np.empty((len(flat), 1 + self._site.size))
        for row, state in zip(values, flat, strict=True):
            row[:] = self._values_around(state)
        with np.errstate(invalid="ignore"):  # out of an impossible state
            ratios = values[:, 1:] - values[:, :1]
        return ratios.reshape(*states.shape[:-1], self._site.size)

    def observing(self, sites: NDArray[np.int64]) -> "FunctionTarget":
        """Return a target that does not call the function where one of these sites differs.

        Parameters
        ----------
        sites : ndarray of int64
            Sites that are observed.

        Returns
        -------
        FunctionTarget
            Their log-ratios are -inf.
        """
        made = copy.copy(self)
        made._moves = np.flatnonzero(~np.isin(self._site, sites))
        return made

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw a state uniformly, again if it is impossible, or by ``initial_state``."""
        none = np.empty(0, dtype=np.int64)
        return self.draw_state_given(rng, none, none)

    def draw_state_given(
        self, rng: np.random.Generator, sites: NDArray[np.int64], observed: NDArray[np.int64]
    ) -> States:
        """Draw a state of positive probability in which some sites have the values observed."""
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
        """Write the values at a state, and around it; a kernel calls this with addresses."""
        try:
            runs = tuple(self._runs)  # other threads may change it
            errors = next((run.errors for run in runs if run.first <= x < run.end), [])
            if not errors:
                state = np.frombuffer(ctypes.string_at(x, self._n_bytes), dtype=self.dtype)
                found = (
                    self._values_around(state)
                    if around
                    else self._evaluate(state[None].astype(np.int64))
                )
                ctypes.memmove(values, found.ctypes.data, found.nbytes)
        except BaseException as error:  # noqa: BLE001
            # It cannot pass through the kernel; ctypes would print it, and the chain go on.
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
        """Address of a C function, which is kept alive, and where the moves of sites are."""
        self._c_functions.append(compiled)
        found = getattr(compiled, "address", None) or ctypes.cast(compiled, ctypes.c_void_p).value
        address = int(found or 0)
        return address, self._first.astype(np.uint64), self._site.astype(np.uint32)

    @cached_property
    def _site_view(self) -> FunctionSiteView:
        if self._compiled:
            compiled = state_function(self.function, self.n_sites, self.dtype)
        else:
            compiled = _signature(partial(self._call, around=False))
        return FunctionSiteView(*self._located(compiled))

    def view(self) -> FunctionView:
        """Arrays for the compiled kernels, and the address of a C function."""
        return self._view

    def site_view(self) -> FunctionSiteView:
        """Return the same for rules that look at a few states: one value at a time."""
        return self._site_view

    @contextmanager
    def guard(self, chains: Chains) -> Iterator[Callable[[BaseException], None]]:
        """Raise what the function raised while kernels ran, with the chains as before.

        Parameters
        ----------
        chains : Chains
            What the kernels work on.

        Yields
        ------
        callable
            Called with an error, lets the kernels come to an end.
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
            failed = np.flatnonzero(chains.scratch[:, 0])
            if failed.size or run.errors:
                for now, values in zip(carried, before, strict=True):
                    now[:] = values
                states = chains.scratch[failed[:1], 1 : 1 + self.n_sites].copy()
                chains.scratch[:] = 0
                self._raise(run.errors, states)

    def _raise(self, errors: list[BaseException], states: NDArray[np.int64]) -> None:
        """Raise what the function raised, or what is wrong around a state where it failed."""
        if errors:
            raise errors[0]
        for state in states:
            self._values_around(state)
            if self._compiled:
                raise RuntimeError(
                    f"log_prob failed in compiled code, at or next to the state {state.tolist()}, "
                    "but not when it was called again; it must depend on the state alone."
                )
        raise KeyboardInterrupt  # it came before the first line of the function called


class _Run(NamedTuple):
    """Work of kernels on some chains: where their states lie, and what went wrong."""

    first: int
    end: int
    errors: list[BaseException]
