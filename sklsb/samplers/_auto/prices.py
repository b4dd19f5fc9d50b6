"""What transitions of samplers cost, in nanoseconds: constants, so that no choice asks a clock.

A transition of a rule on a target takes about

.. math:: a + b e + c e k

with e its evaluations and k the mean number of variables that depend on one of the target's
(of an `RBM`, its hidden units). ``python benchmarks/prices.py --write`` measures the table anew.
"""

from typing import Any, NamedTuple

from sklsb._kernels.facts import Rule
from sklsb.targets.base import Conditioned, Target

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
    ("Balanced", "FunctionTarget"): Price(0.0, 554.0, 0.0),
    ("Balanced", "Ising"): Price(110.0, 9.44, 0.0),
    ("Balanced", "MarkovNetwork"): Price(82.1, 15.2, 0.0),
    ("Balanced", "Potts"): Price(147.0, 8.21, 0.0),
    ("Balanced", "RBM"): Price(0.0, 18.2, 0.095),
    ("Balanced", "VariableSelection"): Price(0.0, 28.8, 0.0),
    ("Chromatic", "Ising"): Price(0.0, 0.0, 0.65),
    ("Chromatic", "MarkovNetwork"): Price(1750.0, 1.27, 0.0),
    ("Chromatic", "Potts"): Price(0.0, 14.4, 0.0),
    ("Jump", "Ising"): Price(364.0, 7.95, 0.0),
    ("Jump", "MarkovNetwork"): Price(0.0, 39.2, 0.0),
    ("Jump", "Potts"): Price(0.0, 25.9, 0.0),
    ("Jump", "RBM"): Price(0.0, 17.3, 0.103),
    ("Jump", "VariableSelection"): Price(0.0, 29.8, 0.0),
    ("Layers", "RBM"): Price(0.0, 16.2, 0.0674),
    ("Mixture", "Ising"): Price(248.0, 28.1, 0.0),
    ("Mixture", "MarkovNetwork"): Price(635.0, 11.4, 0.0),
    ("Mixture", "Potts"): Price(260.0, 14.6, 0.0),
    ("RandomBlocks", "FunctionTarget"): Price(0.0, 10900.0, 0.0),
    ("RandomBlocks", "Ising"): Price(29.8, 17.9, 0.367),
    ("RandomBlocks", "MarkovNetwork"): Price(37.9, 17.9, 0.0),
    ("RandomBlocks", "Potts"): Price(45.8, 13.2, 0.0),
    ("RandomBlocks", "RBM"): Price(0.0, 50.4, 1.66),
    ("RandomBlocks", "VariableSelection"): Price(0.0, 82.2, 0.0),
    ("Redraw", "Ising"): Price(0.0, 3.49, 0.0),
    ("Redraw", "MarkovNetwork"): Price(0.0, 2.45, 0.0),
    ("Scan", "Ising"): Price(0.0, 6.83, 0.544),
    ("Scan", "MarkovNetwork"): Price(1060.0, 19.2, 0.0),
    ("Scan", "Potts"): Price(0.0, 16.4, 0.0),
    ("Scan", "RBM"): Price(0.0, 70.6, 1.04),
    ("Scan", "VariableSelection"): Price(0.0, 589.0, 0.0),
    ("SwendsenWang", "Ising"): Price(6880.0, 3.03, 0.0),
    ("SwendsenWang", "Potts"): Price(0.0, 14.3, 0.0),
    ("Systematic", "FunctionTarget"): Price(0.0, 11400.0, 0.0),
    ("Systematic", "Ising"): Price(0.0, 14.9, 0.245),
    ("Systematic", "MarkovNetwork"): Price(0.0, 18.4, 0.0),
    ("Systematic", "Potts"): Price(0.0, 14.9, 0.0),
    ("Systematic", "RBM"): Price(0.0, 42.9, 1.07),
    ("Systematic", "VariableSelection"): Price(0.0, 31.5, 0.0),
    ("Balanced", "*"): Price(81.3, 14.5, 0.0),
    ("Chromatic", "*"): Price(625.0, 6.18, 0.0),
    ("Jump", "*"): Price(239.0, 15.2, 0.0),
    ("Layers", "*"): Price(0.0, 16.2, 0.0674),
    ("Mixture", "*"): Price(684.0, 7.38, 0.163),
    ("RandomBlocks", "*"): Price(38.2, 14.5, 0.535),
    ("Redraw", "*"): Price(0.0, 0.0, 0.862),
    ("Scan", "*"): Price(2910.0, 7.19, 0.629),
    ("SwendsenWang", "*"): Price(9170.0, 2.87, 0.0),
    ("Systematic", "*"): Price(696.0, 14.1, 0.276),
}
# fmt: on
# Of what is in no table, and of an evaluation in the fit of an LSBSampler, which also learns.
OTHERS, FIT = Price(100.0, 20.0, 0.0), 30.0


def plain(target: Target) -> Target:
    """Return the target without its evidence."""
    return target.target if isinstance(target, Conditioned) else target


def neighbours(target: Target) -> float:
    """Return how many variables depend on one, on average; 0 if that is unknown."""
    model: Any = plain(target)
    layers = getattr(model, "layers", None)
    if layers is not None:
        return float(layers.weights.shape[1])
    return 0.0 if model.graph is None else model.graph.nnz / max(1, model.n_sites)


def price_of(rule: Rule | str, target: Target) -> Price:
    """Return the price of a rule's transitions on a target."""
    name = rule if isinstance(rule, str) else type(rule).__name__
    exact = PRICES.get((name, type(plain(target)).__name__))
    return exact or PRICES.get((name, "*"), OTHERS)
