"""Ladders: independent sets of replicas of a target, one at each of some temperatures."""

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels import run
from sklsb._kernels._jit import warn_if_uncached
from sklsb._kernels.chains import NoPart
from sklsb._kernels.facts import Facts, Rule
from sklsb._kernels.rules.layers import Layers
from sklsb._kernels.run import Drawing
from sklsb._kernels.tempering import scan
from sklsb._kernels.tempering.crossing import Crossing, NoCrossing
from sklsb._kernels.tempering.scan import Ladder, Levels, Scans
from sklsb._system.arrays import Array, Bools, Ints
from sklsb._system.memory import at_once
from sklsb.ensembles.base import MOST_NUMBERS, ChainEnsemble, Counters, Out
from sklsb.ensembles.compiled import Ensemble
from sklsb.ensembles.state import ChainState
from sklsb.ensembles.streams import Streams
from sklsb.samplers._tempering.bennett import Bennett
from sklsb.samplers._tempering.core import Core
from sklsb.samplers._tempering.paths import PathMaker
from sklsb.targets.base import States, Target

# Values of variables drawn from the reference at once.
_MOST_DRAWN = 1 << 22
# Scans whose levels are kept.
KEPT_SCANS = 1024


class Scan(NamedTuple):
    """What a ladder does in one scan; it has no compiled step of its own."""

    explorer: Rule  # what moves the replicas
    n_steps: int  # transitions of each replica in a scan
    width: int  # uniform numbers of each replica in a scan
    n_replicas: int  # of a ladder
    n_drawn: int  # variables that are not in the core

    @property
    def facts(self) -> Facts:
        return Facts(
            n_uniforms=max(self.width, self.n_drawn),  # never held for all replicas at once
            transitions_per_sweep=1,
            stat_names=("lp", "visit"),
            evaluation=self.explorer.facts.evaluation,
            reversible=False,
        )

    def new_part(self, target: Any, n_chains: int) -> NoPart:
        return NoPart()  # the replicas keep it


class _Tops(NamedTuple):
    """What samplers look at: the states at beta = 1, one row per ladder."""

    x: States
    moved: Bools
    evaluations: Ints
    acceptance: Array
    part: NoPart


def crossing_of(target: Target, n: int) -> Crossing:
    """Return what finds exchangeable parts of two states, for n ladders."""
    graph: Any = target.graph
    size = n, target.n_sites
    return Crossing(
        graph.indptr.astype(np.int64),
        graph.indices.astype(np.int64),
        run.places_of(target.values),
        np.zeros(size, np.int8),
        np.zeros(size, np.int64),
    )


def fewest(counts: NDArray[Any]) -> NDArray[Any]:
    """Return the column (variable) with the smallest sum over ladders."""
    return counts[:, counts.sum(axis=0).argmin()]


def rejection_rates(rejected: Array, tried: Ints) -> Array:
    """Return the share of refused swaps, from counts of shape (n_ladders, n_pairs)."""
    found: Array = rejected.sum(axis=0) / np.maximum(1, tried.sum(axis=0))
    return found


class Ladders(ChainEnsemble):
    """Ladders of replicas, each with its own streams of random numbers.

    A replica keeps its stream wherever it goes; swaps and exchanges use a stream of the ladder.

    ``states`` has shape (n_ladders, n_copies, n_levels, n_sites), from level 0 on; of two copies
    those at the colder levels exchange parts. ``beta`` increases from 0 to 1. ``product`` are the
    probabilities of the values of each variable at beta = 0, uniform by default. With a ``core``
    replicas are states of it, and draws are states of the target all the same.
    """

    def __init__(
        self,
        target: Target,
        states: States,
        streams: Streams,
        explorer: Rule,
        beta: Array,
        n_jobs: int = 1,
        product: list[Array] | None = None,
        core: Core | None = None,
    ):
        self.target, self.streams, self.beta, self.product = target, streams, beta, product
        self.core, self.uses_factors = core, core is not None
        self.inner: Target = core.network if core else target
        self.n_jobs = min(n_jobs, max(1, len(streams)))
        self.counters = Counters()
        n, self.n_copies, n_levels, n_sites = states.shape
        n_replicas = self.n_copies * n_levels
        own = [streams.of("chain", r) for r in range(n_replicas)]
        rngs = [own[r][c] for c in range(n) for r in range(n_replicas)]
        flat = states.reshape(n * n_replicas, n_sites)
        self.replicas = Ensemble(self.inner, flat, rngs, 1, explorer)
        n_steps = explorer.facts.transitions_per_sweep or max(1, n_sites // 4)
        width = max(n_steps * explorer.facts.n_uniforms, n_sites, 1)
        n_drawn = core.n_drawn if core else 0
        self.rule = Scan(explorer, n_steps, width, n_replicas, n_drawn)
        by_layers = isinstance(explorer, Layers)
        self._maker = PathMaker(self.inner, explorer.facts.sees_all_moves, product, by_layers)
        self._path = self._maker.at(beta)
        self._crossing = crossing_of(self.inner, n) if self.n_copies == 2 else NoCrossing()
        self.ladder = self._new_ladder(n, n_levels)
        self.batches = Bennett(n, np.zeros(n_levels - 1))
        self.n_scans = 0
        self._up_to_date = False
        self._again = False
        # Made before threads start, lest two of them each make one.
        self._coins = streams.of("swap")
        self._redraw = streams.of("redraw") if core else []
        self._x = self.ladder.x[:, 0]
        self._moved = self.ladder.moved
        if core:
            self._x = core.lift(self._x, np.empty((n, 0)))
            self._moved = np.zeros((n, target.offers.n_moves), np.bool_)

    def _new_ladder(self, n: int, n_levels: int) -> Ladder:
        n_copies, n_sites, n_pairs = self.n_copies, self.inner.n_sites, n_levels - 1
        which = np.arange(n_copies * n_levels)
        n_travellers = 1 + n_sites if n_copies == 2 else 1
        x = self.replicas.chains.x.reshape(n, n_copies, n_levels, n_sites)[:, :, -1]
        first = x.astype(np.int16)
        return Ladder(
            at=np.tile(which.reshape(n_copies, n_levels), (n, 1, 1)),
            since=np.tile(-1 - which, (n, 1)),  # never, with distinct numbers
            heading=np.zeros((n, which.size, n_travellers), np.int8),
            stay=np.zeros((n, which.size, n_travellers), np.int64),
            trips=np.zeros((n, n_travellers), np.int64),
            visits=np.zeros((n, 2, n_travellers)),
            rejected=np.zeros((n, n_pairs)),
            tried=np.zeros((n, n_pairs), np.int64),
            bennett=np.zeros((n, n_pairs, 2)),
            best_log_prob=np.full((n, 1), -np.inf),
            best=first[:, 0].copy(),
            exchanged=np.zeros((n, 2), np.int64),
            impossible=np.zeros((n, 1), np.int64),
            x=first.copy(),
            moved=np.zeros((n, self.inner.offers.n_moves), np.bool_),
            process=np.zeros((n, KEPT_SCANS, which.size), np.int16),
        )

    @property
    def chains(self) -> _Tops:
        """States at beta = 1."""
        n = len(self)
        evaluations = self.replicas.chains.evaluations.reshape(n, -1).sum(axis=1, keepdims=True)
        x = self._x.astype(self.target.dtype)
        return _Tops(x, self._moved, evaluations, np.zeros((n, 1)), NoPart())

    def put(self, states: States) -> None:
        """Set the states at beta = 1, including variables that are not in the core."""
        if self.core:
            self._x[:] = states

    @property
    def tempers(self) -> bool:
        """Whether the distribution at each level is p to the power of beta."""
        return self.core is None and self._maker.tempers

    @property
    def softened(self) -> bool:
        """Whether zeros are softened on the way."""
        return self._maker.softened

    def reaches(self, n: int) -> bool:
        """Whether any of up to n states drawn from the reference is possible."""
        rng, drawn = np.random.default_rng(self.streams.root("scout")), 0
        most = at_once(_MOST_DRAWN, self.inner.n_sites)
        while drawn < n:
            size = min(max(1, drawn), n - drawn, most)
            x = np.tile(self.replicas.chains.x[0], (size, 1))
            if (self.inner.log_prob(self._maker.drawn(x, rng)) > -np.inf).any():
                return True
            drawn += size
        return False

    @property
    def log_z_before(self) -> float:
        """Log Z of the first level, plus the constant that the levels lack."""
        return self._maker.log_size + (self.core or self.target).constant

    @property
    def states(self) -> States:
        """States of the replicas by level, shape (n_ladders, n_copies, n_levels, n_sites)."""
        at = self.ladder.at
        x = self.replicas.chains.x.reshape(len(at), at[0].size, self.inner.n_sites)
        return x[np.arange(len(at))[:, np.newaxis, np.newaxis], at]

    def best(self) -> tuple[States, Array]:
        """Return the likeliest state seen in each ladder, and its log p."""
        x, log_prob = self.ladder.best.astype(self.inner.dtype), self.ladder.best_log_prob[:, 0]
        if self.core is None:
            return x, log_prob + self.target.constant
        found = self.core.lift(x, np.empty((len(x), 0)))
        return found, self.target.log_prob(found)

    # ----------------------------------------------------------------- all that goes on

    def state(self) -> ChainState:
        # Of the states at beta = 1: another fit starts there.
        return ChainState.of(self.chains, self.streams, self.rule, self.counters)

    def fixed(self) -> dict[str, Any]:
        return {"explorer": self.rule.explorer}

    def __getstate__(self) -> dict[str, Any]:
        replicas = self.replicas
        return {
            "target": self.target,
            "n_jobs": self.n_jobs,
            "beta": self.beta,
            "product": self.product,
            "core": self.core,
            "x": self._x,
            "moved": self._moved,
            "streams": self.streams,
            "replicas": ChainState.of(replicas.chains, Streams([]), replicas.rule, Counters()),
            "ladder": self.ladder,
            "batches": self.batches,
            "n_scans": self.n_scans,
            "counters": self.counters,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        replicas: ChainState = state["replicas"]
        n, n_levels, n_sites = len(state["streams"]), state["beta"].size, replicas.x.shape[1]
        n_copies = len(replicas.x) // (n * n_levels)
        x = replicas.x.reshape(n, n_copies, n_levels, n_sites)
        names = ("beta", "n_jobs", "product", "core")
        rest = [state[name] for name in names]
        self.__init__(  # type: ignore[misc]
            state["target"], x, state["streams"].copy(), replicas.rule, *rest
        )
        replicas.put(self.replicas.chains)
        self.ladder = state["ladder"].copy()
        self._x, self._moved = self.ladder.x[:, 0], self.ladder.moved
        if self.core:
            self._x, self._moved = state["x"].copy(), state["moved"].copy()
        self.batches = copy.deepcopy(state["batches"])
        self.n_scans, self.counters = state["n_scans"], copy.deepcopy(state["counters"])
        self._again = True

    def changed(
        self, states: States, streams: Streams | None = None, beta: Array | None = None
    ) -> "Ladders":
        """Return new ladders at other states; temperatures and streams are the same by default."""
        streams = self.streams if streams is None else streams
        beta = self.beta if beta is None else beta
        rest = self.n_jobs, self.product, self.core
        return Ladders(self.target, states, streams, self.rule.explorer, beta, *rest)

    def like(self, states: States, streams: Streams) -> "Ladders":
        """Return ladders at the same temperatures, all replicas of each at one state."""
        own = self.core.of(states) if self.core else states
        shape = (1, self.n_copies, self.beta.size, 1)
        made = self.changed(np.tile(own[:, np.newaxis, np.newaxis], shape), streams)
        made.put(states)
        return made

    def at(self, beta: Array) -> "Ladders":
        """Return ladders at other temperatures that start with the states of these.

        The ends keep their own states. The others take those of the nearest level except the first,
        whose states may have probability 0 at theirs.
        """
        inner = [1 + int(np.abs(self.beta[1:] - b).argmin()) for b in beta[1:-1].tolist()]
        made = self.changed(self.states[:, :, [0, *inner, self.beta.size - 1]], beta=beta)
        made.begin_like(self)
        return made

    def begin_like(self, other: "Ladders") -> None:
        """Take over the threads of other ladders and what they have seen and counted."""
        self._pool, self.counters = other._pool, other.counters
        self.ladder.best_log_prob[:] = other.ladder.best_log_prob
        self.ladder.best[:] = other.ladder.best
        self.ladder.impossible[:] = other.ladder.impossible
        if self.core:
            self._x[:] = other._x
        self.add_evaluations(other.chains.evaluations[:, 0])

    @property
    def worth(self) -> Array:
        r"""Number of independent visits to the last level that each ladder's draws are worth.

        .. math:: (\sum_v s_v)^2 / \sum_v s_v^2

        with s_v the scans that a replica spent there between two times at the first level.
        """
        stay, visits = self.ladder.stay.astype(np.float64), self.ladder.visits
        total = visits[:, 0] + stay.sum(axis=1)
        squares = visits[:, 1] + np.square(stay).sum(axis=1)
        return fewest((total**2 / np.maximum(squares, 1.0))[:, self._counted])

    @property
    def _counted(self) -> slice:
        """Travellers that count: the values of variables, if they may change replicas."""
        return slice(1 if self.ladder.trips.shape[1] > 1 else 0, None)

    @property
    def log_z(self) -> tuple[float, float]:
        """Log Z and its standard error."""
        ratio, error = self.batches.log_ratio(self.ladder.bennett)
        return ratio + self.log_z_before, error

    @property
    def trips_by_value(self) -> Ints:
        """Round trips in each ladder: of each variable's values, or with one copy of replicas."""
        return self.ladder.trips[:, self._counted].copy()

    @property
    def trips(self) -> Ints:
        """Round trips in each ladder, of the variable with the fewest."""
        return fewest(self.trips_by_value)

    @property
    def rejections(self) -> Array:
        """Share of refused swaps of each pair of levels, over all ladders."""
        return rejection_rates(self.ladder.rejected, self.ladder.tried)

    @property
    def barrier(self) -> float:
        """Sum of the shares of refused swaps of all pairs of levels."""
        return float(self.rejections.sum())

    @property
    def exchanged(self) -> float:
        """Share of the exchanges in which a part moved; NaN if there was none."""
        moved, made = self.ladder.exchanged.sum(axis=0).tolist()
        return moved / made if made else np.nan

    def add_evaluations(self, n: Ints) -> None:
        self.replicas.chains.evaluations.reshape(len(self), -1)[:, 0] += n

    # ----------------------------------------------------------------- moving

    def _over_ladders(self, work: Any) -> None:
        """Call work(ladder) for all ladders, in threads."""

        def of_span(span: tuple[int, int]) -> None:
            for c in range(*span):
                work(c)

        # An error resets the replicas of a target with a guard, and must reset the rest.
        guarded = type(self.target).guard is not Target.guard
        before = self.ladder.copy() if guarded else self.ladder
        try:
            self._spread(of_span, len(self), self.replicas.chains)
        except BaseException:
            for values, old in zip(self.ladder._asdict().values(), before, strict=True):
                values[:] = old
            self._up_to_date, self._again = False, True
            raise

    def _refresh(self) -> None:
        if self._up_to_date:
            return
        warn_if_uncached()
        rule, chains, again = self.rule.explorer, self.replicas.chains, self._again
        self._over_ladders(lambda c: scan.start(self._path, rule, chains, self.ladder, c, again))
        self._up_to_date = True

    def guess(self) -> Array:
        """Return finite differences of log Z, from the scans since `forget_swaps`.

        If all terms of Bennett's ratio underflow, the present states say how small they are.
        """
        sums = self.batches.total(self.ladder.bennett).sum(axis=0)
        found, shift = self.batches.differences(sums), self.batches.shift
        lost = ~np.isfinite(found)
        if not lost.any() or not self.n_scans:
            return np.where(lost, shift, found)
        gains = np.empty((len(self), *sums.shape))
        path, chains, ladder = self._path, self.replicas.chains, self.ladder
        self._over_ladders(lambda c: scan.gains(path, chains, ladder, c, gains[c]))
        up, down = np.where(np.isfinite(gains), gains, -np.inf).max(axis=0).T
        up, down = (np.where(np.isfinite(one), one, shift) for one in (up, -down))
        present = np.where(sums[:, 1] > 0.0, up, 0.5 * (up + down))
        return np.where(lost, np.where(sums[:, 0] > 0.0, down, present), found)

    def forget_acceptance(self) -> None:
        """Do nothing: swaps are counted separately."""

    def forget_swaps(self) -> None:
        """Reset the counts of swaps and round trips."""
        self.forget_visits()
        ladder = self.ladder
        for counts in (ladder.rejected, ladder.tried, ladder.trips, ladder.bennett):
            counts[:] = 0
        ladder.exchanged[:] = 0

    def forget_visits(self) -> None:
        """Reset the visits to the last level."""
        self.ladder.stay[:] = 0
        self.ladder.visits[:] = 0.0

    def forget_scans(self) -> None:
        """Reset all counts; visits under way keep their distinct numbers."""
        self.forget_swaps()
        self.ladder.since[:] -= self.n_scans * self.n_copies
        self.n_scans = 0

    def log_prob(self) -> Array:
        if self.core:
            return self.target.log_prob(self.chains.x) - self.target.constant
        self._refresh()
        n, n_replicas = len(self), self.rule.n_replicas
        chains = self.replicas.chains._replace(part=NoPart())
        found, view = np.empty(n * n_replicas), self.replicas.view

        def work(c: int) -> None:
            run.log_probs(view, chains, (c * n_replicas, (c + 1) * n_replicas), found)

        self._over_ladders(work)
        tops: Array = found.reshape(n, -1)[np.arange(n), self.ladder.at[:, 0, -1]]
        return tops

    def new_levels(self, n: int) -> Levels:
        """Return where n draws of each ladder go at every level, unless it has a core."""
        shape = len(self), n, self.beta.size if n else 0
        x = np.empty((*shape, self.inner.n_sites), self.inner.dtype)
        return Levels(x, np.empty((*shape, len(self.rule.facts.stat_names))))

    def run(self, n: int, drawing: Drawing, out: Out, sums: Levels | None = None) -> None:
        """Make scans in every ladder, storing draws; those of every level go to ``sums``."""
        self._levels = sums or self.new_levels(0)
        self._refresh()
        most = at_once(MOST_NUMBERS, self.rule.facts.n_uniforms)
        while n > 0:
            size = min(n, most, self.batches.room)
            self._scan(size, drawing, out)
            self.batches.add(size, self.ladder.bennett)
            self.n_scans += size
            n -= size
            drawing = drawing.after(size)

    def _scan(self, n_scans: int, drawing: Drawing, out: Out) -> None:
        """Make scans of all ladders, and complete draws of the core."""
        if self.core is None:
            self._over_ladders(lambda c: self._scan_one(c, n_scans, drawing, out))
            return
        (draws, stats), n = out, len(self)
        kept, room = drawing.kept(n_scans), drawing.room(n_scans)
        core = np.empty((n, n_scans, self.inner.n_sites), self.inner.dtype)
        known = np.empty((n, n_scans, len(self.rule.facts.stat_names)))

        def work(c: int) -> None:
            self._scan_one(c, n_scans, Drawing(1), (core, known))
            self._lift(c, core[c], kept, draws[c, room])

        self._over_ladders(work)
        stats[:, room] = known[:, kept]
        stats[:, room, 0] = self.target.log_prob(draws[:, room]) - self.target.constant

    def _lift(self, c: int, core: States, kept: slice, draws: States) -> None:
        """Draw the variables outside the core, for the kept scans and the last one.

        Each scan has its own random numbers, used or not.
        """
        if self.core is None:
            return
        u = self._redraw[c].random((len(core), self.core.n_drawn))
        draws[:] = self.core.lift(core[kept], u[kept])
        last = self.core.lift(core[-1:], u[-1:])
        x = np.concatenate([self._x[c : c + 1], draws, last])
        sites = np.flatnonzero((x[1:] != x[:-1]).any(axis=0))
        self._moved[c, self.target.offers.first_moves[sites]] = True
        self._x[c] = last[0]

    def _scan_one(self, c: int, n_scans: int, drawing: Drawing, out: Out) -> None:
        rule, n = self.rule, self.rule.n_replicas
        rngs = self.replicas.streams.chain[c * n : (c + 1) * n]
        most = at_once(MOST_NUMBERS, n * rule.width)
        numbers = np.empty((n, min(most, n_scans) * rule.width))
        n_uniforms = rule.explorer.facts.n_uniforms
        for done in range(0, n_scans, most):
            size = min(most, n_scans - done)
            for row, rng in zip(numbers, rngs, strict=True):
                rng.random(out=row[: size * rule.width])
            before, later = self.n_scans + done, drawing.after(done)
            scan.scan(
                self._path,
                rule.explorer,
                self._crossing,
                self.replicas.chains,
                self.ladder,
                c,
                numbers,
                self._coins[c].random((size, (2 * self.n_copies - 1) * (self.beta.size - 1))),
                self.batches.shift,
                Scans(size, rule.n_steps, n_uniforms, rule.width, before, later),
                *out,
                self._levels,
            )
