"""The path from a reference to a target: log p times beta, with the zeros of tables softened."""

import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels.run import places_of
from sklsb._kernels.targets.conditioned import ConditionedView
from sklsb._kernels.tempering.paths import Guide, Guided, Joint, Reference, Scaled, Softened
from sklsb._system.arrays import Array, Bools, Ints
from sklsb.diagnostics.draws import check_same_names, value_labels
from sklsb.targets._checks import as_array
from sklsb.targets._names import Names, columns_of, turned
from sklsb.targets.base import Conditioned, States, Target
from sklsb.targets.markov_network import MarkovNetwork
from sklsb.targets.potts import Potts

# A zero is softened by the factor (1 - beta)**_HARDENING.
_HARDENING = 4.0
# Sums of probabilities may differ from 1 by this.
_ROUNDING = 1e-6


class Domains(NamedTuple):
    """Values that variables may have, at every level."""

    possible: list[Bools]  # of each variable, which of its values
    free: Ints  # variables that have several

    @property
    def log_size(self) -> float:
        """Logarithm of the number of states of the free variables."""
        return float(np.log([self.possible[i].sum() for i in self.free.tolist()]).sum())


def domains_of(target: Target) -> Domains:
    """Return the values that no table of a single variable, or evidence, excludes."""
    plain, sites, observed = target, np.empty(0, np.int64), np.empty(0, np.int64)
    if isinstance(target, Conditioned):
        plain, sites, observed = target.target, target.sites, target.observed
    if isinstance(plain, MarkovNetwork | Potts):
        found = plain.possible_values(sites, observed)
    else:
        found = [np.ones(k, dtype=np.bool_) for k in target.cardinalities.tolist()]
        for site, value in zip(sites.tolist(), observed.tolist(), strict=True):
            found[site] = np.asarray(target.values[: found[site].size]) == value
    return Domains(found, np.flatnonzero([mask.sum() > 1 for mask in found]))


def _by_labels(given: Any, target: Target) -> Any:
    """Return a reference in the order of the target, by the labels of a frame or of xarray."""
    values = value_labels(target.values, target.state_names).tolist()
    if hasattr(given, "to_dataset"):
        given = turned(given, target.coords | {"state": values})
        check_same_names(given.to_dataset(name="p"), target, "reference")
    if columns_of(given) is None:
        return given
    for axis, labels in enumerate((target.names, values)):
        own = given.axes[axis].tolist()
        places = [Names(own).find(label) for label in labels]
        if None not in places and len(places) == len(own):
            given = given.take(places, axis)
        elif own != [*range(len(labels))]:
            raise ValueError(
                f"reference has the {('rows', 'columns')[axis]} {own!r:.100}; they are called "
                f"{labels!r:.100} here. Give these, or an array in this order."
            )
    return given


def product_of(given: Any, target: Target) -> list[Array]:
    """Return the reference's probabilities of the values of each variable, checked."""
    sizes, most = target.cardinalities, len(target.values)
    p = as_array(_by_labels(given, target), "reference").astype(np.float64)
    if p.shape not in ((target.n_sites, most), (*target.shape, most)):
        raise ValueError(
            f"reference has shape {p.shape}; give the probability of each value of each variable, "
            f"of shape {(target.n_sites, most)}, as the p of sklsb.diagnostics.marginals."
        )
    p = p.reshape(target.n_sites, most)
    beyond = np.arange(most) >= sizes[:, np.newaxis]
    p = np.where(beyond & np.isnan(p), 0.0, p)
    wrong = ~(np.isfinite(p) & (p >= 0.0)) | (beyond & (p != 0.0))
    if wrong.any():
        site, k = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"reference gives value {target.values[k]} of variable {target.label(site)!r} the "
            f"probability {p[site, k]}; give numbers from 0 to 1, and 0 where there is no such "
            "value."
        )
    total = p.sum(axis=1)
    if (np.abs(total - 1.0) > _ROUNDING).any():
        site = int(np.abs(total - 1.0).argmax())
        raise ValueError(
            f"reference has probabilities of variable {target.label(site)!r} whose sum is "
            f"{total[site]:.6g}; it must be 1."
        )
    rows = []
    for site, mask in enumerate(domains_of(target).possible):
        row = np.where(mask, p[site, : mask.size], 0.0)
        if mask.sum() > 1 and not (row[mask] > 0.0).all():
            k = int(np.flatnonzero(mask & (row <= 0.0))[0])
            raise ValueError(
                f"reference gives value {target.values[k]} of variable {target.label(site)!r} the "
                "probability 0, and the target allows it. Mix the reference with a uniform one, as "
                "0.9 * p + 0.1 / p.shape[-1]."
            )
        rows.append(row / row.sum() if row.sum() > 0.0 else mask / mask.sum())
    return rows


def _within(domains: Domains, product: list[Array]) -> list[Array]:
    """Restrict a reference to the possible values; a core may have fewer."""
    rows = [np.where(mask, q, 0.0) for q, mask in zip(product, domains.possible, strict=True)]
    return [row / row.sum() if row.sum() > 0.0 else row for row in rows]


def _reference(target: Target, domains: Domains, product: list[Array] | None) -> Reference:
    values = np.asarray(target.values, dtype=np.int64)
    sites = domains.free.tolist()
    masks = [domains.possible[i] for i in sites]
    chosen = [values[: mask.size][mask] for mask in masks]
    if product is None:
        upto = [np.arange(1, one.size + 1) / one.size for one in chosen]
    else:
        upto = [np.cumsum(product[i][mask]) for i, mask in zip(sites, masks, strict=True)]
    start = np.concatenate([[0], np.cumsum([one.size for one in chosen])]).astype(np.int64)
    value = np.concatenate([*chosen, np.empty(0, np.int64)]).astype(np.int64)
    return Reference(domains.free.astype(np.int64), start, value, np.concatenate([*upto, [1.0]]))


def _guide(target: Target, domains: Domains, product: list[Array]) -> Guide:
    sizes = target.cardinalities
    log_q = np.zeros(int(sizes.sum()))
    start = (np.cumsum(sizes) - sizes).astype(np.int64)
    for site in domains.free.tolist():
        mask = domains.possible[site]
        at = start[site] + np.flatnonzero(mask)
        log_q[at] = np.log(product[site][mask])
    site_of = target.offers.site_of_moves.astype(np.uint32)
    return Guide(log_q, start, site_of, places_of(target.values))


def _log_odds(domains: Domains, product: list[Array] | None) -> Array:
    """Return the log odds of visible units in the reference; 0 for those observed."""
    odds = np.zeros(len(domains.possible))
    if product is not None:
        for site in domains.free.tolist():
            odds[site] = np.log(product[site][1]) - np.log(product[site][0])
    return odds


class Tables(NamedTuple):
    """The tables of a network, and how their zeros are softened."""

    log_table: Array
    soft: Bools  # zeros at values that are possible by themselves
    smallest: Array  # smallest logarithm in the table of each entry

    def at(self, beta: Array) -> Array:
        """Return the log-tables at some betas, shape (n, n_entries); at 1 unchanged."""
        rows = np.empty((beta.size, self.log_table.size))
        finite = np.where(self.soft, self.smallest, self.log_table)
        for row, b in zip(rows, beta.tolist(), strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                row[:] = b * finite + np.where(self.soft, _HARDENING * np.log1p(-b), 0.0)
            row[~np.isfinite(finite)] = -np.inf
        return rows


def tables_of(target: Target, domains: Domains) -> Tables | None:
    """Return the tables of a network whose zeros are not all in its domains; else None."""
    plain = target.offers.plain
    if not isinstance(plain, MarkovNetwork):
        return None
    log_table = plain.view().log_table
    excluded = np.zeros(log_table.size, dtype=np.bool_)
    smallest = np.zeros(log_table.size)
    ends = np.cumsum([0, *(table.size for _, table in plain.log_factors)])
    for (scope, table), (a, b) in zip(plain.log_factors, pairwise(ends.tolist()), strict=True):
        if not scope:
            continue
        inside = np.zeros(table.shape, dtype=np.bool_)
        inside[np.ix_(*(domains.possible[i] for i in scope))] = True
        excluded[a:b] = ~inside.ravel()
        left = table[inside & np.isfinite(table)]
        if left.size:
            smallest[a:b] = left.min()
    soft = np.isneginf(log_table) & ~excluded
    return Tables(log_table, soft, smallest) if soft.any() else None


class PathMaker:
    """Paths to one target, at any betas.

    ``product`` is the reference, from `product_of`, by default uniform. With ``by_layers`` log p
    of the visible and hidden units together is multiplied by beta, for rules that draw layers.
    """

    def __init__(
        self,
        target: Target,
        sees_all_moves: bool,
        product: list[Array] | None = None,
        by_layers: bool = False,
    ):
        view: Any = target.view() if sees_all_moves else target.site_view()
        nothing = np.empty(0, np.uint64), np.empty(0, np.uint32)
        self.view = view
        self._touched = (view.touched_start, view.touched) if sees_all_moves else nothing
        self.domains = domains_of(target)
        if product is not None:
            product = _within(self.domains, product)
        self._reference = _reference(target, self.domains, product)
        self._guide = None if product is None else _guide(target, self.domains, product)
        self._tables = tables_of(target, self.domains)
        # Log Z of the reference in the path.
        self.log_size = self.domains.log_size if product is None else 0.0
        self._joint: tuple[Array, Array, int] | None = None
        if by_layers:
            machine: Any = target.layers
            odds, n_hidden = _log_odds(self.domains, product), machine.hidden_bias.size
            self._joint = np.array(machine.visible_bias), odds, n_hidden
            of_visible = np.logaddexp(0.0, odds[self.domains.free]).sum()
            self.log_size = float(n_hidden * np.log(2.0) + of_visible)

    def drawn(self, x: States, rng: np.random.Generator) -> States:
        """Return states with their free variables drawn from the reference."""
        free, start, value, upto = self._reference
        n = np.diff(start)
        # Cumulative probabilities of all variables in one increasing array.
        ends = upto[: value.size] + np.repeat(np.arange(n.size), n)
        u = np.arange(n.size) + rng.random((len(x), n.size))
        at = np.minimum(np.searchsorted(ends, u, side="right"), start[1:] - 1)
        x[:, free] = value[at]
        return x

    @property
    def softened(self) -> bool:
        """Whether zeros are softened on the way."""
        return self._tables is not None

    @property
    def tempers(self) -> bool:
        """Whether the levels between are p to the power of beta."""
        return self._joint is None and self._guide is None and self._tables is None

    def at(self, beta: Array) -> Scaled | Softened | Guided | Joint:
        """Return the path with levels at these betas, from 0 to 1."""
        if self._joint is not None:
            return Joint(self.view, beta, self._reference, *self._joint)
        path = self._uniform(beta)
        if self._guide is None:
            return path
        return Guided(self.view, beta, self._reference, path, self._guide)

    def _uniform(self, beta: Array) -> Scaled | Softened:
        if self._tables is not None:
            return Softened(self.view, beta, self._reference, self._tables.at(beta))
        return Scaled(self.view, beta, self._reference, *self._touched)


class Penalised(NamedTuple):
    """A network with small numbers instead of zeros, for a search."""

    relaxed: Target  # each zero is as large as the smallest other entry of its table
    soft: Bools

    def view(self, by: float) -> Any:
        """Return the view of the network with the logarithms of zeros lowered by ``by``."""
        view: Any = self.relaxed.site_view()
        network: Any = view.inner if isinstance(view, ConditionedView) else view
        network = network._replace(log_table=network.log_table - by * self.soft)
        return view._replace(inner=network) if isinstance(view, ConditionedView) else network


def penalised(target: Target) -> Penalised | None:
    """Return a network with penalties for zeros; None if only single values have zeros."""
    tables = tables_of(target, domains_of(target))
    if tables is None:
        return None
    log_table = np.where(tables.soft, tables.smallest, tables.log_table)
    relaxed: Any = copy.copy(target.offers.plain)
    relaxed._log_table, relaxed._table = log_table, np.exp(log_table)
    if isinstance(target, Conditioned):
        relaxed = Conditioned(relaxed, target.sites, target.observed)
    return Penalised(relaxed, tables.soft)
