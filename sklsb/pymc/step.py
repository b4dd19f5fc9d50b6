"""A step for PyMC that draws the discrete variables of a model, many at once."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import DictToArrayBijection
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars

from sklsb._system.arrays import Ints
from sklsb._system.warn import warn
from sklsb._words import few, worded
from sklsb.exact import elimination_cost
from sklsb.exceptions import FrozenSitesWarning, SamplerWarning
from sklsb.pymc.block import MOST_VALUES, SLICED, Block
from sklsb.pymc.moves import Balanced, Colours, Elimination, Slices, Surprise
from sklsb.pymc.numbers import impossible
from sklsb.pymc.summed import Whole, log_sum
from sklsb.pymc.variables import FAR

_METHODS = ("auto", "colours", "elimination", "lsb")
# What the block sees is checked at the first steps, and at every so many later.
_FIRST_CHECKS, _CHECK_EVERY = 3, 100
# A block is summed out of so many copies of log p at most, in log2 of so many table entries.
_MOST_STATES, _MOST_SUMMED = 64, 18.0
# Steps until a warning names sites that never could change.
_UNTIL_TOLD = 200
# Draws of the whole block at once may take so many times as long as draws by colour, where
# neighbours depend: in table entries, with what an output, a table, a draw take.
_WORTH, _OF_CALL, _OF_TABLE, _OF_DRAW = 20.0, 1000.0, 100.0, 30_000.0


@dataclass(frozen=True)
class Structure:
    """What `DiscreteStep` found out about a block, and how it draws it; printed as a table.

    Attributes
    ----------
    names : tuple of str
        The sites: elements of the variables.
    n_terms : int
        Elements of terms of log p that see a site.
    scopes : tuple of tuple of int
        Distinct sets of sites that elements see.
    groups : tuple of (str, tuple of int, int, int)
        For each way of drawing: its name, its sites, how many colours they have, and how often a
        step evaluates log p for them.
    width : int
        The most sites that one element sees.
    probed : tuple of str
        Operations of PyTensor that are not known, so that elements were probed.
    """

    names: tuple[str, ...]
    n_terms: int
    scopes: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[str, tuple[int, ...], int, int], ...]
    width: int
    probed: tuple[str, ...]

    def __str__(self) -> str:
        def many(n: int, what: str) -> str:
            return f"{n} {what}{'s' * (n != 1)}"

        n = len(self.names)
        probed = f"probed, because of {', '.join(self.probed)}"
        how = probed if self.probed else "read off the graph"
        lines = [
            f"{many(n, 'site')}, {many(self.n_terms, 'element')} of terms of log p, {how}",
            f"an element sees at most {self.width} of the sites; "
            f"{many(len(self.scopes), 'different set')}",
        ]
        known = set[int]()
        for name, sites, n_colours, n_evaluations in self.groups:
            first, last = self.names[sites[0]], self.names[sites[-1]]
            which = first if len(sites) == 1 else f"{len(sites)} sites, {first} to {last}"
            again = "" if known.isdisjoint(sites) else "of these, now and then from all values: "
            known.update(sites)
            lines.append(f'"{name}": {again}{which}; colours: {n_colours}; ')
            lines[-1] += f"evaluations {'then' if again else 'a step'}: {n_evaluations}"
        return "\n".join(lines)

    __repr__ = __str__


@dataclass_state
class DiscreteStepState(StepMethodState):
    """What changes while a `DiscreteStep` draws."""

    tune: bool
    n_steps: int
    learned: dict[str, Any]


class DiscreteStep(BlockedStep):
    """A step of PyMC for discrete variables of a model, beside NUTS or alone.

    Given all other variables, the sites (elements of the variables) depend on each other only where
    an element of a term of log p sees several. What sees what is read off the graph of PyTensor,
    and sites that no element sees together are drawn at once, exactly, from one evaluation of log p
    for each value. See `the guide <../mixed.html>`_.

    Parameters
    ----------
    vars : list of variables, optional
        Discrete free variables of the model; by default all of them.
    method : {"auto", "colours", "elimination", "lsb"}
        ``"colours"`` draws colour by colour, all sites of a colour at once; no element sees two of
        them. ``"elimination"`` draws all sites at once, where elements see few of them and these
        form graphs of small width. ``"lsb"`` makes locally balanced single changes, each of which
        takes log p at all states one change away; the balancing function is chosen while tuning.
        ``"auto"`` eliminates where that takes at most 20 times as long as colours, and neighbours
        depend. Sites with more than 16 values, without bounds, or with bounds that depend on other
        variables are drawn by slices, colour by colour, whatever the method, and those with up to
        256 values from all of them now and then.
    model : pymc.Model, optional
        By default the model of the context.
    rng : int, Generator or None
        `pymc.sample` gives each chain a generator of its own.
    initial_point : dict, optional
        Where shapes are taken, and where probing starts; by default ``model.initial_point()``.
    compile_kwargs : dict, optional
        For PyMC. It must be empty: log p is compiled by numba.
    blocked : bool, default=True
        False makes a step for each variable.

    Attributes
    ----------
    structure_ : Structure
        Which elements of log p see which sites, and how they are drawn.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    TypeError
        If a variable is continuous.
    ValueError
        If there is no discrete variable, a variable is not free, or a method is not known or
        does not suit the model.

    Warns
    -----
    SamplerWarning
        If an element saw sites that it did not seem to see; these are joined, and the draw is made
        again.
    FrozenSitesWarning
        If sites could not change alone in the first 200 steps, while several at once could.

    Notes
    -----
    The statistic ``moved`` is the share of the sites that changed.

    Examples
    --------
    .. code-block:: python

        import pymc as pm
        from sklsb.pymc import DiscreteStep

        with pm.Model() as model:
            w = pm.Dirichlet("w", [1.0, 1.0])
            mu = pm.Normal("mu", 0, 5, shape=2, initval=[-1, 1])
            z = pm.Categorical("z", w, shape=len(y))
            pm.Normal("y", mu[z], 1.0, observed=y)
            step = DiscreteStep([z])
            print(step.structure_)
            trace = pm.sample(step=[pm.NUTS([w, mu]), step])
    """

    name = "discrete"
    stats_dtypes_shapes: Any = {"moved": (float, [])}
    _state_class = DiscreteStepState

    @worded
    def __init__(
        self,
        vars: Any = None,
        *,
        method: str = "auto",
        model: Any = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ):
        model = pm.modelcontext(model)
        if method not in _METHODS:
            raise ValueError(f"method is {method!r:.100}; give one of {', '.join(_METHODS)}.")
        if compile_kwargs:
            raise ValueError(
                f"compile_kwargs is {compile_kwargs!r:.100}; leave it out: DiscreteStep compiles "
                "log p by numba."
            )
        self.vars = _block(model, vars)
        self.method, self.blocked, self.tune, self.n_steps = method, blocked, True, 0
        self._begins = False
        self.rng = get_random_generator(rng)
        rvs = [model.values_to_rvs[v] for v in self.vars]
        self._block = Block(model, rvs, initial_point)
        self._whole: Whole | None = None  # the same block, drawn beside the sum of `with_nuts`
        self._renew()

    @property
    def structure_(self) -> Structure:
        """Which elements of log p see which sites, and how these are drawn."""
        block = self._block
        parts = np.split(block.sets.indices, block.sets.indptr[1:-1])
        scopes = tuple(tuple(part.tolist()) for part in parts if part.size)
        groups = tuple(
            (move.name, tuple(move.sites.tolist()), move.n_colours, move.n_evaluations)
            for move in self._moves
        )
        width = max(map(len, scopes), default=0)
        names, probed = tuple(block.names), tuple(block.unknown)
        return Structure(names, block.scope_of.size, scopes, groups, width, probed)

    def with_nuts(
        self, vars: Any = None, *, initial_point: Any = None, **options: Any
    ) -> CompoundStep:
        """Return NUTS on log p with the block summed out, followed by this step.

        The sum is over all values of the block, so that NUTS does not depend on the present ones;
        then the block is drawn given what NUTS drew. Sites have at most 16 values, and no element
        of log p sees two (mixtures, occupancy, labels of a crowd), or they form chains, trees or
        other graphs of small width (hidden Markov models, occupancy of several seasons).

        Parameters
        ----------
        vars : list of variables, optional
            By default all continuous variables of the model.
        initial_point : dict, optional
            Values that are impossible here, and if continuous variables are a bit different, are
            left out of the sum; by default ``model.initial_point()``.
        options
            For `pymc.NUTS`, such as ``target_accept``.

        Returns
        -------
        step : pymc.CompoundStep

        Raises
        ------
        TypeError
            If one of ``vars`` is discrete, or an option is none of `pymc.NUTS`.
        ValueError
            If some site has more than 16 values, or the sum has too many terms.
            While drawing, if a value was drawn that the sum left out, an element sees more than it
            seemed to, or the data changed.

        Warns
        -----
        SamplerWarning
            If log p is NaN at some value of a site near ``initial_point``, or its gradient with the
            block summed out is not finite there.

        Examples
        --------
        .. code-block:: python

            with model:
                trace = pm.sample(step=DiscreteStep([z]).with_nuts())
        """
        known = {n for c in pm.NUTS.__mro__ for n in inspect.signature(c.__init__).parameters}
        if unknown := sorted(options.keys() - known):  # PyMC takes, and ignores, any
            raise TypeError(f"pymc.NUTS has no option {unknown[0]!r}; see help(pymc.NUTS).")
        block, model = self._block, self._block.model
        point = model.initial_point() if initial_point is None else initial_point
        again, self._whole = self._whole is not None, None
        if block.refresh(point) or again:
            self._renew()
        k = block.high - block.low + 1
        fits = 1 < k.max() <= SLICED and self.method != "lsb"
        way = self._summable(np.flatnonzero(k > 1)) if fits else None
        if way is None:
            raise ValueError(
                "with_nuts needs sites with at most 16 values each that no element of log p sees "
                "together, or that form chains, trees or other graphs of small width; here:\n"
                f"{self.structure_}\n{self._what_fits()}"
            )
        variables = model.continuous_value_vars
        if vars is not None:
            variables = get_value_vars_from_user_vars(vars, model)
        for v in variables:
            if v not in model.continuous_value_vars:
                raise TypeError(f"{v.name!r} is discrete; give with_nuts continuous variables.")
        sites, states = way.sites, way.states
        self._never, other, no_number = impossible(block, sites, states, block.given(point))
        for v, i in np.argwhere(no_number)[:1]:
            name, value = block.names[sites[i]], block.low[sites[i]] + v
            warn(
                f"Log p is NaN where {name} is {value}, at values "
                "of other variables near initial_point: NUTS diverges there. Keep parameters of "
                "distributions within their bounds whatever the value, as by pm.math.clip.",
                SamplerWarning,
            )
        f = log_sum(block, sites, states, self._never, variables, point)
        at = DictToArrayBijection.map({v.name: point[v.name] for v in variables})
        if not np.isfinite(f(at)[1]).all():  # log 0 has no gradient
            f = log_sum(block, sites, other, self._never, variables, point)
            if not (no_number.any() or np.isfinite(f(at)[1]).all()):
                warn(
                    "The gradient of log p with the block summed out is not finite at "
                    "initial_point, where NUTS diverges. Give another initial_point, and look for "
                    "functions without a derivative there, such as pm.math.sqrt at 0.",
                    SamplerWarning,
                )
        self._whole = Whole(block, way)
        self._arrange()
        nuts = pm.NUTS(variables, model=model, initial_point=point, logp_dlogp_func=f, **options)
        return CompoundStep([nuts, self])

    def step(self, point: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Draw the block given all other variables."""
        block = self._block
        if self._begins:
            self._begins = False
            if block.refresh(point):
                if self._never is not None:
                    raise ValueError("The data changed; call with_nuts again.")
                self._renew()
        given, before = block.given(point), block.flat(point)
        check = block.vague or self.n_steps < _FIRST_CHECKS or self.n_steps % _CHECK_EVERY == 0
        turn = [move for move in self._moves if self.n_steps % move.every == 0]
        x, left = before, turn
        while left:
            left[0].learns = self.tune
            try:
                x = left[0].draw(x, given, self.rng, check and not left[0].exact)
                del left[0]
            except Surprise as found:
                self._join(found.outputs)
                left = list(self._moves)
        if self._never is not None:
            sites = self._moves[0].sites
            wrong = sites[self._never[(x - block.low)[sites], np.arange(sites.size)]]
            if wrong.size:
                raise ValueError(
                    f"{few([block.names[i] for i in wrong])} took values that "
                    "were impossible when with_nuts was called, so that draws of NUTS are wrong. "
                    "Give with_nuts an initial_point where they are possible."
                )
        self.n_steps += 1
        if self.n_steps <= _UNTIL_TOLD:
            self._still &= x == before
            if self.n_steps == _UNTIL_TOLD and self._still.any():
                self._tell_of_frozen(x, given)
        return block.put(x, point), [{"moved": float((x != before).mean())}]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain: forget what was learned; the first step takes the present data."""
        super().setup_chain(rng, tune, draws)
        self.tune, self.n_steps, self._begins = tune > 0, 0, True
        self._still[:] = True
        self._arrange()

    @property
    def learned(self) -> dict[str, Any]:
        """What was learned so far: part of the sampling state."""
        found = {m.name: m.learned.copy() for m in self._moves if m.learned.size}
        return {"joined": list(self._joined), "moves": found}

    @learned.setter
    def learned(self, given: dict[str, Any]) -> None:
        for outputs in given["joined"][len(self._joined) :]:
            self._joined.append(outputs)
            self._block.join(outputs)
            self._arrange()
        for move in self._moves:
            if move.name in given["moves"]:
                move.learned = given["moves"][move.name].copy()

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Discrete variables, if the class is among PyMC's step methods."""
        discrete = np.dtype(var.dtype).kind in "iub"
        return Competence.IDEAL if discrete else Competence.INCOMPATIBLE

    # ----------------------------------------------------------------- what is drawn how

    def _renew(self) -> None:
        """Begin without what was found with other data."""
        self._joined = list[Ints]()
        self._never = None  # or the values that the sum of `with_nuts` leaves out
        self._still = np.ones(self._block.n_sites, bool)  # sites that never changed
        self._arrange()

    def _arrange(self) -> None:
        block, method = self._block, self.method
        self._moves: list[Any] = [self._whole] * (self._whole is not None)
        if self._moves:
            return
        n_values = block.high - block.low + 1
        few = (n_values > 1) & (n_values <= SLICED)
        sites, many = np.flatnonzero(few), np.flatnonzero(n_values > SLICED)
        if sites.size:
            colours = Colours(block, sites)
            way: Any = colours
            if method == "lsb":
                way = Balanced(block, sites)
            elif method == "elimination" or (method == "auto" and colours.n_colours > 1):
                way = self._eliminated(sites, colours) or colours
            self._moves.append(way)
        if many.size:
            self._moves.append(Slices(block, many))
            listed = many[n_values[many] <= MOST_VALUES]
            if listed.size:  # modes that slices do not reach
                every = int(np.ceil(n_values[listed].max() / SLICED)) * 8
                self._moves.append(Colours(block, listed, every))

    def _summable(self, sites: Ints) -> Colours | Elimination | None:
        """Return how sites are drawn whole, or None if they cannot be summed out."""
        way: Any = Colours(self._block, sites)
        if way.n_colours > 1:
            try:
                way = Elimination(self._block, sites, way)
            except ValueError:
                return None
            if elimination_cost(way.network, "sample").log2_work > _MOST_SUMMED:
                return None
        return way if len(way.states) <= _MOST_STATES else None

    def _eliminated(self, sites: Ints, colours: Colours) -> Elimination | None:
        """Return the elimination of sites, or None if it takes long."""
        asked = self.method == "elimination" and not self._joined
        try:
            found = Elimination(self._block, sites, colours)
            cost = elimination_cost(found.network, "sample")
            if not cost.fits:
                raise ValueError(f"takes 2**{cost.log2_work:.0f} table entries a step")
        except ValueError as error:
            if not asked:
                return None
            raise ValueError(
                f'method is "elimination", which {error}. Give method="auto" or "colours".'
            ) from None
        one = self._block.scope_of.size + _OF_CALL
        entries = cost.ways * 2.0**cost.log2_work + _OF_TABLE * cost.n_tables + _OF_DRAW
        worth = entries + found.n_evaluations * one <= _WORTH * colours.n_evaluations * one
        return found if asked or worth else None

    def _what_fits(self) -> str:
        """Return advice for a block that cannot be summed out."""
        block, k = self._block, self._block.high - self._block.low + 1
        of = {name: np.arange(k.size)[here] for name, here, *_ in block.parts}

        def fit(*names: str) -> bool:
            sites = np.concatenate([of[name] for name in names])
            return 1 < k[sites].max() <= SLICED and bool(self._summable(sites[k[sites] > 1]))

        summed, rest = list[str](), list[str]()
        for name in of:
            (summed if fit(*summed, name) else rest).append(name)
        far = [block.names[i] for i in np.flatnonzero(k >= FAR // 2)]
        said = f"{few(far)}: their bounds are not known. " if far else ""
        if summed:
            said += f"Alone would fit: {', '.join(filter(fit, of))}. Write step=[DiscreteStep(["
            other = f", DiscreteStep([{', '.join(rest)}])" if rest else ""
            said += f"{', '.join(summed)}]).with_nuts(){other}]. "
        return said + "In any case pm.NUTS and DiscreteStep can be two steps."

    def _join(self, outputs: Ints) -> None:
        block, learned = self._block, self.learned
        self._joined.append(outputs)
        block.join(outputs)
        names = [block.names[i] for i in np.unique(block.sets[block.scope_of[outputs]].indices)]
        self._arrange()
        self.learned = learned
        if self._never is not None:
            raise ValueError(
                f"{few(names)} depend on each other in a way that did not show before, so that "
                "the sum for NUTS is wrong. Give pm.NUTS and DiscreteStep as two steps."
            )
        warn(
            f"{few(names)} depend on each other in a way that did not show before; this is heeded "
            "from now on. What was drawn before may be wrong: use the draws from here, or "
            "make the step where the dependence shows (initial_point).",
            SamplerWarning,
        )

    def _tell_of_frozen(self, x: Ints, given: Any) -> None:
        """Warn of sites that only a change of several at once could move."""
        block, alone = self._block, np.diff(self._block.sets.indptr) == 1
        apart = [i for m in self._moves if not isinstance(m, Elimination | Whole) for i in m.sites]
        told = alone | (block.sets @ np.isin(np.arange(block.n_sites), apart))  # not eliminated
        low, high = block.bounds(x, given)
        held = []
        for i in np.flatnonzero(self._still).tolist():
            near = range(max(low[i], x[i] - SLICED), min(high[i], x[i] + SLICED) + 1)
            found = []
            for v in set(near) - {int(x[i])}:
                y = np.where(np.arange(x.size) == i, v, x)
                found.append(np.isfinite(block.by_scope(block.log_p(y, *given))))
            if any(one[alone].all() for one in found) and not any(one[told].all() for one in found):
                held.append(block.names[i])
        if held:
            warn(
                f"{few(held)} could not change alone in {self.n_steps} steps: values of several "
                "sites determine each other. Write one as a deterministic function of the others, "
                'or soften the relation; method="elimination" draws them together where '
                "they form chains or trees.",
                FrozenSitesWarning,
            )


def _block(model: Any, given: Any) -> list[Any]:
    """Return the value variables of the block, and raise unless they are discrete and free."""
    if given is None:
        found = [v for v in model.value_vars if np.dtype(v.dtype).kind in "iub"]
        if not found:
            raise ValueError("The model has no discrete free variable; DiscreteStep needs one.")
        return found
    found = []
    for var in given if isinstance(given, list | tuple) else [given]:
        value = model.rvs_to_values.get(var, var)
        if value not in model.value_vars:
            free = [rv.name for rv in model.free_RVs]
            if isinstance(var, str):
                raise TypeError(f"{var!r} is a name; give variables, as model[name], of {free}.")
            raise ValueError(f"{var!s:.100} is no free variable of the model, which has {free}.")
        if np.dtype(value.dtype).kind not in "iub":
            raise TypeError(
                f"{var.name!r} is continuous; give discrete variables here, and others to pm.NUTS."
            )
        found.append(value)
    return found
