"""Discrete variables of a model: their values, and the names of their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

NEEDS_PYMC = (
    "needs PyMC, for Python 3.12 or later; run `pip install pymc`, or install the extra: "
    "sklsb[pymc]."
)
# Beyond all values; differences of two such numbers are integers of 64 bits.
FAR = 1 << 52
# Lowest and highest value, given the parameters of the distribution; None if there is none.
SUPPORTS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "Bernoulli": lambda p: (0, 1),
    "Categorical": lambda p: (0, p.shape[-1] - 1),
    "DiscreteUniform": lambda low, high: (low, high),
    "Binomial": lambda n, p: (0, n),
    "BetaBinomial": lambda n, alpha, beta: (0, n),
    "HyperGeometric": lambda good, bad, n: ((n - bad).clip(0, n), n.clip(0, good)),
    "Multinomial": lambda n, p: (0, n[..., None]),
    "Poisson": lambda mu: (0, None),
    "NegBinomial": lambda n, p: (0, None),
    "Geometric": lambda p: (1, None),
    "DiscreteWeibull": lambda q, beta: (0, None),
}


def kind(rv: Any) -> str:
    """Return the name of the distribution of a variable."""
    return type(rv.owner.op).__name__.removesuffix("RV")


def ends(rv: Any) -> tuple[Any, Any] | None:
    """Return the lowest and highest values as the model states them, or None."""
    if kind(rv) == "Truncated":
        *inputs, lower, upper = rv.owner.inputs
        of = rv.owner.op.base_rv_op.make_node(*inputs).default_output()
        low, high = ends(of) or (None, None)
        least = lower.astype("float64").ceil().clip(-FAR if low is None else low, FAR)
        return least, upper.astype("float64").floor().clip(-FAR, FAR if high is None else high)
    support = SUPPORTS.get(kind(rv))
    return None if support is None else support(*rv.owner.op.dist_params(rv.owner))


def site_names(name: str, labels: Sequence[Sequence[Any]]) -> list[str]:
    """Return names of elements as ArviZ writes them: ``z``, ``z[a]``, ``z[a, 0]``."""
    return [f"{name}[{', '.join(map(str, at))}]" if at else name for at in product(*labels)]


def dims_and_labels(model: Any, rv: Any, shape: Sequence[int]) -> tuple[Any, list[list[Any]]]:
    """Return the names of the axes of a variable, and the labels along them."""
    dims = model.named_vars_to_dims.get(rv.name)
    dims = tuple(dims or (f"{rv.name}_dim_{i}" for i in range(len(shape))))
    known = [model.coords.get(dim) for dim in dims]
    return dims, [list(range(n) if at is None else at) for at, n in zip(known, shape, strict=True)]
