"""Short tables of HTML, as notebooks show objects."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import xarray as xr

# Characters of a cell, and rows.
_MOST_SHOWN, _MOST_ROWS = 120, 30


def table(rows: Iterable[Sequence[Any]], header: Sequence[Any] = ()) -> str:
    """Return rows as a table whose first column names the row."""

    def cells(kind: str, row: Sequence[Any]) -> str:
        texts = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row]
        short = [t if len(t) <= _MOST_SHOWN else f"{t[:_MOST_SHOWN]} ..." for t in texts]
        return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in short)

    body = [f"<tr>{cells('th', row[:1])}{cells('td', row[1:])}</tr>" for row in rows]
    more = f"<p>and {len(body) - _MOST_ROWS} more</p>" if len(body) > _MOST_ROWS else ""
    head = f"<thead><tr>{cells('th', header)}</tr></thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(body[:_MOST_ROWS])}</tbody></table>{more}"


class Candidates(xr.Dataset):
    """What a race found, by candidate: notebooks show a table, the best first."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        if "candidate" not in self.dims:
            return str(super()._repr_html_())
        columns = [name for name in self.data_vars if self[name].dims == ("candidate",)]
        by = next(
            (name for name in ("ess_per_work", "ess_per_step") if name in columns), columns[0]
        )
        best = self.sortby(by, ascending=False)
        chosen = self.attrs.get("chosen")
        rows = [
            [
                f"{name} (chosen)" if name == chosen else name,
                *(best[c].values[k].item() for c in columns),
            ]
            for k, name in enumerate(best["candidate"].values)
        ]
        return table(rows, ["candidate", *columns])
