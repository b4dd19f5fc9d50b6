"""Pictures of targets, marginals and draws.

They need Matplotlib, which the extra ``plot`` installs. Each is drawn on the axes ``ax``, or on new
ones, and returns them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import xarray as xr

from sklsb._system.arrays import Array, Ints
from sklsb._words import did_you_mean, named_by
from sklsb.diagnostics.draws import as_draws, check_same_names, to_frame
from sklsb.exact.prepared import Marginals
from sklsb.targets._evidence import names_of_values
from sklsb.targets._names import Names
from sklsb.targets.base import Target

__all__ = ["energies", "graph", "marginals", "overlaps", "traces"]

# Nodes of a graph, and bars, that a picture can show.
_MOST_NODES, _MOST_BARS = 300, 80
# Points between nodes that names need, the smallest node with a name, and growth of a figure.
_LABEL, _LEAST_NAMED, _LARGEST = 60.0, 20.0, 2.5
_YES = {"yes", "true", "present", "positive"}
_POSITIVE, _NEGATIVE = "#2a6fbb", "#c8452f"


def axes_on(ax: Any, **figure: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("sklsb.plot needs matplotlib; run `pip install sklsb[plot]`.") from error
    return pyplot.subplots(layout="constrained", **figure)[1]


def _strengths(target: Target) -> dict[tuple[int, int], float]:
    """Return the strength of each pair of neighbours: the coupling of an Ising model, or like it.

    The largest deviation of log p from a sum of two terms, one for each of the pair; negative
    where they prefer to differ. The parents in a conditional table are no pairs; pairs are a parent
    and its child where that is known, else in the order of sites. 1 if only a graph is known.
    """
    if target.log_factors is None:
        ends = (part.tolist() for part in sp.triu(target.graph, 1).nonzero())
        return dict.fromkeys(zip(*ends, strict=True), 1.0)
    found: dict[tuple[int, int], float] = {}
    children = target.offers.children or ()
    for f, (scope, table) in enumerate(target.log_factors):
        sums = [np.exp(table).sum(axis=axis) for axis in range(table.ndim)]
        # Parents are not coupled by the table of their child.
        child = [axis for axis, total in enumerate(sums) if np.allclose(total, 1.0)][-1:]
        if f < len(children):
            child = [scope.index(children[f])]
        least = np.min(table, initial=0.0, where=np.isfinite(table)) - 5.0
        finite = np.maximum(table, least)  # zeros are strong, not infinitely so
        for a in range(len(scope)):
            for b in range(a):
                if child and child[0] not in (a, b):
                    continue
                t = np.moveaxis(finite, (b, a), (-2, -1))
                t = t - t.mean(axis=-1, keepdims=True)
                t = t - t.mean(axis=-2, keepdims=True)
                t = t[..., 0, 0] if t.shape[-2:] == (2, 2) else np.abs(t)
                largest = float(t.ravel()[np.abs(t).argmax()])
                pair = min(scope[a], scope[b]), max(scope[a], scope[b])
                if children:
                    pair = (scope[a], scope[b]) if child == [b] else (scope[b], scope[a])
                found[pair] = found.get(pair, 0.0) + largest
    return found


def _main(values: Sequence[Any]) -> int:
    """Return the place of the value that is shown alone: "yes" or the like, or the last one."""
    return next((k for k, v in enumerate(values) if str(v).lower() in _YES), len(values) - 1)


def _chosen(values: Mapping[Any, Sequence[Any]], state: Any) -> dict[Any, int]:
    """Return the place of the value chosen, of the variables listed or of all that have it."""
    by_name, given, found, wrong = Names(values), state, dict[Any, int](), []
    if not isinstance(state, Mapping):
        given = {} if state is None else dict.fromkeys(values, state)
    for variable, value in given.items():
        at = by_name.find(variable)
        own = () if at is None else values[by_name.names[at]]
        place = Names(own).find(value)
        if at is None or place is None:
            wrong.append((variable, by_name.names) if at is None else (value, own))
        else:
            found[by_name.names[at]] = place
    if wrong and (given is state or not found):
        (word, names), *others = wrong[:1] if given is state else wrong
        allowed = [*dict.fromkeys([*names, *(n for _, own in others for n in own)])]
        raise ValueError(
            f"state is {state!r:.200}; {did_you_mean(word, allowed)}give one of {allowed!r:.500} "
            f"instead of {word!r}."
        )
    return found


def _shown(target: Target, names: Any, p: Any, state: Any) -> Ints:
    """Return the place of the value whose probability colours each node."""
    shown = np.array([*map(_main, names)], dtype=np.int64)
    if len({own[k] for own, k in zip(names, shown, strict=True)}) > 1:
        certain = p.max(axis=1) > 1.0 - 1e-9  # observed, or as good as that
        shown[certain] = p[certain].argmax(axis=1)
    chosen = _chosen(dict(zip(target.names, names, strict=True)), state)
    for i, name in enumerate(target.names):
        shown[i] = chosen.get(name, shown[i])
    return shown


def _probabilities(target: Target, marginals: xr.Dataset | Marginals) -> Array:
    """Return the probabilities of a target's values, (n_sites, n_values)."""
    if isinstance(marginals, Marginals):
        marginals = marginals.to_dataset()
    _check_are_marginals(marginals)
    p = np.asarray(marginals["p"])
    if p.shape != (*target.shape, len(target.values)):
        raise ValueError(
            f"marginals has p of shape {p.shape}; give marginals of this target, of shape "
            f"{(*target.shape, len(target.values))}."
        )
    check_same_names(marginals, target, "marginals")
    return p.reshape(target.n_sites, -1)


def _check_graph(target: Target, **strengths: float | None) -> None:
    if target.n_sites > _MOST_NODES:
        raise ValueError(
            f"target has {target.n_sites} variables; a picture of a graph shows at most "
            f"{_MOST_NODES}. Plot marginals of some variables instead."
        )
    if target.graph is None and target.log_factors is None:
        raise ValueError(
            f"target is {target!r}, which has neither factors nor a graph; plot its marginals."
        )
    for what, given in strengths.items():
        if given is not None and not 0.0 <= given < np.inf:
            raise ValueError(f"{what} is {given!r}; give a number that is not negative.")


def _hue(strength: float, one: Sequence[Any], other: Sequence[Any]) -> str:
    """Return the colour of a line, by the names of values at its ends."""
    if len(one) != 2 or {*one} != {*other}:
        return "0.6"
    return _POSITIVE if (strength > 0) == (one == other) else _NEGATIVE


def graph(
    target: Target,
    marginals: xr.Dataset | Marginals | None = None,
    *,
    state: Any = None,
    layout: Any = None,
    min_strength: float = 0.0,
    max_strength: float | None = None,
    ax: Any = None,
) -> Any:
    """Draw the variables of a target and what couples them.

    Nodes are coloured by the probability of one value, observed ones have a bold edge. Lines are
    the wider, the stronger two variables are coupled: blue where values of the same name are
    favoured, red where others are, grey where the two do not share a pair of names. Arrows lead
    from parents to children in networks made of conditional tables.

    Parameters
    ----------
    target : Target
        At most 300 variables, with factors or a graph.
    marginals : xarray.Dataset or Marginals, optional
        Of `sklsb.exact.marginals`, a prepared plan or `sklsb.diagnostics.marginals`. Nodes are
        white without.
    state : value or dict of variable to value, optional
        Whose probability is shown, by name, where variables have it. By default "yes", "true",
        "present" or "positive", else the last value of each variable; or where these have different
        names, the one that is certain, as of observed variables.
    layout : dict or callable, optional
        Places of the variables by name, or a layout of networkx. By default a grid for a grid, a
        column for each slice after `MarkovNetwork.unroll`, parents above their children for
        conditional tables, and ``networkx.kamada_kawai_layout`` for others.
    min_strength : float, default=0.0
        Weaker lines are not drawn. A strength is the coupling J of an Ising model, a quarter of a
        weight of `Ising.from_binary`, or the like.
    max_strength : float, optional
        Strength of the widest line, the same in pictures to be compared; by default the largest.
    ax : matplotlib Axes, optional
        Where to draw. By default a figure large enough for the names, if they fit in one.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ValueError, TypeError
        If there are too many variables, neither factors nor a graph, the marginals are of
        another target, no variable has such a value, a strength is negative, or the layout has no
        place for a variable.

    Examples
    --------
    >>> from sklsb import Ising, exact, plot
    >>> pair = Ising([[0.0, 0.5], [0.5, 0.0]], field=[0.2, 0.0])
    >>> axes = plot.graph(pair, exact.marginals(pair))
    """
    _check_graph(target, min_strength=min_strength, max_strength=max_strength)
    new = axes_on(ax)  # says what to install
    import networkx as nx
    from matplotlib import colormaps, colors
    from matplotlib.cm import ScalarMappable

    strength = _strengths(target)
    made = nx.DiGraph() if target.offers.children else nx.Graph()
    made.add_nodes_from(range(target.n_sites))
    made.add_edges_from(strength)
    places = _places(target, made, layout)
    extent = new.get_window_extent().size / new.figure.dpi * 72.0
    at, gap = _in_points(places, extent)
    if ax is None:
        larger = np.ones(2)
        for _ in larger:  # first where nodes are closest
            along = int(np.abs(gap).argmax())
            larger[along] = np.clip(larger[along] * _LABEL / np.hypot(*gap), 1.0, _LARGEST)
            at, gap = _in_points(places, extent * larger)
        new.figure.set_size_inches(new.figure.get_size_inches() * larger)
    ax, size = new, float(np.clip(0.8 * np.hypot(*gap), 6.0, 47.0))  # of a node, in points
    drawn = {pair: s for pair, s in strength.items() if abs(s) >= min_strength}
    largest = max_strength or max([abs(s) for s in strength.values()], default=0.0) or 1.0
    values = [names_of_values(target, i) for i in range(target.n_sites)]
    width = [0.3 + 4.0 * min(abs(s) / largest, 1.0) for s in drawn.values()]
    colour = [_hue(s, values[i], values[j]) for (i, j), s in drawn.items()]
    if made.is_directed():
        for edge, wide, hue in zip(drawn, width, colour, strict=True):
            _arrow(ax, places, at, edge, size, linewidth=wide, color=hue)
    else:
        nx.draw_networkx_edges(
            made, places, edgelist=list(drawn), ax=ax, width=width, edge_color=colour
        )
    shade: Any = ["white"] * target.n_sites
    if marginals is not None:
        p = _probabilities(target, marginals)
        last = _shown(target, values, p, state)
        shown = p[np.arange(target.n_sites), last]
        value = [values[i][k] for i, k in enumerate(last)]
        same = len({*value}) == 1
        light = colormaps["YlOrRd"](np.linspace(0, 0.75))
        hues = colors.LinearSegmentedColormap.from_list("", light)
        key = ScalarMappable(colors.Normalize(0.0, 1.0), hues)
        shade = key.to_rgba(shown)
        label = f"probability of {value[0] if same else 'the value shown'}"
        ax.figure.colorbar(key, ax=ax, label=label, shrink=0.6)
    seen = {*target.observed_sites.tolist()}
    nx.draw_networkx_nodes(
        made,
        places,
        ax=ax,
        node_size=size**2,
        node_color=shade,
        edgecolors="black",
        linewidths=[2.5 if i in seen else 0.6 for i in made],
    )
    if size > _LEAST_NAMED:
        for i, name in enumerate(target.names):
            label = re.sub("[ _]+", "\n", _label(name))
            if marginals is not None and not same:
                label += f":\n{value[i]}"
            longest = max(map(len, label.split("\n")))
            small = min(8.0, size / (0.57 * longest))  # so that it fits
            nx.draw_networkx_labels(made, places, {i: label}, ax=ax, font_size=small)
    ax.margins(0.15)
    ax.axis("off")
    return ax


def _places(target: Target, made: Any, layout: Any) -> Any:
    import networkx as nx

    if layout is None and len(target.shape) == 2:
        return {i: (i % target.shape[1], -(i // target.shape[1])) for i in made}
    if layout is None and made.is_directed():
        names = target.names
        if all(isinstance(n, tuple) and [*map(type, n[1:])] == [int] for n in names):  # of slices
            rows = [*dict.fromkeys(v for v, _ in names)]
            return {i: (t, -rows.index(v)) for i, (v, t) in enumerate(names)}
        return _layers(made)
    if isinstance(layout, str):
        raise TypeError(f"layout is {layout!r}; give a dict, or networkx.{layout}_layout itself.")
    if not isinstance(layout, dict):
        return (layout or nx.kamada_kawai_layout)(made)
    missing = [name for name in target.names if name not in layout]
    if missing:
        raise ValueError(f"layout has no place for {missing[:3]}; give one for each variable.")
    return {i: layout[name] for i, name in enumerate(target.names)}


def _layers(made: Any) -> Any:
    """Place parents above their children, each variable near its neighbours."""
    import networkx as nx

    layer = {v: k for k, level in enumerate(nx.topological_generations(made)) for v in level}
    for v in reversed([*nx.topological_sort(made)]):
        if not made.in_degree(v):
            layer[v] = min((layer[c] for c in made.successors(v)), default=1) - 1
    levels = [[v for v in made if layer[v] == k] for k in range(max(layer.values(), default=0) + 1)]
    x = {v: k - 0.5 * (len(level) - 1) for level in levels for k, v in enumerate(level)}
    for level in (levels[::-1] + levels) * 4:
        near = {v: [x[u] for u in nx.all_neighbors(made, v)] or [x[v]] for v in level}
        level.sort(key=lambda v: sum(near[v]) / len(near[v]))
        x |= {v: k - 0.5 * (len(level) - 1) for k, v in enumerate(level)}
    return {v: (x[v], -layer[v]) for v in made}


def _in_points(places: Any, extent: Any) -> tuple[Array, Array]:
    """Return about where nodes will be in axes of this size, and how the closest are apart."""
    at = np.array([places[i] for i in range(len(places))], dtype=np.float64).reshape(-1, 2)
    span = np.ptp(at, axis=0) if len(at) else np.ones(2)
    at = at / np.where(span > 0, span, 1.0) * (extent / 1.3)
    apart = np.concatenate([(at[:, np.newaxis] - at).reshape(-1, 2), [[_LABEL, 0.0]]])
    apart = apart[(apart != 0).any(axis=1)]
    return at, apart[np.hypot(*apart.T).argmin()]


def _arrow(
    ax: Any, places: Any, at: Array, edge: tuple[int, int], size: float, **style: Any
) -> None:
    """Draw an arrow, bent if it would run through other nodes."""
    from matplotlib.patches import FancyArrowPatch

    (start, end), others = at[[*edge]], np.delete(at, edge, axis=0)
    t = np.linspace(0.0, 1.0, 30)[:, np.newaxis]
    bends = np.array([0.0, 0.2, -0.2, 0.4, -0.4])[:, np.newaxis, np.newaxis]
    paths = start + t * (end - start) + bends * 2 * t * (1 - t) * (end - start)[::-1] * [1, -1]
    room = np.linalg.norm(paths[:, :, np.newaxis] - others, axis=-1).min(axis=(1, 2), initial=size)
    bend = bends.ravel()[np.minimum(room, 0.6 * size).argmax()]  # the first with room enough
    arrow = FancyArrowPatch(
        *(places[i] for i in edge),
        arrowstyle="-|>",
        connectionstyle=f"arc3,rad={bend}",
        mutation_scale=9 + 2 * style["linewidth"],
        shrinkA=size / 2,
        shrinkB=size / 2,
        zorder=1,
        **style,
    )
    ax.add_patch(arrow)


def _check_are_marginals(*given: Any) -> None:
    if not all(isinstance(one, Marginals) or "p" in getattr(one, "data_vars", ()) for one in given):
        raise TypeError(
            "these are no marginals; give sklsb.diagnostics.marginals(draws, target), or "
            "exact.marginals(target)."
        )


def _label(name: Any) -> str:
    return ",".join(map(str, name)) if isinstance(name, tuple) else str(name)


def marginals(
    after: xr.Dataset | Marginals,
    before: xr.Dataset | Marginals | None = None,
    *,
    variables: Any = None,
    state: Any = None,
    labels: Sequence[str] = ("after", "before"),
    ax: Any = None,
) -> Any:
    """Draw probabilities with two standard errors, those before evidence beside them.

    Parameters
    ----------
    after, before : xarray.Dataset or Marginals
        As for `graph`, of the same variables: under other evidence, or of two groups.
    variables : list, optional
        Names of the variables shown, for at most 80 bars.
    state : value or dict of variable to value, optional
        The only value shown, by name, where variables have it. By default all of several; of two
        "yes" or the like, else the last one.
    labels : pair of str, default=("after", "before")
        What both are called, such as ("patients", "controls").
    ax : matplotlib Axes, optional
        Where to draw. A ValueError says what cannot be shown.
    """
    if isinstance(labels, str) or len(labels) != 2:
        raise ValueError(f"labels is {labels!r:.200}; give two, as in ('after', 'before').")
    given = [found for found in (after, before) if found is not None]
    _check_are_marginals(*given)
    tables = [to_frame(found) for found in given]
    if any("variable" not in table for table in tables):
        raise ValueError(
            "this is a joint distribution; give marginals, as exact.marginals(target)."
        )
    rows, *others = ([*zip(t["variable"], t["value"], strict=True)] for t in tables)
    for other in others:
        strangers = [row for row in (*rows, *other) if (row in rows) != (row in other)]
        if strangers or len(other) != len(rows):
            variable, value = (*strangers, rows[0])[0]
            raise ValueError(
                f"only one of after and before has {variable!r} = {value!r}; give marginals of the "
                "same variables and values."
            )
        tables[1] = tables[1].iloc[[other.index(row) for row in rows]]
    of: dict[Any, list[Any]] = {}
    for variable, value in rows:
        of.setdefault(variable, []).append(value)
    unknown = [v for v in variables or () if v not in of]
    only = {v: _main(values) for v, values in of.items() if len(values) == 2} | _chosen(of, state)
    kept = [
        k
        for k, (v, value) in enumerate(rows)
        if (variables is None or v in variables) and (v not in only or value == of[v][only[v]])
    ]
    if unknown or not 0 < len(kept) <= _MOST_BARS:
        why = f"and there is no {unknown[0]!r}" if unknown else f"which makes {len(kept)} bars"
        raise ValueError(
            f"variables is {variables!r:.200}, {why}; name variables of the marginals, for 1 to "
            f"{_MOST_BARS} bars."
        )
    ax = axes_on(ax, figsize=(5.0, 1.0 + 0.3 * len(kept)))
    place = np.arange(len(kept))
    height = 0.8 / len(tables)
    for k, (table, colour) in enumerate(zip(tables, ("#f2a03d", "0.8"), strict=False)):
        shown = table.iloc[kept]
        ax.barh(
            place + (k - 0.5 * (len(tables) - 1)) * height,
            shown["p"],
            height,
            xerr=2 * shown["mcse"].fillna(0.0) if shown["mcse"].any() else None,
            color=colour,
            label=labels[k],
        )
    ax.set_yticks(place, [f"{_label(rows[k][0])} = {rows[k][1]}" for k in kept])
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="probability")
    ax.spines[["top", "right"]].set_visible(False)
    if before is not None:
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return ax


def _series(draws: xr.Dataset, name: str) -> Array:
    """Return numbers of shape (n_chains, n_draws)."""
    found = as_draws(draws) if draws.sizes else draws
    if name not in found.variables or {*found[name].dims} != {"chain", "draw"}:
        raise ValueError(
            f"draws has {sorted(map(str, draws.variables))}, and name is {name!r}; give one of "
            "these that has one number for each draw."
        )
    return np.asarray(found[name].values, dtype=np.float64)


def _histogram(ax: Any, groups: Any, labels: Any, label: str, bins: Any) -> Any:
    ax = axes_on(ax)
    edges = np.histogram_bin_edges(np.concatenate(groups), bins)
    for group, name in zip(groups, labels, strict=True):
        ax.hist(group, edges, density=True, histtype="step", linewidth=1.5, label=name)
    ax.set(xlabel=label, ylabel="density")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def overlaps(draws: xr.Dataset, *, ax: Any = None) -> Any:
    r"""Draw the histogram of overlaps of pairs of draws, which several modes spread.

    .. math:: q = \frac{1}{N} \sum_i [x_i = x'_i], \quad\text{for spins}\quad
              q = \frac{1}{N} \sum_i x_i x'_i

    over pairs of different chains at the same draw; of one chain, half of its length apart. With
    fewer than two draws there is a ValueError.
    """
    found = as_draws(draws)
    if "beta" in found.dims:
        raise ValueError("draws has several temperatures; give one, as draws.sel(beta=1.0).")
    x = found["x"].values if "x" in found else np.zeros((0, 0, 0))
    x = x.reshape(*x.shape[:2], -1)
    if len(x) == 1:
        half = x.shape[1] // 2
        x = np.stack([x[0, :half], x[0, half : 2 * half]])
    if len(x) < 2 or not x.shape[1]:
        raise ValueError(
            f"draws has the sizes {dict(draws.sizes)}; give the states x of at least two draws."
        )
    q = [(x[a] == x[b]).mean(axis=-1) for a in range(len(x)) for b in range(a)]
    n = min(x.shape[-1], 60)  # a bin for each value that q can take
    all_q, bins = np.concatenate(q), np.linspace(-0.5 / n, 1.0 + 0.5 / n, n + 2)
    if np.isin(x, (-1, 1)).all():
        all_q, bins = 2.0 * all_q - 1.0, 2.0 * bins - 1.0
    return _histogram(ax, [all_q], [None], "overlap of two draws", bins)


def energies(draws: xr.Dataset, *, ax: Any = None) -> Any:
    """Draw the histogram of log p of each chain; chains that agree have similar ones."""
    lp = _series(draws, "lp")
    names = [f"chain {c}" for c in as_draws(draws)["chain"].values] if "chain" in draws else [None]
    ax = _histogram(ax, list(lp), names, "log p", 40)
    if len(lp) > 1:
        ax.legend(frameon=False)
    return ax


def traces(draws: xr.Dataset, name: str = "lp", *, ax: Any = None) -> Any:
    """Draw log p, or another number that each draw has, in the order of the draws."""
    series = _series(draws, name)
    ax = axes_on(ax, figsize=(7.0, 3.0))
    ax.plot(as_draws(draws)["draw"].values, series.T, linewidth=0.7)
    ax.set(xlabel="draw", ylabel="log p" if name == "lp" else name)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


__getattr__, __dir__ = named_by(__name__), __all__.copy
