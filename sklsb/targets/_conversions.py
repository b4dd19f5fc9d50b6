"""Networks of other packages, and what their tables must sum to."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklsb._system.warn import warn
from sklsb.exceptions import ModelWarning
from sklsb.io.uai import Model
from sklsb.targets._checks import has, is_pgmpy
from sklsb.targets._names import plain

# A conditional distribution may miss the sum 1 by this, as files keep three digits.
LARGEST_DEFECT = 1e-3


def of_pgmpy(model: Any) -> tuple[Any, ...]:
    """Return cardinalities, factors, names, names of values and children of a model of pgmpy."""
    if not is_pgmpy(model):
        raise TypeError(
            f"model is {model!r:.80}; give a pgmpy model, with get_cpds or get_factors."
        )
    directed = has(model, "get_cpds")
    given = list(model.get_cpds() if directed else model.get_factors())
    cardinality: dict[Any, int] = {}
    for factor in given:
        sizes = np.asarray(factor.cardinality).tolist()
        cardinality.update(zip(factor.variables, sizes, strict=True))
    index = {name: i for i, name in enumerate(cardinality)}
    states: dict[Any, list[Any]] = {}
    factors = [([index[v] for v in f.variables], _in_one_order(f, states)) for f in given]
    state_names = None
    if any(states.get(v, list(range(k))) != list(range(k)) for v, k in cardinality.items()):
        state_names = [map(str, states.get(v, range(k))) for v, k in cardinality.items()]
    children = tuple(index[factor.variables[0]] for factor in given) if directed else None
    return list(cardinality.values()), factors, plain(cardinality), state_names, children


def _in_one_order(factor: Any, states: dict[Any, list[Any]]) -> NDArray[Any]:
    """Return a table of pgmpy with the values of each variable in order of first mention."""
    given = getattr(factor, "state_names", None) or {}
    shape = np.asarray(factor.cardinality).tolist()
    table: NDArray[Any] = np.asarray(factor.values).reshape(shape)
    for axis, (variable, k) in enumerate(zip(factor.variables, shape, strict=True)):
        if variable not in given:
            continue
        own = list(given[variable])
        first = states.setdefault(variable, own)
        if len(own) != k or len(set(own)) != k or set(own) != set(first):
            raise ValueError(
                f"the {k} values of variable {variable!r} are called {own} in one factor, and "
                f"{first} in another; give each of them one name."
            )
        table = table.take([own.index(name) for name in first], axis=axis)
    return table


def of_pyagrum(bn: Any) -> Model:
    """Return a Bayesian network of pyAgrum."""
    if not has(bn, "nodes", "variable", "cpt") or has(bn, "isDecisionNode"):
        raise TypeError(
            f"bn is of type {type(bn).__name__}; give a pyagrum.BayesNet. Influence diagrams "
            "and Markov random fields are not converted."
        )
    variables = [bn.variable(node) for node in bn.nodes()]
    site = {variable.name(): i for i, variable in enumerate(variables)}
    states = tuple(tuple(map(str, variable.labels())) for variable in variables)
    scopes, tables = [], []
    for name in site:
        cpt = bn.cpt(name)
        scopes.append(tuple(site[v.name()] for v in cpt.variablesSequence())[::-1])
        tables.append(np.asarray(cpt.toarray(), dtype=np.float64))
        if not tables[-1].any(axis=-1).all():
            raise ValueError(
                f"a row of the table of {name!r} is 0 throughout; pyAgrum reads rows so which "
                "a file lacks. Give the probabilities."
            )
    sizes = tuple(map(len, states))
    return Model("BAYES", sizes, scopes, tables, tuple(site), states)


def warn_of_sums(model: Model) -> None:
    """Warn if the tables of a Bayesian network are not conditional probabilities."""
    sums = [table.sum(axis=-1) for table in model.tables]
    bad = [f for f, total in enumerate(sums) if np.abs(total - 1.0).max() > LARGEST_DEFECT]
    if bad:
        total, child = sums[bad[0]].ravel(), model.scopes[bad[0]][-1]
        warn(
            f"The probabilities of variable {model.names[child] if model.names else child!r} given "
            f"its parents sum to {total[np.abs(total - 1.0).argmax()]:g} in one case, not to 1"
            f"{f', nor do those of {len(bad) - 1} others' if len(bad) > 1 else ''}. The tables are "
            "taken as they are: the distribution is their product.",
            ModelWarning,
        )
