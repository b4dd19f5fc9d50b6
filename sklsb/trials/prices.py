"""What transitions of samplers cost, in nanoseconds: constants, so that no choice asks a clock.

A transition of a rule on a target takes about

.. math:: a + b e + c e k

with e its evaluations and k the mean number of variables that depend on one of the target's
(of an `RBM`, its hidden units). First-order steps on torch take nearly the same for one chain and
for all, so a transition of all chains counts as one. ``python benchmarks/prices.py --write``
measures the table anew.
"""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sklsb._kernels.facts import Rule
from sklsb.ensembles.rules import FirstOrder
from sklsb.targets.base import Target
from sklsb.targets.torch import TorchTarget

# A race asks for them after every run, and graphs are made anew.
_NEIGHBOURS: WeakKeyDictionary[Target, float] = WeakKeyDictionary()
# No evaluation takes less, whatever a fit of prices says of variables that depend on no other.
_LEAST = 1.0


class Price(NamedTuple):
    """Nanoseconds of one core."""

    of_transition: float
    of_evaluation: float
    of_neighbour: float  # and evaluation

    def work(self, transitions: float, evaluations: float, k: float) -> float:
        """Return the nanoseconds that transitions with these evaluations take in all."""
        of_evaluation = max(_LEAST, self.of_evaluation + self.of_neighbour * k)
        return self.of_transition * transitions + of_evaluation * evaluations


# By the class of the rule and of the target; "*" is any other target.
# fmt: off
PRICES: dict[tuple[str, str], Price] = {
    ("Balanced", "FunctionTarget"): Price(0.0, 474.0, 0.0),
    ("Balanced", "Ising"): Price(107.0, 7.05, 0.0),
    ("Balanced", "MarkovNetwork"): Price(107.0, 8.11, 0.0),
    ("Balanced", "Potts"): Price(131.0, 6.71, 0.0),
    ("Balanced", "RBM"): Price(0.0, 12.1, 0.0584),
    ("Balanced", "TorchTarget"): Price(48800.0, 5020.0, 0.0),
    ("Balanced", "VariableSelection"): Price(212.0, 22.4, 0.0),
    ("Chromatic", "Ising"): Price(0.0, 1.01, 0.356),
    ("Chromatic", "MarkovNetwork"): Price(1450.0, 0.0, 0.0),
    ("Chromatic", "Potts"): Price(0.0, 12.2, 0.0),
    ("FirstOrder", "TorchTarget"): Price(281000.0, 0.0, 0.0),
    ("Jump", "FunctionTarget"): Price(0.0, 471.0, 0.0),
    ("Jump", "Ising"): Price(373.0, 5.53, 0.0),
    ("Jump", "MarkovNetwork"): Price(383.0, 7.86, 0.0),
    ("Jump", "Potts"): Price(504.0, 6.07, 0.0),
    ("Jump", "RBM"): Price(0.0, 12.5, 0.0565),
    ("Jump", "VariableSelection"): Price(0.0, 24.2, 0.0),
    ("Layers", "RBM"): Price(0.0, 13.4, 0.0426),
    ("Mixture", "Ising"): Price(189.0, 19.7, 0.0),
    ("Mixture", "MarkovNetwork"): Price(447.0, 9.85, 0.0),
    ("Mixture", "Potts"): Price(346.0, 7.27, 0.0),
    ("RandomBlocks", "FunctionTarget"): Price(0.0, 9320.0, 0.0),
    ("RandomBlocks", "Ising"): Price(27.1, 14.7, 0.24),
    ("RandomBlocks", "MarkovNetwork"): Price(34.7, 14.4, 0.0),
    ("RandomBlocks", "Potts"): Price(37.8, 11.0, 0.0),
    ("RandomBlocks", "RBM"): Price(6.27, 39.3, 1.09),
    ("RandomBlocks", "VariableSelection"): Price(0.0, 65.3, 0.0),
    ("Redraw", "Ising"): Price(0.0, 1.22, 0.0),
    ("Redraw", "MarkovNetwork"): Price(0.0, 1.22, 0.0),
    ("Scan", "FunctionTarget"): Price(0.0, 9220.0, 0.0),
    ("Scan", "Ising"): Price(0.0, 6.48, 0.37),
    ("Scan", "MarkovNetwork"): Price(0.0, 22.0, 0.0),
    ("Scan", "Potts"): Price(0.0, 13.8, 0.0),
    ("Scan", "RBM"): Price(0.0, 38.4, 0.0575),
    ("Scan", "VariableSelection"): Price(0.0, 404.0, 0.0),
    ("SwendsenWang", "Ising"): Price(2500.0, 3.71, 0.0),
    ("SwendsenWang", "Potts"): Price(0.0, 11.9, 0.0),
    ("Systematic", "FunctionTarget"): Price(0.0, 9100.0, 0.0),
    ("Systematic", "Ising"): Price(0.0, 11.7, 0.191),
    ("Systematic", "MarkovNetwork"): Price(0.0, 16.5, 0.0),
    ("Systematic", "Potts"): Price(0.0, 12.1, 0.0),
    ("Systematic", "RBM"): Price(0.0, 38.8, 0.686),
    ("Systematic", "VariableSelection"): Price(0.0, 27.8, 0.0),
    ("Balanced", "*"): Price(84.8, 11.0, 0.0),
    ("Chromatic", "*"): Price(545.0, 2.0, 0.0),
    ("Jump", "*"): Price(275.0, 10.5, 0.0),
    ("Layers", "*"): Price(0.0, 13.4, 0.0426),
    ("Mixture", "*"): Price(513.0, 4.5, 0.119),
    ("RandomBlocks", "*"): Price(33.6, 12.1, 0.369),
    ("Redraw", "*"): Price(0.0, 1.22, 0.0),
    ("Scan", "*"): Price(3590.0, 6.24, 0.409),
    ("SwendsenWang", "*"): Price(4360.0, 3.59, 0.0),
    ("Systematic", "*"): Price(753.0, 11.1, 0.196),
}
# fmt: on
# Of what is in no table, and of an evaluation in the fit of an LSBSampler, which also learns.
OTHERS, FIT = Price(100.0, 20.0, 0.0), 60.0
# A fit by first-order steps takes so few of them that a race of its length would settle nothing.
FITS = 64.0
# Of a table entry of elimination: 1 with five values, up to 9 with two.
TABLE_ENTRY = 4.0

# The following are in log-ratios, as evaluations are counted.
# What a transition takes beside its log-ratios, 80 of some 12 ns on an Ising model; the same of a
# jump, in the race of candidates that share all else.
OF_TRANSITION, OF_JUMP = 7.0, 8.2
# A table entry; a variable or factor in Python, for draws, and a variable or pair of neighbours for
# marginals; listing a state, per variable, where a log-ratio takes no call of a user's function.
OF_ENTRY, OF_FACTOR, OF_PAIR, OF_STATE = 1.0 / 8.0, 512.0, 2048, 8
# Overhead of a step and of a redraw, a move whose weight is updated, and an entry looked at in a
# draw of the whole model. With these, redraws of the whole model took 0.4 to 0.65 of the time on
# asia, alarm, hailfinder, Grids_12, Pedigree_11, Promedus_32 and an 8x8 lattice; those of a pool
# 0.5 to 0.6 on Pedigree_11, Grids_11, linkage_21 and a 30x30 lattice, and 0.7 on a dense Ising
# model, whose log-ratios are cheap.
OF_STEP, OF_REDRAW, OF_MOVE, OF_DRAWN_ENTRY = 12.0, 24.0, 1.0 / 2.0, 1.0 / 2.0
# Most table entries and bytes of exact answers beside chains.
MAX_WORK, MAX_MEMORY = 2.0**30, 2.0**28


def is_on_torch(target: Target) -> bool:
    """Whether a target is a function on torch with a gradient."""
    plain = target.offers.plain
    return isinstance(plain, TorchTarget) and not plain.density.takes_integers


def neighbours(target: Target) -> float:
    """Return how many variables depend on one, on average; 0 if that is unknown."""
    model: Any = target.offers.plain
    if model not in _NEIGHBOURS:
        _NEIGHBOURS[model] = _neighbours(model)
    return _NEIGHBOURS[model]


def _neighbours(model: Any) -> float:
    layers = model.layers
    if layers is not None:
        return float(layers.weights.shape[1])
    return 0.0 if model.graph is None else model.graph.nnz / max(1, model.n_sites)


def price_of(rule: Rule | str, target: Target) -> Price:
    """Return the price of a rule's transitions on a target."""
    name = rule if isinstance(rule, str) else type(rule).__name__
    exact = PRICES.get((name, type(target.offers.plain).__name__))
    return exact or PRICES.get((name, "*"), OTHERS)


def work_of(transitions: int, evaluations: int, ensemble: Any) -> float:
    """Return the nanoseconds of all chains for transitions of each, with evaluations in all."""
    rule, target = ensemble.rule, ensemble.target
    calls = transitions if isinstance(rule, FirstOrder) else transitions * len(ensemble)
    return price_of(rule, target).work(calls, evaluations, neighbours(target))


def work_of_fit(evaluations: int, ensemble: Any) -> float:
    """Return the nanoseconds that a race may be measured by: of fitting an LSBSampler."""
    if isinstance(ensemble.rule, FirstOrder):
        return FITS * work_of(evaluations // len(ensemble), evaluations, ensemble)
    return FIT * evaluations
