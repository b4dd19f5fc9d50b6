"""Markov networks: products of tables over a few variables each."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sklsb._kernels.targets.markov_network import MarkovNetworkView
from sklsb._system.arrays import Array, Bools, Ints
from sklsb.io.bif import read_bif, write_bif
from sklsb.io.uai import Model, read_evidence, read_uai, write_uai
from sklsb.targets import _conversions
from sklsb.targets._checks import (
    as_array,
    check_names,
    check_sizes,
    check_state_names,
    integer,
    real_array,
    touched_near,
)
from sklsb.targets._conversions import warn_of_sums
from sklsb.targets._evidence import (
    Weights,
    by_values,
    names_of_values,
    site_called,
    value_name,
)
from sklsb.targets._names import Names, by_label, in_pandas, labels_of, plain
from sklsb.targets._support import Support
from sklsb.targets.base import NO_SITES, States, Target

if TYPE_CHECKING:
    from sklsb.targets._tables import Whole

Path = str | os.PathLike[str]


class MarkovNetwork(Target):
    r"""Product of factors over discrete variables: Bayesian networks, factor graphs, UAI files.

    .. math:: p(x) \propto \prod_f \theta_f(x_{S_f}), \qquad x_i \in \{0, \dots, k_i - 1\}

    with S_f the scope of factor f. Chains never visit a state at which a table is 0.

    Factors are not conditional tables: they are multiplied as they are, and rows that do not sum to
    1 are neither normalised nor reported. Only the readers of Bayesian networks check the sums.

    Parameters
    ----------
    cardinalities : array_like of int, shape (n_sites,)
        Number of values k_i of each variable, from 1 to 32,768.
    factors : iterable of (scope, table)
        Scope: distinct variables, by name or by index; an integer that could mean two variables is
        refused. Table: array_like, finite and not negative, whose axes are the values of these
        variables; or flat, the last variable changing fastest. Data frames, Series and arrays of
        xarray are read by the names of values.
    names : iterable, optional
        Names of the variables, distinct and hashable, for draws and evidence.
    state_names : list of names or of iterables, or dict of variable: iterable, optional
        Names of the values of all variables, or of each, which evidence may use; numbers from 0 if
        not given.

    Attributes
    ----------
    cardinalities : ndarray of int64, shape (n_sites,)
        Number of values of each variable.
    factors : list of (tuple of int, ndarray)
        Copies of the scopes and tables.
    n_factors : int
        Number of factors.
    state_names : tuple of tuple of str, or None
        Names of the values of each variable, if the file has some; evidence may use them.

    Raises
    ------
    ValueError
        If a scope has a variable twice or one that does not exist, a table does not have the size
        of its scope, an entry is negative or not finite, or a table is zero throughout.
    TypeError
        If cardinalities are not integers, or tables not real numbers.
    MemoryError
        In `view`, which `fit` calls, if the machine has not enough memory.

    See Also
    --------
    Potts : couplings of equal neighbours.

    Notes
    -----
    The list of touched moves takes 4 bytes for each pair of moves of the same variable or of two
    in a common factor: two variables of 10,000 values in one factor take 1.6 GB.

    Examples
    --------
    >>> from sklsb import MarkovNetwork
    >>> rain = MarkovNetwork([2, 3], [((0,), [0.8, 0.2]), ((0, 1), [[1, 1, 0], [0, 1, 3]])])
    >>> rain.log_prob([[0, 2], [1, 2]])
    array([       -inf, -0.51082562])
    >>> rain.condition({0: 1}).log_prob([[0, 1], [1, 1]])
    array([       -inf, -1.60943791])

    The same with names:

    >>> rain = MarkovNetwork(
    ...     [2, 3],
    ...     [(["rain"], [0.8, 0.2]), (["rain", "river"], [[1, 1, 0], [0, 1, 3]])],
    ...     names=["rain", "river"],
    ... )
    >>> float(rain.log_prob([1, 2]).round(6))
    -0.510826
    """

    dims = ("site",)

    def __init__(
        self,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Sequence[Any], ArrayLike]],
        names: Iterable[Any] | None = None,
        state_names: Any = None,
    ):
        cardinalities = in_pandas(cardinalities)
        if names is not None and labels_of(cardinalities) is not None:
            names = plain(names)
            cardinalities = by_label(cardinalities, names, "cardinalities")
        self._cardinalities = check_sizes(cardinalities, "cardinalities")
        self.shape = self._cardinalities.shape
        self.values = tuple(range(int(self._cardinalities.max(initial=1))))
        self._labels = check_names(names, self.n_sites)
        self.state_names = check_state_names(state_names, self.names, self._cardinalities)
        by_name = Names(self._labels or ())
        checked = [self._check_factor(f, factor, by_name) for f, factor in enumerate(factors)]
        scopes, tables = [scope for scope, _ in checked], [table for _, table in checked]
        self._scope_start, self._table_start = (
            np.cumsum([0, *(part.size for part in parts)]) for parts in (scopes, tables)
        )
        self._scope = np.concatenate([*scopes, np.empty(0)]).astype(np.uint32)
        self._table = np.concatenate([*tables, np.empty(0)])
        with np.errstate(divide="ignore"):
            self._log_table = np.log(self._table)
        self._freeze()

    @classmethod
    def _of_sites(
        cls,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Sequence[int], ArrayLike]],
        names: Iterable[Any] | None,
        state_names: Any = None,
        children: tuple[int, ...] | None = None,
    ) -> MarkovNetwork:
        """Make a network whose scopes are sites, also where names are numbers."""
        network = cls(cardinalities, factors)
        network._labels = check_names(names, network.n_sites)
        network.state_names = check_state_names(state_names, network.names, network._cardinalities)
        network._children = children
        return network

    @classmethod
    def from_uai(
        cls, path: Path, evidence: Path | Mapping[Any, Any] | None = None
    ) -> MarkovNetwork | Target:
        """Read a network in the format of the UAI competitions, MARKOV or BAYES.

        Parameters
        ----------
        path : path-like
            The file.
        evidence : path-like or mapping of variable to value, optional
            Evidence file, see `sklsb.io.read_evidence`; or a mapping, as for `condition`.

        Returns
        -------
        Target
            A MarkovNetwork; with evidence, ``network.condition(evidence)``.

        Raises
        ------
        sklsb.io.UAIFormatError
            If a file is not in the format.

        Warns
        -----
        ModelWarning
            If, in a BAYES file, the probabilities of a variable given its parents miss the sum 1 by
            more than 0.001, or pyAgrum seems to have written tables of several parents.
        """
        return cls._from_model(read_uai(path), evidence)

    @classmethod
    def from_bif(
        cls, path: Path, evidence: Mapping[Any, Any] | None = None
    ) -> MarkovNetwork | Target:
        """Read a Bayesian network in the interchange format BIF.

        Parameters
        ----------
        path : path-like
            The file.
        evidence : mapping of variable to value, optional
            As for `condition`: ``{"smoke": "yes"}``.

        Returns
        -------
        Target
            A MarkovNetwork with the names of the variables as coordinate ``site``, and the names of
            their values as ``state_names``; with evidence, ``network.condition(evidence)``.

        Raises
        ------
        sklsb.io.FormatError
            If the file is not in the format.

        Warns
        -----
        ModelWarning
            If the probabilities of a variable given its parents miss the sum 1 by more than 0.001.
        """
        return cls._from_model(read_bif(path), evidence)

    @classmethod
    def _from_model(
        cls, model: Model, evidence: Path | Mapping[Any, Any] | None = None
    ) -> MarkovNetwork | Target:
        children = None
        if model.kind == "BAYES":
            warn_of_sums(model)
            children = tuple(scope[-1] for scope in model.scopes)
        factors = zip(model.scopes, model.tables, strict=True)
        network = cls._of_sites(
            model.cardinalities, factors, model.names, model.state_names, children
        )
        if evidence is not None and not isinstance(evidence, Mapping):
            places, states = read_evidence(evidence, model.cardinalities), network.state_names
            evidence = {network.label(v): states[v][x] if states else x for v, x in places.items()}
        return network.condition(evidence) if evidence else network

    @classmethod
    def from_pgmpy(cls, model: Any) -> MarkovNetwork:
        """Convert a model of pgmpy: a Bayesian network, a Markov network or a factor graph.

        Parameters
        ----------
        model : object
            With a method ``get_cpds`` or ``get_factors``, whose results have ``variables``,
            ``cardinality`` and ``values``, and perhaps ``state_names``.

        Returns
        -------
        MarkovNetwork
            With the names of the variables as coordinate ``site`` and the names of their values as
            ``state_names``, both in order of first mention.

        Raises
        ------
        TypeError
            If the model has no such method.
        ValueError
            If two factors name the values of a variable differently.
        """
        return cls._of_sites(*_conversions.of_pgmpy(model))

    @classmethod
    def from_pyagrum(cls, bn: Any) -> MarkovNetwork:
        """Convert a Bayesian network of pyAgrum.

        Parameters
        ----------
        bn : pyagrum.BayesNet
            Or any object with its methods ``nodes``, ``variable`` and ``cpt``.

        Returns
        -------
        MarkovNetwork
            With the names of the variables as coordinate ``site`` and the labels of their values as
            ``state_names``.

        Raises
        ------
        TypeError
            If it is something else, such as an influence diagram.
        ValueError
            If a row of a conditional table is 0 throughout, as pyAgrum reads what a file lacks.

        Warns
        -----
        ModelWarning
            If the probabilities of a variable given its parents miss the sum 1 by more than 0.001.
        """
        network: Any = cls._from_model(_conversions.of_pyagrum(bn))
        return network

    def to_bif(self, path: Path) -> None:
        """Write a Bayesian network as a BIF file, which reads back bit for bit.

        Parameters
        ----------
        path : path-like
            The file. Names that BIF cannot hold are refused.

        Raises
        ------
        TypeError
            If the network is made of factors, not of conditional tables; `to_uai` writes any.
        ValueError
            If two variables, or two values of one, have the same text as a name, or a name is empty
            or has a quotation mark or a line break.
        """
        states = [list(map(str, own)) for own in self._values(range(self.n_sites))]
        blocks = []
        for f, scope, axis in sorted(map(self._conditional, self.names)):
            blocks.append((scope, np.moveaxis(self._factor_table(f, self._table), axis, -1)))
        write_bif(path, blocks, list(map(str, self.names)), states)

    def to_uai(self, path: Path) -> None:
        """Write the network as a UAI file of type MARKOV, which reads back bit for bit.

        Parameters
        ----------
        path : path-like
            The file.
        """
        factors = self.factors
        scopes, tables = [scope for scope, _ in factors], [table for _, table in factors]
        write_uai(path, Model("MARKOV", tuple(self._cardinalities.tolist()), scopes, tables))

    def _check_factor(self, f: int, factor: Any, by_name: Names) -> tuple[Ints, Array]:
        try:
            scope, table = factor
        except (TypeError, ValueError):
            raise TypeError(
                f"factor {f} is {factor!r:.80}; give a pair (scope, table), as ((0, 1), [[..]])."
            ) from None
        sites, name = self._sites(f, scope, by_name), f"table {f}"
        table = real_array(by_values(self, sites, table, name), name)
        if len(set(sites)) < len(sites):
            raise ValueError(f"the scope of factor {f} is {tuple(sites)}; name each variable once.")
        shape = tuple(self._cardinalities[sites].tolist()) if sites else ()
        if table.shape not in (shape, (math.prod(shape),)):
            raise ValueError(
                f"table {f} has shape {table.shape}; its scope {tuple(sites)} needs {shape}."
            )
        flat = table.astype(np.float64).ravel()
        largest = flat.max()
        if not (flat.min() >= 0.0 and largest < np.inf):  # NaN is neither
            bad = flat[~((flat >= 0.0) & (flat < np.inf))]
            raise ValueError(
                f"table {f} has the entry {bad[0]}; entries must be finite and not negative."
            )
        if not largest:
            raise ValueError(
                f"table {f} is zero throughout: no state has positive probability. Its variables "
                f"are {[self.label(i) for i in sites]!r:.200}."
            )
        return np.array(sites, dtype=np.int64), flat

    def _sites(self, f: int, scope: Any, by_name: Names) -> list[int]:
        """Return the sites of a scope: of names, or of integers, which may be positions too."""
        if isinstance(scope, np.ndarray | str) or not isinstance(scope, Iterable):
            scope = np.ravel(scope)
        given, n = plain(scope), self.n_sites
        if not all(type(v) is int for v in given):
            if not (self._labels or all(isinstance(v, str) for v in given)):
                raise TypeError(
                    f"the scope of factor {f} is {given}; give integers, or names only."
                )
            what = f"the scope of factor {f} names the variable"
            return [site_called(self, by_name, v, what) for v in given]
        sites = given
        if by_name.numbers:
            places = [by_name.find(v) for v in given]
            sites = [v if place is None else place for v, place in zip(given, places, strict=True)]
            both = [v for v, site in zip(given, sites, strict=True) if v != site and v in range(n)]
            if both:
                raise ValueError(
                    f"the scope of factor {f} is {tuple(given)}, and {both[0]} is the name of one "
                    f"variable and the position of another; give names as text, {str(both[0])!r}."
                )
        if sites and not (min(sites) >= 0 and max(sites) < n):
            raise ValueError(
                f"the scope of factor {f} is {tuple(sites)}; there are {n} variables, from 0 on."
            )
        return sites

    @property
    def cardinalities(self) -> Ints:
        return self._cardinalities

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return self._scope_start.size - 1

    @property
    def factors(self) -> list[tuple[tuple[int, ...], Array]]:
        """Scopes and tables, each of the shape of its scope's numbers of values."""
        return [(scope, table.copy()) for scope, table in self._factors(self._table)]

    @property
    def log_factors(self) -> list[tuple[tuple[int, ...], Array]]:
        result = self._factors(self._log_table)
        for _, table in result:
            table.flags.writeable = False
        return result

    def _factors(self, values: Array) -> list[tuple[tuple[int, ...], Array]]:
        """Return scopes and tables, which are views of the values of all tables."""
        scopes = [tuple(scope.tolist()) for scope in self._scopes()]
        tables = [self._factor_table(f, values) for f in range(self.n_factors)]
        return list(zip(scopes, tables, strict=True))

    def _checked_entries(self, tables: Any) -> Array:
        """Return the entries of all tables, given these or one flat array; refuse wrong ones."""
        if isinstance(tables, np.ndarray) and tables.shape == self._table.shape:
            flat = tables.astype(np.float64)
        else:
            own = self._factors(self._table)
            named = ((table, f"table {f}") for f, table in enumerate(tables))
            given = [as_array(table, name).astype(np.float64) for table, name in named]
            if any(labels_of(table) is not None for table in tables):
                raise TypeError(
                    "tables is a list with a data frame or Series, whose labels it would ignore; "
                    "give a dict, {variable: table}."
                )
            shapes = [table.shape for table in given], [table.shape for _, table in own]
            for f, (shape, needed) in enumerate(itertools.zip_longest(*shapes)):
                if shape != needed:
                    raise ValueError(
                        f"tables have table {f} of shape {shape}, where {needed} is needed (None: "
                        "no table); give all tables, in the order and shapes of factors."
                    )
            flat = np.concatenate([*(table.ravel() for table in given), np.empty(0)])
        if not (flat.min(initial=0.0) >= 0.0 and flat.max(initial=0.0) < np.inf):
            bad = flat[~((flat >= 0.0) & (flat < np.inf))]
            raise ValueError(
                f"a table has the entry {bad[0]}; entries are finite and not negative."
            )
        return flat

    def _with_entries(self, flat: Array) -> MarkovNetwork:
        """Return the network with these entries of its tables."""
        return self._made_of(self._factors(flat), self._children)

    def _made_of(
        self, factors: Iterable[Any], children: tuple[int, ...] | None = None
    ) -> MarkovNetwork:
        """Return a network of the same variables."""
        network = MarkovNetwork._of_sites(
            self._cardinalities, factors, self._labels, self.state_names, children
        )
        network._unsure = self._unsure
        return network

    def weighted(self, weights: Weights) -> MarkovNetwork:
        more = (((i,), weight) for i, weight in weights.items())
        return self._made_of([*self._factors(self._table), *more], self._children)

    def with_factors(self, factors: Iterable[tuple[Sequence[Any], ArrayLike]]) -> MarkovNetwork:
        """Multiply further factors in.

        Parameters
        ----------
        factors : iterable of (scope, table)
            As for the class.

        Returns
        -------
        MarkovNetwork
            Of the same variables and names.
        """
        by_name = Names(self._labels or ())
        more = [self._check_factor(f, factor, by_name) for f, factor in enumerate(factors)]
        return self._made_of([*self._factors(self._table), *more])

    # ----------------------------------------------------------------- conditional tables

    @classmethod
    def from_tables(
        cls,
        tables: Mapping[Any, Any],
        parents: Mapping[Any, Sequence[Any]] | None = None,
        *,
        state_names: Mapping[Any, Iterable[Any]] | None = None,
        normalize: bool | Iterable[Any] = False,
    ) -> MarkovNetwork:
        r"""Make a Bayesian network of the conditional table of each variable.

        .. math:: p(x) = \prod_i p(x_i \mid x_{\text{parents}(i)})

        Parameters
        ----------
        tables : mapping of variable to table
            Each table is one of

            - a long data frame: a column for each parent, one for the variable, and one of
              probabilities, whatever it is called;
            - a wide data frame: the parents' values by row (index levels, or columns, named after
              the parents), the variable's values by column; a pivot; or turned, with the variable's
              values by row, as pandas.crosstab gives it;
            - a Series, whose index levels are the parents and the variable;
            - a mapping of the variable's values to probabilities; with parents, of the parents'
              values (a tuple for several) to such a mapping, or to a list;
            - an array, the parents' axes first, in the order of ``parents``.
        parents : mapping of variable to list of variables, optional
            Parents of variables whose table does not name them; a single one needs no list. For
            others, their order.
        state_names : mapping of variable to iterable, optional
            Names and order of the values; by default as they are met in the variable's table, or
            numbers from 0.
        normalize : bool or list of variables, default=False
            Whether to scale each row to the sum 1, of all tables or of those of these variables.

        Returns
        -------
        MarkovNetwork
            With the variables in the order of ``tables``.

        Raises
        ------
        ValueError
            If a row is missing, is given twice or misses the sum 1 by more than 0.001 (the message
            has the row; less, as of rounded entries, is scaled), an entry is negative, a parent has
            no table, or parents go in a circle.
        TypeError
            If a table is none of these.

        Warns
        -----
        ModelWarning
            If pandas may have chosen an order that counts, or ``normalize`` scales what may be a
            slip: rows that nearly sum to 1, or columns that are no values.

        See Also
        --------
        table, replace

        Examples
        --------
        >>> import pandas as pd
        >>> from sklsb import MarkovNetwork, exact
        >>> test = pd.DataFrame({"yes": [0.9, 0.05], "no": [0.1, 0.95]}, index=["ill", "well"])
        >>> network = MarkovNetwork.from_tables(
        ...     {"person": {"ill": 0.01, "well": 0.99}, "test": test.rename_axis(index="person")}
        ... )
        >>> exact.prepare(network).marginals({"test": "yes"})["person", "ill"]
        0.1538...
        """
        from sklsb.targets import _tables

        return cls._of_tables(_tables.read(tables, parents or {}, state_names, normalize))

    @classmethod
    def _of_tables(cls, tables: Mapping[Any, Whole]) -> MarkovNetwork:
        place = {name: i for i, name in enumerate(tables)}
        factors = [
            ([*(place[p] for p in own.parents), i], own.table)
            for i, own in enumerate(tables.values())
        ]
        states = [own.values for own in tables.values()]
        sizes, children = [len(own) for own in states], tuple(range(len(states)))
        network = cls._of_sites(sizes, factors, [*tables], states, children)
        network._unsure = frozenset(name for name, own in tables.items() if own.unsure)
        return network

    def table(self, variable: Any) -> Any:
        """Return the conditional table of a variable, with its names.

        Returns
        -------
        pandas.DataFrame or Series
            The parents' values by row, the variable's values by column; a Series without parents.

        Raises
        ------
        ValueError
            If there is no such variable.
        TypeError
            If the network was not made of conditional tables, as by `from_tables` or `from_bif`.
        """
        from sklsb.targets import _tables

        f, scope, axis = self._conditional(variable)
        names = [self.label(site) for site in scope]
        table = np.moveaxis(self._factor_table(f, self._table), axis, -1)
        return _tables.framed(names, self._values(scope), table)

    def replace(
        self, tables: Mapping[Any, Any], *, normalize: bool | Iterable[Any] = False
    ) -> MarkovNetwork:
        """Return the network with other conditional tables of some variables.

        Parameters
        ----------
        tables : mapping of variable to table
            Of any kind that `from_tables` takes; parents stay the same.
        normalize : bool or list of variables, default=False
            As for `from_tables`.

        Raises
        ------
        TypeError, ValueError
            As for `table` and `from_tables`.
        """
        from sklsb.targets import _tables

        if not isinstance(tables, Mapping):
            raise TypeError(f"tables is {tables!r:.100}; give a dict with variables as keys.")
        factors = self._factors(self._table)
        for variable, given in tables.items():
            f, scope, axis = self._conditional(variable)
            names = [self.label(site) for site in scope]
            states = dict(zip(names, self._values(scope), strict=True))
            table = _tables.replaced(given, names, states, normalize, self.names, self._unsure)
            factors[f] = factors[f][0], np.moveaxis(table, -1, axis)
        return self._made_of(factors, self._children)

    def _values(self, scope: Sequence[int]) -> list[tuple[Any, ...]]:
        return [names_of_values(self, i) for i in scope]

    def _conditional(self, variable: Any) -> tuple[int, list[int], int]:
        """Return the number of a variable's table, the parents and itself, and its axis."""
        if self._children is None or len(self._children) < len(self._scope_start) - 1:
            raise TypeError(
                f"{self!r} is made of factors, not of conditional tables alone; make it by "
                "from_tables or from a file of a Bayesian network, without soft evidence, or look "
                "into factors."
            )
        site = site_called(self, Names(self.names), variable, "table names the variable")
        f = self._children.index(site)
        scope = self._scope[self._scope_start[f] : self._scope_start[f + 1]].tolist()
        axis = scope.index(site)
        return f, [*scope[:axis], *scope[axis + 1 :], site], axis

    @classmethod
    def unroll(
        cls,
        tables: Mapping[tuple[Any, int], Any],
        n: int,
        parents: Mapping[tuple[Any, int], Sequence[tuple[Any, int]]] | None = None,
        *,
        state_names: Mapping[Any, Iterable[Any]] | None = None,
        normalize: bool | Iterable[Any] = False,
    ) -> MarkovNetwork:
        r"""Repeat a slice of time: a Markov chain, a hidden one, a dynamic Bayesian network.

        .. math:: p(x) = \prod_i p(x_i^0 \mid \cdot) \prod_{t=1}^{n-1} \prod_i p(x_i^t \mid \cdot)

        Parameters
        ----------
        tables : mapping of (variable, 0 or 1) to table
            Conditional tables as for `from_tables`: of the first slice, with parents among
            ``(variable, 0)``, and of each further one, ``(variable, 1)``, with parents in it or,
            as ``(variable, 0)``, in the one before. A variable without the second is given by the
            first in each slice.
        n : int
            Number of slices.
        parents, state_names, normalize
            As for `from_tables`; the values of a variable are the same in all slices, and
            ``state_names`` may call it ``variable`` or ``(variable, 0)``.

        Returns
        -------
        MarkovNetwork
            With variables called ``(variable, t)``, t from 0 to n - 1.

        Raises
        ------
        TypeError, ValueError
            As for `from_tables`.

        Examples
        --------
        >>> from sklsb import MarkovNetwork, exact
        >>> weather = MarkovNetwork.unroll(
        ...     {
        ...         ("rain", 0): {"no": 0.5, "yes": 0.5},
        ...         ("rain", 1): {"no": {"no": 0.7, "yes": 0.3}, "yes": {"no": 0.3, "yes": 0.7}},
        ...         ("umbrella", 0): {
        ...             "no": {"no": 0.8, "yes": 0.2},
        ...             "yes": {"no": 0.1, "yes": 0.9},
        ...         },
        ...     },
        ...     5,
        ...     parents={("rain", 1): [("rain", 0)], ("umbrella", 0): [("rain", 0)]},
        ... )
        >>> seen = {("umbrella", 0): "yes", ("umbrella", 1): "yes"}
        >>> round(exact.prepare(weather).marginals(seen)[("rain", 1), "yes"], 3)
        0.883
        """
        from sklsb.targets import _tables

        n = integer(n, "n", 1, 1 << 24)
        slices = _tables.read_slices(tables, parents or {}, state_names, normalize)
        return cls._of_tables(
            {
                (name, t): own._replace(parents=[(p, t - lag) for p, lag in own.parents])
                for t in range(n)
                for name, own in slices[t > 0].items()
            }
        )

    @property
    def _joint_zeros(self) -> bool:
        return not self._table.all()

    @property
    def _log_prob_size(self) -> float:
        if not self.n_factors:
            return 0.0
        sizes = np.abs(np.where(self._log_table > -np.inf, self._log_table, 0.0))
        return float(np.maximum.reduceat(sizes, self._table_start[:-1]).sum())

    @cached_property
    def symmetry(self) -> str | None:
        start = self._table_start
        ends = np.repeat(start[:-1] + start[1:] - 1, np.diff(start))
        reverse = bool((self._table == self._table[ends - np.arange(ends.size)]).all())
        if self._cardinalities.max(initial=1) < 3:
            return "cycle" if reverse else None
        tables = [table for _, table in self._factors(self._table)]
        if all(not t.ndim or (np.roll(t, 1, range(t.ndim)) == t).all() for t in tables):
            return "cycle"
        return "reverse" if reverse else None

    def __repr__(self) -> str:
        k = self._cardinalities
        most = f"{k.min()} to {k.max()}" if k.size and k.min() < k.max() else f"{k.max(initial=0)}"
        size = f"{self.n_sites} sites, {self.n_factors} factors, {most} values"
        return f"MarkovNetwork({size}{self._likelihoods})"

    @property
    def n_possible(self) -> Ints:
        return self._support.n_possible.copy()

    def n_possible_given(self, sites: Ints, observed: Ints) -> Ints:
        left = self._support.left_given(sites, observed)
        return np.array([domain.sum() for domain in left], dtype=np.int64)

    def possible_values(self, sites: Ints, observed: Ints) -> list[Bools]:
        """Return which values of each variable evidence leaves, as far as factors show."""
        return self._support.left_given(sites, observed)

    def draw_state(self, rng: np.random.Generator) -> States:
        """Draw a state of positive probability, shape (n_sites,).

        For a Bayesian network, a draw from it. Otherwise uniform if no table has zeros, or found
        by a search that assigns random values.

        Raises
        ------
        ValueError
            If there is none, or it was not found.
        """
        return self.draw_state_given(rng, NO_SITES, NO_SITES)

    def draw_state_given(self, rng: np.random.Generator, sites: Ints, observed: Ints) -> States:
        return self._support.draw(rng, sites, observed).astype(self.dtype)

    def log_prob(self, x: ArrayLike) -> Array:
        r"""Log of the product of all factors, not divided by its sum Z over all states.

        .. math:: \log p(x) + \log Z = \sum_f \log \theta_f(x_{S_f})

        For a network of conditional tables Z = 1; soft evidence multiplies its likelihoods in.

        Parameters
        ----------
        x : array_like, shape (..., n_sites), data frame, or Series
            States as arrays of positions, in the order of `names`; as rows of a data frame, or one
            Series, by the names of variables, in any order, and of values.

        Returns
        -------
        ndarray of float64, shape (...)
            -inf where the product is zero.
        """
        flat, leading = self._flat(x)
        result = np.zeros(len(flat))
        for row, entries in enumerate(self._entries(flat)):
            result[row] = self._log_table[entries].sum()
        return result.reshape(leading)

    def log_ratios(self, x: ArrayLike) -> Array:
        flat, leading = self._flat(x)
        site = self.offers.site_of_moves
        # A row for each move: the factors that contain its site.
        near = self._strides.T.tocsr()[site]
        move = np.repeat(np.arange(site.size), np.diff(near.indptr))
        result = np.empty((len(flat), site.size))
        for row, entries in enumerate(self._entries(flat)):
            state = flat[row].astype(np.int64)
            change = self.offers.after_moves(state) - state[site]
            here = entries[near.indices]
            there = here + near.data * change[move]
            with np.errstate(invalid="ignore"):  # out of an impossible state
                difference = self._log_table[there] - self._log_table[here]
            result[row] = np.bincount(move, difference, site.size)
        return result.reshape(*leading, site.size)

    def _entries(self, states: States) -> Iterable[Ints]:
        """Yield the position of each factor's entry in the tables, for each state."""
        for state in states:
            yield self._table_start[:-1] + self._strides @ state.astype(np.int64)

    @cached_property
    def _strides(self) -> sp.csr_array:
        """Stride of each variable in each table, shape (n_factors, n_sites)."""
        strides = np.concatenate(
            [_row_major(self._cardinalities[scope]) for scope in self._scopes()] + [np.empty(0)]
        )
        shape = (self.n_factors, self.n_sites)
        return sp.csr_array(
            (strides.astype(np.int64), self._scope.astype(np.int64), self._scope_start), shape
        )

    def _scopes(self) -> list[NDArray[np.uint32]]:
        return np.split(self._scope, self._scope_start[1:-1]) if self.n_factors else []

    @cached_property
    def _support(self) -> Support:
        tables = partial(self._factor_table, values=self._table)
        names = self.label, partial(value_name, self)
        return Support(self._scopes(), tables, self._cardinalities, *names)

    def _factor_table(self, f: int, values: Array) -> Array:
        scope = self._scope[self._scope_start[f] : self._scope_start[f + 1]]
        table = values[self._table_start[f] : self._table_start[f + 1]]
        return table.reshape(self._cardinalities[scope])

    @cached_property
    def _view(self) -> MarkovNetworkView:
        by_site = self._strides.tocsc()
        by_site.sort_indices()
        moves = self._cardinalities - 1
        first = np.concatenate([[0], np.cumsum(moves)])
        return MarkovNetworkView(
            self._log_table,
            self._table_start[:-1].astype(np.uint64),
            by_site.indptr.astype(np.uint64),
            by_site.indices.astype(np.uint32),
            by_site.data.astype(np.uint32),
            first.astype(np.uint64),
            np.repeat(np.arange(self.n_sites, dtype=np.uint32), moves),
            *touched_near(self._near(), moves),
        )

    @property
    def graph(self) -> sp.csr_array:
        near = self._near()
        near.setdiag(False)
        near.eliminate_zeros()
        return near

    def _near(self) -> sp.csr_array:
        """Which variables share a factor, or are the same."""
        contains = self._strides != 0
        near = sp.csr_array(contains.T @ contains + sp.eye_array(self.n_sites, dtype=np.bool_))
        near.sort_indices()
        return near

    def view(self) -> MarkovNetworkView:
        return self._view

    def _freeze(self) -> None:
        self._cardinalities.flags.writeable = False


def _row_major(shape: Ints) -> Ints:
    """Return the strides of a table, in entries."""
    return np.cumprod(np.append(shape, 1)[:0:-1])[::-1]
