"""Networks whose order of elimination is known: answers under evidence in a pass or two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from sklsb._kernels.elimination.buckets import LINEAR, MAX
from sklsb._system.arrays import Array, Ints
from sklsb._words import Worded, worded
from sklsb.diagnostics.draws import frame, marginals_dataset, named_columns, value_rows
from sklsb.exact.elimination.answers import check_joint, check_order, check_target, sites_of
from sklsb.exact.elimination.cost import Limits, check_limits, check_limits_kept
from sklsb.exact.elimination.engine import Elimination, Ordered, ordered, strike_few
from sklsb.exact.elimination.passes import Weights
from sklsb.exact.elimination.plan import Plan, build
from sklsb.exact.elimination.reduce import Factor, no_state, spread_over
from sklsb.exact.sensitivity import Sensitivity, derivatives
from sklsb.targets._checks import integer
from sklsb.targets._evidence import (
    NoStateError,
    clashing,
    impossible,
    is_soft,
    names_of_values,
    weights_of,
)
from sklsb.targets._names import labels_of, plain
from sklsb.targets._precision import warn_if_lost
from sklsb.targets.base import Conditioned, States, Target
from sklsb.targets.markov_network import MarkovNetwork

if TYPE_CHECKING:
    import pandas as pd

Evidence = Mapping[Any, Any]
_PLAIN = (str, int)
_MOST_KEPT = 8  # plans of `marginal_map`


class Marginals(Mapping[Any, Any]):
    """Marginal probabilities by the names of variables, made by `Prepared.marginals`.

    ``found["fever"]`` holds the probabilities of the values of one variable, in their order, and
    ``found["fever", "yes"]`` is one of them.

    Attributes
    ----------
    p : ndarray of float, shape (n_variables, n_values)
        Probabilities of all variables asked for; 0 beyond the values of a variable.
    """

    def __init__(self, target: Target, sites: Sequence[int], p: Array):
        self._target, self._sites, self.p = target, sites, p

    def __getitem__(self, name: Any) -> Any:
        try:
            (site,) = sites_of(self._target, [name])
        except ValueError as error:
            if not (isinstance(name, tuple) and len(name) == 2):
                raise KeyError(str(error)) from None
            try:
                ((site, weights),) = weights_of(self._target, {name[0]: name[1]}).items()
            except ValueError as wrong:
                raise KeyError(str(wrong)) from None
            return float(self[self._target.label(site)] @ weights)
        if site not in self._sites:
            raise KeyError(name)
        return self.p[self._sites.index(site), : self._target.cardinalities[site]]

    def __iter__(self) -> Iterator[Any]:
        return map(self._target.label, self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def __repr__(self) -> str:
        rows = self.to_frame().astype({"value": str})  # pandas takes True and 1 for one label
        rows = rows.set_index(["variable", "value"])["p"].round(6)
        return rows.to_string(max_rows=60) if len(self) else "Marginals()"

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each value of each variable, as `sklsb.diagnostics.to_frame`."""
        values = [names_of_values(self._target, site) for site in self._sites]
        return value_rows([*self], values, self.p, np.zeros_like(self.p))

    def to_dataset(self) -> xr.Dataset:
        """Return the probabilities of all variables, labelled as by `sklsb.exact.marginals`.

        Raises
        ------
        ValueError
            If these are the marginals of some variables only.
        """
        if [*self._sites] != [*range(self._target.n_sites)]:
            raise ValueError(
                f"these are the marginals of {len(self)} of {self._target.n_sites} variables; ask "
                "without variables to get a Dataset."
            )
        return marginals_dataset(self._target, self.p, np.zeros_like(self.p))


class _Sources(NamedTuple):
    """Where the entries of tables go in a plan."""

    parts: Ints  # entries of all tables in turn that add up to
    start: Ints  # each entry of the plan: a range of these
    constant: Ints  # entries of tables of variables with one value left
    struck: Ints  # entries of values that zeros exclude


@dataclass
class _Engine:
    """One order of elimination, and eliminations that wait for work."""

    found: Ordered
    plan: Plan
    constant: float
    # What values of evidence mean, by what was given.
    known: dict[Any, tuple[int, Weights, float]] = field(default_factory=dict)
    _idle: dict[int, list[tuple[Elimination, dict[int, Weights]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, target: Target, limits: Limits, keep: Sequence[int] = ()) -> _Engine:
        """Find an order in which variables in ``keep`` come last."""
        struck = strike_few(target)
        keep = [i for i in keep if struck.sizes[i] > 1]
        everything = Limits(limits.max_work, math.inf)
        found = ordered(struck, keep=keep, pruned=False, need="marginals", limits=everything)
        check_limits_kept(target, found.cost, everything)
        plan = build(
            found.order, struck.factors, struck.sizes, schedule=found.schedule, evidence=True
        )
        cost = found.cost._replace(log2_memory=math.log2(max(1.0, 8.0 * plan.n_entries)))
        check_limits_kept(target, cost, limits)
        return cls(replace(found, model=struck, cost=cost), plan, struck.constant)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_idle": {}, "known": {}}

    @cached_property
    def none(self) -> list[Weights]:
        """Weights of variables that were not observed."""
        return [Weights.of(np.zeros(k)) for k in self.found.model.sizes.tolist()]

    @contextmanager
    def given(self, weights: dict[int, Weights], mode: int = LINEAR) -> Iterator[Elimination]:
        """Lend an elimination with evidence, whose messages are made where they have changed."""
        idle = self._idle.setdefault(mode, [])
        try:
            elimination, before = idle.pop()
        except IndexError:
            elimination, before = Elimination(self.found, mode, plan=self.plan), {}
        if elimination.passes.plan is not self.plan:
            elimination.fill(self.plan)
            before = {}
        elimination.constant = self.constant
        new = {site: weights.get(site, self.none[site]) for site in {**before, **weights}}
        changed = {site: mine for site, mine in new.items() if mine is not before.get(site)}
        elimination.weigh(changed)
        yield elimination
        idle.append((elimination, new))  # not after an interrupt

    def filled(self, logs: Array, sources: _Sources) -> _Engine:
        """Return the same plan with other entries, whose logarithms are given."""
        plan = self.plan.filled(logs, sources.parts, sources.start)
        return replace(self, plan=plan, constant=math.fsum(logs[sources.constant].tolist()))

    def sources(self, scopes: Sequence[tuple[int, ...]]) -> _Sources:
        """Find out where the entries of tables with these scopes go, by laying out their places."""
        model, sizes = self.found.model, self.found.model.sizes.tolist()
        cardinalities = model.target.cardinalities
        shapes = [tuple(cardinalities[list(scope)].tolist()) for scope in scopes]
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
        struck, factors, constant = np.ones(ends[-1], dtype=np.bool_), [], [np.empty(0, np.int64)]
        for scope, shape, start in zip(scopes, shapes, ends.tolist(), strict=False):
            every = start + np.arange(math.prod(shape)).reshape(shape)
            left = every[np.ix_(*(model.values[i] for i in scope))] if scope else every
            struck[left] = False
            free = tuple(i for i in scope if sizes[i] > 1)
            if free:
                factors.append(Factor(free, left.reshape([sizes[i] for i in free])))
            else:
                constant.append(left.ravel())
        start, at, entry = 0, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for (scope, members), size in zip(self.plan.joined, self.plan.sizes.tolist(), strict=True):
            shape = tuple(sizes[u] for u in scope)
            for f in members:
                if f < len(factors):  # those after them are of evidence
                    spread = spread_over(scope, factors[f])
                    entry.append(np.broadcast_to(spread, shape).ravel().astype(np.int64))
                    at.append(np.arange(start, start + size, dtype=np.int64))
            start += size
        where = np.concatenate(at)
        parts = np.concatenate(entry)[np.argsort(where, kind="stable")]
        ends = np.cumsum([0, *np.bincount(where, minlength=start)])
        return _Sources(parts, ends, np.concatenate(constant), np.flatnonzero(struck))


class Prepared(Worded):
    """Exact answers of one network, whose plan is made once; see `prepare`.

    Evidence is a mapping of variables to values, or to likelihoods, as for `Target.condition`.
    Threads may ask at once; each takes memory for tables of its own. Objects can be pickled.

    Attributes
    ----------
    target : Target
        The network.
    """

    def __init__(
        self, target: Target, engine: _Engine, limits: Limits, entries: Array | None = None
    ):
        self._target, self._engine, self._limits, self._entries = target, engine, limits, entries
        self._with_last: dict[tuple[int, ...], _Engine] = {}  # of `marginal_map`, the last few

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_with_last": {}}

    def __repr__(self) -> str:
        return f"Prepared({self._target!r:.200})"

    @property
    def target(self) -> Target:
        """The network, with the present tables."""
        entries = self._entries
        if entries is not None:  # of `with_tables`
            self._target, self._entries = self._network("")._with_entries(entries), None
        return self._target

    @worded
    def marginals(
        self, evidence: Evidence | None = None, variables: Sequence[Any] | None = None
    ) -> Marginals:
        """Return the marginal probabilities of each variable, or of each one listed.

        `sklsb.exact.marginals` has the joint table of the variables listed.

        Parameters
        ----------
        evidence : mapping, optional
            What was observed.
        variables : list, optional
            The variables wanted. A few take less time than all.

        Returns
        -------
        Marginals
            Arrays by the names of variables.
        """
        check_order(variables, evidence)
        every = range(self._target.n_sites)
        sites = every if variables is None else sites_of(self._target, variables)
        with self._given(evidence) as (elimination, _):
            elimination.passes.want(None if variables is None else sites)
            p = elimination.marginals()
        return Marginals(self._target, sites, p if variables is None else p[list(sites)])

    @worded
    def log_partition(self, evidence: Evidence | None = None) -> float:
        """Return log Z given evidence: in a Bayesian network its log-probability."""
        with self._given(evidence) as (elimination, log_divisor):
            return elimination.log_sum + log_divisor

    @worded
    def most_likely(self, evidence: Evidence | None = None) -> States:
        """Return a state of largest probability given evidence, of shape (n_sites,)."""
        with self._given(evidence, MAX) as (elimination, _):
            return elimination.most_likely()

    def sample(self, n: int, evidence: Evidence | None = None, random_state: Any = None) -> States:
        """Return independent exact draws given evidence, of shape (n, n_sites).

        Parameters
        ----------
        n : int
            Number of draws.
        evidence : mapping, optional
            What was observed.
        random_state : int, SeedSequence, Generator or None
            Seed, as for `numpy.random.default_rng`.
        """
        n, rng = integer(n, "n", 0, np.iinfo(np.int64).max), np.random.default_rng(random_state)
        out = np.empty((n, self._target.n_sites), self._target.dtype)
        with self._given(evidence) as (elimination, _):
            elimination.draw(rng.random((n, elimination.found.n_uniforms)), out, None)
        return out

    def marginal_map(
        self, variables: Sequence[Any], evidence: Evidence | None = None
    ) -> tuple[States, float]:
        """Return the likeliest joint value of some variables, all others summed out.

        That may differ from what `most_likely` says of them. Variables listed are eliminated last,
        in a plan of their own, so few can be listed; the last 8 such plans are kept.

        Parameters
        ----------
        variables : list
            The variables.
        evidence : mapping, optional
            What was observed.

        Returns
        -------
        values : ndarray, shape (len(variables),)
            Their values.
        probability : float
            Of these values given the evidence.

        Raises
        ------
        ValueError
            If their joint table exceeds the limits given to `prepare`.
        """
        check_order(variables, evidence)
        sites = sites_of(self._target, variables)
        key = tuple(sorted(sites))
        engine = self._with_last.pop(key, None)
        if engine is None:
            check_joint(strike_few(self.target), sites, self._limits)
            engine = _Engine.of(self.target, self._limits, sites)
        self._with_last[key] = engine
        for old in list(self._with_last)[:-_MOST_KEPT]:
            self._with_last.pop(old, None)
        with self._given(evidence, engine=engine) as (elimination, _):
            p = elimination.joint(sites)
        best = np.unravel_index(int(p.argmax()), p.shape)
        values = np.array([self._target.values[int(i)] for i in best], dtype=self._target.dtype)
        return values, float(p[best])

    def named(self, states: ArrayLike, variables: Sequence[Any] | None = None) -> Any:
        """Return states under the names of variables and of their values.

        Parameters
        ----------
        states : array_like of shape (n_variables,) or (n, n_variables)
            As from `most_likely`, `sample` or `marginal_map`, whose probability is left out.
        variables : list, optional
            The variables, where they are not all.

        Returns
        -------
        dict or pandas.DataFrame
            A dict for one state, or a row for each.
        """
        every = range(self._target.n_sites)
        sites = every if variables is None else sites_of(self._target, variables)
        if isinstance(states, tuple) and [np.ndim(part) for part in states] == [1, 0]:
            states = states[0]  # of `marginal_map`
        if labels_of(states) is not None:
            raise TypeError(
                "states is a data frame or Series, which has names already; give arrays."
            )
        x = np.asarray(states)
        if x.ndim not in (1, 2) or x.shape[-1] != len(sites):
            raise ValueError(
                f"states has shape {x.shape}; give states of {len(sites)} variables, in one row or "
                "several, and name the variables if they are not all."
            )
        rows, last = np.atleast_2d(x), np.take(self._target.values, self._target.cardinalities - 1)
        # Those of a plan are positions, as their dtype says.
        kind = x.dtype if x.dtype == self._target.dtype else np.result_type(rows, last)
        full = np.tile(last, (len(rows), 1)).astype(kind)
        full[:, sites] = rows
        checked = self._target.check_states(full, "states")
        columns = named_columns(checked[:, sites], self._target, sites)
        if x.ndim == 2:
            return frame(columns, len(x))
        return dict(zip(columns, plain(column[0] for column in columns.values()), strict=True))

    def sensitivity(self, query: Evidence, evidence: Evidence | None = None) -> Sensitivity:
        r"""Differentiate a posterior probability by all entries of all tables.

        .. math:: \frac{\partial P(q \mid e)}{\partial \theta_f(x_{S_f})}, \qquad
                  P(q \mid e) = \frac{Z(q, e)}{Z(e)}

        with each entry changed alone: rows of conditional tables then no longer sum to 1. For a
        row that keeps its sum, take the derivative in that direction.

        Parameters
        ----------
        query, evidence : mapping of variable to value
            q and e.

        Returns
        -------
        Sensitivity
            A list of arrays: for each of ``target.factors``, in its shape. Its method ``to_frame``
            names and sorts them.

        Notes
        -----
        Messages are passed forward once, and derivatives of Z back through all tables (Darwiche,
        2003), for the query with the evidence and for the evidence alone.

        Raises
        ------
        TypeError
            If the target is no MarkovNetwork.
        """
        self._network("sensitivity")
        network: Any = self.target
        both = [weights_of(network, {} if e is None else e) for e in (query, evidence)]
        if not both[0]:
            raise ValueError("query is empty; give a dict of variable: value.")
        again = sorted(both[0].keys() & both[1].keys())
        if again:
            raise ValueError(
                f"query and evidence both have the variable {network.label(again[0])!r}; keep one."
            )
        try:
            return Sensitivity(network, derivatives(network, both[0], both[1], self._limits))
        except NoStateError:
            self.log_partition(evidence)  # says what is impossible together
            raise

    # ----------------------------------------------------------------- tables

    def with_tables(self, tables: Sequence[ArrayLike] | Mapping[Any, Any]) -> Prepared:
        """Return the same plan with other tables, in little time.

        Parameters
        ----------
        tables : mapping, list of array_like or array_like
            Some tables by variable, as for `MarkovNetwork.replace`; or all tables, in the order and
            shapes of ``target.factors``; or all their entries in one flat array, the fastest.

        Returns
        -------
        Prepared
            If an entry is positive at a value that zeros had excluded, its plan is made anew.

        Raises
        ------
        TypeError
            If the target is no MarkovNetwork.
        ValueError
            If a number or shape is wrong, or an entry is negative or not finite.
        """
        network = self._network("with_tables")
        if isinstance(tables, Mapping):
            tables = [table for _, table in network.replace(tables).factors]
        flat = network._checked_entries(tables)
        if flat[self._sources.struck].any():
            return _prepared(network._with_entries(flat), self._limits)
        with np.errstate(divide="ignore"):
            return self._filled(np.log(flat), flat)

    def _filled(self, logs: Array, entries: Array | None = None) -> Prepared:
        """Return the same plan with other tables, by the logarithms of all their entries."""
        engine = self._engine.filled(logs, self._sources)
        found = Prepared(self._network(""), engine, self._limits, entries)
        found._sources = self._sources
        return found

    @cached_property
    def _sources(self) -> _Sources:
        return self._engine.sources([scope for scope, _ in self._network("").log_factors])

    def _network(self, what: str) -> MarkovNetwork:
        """Return the network, with the tables that it had first."""
        if not isinstance(self._target, MarkovNetwork):
            raise TypeError(
                f"{what} needs a MarkovNetwork without evidence, and the target is "
                f"{self._target!r:.200}; prepare the network and give evidence with each question."
            )
        return self._target

    # ----------------------------------------------------------------- evidence

    def _weights(
        self, evidence: Evidence | None, engine: _Engine
    ) -> tuple[dict[int, Weights], float]:
        """Return weights of the variables observed, and the logarithm of what divides them."""
        found, log_divisor = dict[int, Weights](), 0.0
        for variable, value in (evidence or {}).items():
            site, weights, log_top = self._looked_up(variable, value, engine)
            if site in found:
                weights_of(self._target, evidence or {})  # says which two are the same
            found[site] = weights
            log_divisor += log_top
        return found, log_divisor

    def _looked_up(self, variable: Any, value: Any, engine: _Engine) -> tuple[int, Weights, float]:
        plain = type(variable) in _PLAIN and type(value) in _PLAIN
        key = type(variable), variable, type(value), value
        if plain and key in engine.known:
            return engine.known[key]
        ((site, weights),) = weights_of(self._target, {variable: value}).items()
        left = weights[engine.found.model.values[site]]
        top = float(left.max())
        if not top > 0.0:
            raise no_state(self._target, None)
        with np.errstate(divide="ignore"):
            found = site, Weights.of(np.log(left / top)), math.log(top)
        if plain:  # others may change, or be equal without meaning the same
            engine.known[key] = found
        return found

    @contextmanager
    def _given(
        self, evidence: Evidence | None, mode: int = LINEAR, engine: _Engine | None = None
    ) -> Iterator[tuple[Elimination, float]]:
        """Lend an elimination with evidence, and the logarithm of what its sum is divided by."""
        engine = engine or self._engine
        if evidence is not None and not isinstance(evidence, Mapping):
            weights_of(self._target, evidence)  # says what to give, if it is no Series
            evidence = dict(evidence)
        try:
            weights, log_divisor = self._weights(evidence, engine)
            with engine.given(weights, mode) as elimination:
                yield elimination, log_divisor
                if mode == LINEAR:
                    warn_if_lost(self._target, elimination.rounding_size)
        except NoStateError:
            target, given, before = self._target, evidence or {}, dict[Any, Any]()
            if isinstance(target, Conditioned):
                before = target.evidence
                if not any(map(is_soft, given.values())):
                    raise no_state(target.condition(given), None) from None
            clash = clashing(given, self._check, NoStateError)
            if not clash:
                raise
            raise impossible({**before, **clash}) from None

    def _check(self, evidence: Evidence) -> None:
        with self._engine.given(self._weights(evidence, self._engine)[0]) as elimination:
            elimination.run()


def prepare(
    target: Target, *, max_work: float | None = None, max_memory: float | None = None
) -> Prepared:
    """Make a plan of exact answers once, to ask one network about evidence again and again.

    The order of elimination and the places of all tables are found here. A question then takes one
    compiled pass over the tables, or two, of which messages that evidence has not changed since the
    last question are kept.

    Parameters
    ----------
    target : Target
        A target made of factors (`Target.log_factors`), best without evidence, or of at most 2**14
        states.
    max_work, max_memory : float, optional
        As in `sklsb.exact.log_partition`. All messages are held in memory.

    Returns
    -------
    Prepared
        With the methods ``marginals``, ``log_partition``, ``most_likely``, ``sample``,
        ``marginal_map``, ``sensitivity`` and ``with_tables``.

    Raises
    ------
    TypeError
        If the target has no factors and more states.
    ValueError
        If the plan exceeds the limits, or no state has positive probability. Questions raise it for
        evidence of probability zero.

    Examples
    --------
    >>> from sklsb import MarkovNetwork, exact
    >>> rain = MarkovNetwork(
    ...     [2, 2],
    ...     [(["rain"], [0.8, 0.2]), (["rain", "wet"], [[0.9, 0.1], [0.2, 0.8]])],
    ...     names=["rain", "wet"],
    ... )
    >>> plan = exact.prepare(rain)
    >>> plan.marginals({"wet": 1})["rain"].round(3)
    array([0.333, 0.667])
    >>> plan.marginals({"wet": {0: 0.5, 1: 1.0}})["rain"].round(3)  # a test that may be wrong
    array([0.71, 0.29])
    """
    return _prepared(check_target(target), check_limits(max_work, max_memory, "marginals"))


def _prepared(target: Target, limits: Limits) -> Prepared:
    return Prepared(target, _Engine.of(target, limits), limits)
