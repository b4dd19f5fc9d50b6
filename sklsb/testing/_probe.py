"""Production transitions from given states, by given moves or uniform numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels import run
from sklsb._kernels.chains import arrays_of
from sklsb._kernels.facts import Rule
from sklsb._kernels.rules.balanced import Balanced
from sklsb._system.arrays import Array, Ints
from sklsb.ensembles.compiled import BalancedEnsemble, Ensemble
from sklsb.targets.base import States, Target
from sklsb.testing._expect import expect_equal

# Scratch arrays, which a step writes before it reads them.
_SCRATCH = (
    *("old_weight", "level", "memo", "log_ratio", "gap", "flips", "total", "drawn", "field"),
    *("nothing", "number", "member", "first", "weight", "pairs"),
)
# Parts that hold nothing else.
_SCRATCH_PARTS = ("Ball", "Partners")


def kept(chains: Any) -> dict[str, NDArray[Any]]:
    """Return all arrays that chains carry from one transition to the next, by name; not copied."""
    found = {"x": chains.x, "cache": chains.cache}
    if not any(name in type(chains.part).__name__ for name in _SCRATCH_PARTS):
        found |= {
            name: values
            for name, values in arrays_of(chains.part)
            if name.rpartition(".")[2] not in _SCRATCH
        }
    return found


def check_caches(ensemble: Ensemble, when: str) -> None:
    """Compare what chains keep with a rebuild, bit for bit."""
    ensemble._refresh()
    found = {name: values.copy() for name, values in kept(ensemble.chains).items()}
    run.start(ensemble.view, ensemble.rule, ensemble.chains, (0, len(ensemble)), False)
    for name, values in kept(ensemble.chains).items():
        what = f"caches must equal a rebuild bit for bit {when}, but `{name}` does not"
        expect_equal(found[name], values, what)


def check_same(found: Ensemble, expected: Ensemble, when: str) -> None:
    """Compare what two ensembles keep, bit for bit."""
    for ensemble in (found, expected):
        ensemble._refresh()
    one, other = kept(found.chains), kept(expected.chains)
    facts = expected.rule.facts
    # Arrays of the rule of a mixture that did not move last are out of date.
    for name in ("x", "cache", *facts.carried) if facts.parts else other:
        expect_equal(one[name], other[name], f"what chains keep {when}, `{name}`")


class Probe:
    """Chains of locally balanced steps at given states."""

    def __init__(self, target: Target, rule: Balanced, states: States):
        self.rule = rule
        rngs = [np.random.default_rng(0)] * len(states)
        self.ensemble = BalancedEnsemble(target, states, rngs, rule=rule)
        self.chains = self.ensemble.chains
        view: Any = self.ensemble.view
        self.n_moves = view.touched_start.size - 1
        self.ensemble.start(rule)
        self.before = {name: values.copy() for name, values in kept(self.chains).items()}

    def restore(self) -> None:
        """Put the chains back where they were."""
        for name, values in kept(self.chains).items():
            values[:] = self.before[name]
        self.chains.acceptance[:] = 0.0

    def rebuild(self) -> None:
        """Compute caches, weights and sums from the states, under the present offsets."""
        run.start(self.ensemble.view, self.rule, self.chains, (0, len(self.ensemble)), False)

    def walk(self, moves: NDArray[Any], every: bool = True) -> tuple[Ints, Array]:
        """Make moves, shape (n_chains, n); return their inverses and the log-ratios after."""
        inverses = np.zeros(moves.shape, dtype=np.int64)
        ratios = np.empty((len(moves), self.n_moves))
        view: Any = self.ensemble.view
        run.walk(view, self.chains, moves, every, inverses, ratios)
        return inverses, ratios


class RuleProbe:
    """Transitions of any rule from given states, by all of their uniform numbers."""

    def __init__(self, target: Target, rule: Rule, room: int = 4096):
        self.target, self.rule, self.room = target, rule, room
        states = np.stack([target.draw_state(np.random.default_rng(0))] * room)
        self.ensemble = Ensemble(target, states, [np.random.default_rng(0)] * room, rule=rule)

    def step(self, states: States, uniforms: Array) -> States:
        """Return the ends of transitions from states (n, n_sites) by numbers (n, n_uniforms)."""
        result = np.empty_like(states)
        stats = np.empty((self.room, 0, len(self.rule.facts.stat_names)))
        for begin in range(0, len(states), self.room):
            part = slice(begin, begin + self.room)
            size = len(states[part])
            chains, view = self.ensemble.chains, self.ensemble.view
            chains.x[:size] = states[part]
            run.start(view, self.rule, chains, (0, size), True)
            rows = np.ascontiguousarray(uniforms[part])
            out = (np.empty((self.room, 0, states.shape[1]), states.dtype), stats)
            steps = run.Steps(1, rows.shape[1], run.Drawing())
            run.run(view, self.rule, chains, (0, size), rows, steps, out, None)
            result[part] = chains.x[:size]
        return result
