"""Conditional tables as people have them: frames, mappings and arrays, by names."""

import graphlib
import re
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sklsb._system.arrays import Array
from sklsb._system.warn import warn
from sklsb._words import did_you_mean
from sklsb.exceptions import ModelWarning
from sklsb.targets._checks import has, refuse_mask
from sklsb.targets._conversions import LARGEST_DEFECT
from sklsb.targets._names import Names, is_missing, plain

_FORMS = (
    "a data frame (long, with a column of probabilities, or wide, with the values of {0!r} as "
    "columns), a Series, a mapping of the parents' values to the probabilities, or an array with "
    "parents={{{0!r}: [...]}}"
)


# Relative defect of sums of rounded entries, percents too; one of a row that is not scaled.
_ROUNDED, _EXACT = 5e-3, 1e-6
_MANY = 20  # numbers that may be cases
_NEAR = 0.2  # relative defect of what may be a slip
# Names of columns that are hardly values.
_NO_VALUE = re.compile(
    "n|counts?|freq|frequency|index|level_0|size|sum|total|weight|unnamed:.*|patients|people|persons"
    "|tested|examined|trials|subjects"
    "|((mean|avg|average|median|std|n|num|total|sum)[ _.].*)|(.*[ _.])?age"
)
# Names of columns that are hardly anything but numbers.
_NUMBERS = re.compile("p|prob(ability)?|proportion|share|percent|%|n|counts?|freq|frequency|weight")


class Conditional(NamedTuple):
    """The distribution of a variable given its parents; rows by the parents' values."""

    child: Hashable
    parents: list[Any]
    values: list[Any] | None  # of the child, None if the rows are arrays without names
    rows: Mapping[tuple[Any, ...], Any] | Array
    by_pandas: bool = False  # which may have sorted the values


def conditional(
    child: Any, given: Any, parents: Sequence[Any] | None, known: Iterable[Any]
) -> Conditional:
    """Read a table; ``known`` are the names of all variables."""
    others = set(known) - {child}
    refuse_mask(given, f"the table of {child!r}")
    given = given.to_series() if has(given, "dims", "to_series") else given  # of xarray
    _refuse_cases(child, given, parents)
    if isinstance(given, pd.DataFrame | pd.Series) and not given.empty:
        try:
            if isinstance(given, pd.DataFrame):
                series = _as_series(child, given, others, parents)
                return _from_series(child, series, parents, given.columns)
            return _from_series(child, _as_root(child, given, others), parents)
        except ValueError as error:
            raise ValueError(f"{error}{_misspelt(child, given, {child, *others})}") from None
    if isinstance(given, Mapping):
        return _from_mapping(child, given, parents)
    try:
        table = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"the table of {child!r} is {given!r:.100}; give {_FORMS.format(child)}."
        ) from None
    own = list(parents or ())
    if table.ndim != len(own) + 1:
        raise ValueError(
            f"the table of {child!r} has shape {table.shape} and {len(own)} parents, {own!r:.200}; "
            f"give one axis for each parent and a last one for {child!r}, and name the parents in "
            "parents."
        )
    return Conditional(child, own, None, table)


def _refuse_cases(child: Any, given: Any, parents: Sequence[Any] | None) -> None:
    """Refuse a column of data in place of the table of a root."""
    plain_index = isinstance(getattr(given, "index", None), pd.RangeIndex)
    if parents or (isinstance(given, pd.Series) and not plain_index) or np.ndim(given) != 1:
        return
    numbers = np.asarray(given)
    flags = numbers.dtype.kind == "b"
    if numbers.dtype.kind not in "biuf" or numbers.size < (1 if flags else _MANY):
        return
    if flags or (1 < len(np.unique(numbers)) <= numbers.size / 2 and not (numbers % 1.0).any()):
        raise ValueError(
            f"the table of {child!r} has {numbers.size} {'flags' if flags else 'numbers'}, few of "
            "them different, like a column of data with a row for each case; count them, as by "
            "Series.value_counts."
        )


def _misspelt(child: Any, given: pd.DataFrame | pd.Series, known: set[Any]) -> str:
    """Return which level or column has no table, or looks like a variable, or nothing."""
    columns = [*given.columns] if isinstance(given, pd.DataFrame) else []
    names = [*given.index.names, *getattr(given, "columns", pd.Index([])).names]
    if columns and (child in columns or None in names[:1]):  # variables, but for those of numbers
        kinds = pd.api.types.is_float_dtype
        names += [c for c, kind in zip(columns, given.dtypes, strict=True) if not kinds(kind)]
    unknown = [label for label in names if label is not None and label not in known]
    for label in unknown or columns:
        likeness = 0.7 if label in unknown else 0.8  # those beside are values
        if label not in known and (near := did_you_mean(label, known, likeness)):
            return f" {label!r} is no variable; {near}".rstrip()
    names = list(dict.fromkeys(unknown))
    return f" There is no table for {names!r:.200}; a parent needs one of its own." if names else ""


def _as_root(child: Any, series: pd.Series, others: set[Any]) -> pd.Series:
    """Return a Series of one level called like no variable, such as "state", as the child's."""
    name = series.index.name
    if others.issuperset(series.index.names):
        raise _one_number(child, series.iloc[0], series.index.names)
    if series.index.nlevels > 1 or name in others or did_you_mean(name, others, 0.8):
        return series
    return series.rename_axis(index=[child])


def _as_root_frame(child: Any, frame: pd.DataFrame, others: set[Any]) -> pd.DataFrame:
    """Return a frame of labels and numbers with the labels called as the child."""
    kinds = {bool(pd.api.types.is_numeric_dtype(kind)): c for c, kind in frame.dtypes.items()}
    is_root = frame.shape[1] == len(kinds) == 2 and _NUMBERS.fullmatch(str(kinds[True]).lower())
    slip = is_root and did_you_mean(kinds[False], others, 0.8)
    return frame.rename(columns={kinds[False]: child}) if is_root and not slip else frame


def _one_number(child: Any, p: Any, parents: Sequence[Any]) -> ValueError:
    """Return the error for a table of one number per row of the parents."""
    return ValueError(
        f"the table of {child!r} has a single number, {p!s:.50}, in a row of its parents, "
        f"{list(parents)!r:.200}. If it is the probability of one value, give those of all in each "
        "row, such as {'no': 1 - p, 'yes': p}."
    )


def _as_series(
    child: Any, frame: pd.DataFrame, others: set[Any], parents: Sequence[Any] | None
) -> pd.Series:
    """Return a frame as a Series whose index has a level for each variable."""
    several = frame.columns.nlevels > 1
    if not several and any(map(is_missing, frame.columns)):
        raise ValueError(
            f"the table of {child!r} has a column for missing values; drop it, or give it a name."
        )
    if several and not {child, *others}.isdisjoint(frame.columns):  # names that are tuples
        frame, several = frame.set_axis(frame.columns.to_flat_index(), axis=1), False
    named = [*frame.index.names, *(frame.columns.names if several else frame.columns)]
    twice = [name for name in named if name is not None and named.count(name) > 1]
    if twice:
        raise ValueError(
            f"the table of {child!r} has the column {twice[0]!r} twice; give each column, and each "
            "level of the index, a name of its own."
        )
    if several:
        if frame.index.names == [None] and child not in named:
            frame = frame.rename_axis(index=[child])
        return frame.stack([*range(frame.columns.nlevels)])
    inside = [name for name in frame.columns if isinstance(name, Hashable) and name in others]
    across = frame.columns.name in others
    if across and frame.index.names == [None] and not inside and child not in frame.columns:
        frame = frame.rename_axis(index=[child])
    if frame.index.names == [child] and not inside:
        frame = frame.T  # its columns are the parents' values
    else:
        levels = [name for name in frame.index.names if name == child or name in others]
        frame, inside = frame.reset_index(levels), [*levels, *inside]
    if not inside and child not in frame.columns and frame.index.names == [None]:
        frame = _as_root_frame(child, frame, others)
    if child in frame.columns:
        rest = [name for name in frame.columns if name != child and name not in inside]
        if len(rest) != 1:
            if not rest and pd.api.types.is_float_dtype(frame[child]):
                raise _one_number(child, frame[child].iloc[0], inside)
            raise ValueError(
                f"the table of {child!r} has the columns {list(frame.columns)!r:.200}; beside "
                f"{child!r} and its parents it needs one column, of probabilities, and has "
                f"{rest!r:.100}. pandas.crosstab makes tables of data with a row for each case."
            )
        return frame.set_index([*(name for name in inside if name != child), child])[rest[0]]
    if frame.columns.name in others:
        raise ValueError(
            f"the table of {child!r} has columns of the name {frame.columns.name!r}, which is "
            f"another variable; the columns of this table are values of {child!r}."
        )
    if inside:
        frame = frame.set_index(inside)
    elif all(level is None for level in frame.index.names):
        if len(frame) == 1 and not parents:  # one row: there are no parents
            return frame.iloc[0].rename_axis([child])
        levels = list(parents or ())
        frame = frame.rename_axis(index=levels) if len(levels) == frame.index.nlevels else frame
    return frame.rename_axis(columns=[child]).stack()


def _from_series(
    child: Any, series: pd.Series, parents: Sequence[Any] | None, columns: Any = None
) -> Conditional:
    levels = [*series.index.names]
    if isinstance(columns, pd.MultiIndex) and len(columns.levels[0]) == 1:
        raise ValueError(
            f"the table of {child!r} has columns of {columns.nlevels} levels, the first with "
            f"{columns[0][0]!r} only, as of a pivot table of a list; take table[{columns[0][0]!r}]."
        )
    if None in levels or len(set(levels)) < len(levels) or child not in levels:
        raise ValueError(
            f"the table of {child!r} has the levels {levels!r:.200}; name its rows by its parents "
            f"and by {child!r}, as by DataFrame.rename_axis."
        )
    own = [level for level in levels if level != child]
    if parents is not None and set(parents) != set(own):
        raise ValueError(
            f"the table of {child!r} has the parents {own!r:.200}, and parents says "
            f"{list(parents)!r:.200}."
        )
    own = list(own if parents is None else parents)
    turn = [levels.index(name) for name in [*own, child]]
    rows: dict[tuple[Any, ...], dict[Any, float]] = {}
    numbers = pd.to_numeric(series, errors="coerce")
    text = series[numbers.isna() & series.notna()]
    if text.size:
        column = series.name
        if column is None and series.index.nlevels > 1:
            column = text.index[0][levels.index(child)]
        where = "" if column is None else f" in column {column!r}"
        raise ValueError(
            f"the table of {child!r} has the entry {text.iloc[0]!r}{where}, which is no number; "
            f"beside its parents, which have tables, and {child!r}, all columns are probabilities."
        )
    for key, p in zip(series.index, numbers.to_numpy(dtype=np.float64), strict=True):
        parts = key if series.index.nlevels > 1 else (key,)
        *given, value = plain(parts[place] for place in turn)
        if any(map(is_missing, (*given, value))):
            raise ValueError(
                f"the table of {child!r} has the row {_row([*own, child], [*given, value])}, where "
                "a value is missing; drop such rows, or give the value a name. pandas.read_csv "
                "reads the text None as missing, but for keep_default_na=False."
            )
        row = rows.setdefault(tuple(given), {})
        if value in row:
            raise ValueError(
                f"the table of {child!r} has the row {_row(own, given)} twice for {value!r}."
            )
        row[value] = float(p)
    values = list(dict.fromkeys(value for row in rows.values() for value in row))
    labels = series.index.get_level_values(child)
    in_order = isinstance(labels.dtype, pd.CategoricalDtype) and labels.ordered
    if in_order:
        values = [value for value in plain(labels.categories) if value in values]
    return Conditional(child, own, values, rows, not in_order)


def _from_mapping(
    child: Any, given: Mapping[Any, Any], parents: Sequence[Any] | None
) -> Conditional:
    own, keys = list(parents or ()), [*given]
    if all(isinstance(key, tuple) for key in keys) and len({*map(len, keys)}) == 1:
        if len(keys[0]) == len(own) + 1 > 1 and not any(map(np.ndim, given.values())):
            index = pd.MultiIndex.from_tuples(keys, names=[*own, child])
            return _from_series(child, pd.Series([*given.values()], index), own)
        if not own and len(keys[0]) > 1:
            raise ValueError(
                f"the table of {child!r} has the keys {keys[0]!r:.90}, ...; if these are values "
                f"of its parents and of {child!r}, name them in this order, as "
                f"parents={{{child!r}: [...]}}. Values that are tuples need a Series."
            )
    if not own:
        if any(isinstance(row, Mapping) or np.ndim(row) for row in given.values()):
            raise ValueError(
                f"the table of {child!r} has rows; name its parents, as "
                f"parents={{{child!r}: [...]}}."
            )
        given = {(): given}
    rows = {}
    for key, row in given.items():
        at = tuple(key) if isinstance(key, tuple) and len(own) != 1 else (key,) if own else ()
        if len(at) != len(own):
            raise ValueError(
                f"the table of {child!r} has the key {key!r}, and its parents are {own!r:.200}; "
                "give the value of each parent, in this order, as a tuple."
            )
        rows[at] = _numbers(child, row)
        if own and isinstance(rows[at], float):
            raise _one_number(child, row, own)
    kinds = {isinstance(row, Mapping) for row in rows.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"the table of {child!r} has rows that are dicts and rows that are lists, such as "
            f"{next(row for row in rows.values() if not isinstance(row, Mapping))!r:.100}; give "
            "all in one form."
        )
    if True in kinds:
        values = list(dict.fromkeys(value for row in rows.values() for value in row))
        return Conditional(child, own, values, rows)
    return Conditional(child, own, None, rows)


def _numbers(child: Any, row: Any) -> Any:
    """Return a row with floats."""
    row = row.to_dict() if isinstance(row, pd.Series) else row
    try:
        if isinstance(row, Mapping):
            return {value: float(p) for value, p in row.items()}
        return [float(p) for p in row] if np.ndim(row) else float(row)
    except (TypeError, ValueError):
        raise ValueError(f"the table of {child!r} has {row!r:.100}; give numbers.") from None


def _row(parents: Sequence[Any], values: Sequence[Any]) -> str:
    return ", ".join(f"{p}={v}" for p, v in zip(parents, values, strict=True)) or "without parents"


def tabulated(table: Conditional, states: Mapping[Any, Sequence[Any]], normalize: bool) -> Array:
    """Return a table as an array, the parents' axes first; check that each row is whole."""
    child, parents = table.child, table.parents
    shape = tuple(len(states[name]) for name in [*parents, child])
    if isinstance(table.rows, np.ndarray):
        if table.rows.shape != shape:
            raise ValueError(
                f"the table of {child!r} has shape {table.rows.shape}; its parents "
                f"{parents!r:.200} and {child!r} have {shape} values."
            )
        result = table.rows.astype(np.float64)
    else:
        result = np.full(shape, np.nan)
        values = {name: Names(states[name]) for name in [*parents, child]}
        for key, row in table.rows.items():
            at = tuple(_place(values, p, v, child) for p, v in zip(parents, key, strict=True))
            if not isinstance(row, Mapping):
                if np.shape(row) != shape[-1:]:
                    raise ValueError(
                        f"the table of {child!r} has {np.size(row)} probabilities in row "
                        f"{_row(parents, key)}; {child!r} has {shape[-1]} values."
                    )
                row = dict(zip(states[child], row, strict=True))
            if not np.isnan(result[at]).all():
                raise ValueError(
                    f"the table of {child!r} has the row {_row(parents, key)} twice, under "
                    "names that mean the same; keep one."
                )
            for value, p in row.items():
                result[(*at, _place(values, child, value, child))] = p
    if normalize and len(result.reshape(-1, shape[-1])) > 1:
        _check_direction(table, result)
    sums = result.sum(axis=-1)
    wholes = (1.0, 100.0) if (result % 1.0).any() else (100.0,)  # counts may add up to 1
    most = [w for w in wholes if 0.5 <= np.mean(abs(sums / w - 1.0) <= _ROUNDED) < 1.0]
    for at in np.ndindex(shape[:-1]):
        _check_row(table, states, at, result[at], normalize, *most[-1:])
    total = result.sum(axis=-1, keepdims=True)
    return np.where(normalize | (abs(total - 1.0) > _EXACT), result / total, result)


def _check_direction(table: Conditional, result: Array) -> None:
    """Refuse to scale rows of probabilities that were scaled by column, as by pandas.crosstab."""
    columns, rows = result.sum(axis=tuple(range(result.ndim - 1))), result.sum(axis=-1)
    for whole in (1.0, 100.0):
        by_column, by_row = (abs(sums - whole) <= _ROUNDED * whole for sums in (columns, rows))
        if not by_column.all() or by_row.all() or not (result % 1.0).any():
            continue
        raise ValueError(
            f"the table of {table.child!r} sums to {whole:g} in each column, not in each row; it "
            f"holds probabilities of {table.parents!r:.100}. Give counts, or scale "
            'the rows first, as by pandas.crosstab(..., normalize="index").'
        )


def _place(values: Mapping[Any, Names], name: Any, value: Any, child: Any) -> int:
    place = values[name].find(value)
    if place is None:
        raise ValueError(
            f"the table of {child!r} has the value {value!r} of {name!r}, whose values are "
            f"{values[name].names!r:.200}; {did_you_mean(value, values[name].names)}".rstrip("; ")
        )
    return place


def _refuse_misspelt(table: Conditional) -> None:
    """Refuse values that differ in case only, and one that stands in place of what others have."""
    values, rows = table.values or [], table.rows
    alike = dict[str, Any]()
    for value in values:
        other = alike.setdefault(str(value).strip().casefold(), value)
        if other is not value:
            raise ValueError(
                f"the table of {table.child!r} has the values {other!r} and {value!r}; make them "
                f"one, or give state_names={{{table.child!r}: {values!r:.200}}} if they are two."
            )
    if not values or isinstance(rows, np.ndarray) or len(rows) < 2:
        return
    has = np.array([[value in row for value in values] for row in rows.values()])
    rare = len(values) - 1 - int(has.sum(axis=0)[::-1].argmin())  # the last one of those
    here = has[:, rare]
    lacking = [v for v, all_lack in zip(values, ~has[here].any(axis=0), strict=True) if all_lack]
    if not here.all() and lacking:
        where = _row(table.parents, list(rows)[int(here.argmax())])
        raise ValueError(
            f"the table of {table.child!r} has the value {values[rare]!r} in row {where}, which "
            f"lacks {lacking!r:.100}; {did_you_mean(values[rare], lacking)}give each row the same "
            "values, also those of probability 0."
        )


def _check_row(
    table: Conditional,
    states: Mapping[Any, Sequence[Any]],
    at: tuple[int, ...],
    row: Array,
    normalize: bool,
    most: float | None = None,
) -> None:
    """Check a row, in a table where most rows, but not all, may have the same sum."""
    child, parents = table.child, table.parents
    where = _row(parents, [states[p][i] for p, i in zip(parents, at, strict=True)])
    missing = [states[child][i] for i in np.flatnonzero(np.isnan(row)).tolist()]
    if missing:
        what = f"the values {missing!r:.100} of " if len(missing) < row.size else ""
        raise ValueError(
            f"the table of {child!r} lacks {what}row {where}, or has NaN there; give all rows. "
            "Of counts, table.unstack(fill_value=0) fills in those that were never met."
        )
    if not (row.min() >= 0.0 and row.max() < np.inf):
        raise ValueError(
            f"the table of {child!r} has the entry {row[~((row >= 0) & (row < np.inf))][0]} in row "
            f"{where}; probabilities are finite and not negative."
        )
    total = float(row.sum())
    if row.size == 1 and abs(total - 1.0) > LARGEST_DEFECT:
        raise ValueError(
            f"row {where} of the table of {child!r} has {total:.6g} for its only value, "
            f"{states[child][0]!r}; give all values, such as another one of probability 1 - p."
        )
    if normalize and total > 0.0:
        whole = 100.0 if total > 10.0 else 1.0
        near = _ROUNDED < abs(total / whole - 1.0) < _NEAR or (not parents and total < 1 - _ROUNDED)
        if most is not None:
            whole, near = most, abs(total / most - 1.0) > _ROUNDED
        if near and (most is not None or (row % 1.0).any()):
            warn(
                f"{f'row {where} of ' if parents else ''}the table of {child!r} sums to "
                f"{total:.6g}, which normalize=True scales; correct it if it should be {whole:g}"
                f"{', as in other rows' if most else ''}.",
                ModelWarning,
            )
        return
    if normalize:
        raise ValueError(
            f"row {where} of the table of {child!r} has nothing but zeros, so there is nothing to "
            "scale; give its probabilities, or add a little to all counts of the table."
        )
    if abs(total - 1.0) > LARGEST_DEFECT * (1.0 + 1e-9):
        raise ValueError(
            f"{f'row {where} of ' if parents else ''}the table of {child!r} sums to {total:.6g} "
            "instead of 1; correct it, or give normalize=True to scale each row."
            f"{'' if parents else ' If its rows are of a parent, name that in parents.'}"
        )


def _check_parents(tables: Mapping[Any, Conditional]) -> None:
    """Refuse parents without a table of their own, and circles."""
    for child, table in tables.items():
        strangers = [p for p in table.parents if p not in tables]
        if strangers:
            raise ValueError(
                f"{child!r} has the parent {strangers[0]!r}, which has no table; "
                f"{did_you_mean(strangers[0], tables)}give one for each variable. There are tables "
                f"for {[*tables]!r:.200}."
            )
    try:
        graphlib.TopologicalSorter({c: t.parents for c, t in tables.items()}).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(map(repr, error.args[1]))
        raise ValueError(f"the parents go in a circle: {circle}.") from None


def _values_of(table: Conditional) -> list[Any]:
    """Return the values of a variable as its table names them; numbers from 0 if it does not."""
    rows = table.rows
    first = rows if isinstance(rows, np.ndarray) else next(iter(rows.values()), ())
    values = [*range(np.shape(first)[-1])] if table.values is None else table.values
    if not values:
        raise ValueError(
            f"the table of {table.child!r} has no entries; give {_FORMS.format(table.child)}."
        )
    return values


def _refuse_stray(child: Any, table: Conditional, normalize: bool, sure: bool) -> None:
    """Refuse or tell columns that are hardly values; ``sure``: all are said to be values."""
    values, rows = table.values or [], table.rows
    if len(values) < 2 or isinstance(rows, np.ndarray):
        return
    given = np.array([[row.get(v, np.nan) for v in values] for row in rows.values()], float)
    rest = given.sum(axis=1, keepdims=True) - given
    close = [abs(rest - 1.0), abs(rest / 100.0 - 1.0), abs(rest / np.maximum(given, 1e-9) - 1.0)]
    needless, percents, totals = (np.all(part <= LARGEST_DEFECT, axis=0) for part in close)
    total = given.sum(axis=1)
    if any(np.all(abs(total / whole - 1.0) <= LARGEST_DEFECT) for whole in (1.0, 100.0)):
        return
    y_or_n = {"y", "n"} <= {str(v).lower() for v in values}
    broken = (given % 1.0 != 0.0).any(axis=0)
    for value, one, hundred, sum_of in zip(values, needless, percents, totals, strict=True):
        what = f"the table of {child!r} has the column {value!r}, "
        how = "; leave it out, or list it in state_names if it is a value."
        if len(values) > 2 and (one or hundred):
            raise ValueError(f"{what}without which each row sums to {1 if one else 100}{how}")
        if len(values) > 2 and len(rows) > 1 and sum_of:
            raise ValueError(f"{what}the sum of the others{how}")
        own = given[:, values.index(value)]
        alone = len(values) > 2 and broken.sum() == 1 and broken[values.index(value)]
        # The same number of cases in each row, as beside the number of those that had something.
        same = len(own) > 1 and np.ptp(own) == 0.0 and (given <= own[:, None]).all()
        called = _NO_VALUE.fullmatch(str(value).lower()) and not y_or_n
        if normalize and (called or alone or (same and np.ptp(given, axis=0).any())):
            warn(f"{what}which normalize=True takes for a value{how}", ModelWarning)
            sure = True
    if normalize and len(values) > 2 and not sure:
        warn(
            f"the values of {child!r} are taken from all columns beside the parents, "
            f"{values!r:.200}. Drop what is no value, or say that all are, by state_names.",
            ModelWarning,
        )


def _warn_of_order(table: Conditional, unsure: Container[Any], states: Mapping[Any, Any]) -> None:
    """Warn of arrays along variables, and rows of one, whose order pandas may have chosen."""
    axes = [*table.parents, table.child]
    if not isinstance(table.rows, np.ndarray):
        axes = axes[-1:] if table.values is None else []
    for name in axes:
        if name in unsure:
            warn(
                f"the table of {table.child!r} has numbers without the values of {name!r}, which "
                f"are taken to be {list(states[name])!r:.200}, as met in a pandas object. List "
                "this order in state_names of from_tables if it is right, or give values by name.",
                ModelWarning,
            )


def _scaled(normalize: bool | Iterable[Any], known: Collection[Any]) -> Collection[Any]:
    """Return the variables whose rows are scaled."""
    if isinstance(normalize, bool | np.bool_):
        return known if normalize else ()
    if isinstance(normalize, str) or not isinstance(normalize, Iterable):
        raise TypeError(f"normalize is {normalize!r:.100}; give True, False or a list of names.")
    for name in (names := plain([*normalize])):
        if name not in known:
            near = did_you_mean(name, known)
            raise ValueError(f"normalize names {name!r}, which has no table. {near}".rstrip())
    return names


class Whole(NamedTuple):
    """A conditional table, the parents' axes first."""

    parents: list[Any]
    values: list[Any]
    table: Array
    unsure: bool  # whether pandas may have chosen the order of the values


def _named(child: Any, given: Any, tables: Mapping[Any, Any]) -> list[Any]:
    """Return the parents of a variable as a list; a single one may be given as it is."""
    try:
        alone = isinstance(given, str) or (isinstance(given, Hashable) and given in tables)
        names = [given] if alone else plain(given)
        hash(tuple(names))
    except TypeError:
        raise TypeError(
            f"parents[{child!r}] is {given!r:.100}; give a list of names, as {[*tables][:1]!r:.80}."
        ) from None
    return names


def read(
    tables: Mapping[Any, Any],
    parents: Mapping[Any, Sequence[Any]],
    state_names: Mapping[Any, Iterable[Any]] | None,
    normalize: bool | Iterable[Any],
    of_slices: bool = False,
) -> dict[Any, Whole]:
    """Read all tables; of slices, those of (variable, 0) and (variable, 1)."""
    for what, given in (("tables", tables), ("parents", parents), ("state_names", state_names)):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{what} is {given!r:.100}; give a dict with variables as keys.")
    parents = {c: _named(c, own, tables) for c, own in parents.items() if own is not None}
    for name in parents.keys() - tables.keys():
        near = did_you_mean(name, tables) or f"there are {[*tables]!r:.200}."
        raise ValueError(f"parents names {name!r}, which has no table; {near}".rstrip())
    scaled = _scaled(normalize, tables)
    found = {c: conditional(c, given, parents.get(c), tables) for c, given in tables.items()}
    _check_parents(found)
    own, names = dict[Any, list[Any]](), {c: c[0] if of_slices else c for c in found}
    for key, listed in (state_names or {}).items():
        name, values = names.get(key, key), plain(listed)
        if own.setdefault(name, values) != values:
            raise ValueError(
                f"state_names gives {name!r} the values {own[name]} and {values}; all slices have "
                "the same values in the same order."
            )
    known = [*dict.fromkeys(names.values())]
    strangers = [name for name in own if name not in known]
    if strangers:
        raise ValueError(
            f"state_names names {strangers[0]!r}, which has no table; there are {known!r:.200}."
        )
    states, inner = {}, {parent for table in found.values() for parent in table.parents}
    for child, table in found.items():
        name = names[child]
        if name not in own:
            _refuse_misspelt(table)
            axes = getattr(tables[child], "axes", [])  # of frames
            sure = len(axes) < 2 or child in {*axes[1], *axes[0].names, *axes[1].names, *inner}
            _refuse_stray(child, table, child in scaled, sure)
        first = found[name, 0] if of_slices else table
        states[child] = own[name] if name in own else _values_of(first)
    unsure = {c for c, t in found.items() if t.by_pandas and names[c] not in own}
    for table in found.values():
        _warn_of_order(table, unsure, states)
    return {
        child: Whole(
            table.parents, states[child], tabulated(table, states, child in scaled), child in unsure
        )
        for child, table in found.items()
    }


def read_slices(
    tables: Mapping[Any, Any],
    parents: Mapping[Any, Sequence[Any]],
    state_names: Mapping[Any, Iterable[Any]] | None,
    normalize: bool | Iterable[Any],
) -> tuple[dict[Any, Whole], dict[Any, Whole]]:
    """Read the tables of the first slice and of later ones; parents are (variable, lag)."""
    for key in tables:
        if not (isinstance(key, tuple) and len(key) == 2 and key[1] in (0, 1)):
            raise ValueError(
                f"tables has the key {key!r}; give (variable, 0) for the first slice and "
                "(variable, 1) for further ones."
            )
        if (key[0], 0) not in tables:
            raise ValueError(f"tables has {key!r} but not {(key[0], 0)!r}; give the first slice.")
    found: tuple[dict[Any, Whole], ...] = {}, {}
    for (name, t), whole in read(tables, parents, state_names, normalize, True).items():
        late = [p for p in whole.parents if p[1] > t]
        if late:
            raise ValueError(f"{(name, t)!r} has the parent {late[0]!r}, of a later slice.")
        found[t][name] = whole._replace(parents=[(p, t - s) for p, s in whole.parents])
    first = {name: found[0][name] for name, _ in tables}
    return first, first | found[1]


def replaced(
    given: Any,
    names: Sequence[Any],
    states: Mapping[Any, Sequence[Any]],
    normalize: bool | Iterable[Any],
    known: Sequence[Any],
    unsure: Container[Any],
) -> Array:
    """Return a new table of the last of the named variables, given the others."""
    *parents, child = names
    try:
        table = conditional(child, given, parents, known)
    except ValueError as error:
        kept = f" replace keeps the parents, {parents!r:.200}; from_tables takes others."
        raise ValueError(f"{error}{kept if parents else ''}") from None
    _warn_of_order(table, unsure, states)
    return tabulated(table, states, child in _scaled(normalize, known))


def framed(
    names: Sequence[Any], states: Sequence[Sequence[Any]], table: Array
) -> pd.DataFrame | pd.Series:
    """Return a table with its names: values of parents by row, of the last variable by column."""
    columns = pd.Index(states[-1], name=names[-1], tupleize_cols=False)
    if len(names) == 1:
        return pd.Series(table, columns, name="p")
    rows = pd.Index(states[0], name=names[0], tupleize_cols=False)
    if len(names) > 2:
        rows = pd.MultiIndex.from_product(states[:-1], names=names[:-1])
    return pd.DataFrame(table.reshape(-1, len(columns)), rows, columns)
