"""Where chains start: at exact draws, if they are cheap, or at both ends of the temperature.

A uniform draw is a state at infinite temperature, the end of an uphill walk one at zero. Chains
that all start at one end may agree and be wrong together: from uniform draws nearly all ways lead
to the widest mode. So a search of bounded length looks for other modes. It walks uphill from many
draws, and tests for each rare value whether chains keep it once they have it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels.facts import Rule
from sklsb._system.arrays import Array, Ints
from sklsb._system.memory import at_once
from sklsb._system.progress import Progress
from sklsb.diagnostics.tally import RareValue
from sklsb.ensembles.rules import transitions_of_a_sweep
from sklsb.ensembles.streams import Streams
from sklsb.targets.base import States, Target
from sklsb.trials.draws import draw
from sklsb.trials.reference import Reference, find_reference
from sklsb.trials.uphill import Account, Search, Uphill, Walks, noise

INITS = ("auto", "both", "uniform", "quenched")
# Bounds on the states tried per quenched start: minimum, budget in log-ratios, maximum.
FEWEST_LOOKS, _CHEAP, MOST_LOOKS = 5, 1 << 20, 128
# Approximate number of states tried in an uphill walk.
_LOOKS = 6
# Most log-ratios held at once.
_MOST_HELD = 1 << 21
# Chains that show which values are rare, the share below which they are, and the most chains that
# start at rare values.
_USUAL, _RARE, MOST_WALKERS = 8, 0.1, 64
# Log of a mode's states, as a share of all states' log: beyond it uniform draws find the mode.
_ENTROPY = 0.5
# Most values that are tried again.
_MOST_TRIED = 3
# Draws of each chain (the second half is used), and its sweeps.
_DRAWS, SWEEPS = 32, 24

# From states, streams, a number of draws and the sweeps between two: the draws, of shape
# (n_walkers, n_draws, n_sites), and the number of evaluations.
Walk = Callable[[States, Streams, int, float], tuple[States, int]]


class Effort(NamedTuple):
    """What a search may take."""

    looks: int  # states whose neighbours are all evaluated; 5 to 128 are
    n_walkers: int  # chains that run for 24 sweeps; at most 96 do, none if fewer than 24
    walk: Walk  # runs them
    first_order: bool = False  # whether a look is one evaluation, of first-order log-ratios


class Starts(NamedTuple):
    """States to start from, and what finding them took."""

    x: States  # (n_chains, n_sites)
    evaluations: Ints  # (n_chains,)
    kept: tuple[RareValue, ...] = ()  # rare values that chains keep once they have them
    reference: Reference | None = None  # exact answers, if starts are exact draws


def draw_starts(
    target: Target,
    init: str,
    streams: Streams,
    effort: Effort,
    on_chain: Callable[[], None] = lambda: None,
) -> Starts:
    """Draw the states that chains start from, each from its stream named "start".

    ``init`` "both" quenches chains 1, 3, ... Quenched chains start in turn at the most probable end
    of many uphill walks and far from it; or at a rare value that chains keep, if one is found.
    """
    x = np.empty((len(streams), target.n_sites), dtype=target.dtype)
    evaluations = np.zeros(len(streams), dtype=np.int64)
    kept: set[RareValue] = set()
    uphill = Uphill(target, effort.first_order)
    searches: dict[int, tuple[_Search, Search[States]]] = {}
    for k, rng in enumerate(streams.of("start")):
        c = streams.first + k
        if init == "quenched" or (init == "both" and c % 2):
            n_before = c if init == "quenched" else c // 2
            search = _Search(target, effort, uphill.n_moves)
            searches[k] = search, search.run(rng, far=n_before % 2 == 1)
        else:
            x[k] = target.draw_state(rng)
            on_chain()
    together = at_once(_MOST_HELD, MOST_LOOKS * uphill.n_moves)
    chains = list(searches)
    for first in range(0, len(chains), together):
        some = chains[first : first + together]
        for k, state in zip(some, uphill.follow([searches[k][1] for k in some]), strict=True):
            search = searches[k][0]
            x[k], evaluations[k] = state, search.account.evaluations
            kept |= search.found
            on_chain()
    return Starts(x, evaluations, tuple(sorted(kept)))


class _Search:
    """The search of one chain."""

    def __init__(self, target: Target, effort: Effort, n_moves: int):
        self.target = target
        self.n_moves = n_moves
        self.walk = effort.walk
        self.n_walkers = min(effort.n_walkers - 2 * _USUAL, MOST_WALKERS)
        self.tries = min(_MOST_TRIED, (effort.n_walkers - self.n_walkers) // _USUAL - 1)
        self.found: set[RareValue] = set()
        # The cost of a user's function is unknown.
        affordable = _CHEAP // max(1, n_moves) if target.ratio_cost == 1 else 0
        fewest = max(FEWEST_LOOKS, affordable)
        self.account = Account(looks=min(max(effort.looks, fewest), MOST_LOOKS))
        self.values = np.asarray(target.values, dtype=target.dtype)

    def run(self, rng: np.random.Generator, far: bool) -> Search[States]:
        """Return a state at a rare value that is kept, or else the highest or one far from it.

        Among modes of equal height any may be rare in a few chains, a different one in each search.
        """
        best, top = yield from self._highest(rng)
        found = None
        if self.n_walkers >= _USUAL:
            found = yield from self._kept(rng, best)
        if found is not None:
            self._afford(_LOOKS)
            _, height = yield Walks(self.account, np.stack([found, best]))
            if height[0] < height[1] - noise(height[1]):
                return found
        return (yield from self._far_from(best, top, rng)) if far else best

    def _afford(self, looks: int) -> None:
        """Raise the looks that are left to at least this many."""
        self.account.looks = max(self.account.looks, looks)

    def _highest(self, rng: np.random.Generator) -> Search[tuple[States, float]]:
        """Return the most probable end of several uphill walks, and log p there.

        Ties go to the smallest values, so that all searches that find the two modes of a magnet
        start at the same one.
        """
        target, account = self.target, self.account
        n = min(account.looks // (3 * _LOOKS), _MOST_HELD // max(1, 2 * self.n_moves))
        drawn = [target.draw_state(rng) for _ in range(max(1, n))]
        drawn += [target.scattered_state(rng) for _ in range(n)]
        x, log_prob = yield Walks(account, np.stack(drawn))
        if n and account.looks >= _LOOKS:  # from the opposites of the ends found
            # Each state once; `numpy.unique` takes milliseconds for it.
            distinct = x[list({state.tobytes(): k for k, state in enumerate(x)}.values())]
            others, further = yield Walks(account, self._opposite(distinct))
            x, log_prob = np.concatenate([x, others]), np.append(log_prob, further)
        highest = log_prob.max()
        alike = self._alike(x[0])
        alike = alike[self._log_prob(alike) > highest + noise(highest)]
        if len(alike):
            self._afford(_LOOKS * len(alike))
            x, log_prob = yield Walks(account, alike)
            highest = log_prob.max()
        top = x[log_prob >= highest - noise(highest)]
        total = top.sum(axis=1, dtype=np.int64)
        best = np.array(min(top[total == total.min()].tolist()), dtype=x.dtype)
        return best, float(highest)

    def _far_from(self, best: States, top: float, rng: np.random.Generator) -> Search[States]:
        """Return the end of an uphill walk from a draw, or from the opposite state if farther.

        It must not be in the mode of the best state. An end that is too low is passed over: its
        mode matters only if it is very wide, and uniform draws then find it.
        """
        self._afford(2 * _LOOKS)
        drawn = self.target.draw_state(rng)
        both = np.concatenate([drawn[None], self._opposite(best[None])])
        ends, height = yield Walks(self.account, both)
        n_states = np.log(np.maximum(1, self.target.n_possible)).sum()
        ends = np.concatenate([best[None], ends[height > top - _ENTROPY * n_states]])
        farthest: States = ends[int((ends != best).sum(axis=1).argmax())]
        return farthest

    def _log_prob(self, x: States) -> Array:
        self.account.evaluations += len(x)
        return self.target.log_prob(x)

    def _alike(self, x: States) -> States:
        """Return x with all free variables set to one value, for each value.

        In large magnets walks end between domains, and these states are higher.
        """
        index = np.minimum(np.arange(self.values.size)[:, None], self.target.cardinalities - 1)
        return np.where(self.target.n_possible > 1, self.values[index], x)

    def _opposite(self, x: States) -> States:
        """Return the states with all free variables set to other values."""
        k = self.target.cardinalities
        index = (np.searchsorted(self.values, x) + np.maximum(1, k // 2)) % k
        return np.where(self.target.n_possible > 1, self.values[index], x)

    def _kept(self, rng: np.random.Generator, best: States) -> Search[States | None]:
        """Return a state at the rare value that chains keep best, if they keep one for long.

        Each value that is rare in chains from uniform draws is set in the best state, the other
        variables go uphill, and a chain starts there. If it keeps the value, that may be chance, so
        several chains go on from its last state.
        """
        target = self.target
        drawn = np.stack([target.draw_state(rng) for _ in range(_USUAL)])
        # The median, since one chain may be where the others never are.
        usual = np.median(self._shares(self._run(rng, drawn)), axis=0)
        exists = np.arange(self.values.size) < target.cardinalities[:, None]
        free = (target.n_possible > 1)[:, None]
        site, index = rare = np.nonzero((usual < _RARE) & exists & free)
        chosen = rng.permutation(site.size)[: self.n_walkers]
        site, index = site[chosen], index[chosen]
        x = np.tile(best, (site.size, 1))
        x[np.arange(site.size), site] = self.values[index]
        possible = np.isfinite(self._log_prob(x))
        site, index = site[possible], index[possible]
        if not site.size:
            return None
        self._afford(_LOOKS * site.size)
        x, _ = yield Walks(self.account, x[possible], fixed=site)
        draws = self._run(rng, x)
        kept = self._shares(draws)[np.arange(site.size), site, index]
        for k in np.argsort(-kept, kind="stable")[: self.tries].tolist():
            if kept[k] <= 0.5:
                break
            state: States = draws[k, -1]
            again = self._run(rng, np.tile(state, (_USUAL, 1)))
            n_kept = self._shares(again).sum(axis=0)[rare]
            best_kept = int(n_kept.argmax())
            if n_kept[best_kept] > 0.5 * _USUAL:
                at, value = int(rare[0][best_kept]), int(rare[1][best_kept])
                n_left = np.count_nonzero(again[:, -1, at] != self.values[value])
                sweeps = SWEEPS * float(n_kept[best_kept]) / (1 + n_left)
                self.found.add(RareValue(at, value, sweeps))
                return state
        return None

    def _run(self, rng: np.random.Generator, x: States) -> States:
        """Run chains from some states; return the second half of their draws."""
        seed = int(rng.integers(2**63))
        streams = Streams([np.random.default_rng([seed, k]) for k in range(len(x))])
        draws, evaluations = self.walk(x, streams, _DRAWS, SWEEPS / _DRAWS)
        self.account.evaluations += evaluations
        return draws[:, _DRAWS // 2 :]

    def _shares(self, draws: States) -> Array:
        """How often each value occurs; shape (n_walkers, n_sites, n_values)."""
        return np.stack([(draws == v).mean(axis=1) for v in self.values], axis=2)


def scouted_starts(
    target: Target,
    params: Any,
    streams: Streams,
    rule: Rule,
    budget: tuple[int, int],
    new_ensemble: Callable[[States, Streams], Any],
    first_order: bool = False,
) -> Starts:
    """Draw starts as a fit wants them, with a search that runs chains with ``rule``.

    ``budget`` has the evaluations for the start of a chain, a quarter of its burn-in, and for a
    sweep. ``init`` "auto" makes exact draws where these take no more than the burn-in.
    """
    per_sweep = transitions_of_a_sweep(rule, target)

    def walk(states: States, streams: Streams, n_draws: int, sweeps: float) -> tuple[States, int]:
        walkers = new_ensemble(states, streams)
        walkers.start(rule)
        draws, _ = draw(walkers, n_draws, max(1, round(sweeps * per_sweep)))
        return draws, int(walkers.chains.evaluations.sum())

    evaluations, of_sweep = budget
    of_look = 1 if first_order else target.offers.n_moves
    looks = evaluations // (2 * max(1, of_look))
    n_walkers = evaluations // (2 * SWEEPS * max(1, of_sweep))
    effort = Effort(looks, n_walkers, walk, first_order)
    with Progress(params.verbose, "starts", len(streams), "chains") as progress:
        if params.init != "auto":
            return draw_starts(target, params.init, streams, effort, progress)
        found = find_reference(target, 4 * budget[0] * params.n_chains)
        if found is None:
            return draw_starts(target, "both", streams, effort, progress)
        for _ in streams.chain:
            progress()
        return Starts(found.starts(streams), np.zeros(len(streams), int), reference=found)
