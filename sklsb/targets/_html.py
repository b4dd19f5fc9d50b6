"""What notebooks show of targets."""

from html import escape

import numpy as np

from sklsb.targets._names import Named


def target_html(target: Named) -> str:
    """Return the sizes of a target as a table."""
    k = target.cardinalities
    shape = " × ".join(map(str, target.shape))
    fewest, most = (int(k.min()), int(k.max())) if k.size else (0, 0)
    digits = float(np.log10(k).sum())
    rows = {
        "variables": f"{target.n_sites:,}" + (f" ({shape})" if len(target.shape) > 1 else ""),
        "dims": escape(", ".join(target.dims)),
        "values of each": f"{most}" if fewest == most else f"{fewest} to {most}",
        "states": f"{10**digits:,.0f}" if digits < 9 else f"10<sup>{digits:.0f}</sup>",
        "single changes": f"{int((k - 1).sum()):,}",
    }
    observed = target.observed_sites.size
    if observed:
        rows["observed"] = f"{observed:,}"
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{value}</td></tr>'
        for name, value in rows.items()
    )
    return f"<div><code>{escape(repr(target))}</code><table>{cells}</table></div>"
