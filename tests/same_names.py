"""Classes of one name in one process, compiled: each runs its own code.

``python same_names.py case folder`` prints probabilities, one a line, or what was refused.
"""

import importlib
import pickle
import sys
from pathlib import Path

import numpy as np

from sklsb import Ising, Target
from sklsb._kernels.rules.mixture import Mixture
from sklsb._kernels.targets.ising import IsingView
from sklsb.ensembles.compiled import Ensemble
from sklsb.extending import all_touched, implements, log_ratio

VIEW = """
from typing import NamedTuple
import numpy as np
from sklsb.extending import flip, implements, init_cache, inlined, log_prob, log_ratio

SLOPE = {slope}

@inlined
def slope_of(view, move):
    return SLOPE * view.slope[move]

class View(NamedTuple):
    slope: np.ndarray
    touched_start: np.ndarray
    touched: np.ndarray
    cache_size: int

@implements(init_cache, View)
def _init_cache(view, chain):
    pass

@implements(log_ratio, View)
def _log_ratio(view, chain, move):
    return slope_of(view, move) * (1.0 - 2.0 * chain.x[move])

@implements(flip, View)
def _flip(view, chain, move):
    chain.x[move] = 1 - chain.x[move]
    return move

@implements(log_prob, View)
def _log_prob(view, chain):
    total = 0.0
    for i in range(chain.x.size):
        total += slope_of(view, np.uint64(i)) * chain.x[i]
    return total
"""

RULE = """
from typing import NamedTuple
import numpy as np
from sklsb.extending import Facts, NoPart, exp, flip, implements, log_ratio, step

class Heat(NamedTuple):
    heat: float

    @property
    def facts(self):
        return Facts(n_uniforms=1)

    def new_part(self, target, n_chains):
        return NoPart()

@implements(step, Heat)
def _step(view, rule, chain, u):
    move = np.uint64(0)
    if u[0] < 1.0 / (1.0 + exp(-{beta} * rule.heat * log_ratio(view, chain, move))):
        flip(view, chain, move)
    return 1.0
"""


class Spins(Target):
    """Variables of 0 and 1 whose log p only a view knows."""

    shape, dims, values = (2,), ("site",), (0, 1)

    def __init__(self, view):
        self._own = view

    def log_prob(self, x):
        return np.zeros(np.shape(x)[:-1])

    def log_ratios(self, x):
        return np.zeros(np.shape(x))

    def view(self):
        return self._own


def run(source, **constants):
    """What a cell defines."""
    space = {"__name__": "__main__"}
    exec(compile(source.format(**constants), "cell", "exec"), space)
    return space


HEAT = run(RULE, beta=1.0)["Heat"](1.0)


def chance(target, rule=HEAT):
    """Probability of a transition out of the first state, by the numbers that lead to one."""
    n, width = 1000, rule.facts.n_uniforms
    x = np.full((1, target.n_sites), target.values[0])
    x = target.draw_state_given(np.random.default_rng(0), np.array([0]), x[0, :1])[None]
    x = np.tile(x, (n, 1))
    ensemble = Ensemble(target, x, [np.random.default_rng(0)] * n, rule=rule)
    ensemble.start(rule)
    u = np.tile(((np.arange(n) + 0.5) / n)[:, None, None], (1, 1, width))
    ensemble.advance(u)
    return round(float((ensemble.chains.x[:, 0] != x[:, 0]).mean()), 3)


def spins(view):
    return Spins(view(np.ones(2), *all_touched(2), 0))


def two_classes(folder):
    return [chance(spins(run(VIEW, slope=slope)["View"])) for slope in (1.0, -3.0)]


def conditioned(folder):
    targets = [spins(run(VIEW, slope=slope)["View"]) for slope in (1.0, -3.0)]
    return [chance(target.condition({1: 0})) for target in targets]


def cell_run_again(folder):
    space = run(VIEW, slope=1.0)
    found = [chance(spins(space["View"]))]
    exec(VIEW.format(slope=-3.0), space)
    return [*found, chance(spins(space["View"]))]


def module_reloaded(folder):
    sys.path.insert(0, folder)
    path = Path(folder, "views.py")
    path.write_text(VIEW.format(slope=1.0))
    views = importlib.import_module("views")
    found, first = [chance(spins(views.View))], views.View
    path.write_text(VIEW.format(slope=-3.0) + "# of another size")
    importlib.reload(views)
    found.append(chance(spins(views.View)))
    assert first is not views.View
    # Pickles know classes by where they are defined.
    copy = pickle.loads(pickle.dumps(spins(views.View).view()))
    assert type(copy) is views.View
    return found


def copy_of_ising(folder, own_first):
    """The package's Ising model, and an edited copy of its view."""
    path = Path(importlib.import_module(IsingView.__module__).__file__)
    space = {"__name__": "__main__"}
    exec(path.read_text().replace("(-2.0 * chain", "(-0.2 * chain"), space)

    class Copied(Ising):
        def view(self):
            return space["IsingView"](*super().view())

    kinds = [Ising, Copied] if own_first else [Copied, Ising]
    return [chance(kind([[0.0, 0.3], [0.3, 0.0]], [0.25, 5.0])) for kind in kinds]


def rules(folder):
    target = Ising(np.zeros((1, 1)), [0.5])
    return [chance(target, run(RULE, beta=beta)["Heat"](1.0)) for beta in (1.0, -3.0)]


def mixtures(folder):
    target = Ising(np.zeros((1, 1)), [0.5])
    # The coin is always for the second one.
    made = [run(RULE, beta=beta)["Heat"](1.0) for beta in (1.0, -3.0)]
    return [chance(target, Mixture.of(HEAT, rule, 1.0)) for rule in made]


def refused(work):
    try:
        return work()
    except TypeError as error:
        return f"{type(error).__name__}: {error}"


def implemented_again(folder):
    """For a class that was compiled: the same cell, an edited one, and the class anew."""
    end = VIEW.index("@implements")
    space, functions = run(VIEW[:end], slope=1.0), VIEW[end:]
    exec(functions, space)
    found = [chance(spins(space["View"]))]
    exec(functions, space)
    found.append(chance(spins(space["View"])))
    exec(functions.replace("1.0 - 2.0 *", "2.0 - 4.0 *"), space)
    found.append(refused(lambda: chance(spins(space["View"]))))
    exec(VIEW.format(slope=-3.0), space)
    return [*found, chance(spins(space["View"]))]


def helper_again(folder):
    """A function, and a number, that an implementation refers to."""
    found = []
    for changed in ("SLOPE = 2.0", VIEW[VIEW.index("@inlined") : VIEW.index("class View")]):
        space = run(VIEW, slope=1.0)
        found.append(chance(spins(space["View"])))
        exec(changed.replace("SLOPE *", "2.0 *"), space)
        found.append(refused(lambda view=space["View"]: chance(spins(view))))
    return found


def package_again(folder):
    """A function of a view of the package, after that was compiled or read from the disk."""
    target = Ising(np.zeros((1, 1)), [0.5])
    found = [chance(target)]

    @implements(log_ratio, IsingView)
    def _log_ratio(view, chain, move):
        return 0.0

    return [*found, refused(lambda: chance(target))]


CASES = {
    "two classes": two_classes,
    "conditioned": conditioned,
    "cell run again": cell_run_again,
    "module reloaded": module_reloaded,
    "Ising first": lambda folder: copy_of_ising(folder, True),
    "copy first": lambda folder: copy_of_ising(folder, False),
    "rules": rules,
    "mixtures": mixtures,
    "implemented again": implemented_again,
    "helper again": helper_again,
    "package again": package_again,
}

if __name__ == "__main__":
    print(*CASES[sys.argv[1]](sys.argv[2]), sep="\n")
