"""What the experiments share: runs of the paper's kind, means with errors, tables."""

import subprocess
import textwrap
from pathlib import Path

import numpy as np

from sklsb import LSBSampler, Network
from sklsb.diagnostics import paper_ess

# The paper's samplers make steps of one variable from uniform starts, and use what they learned.
STEPS = {"init": "uniform", "rejection_free": False, "factors": None, "blocks": None}
FIXED = ("barker", "sqrt", "min", "max")
BOUND = {"objective": "bound", "pilot": False}
EXACT = {"objective": "exact", "pilot": False}
FUNCTIONS = {name: (name, {}) for name in FIXED} | {
    "LSB 1": ("mixture", BOUND),
    "LSB 2": (Network(), BOUND),
    "LSB 1, exact": ("mixture", EXACT),
    "LSB 2, exact": (Network(), EXACT),
    "learned": ("learned", {}),
}


class MissingData(Exception):
    """Says which file is missing, and where to get it."""


def find(data, *names, where):
    """Return the first of the files that is in the folder of data, or one level below."""
    for folder in [] if data is None else [data, *sorted(Path(data).glob("*/"))]:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    place = "--data DIR was not given" if data is None else f"it is not in {data}"
    raise MissingData(f"{' or '.join(names)} is needed and {place}. Get it from {where}.")


def total(x):
    """Return the sum of the values of each state."""
    return x.reshape(len(x), -1).sum(axis=1, dtype=np.int64)


def paper_run(target, function, *, lags, chains, burn_in, settle, draws, seed):
    """Return the fitted sampler, what the paper measures, and the sums of the states drawn.

    ``settle`` transitions of the function for sampling follow the burn-in and are not counted.
    """
    balancing, more = function
    sampler = more.get("class", LSBSampler)(
        balancing,
        n_chains=chains,
        n_burn_in=burn_in,
        keep_burn_in=True,
        random_state=seed,
        **STEPS,
        **{name: value for name, value in more.items() if name != "class"},
    ).fit(target)
    moving = np.stack([total(x) for x in sampler.burn_in_["x"].values])
    settling = sampler.sample(settle, record={"sum": total})["sum"].values
    sums = sampler.sample(draws, record={"sum": total})["sum"].values
    trace = np.concatenate([moving, settling], axis=1).mean(axis=0)
    come = (trace - trace[0]) / (sums.mean() - trace[0]) >= 0.95
    sizes = paper_ess(sums, lags)
    return (
        sampler,
        {
            "seed": seed,
            "ess": float(sizes.mean()),
            "ess_sd": float(sizes.std(ddof=1)),
            "acceptance": float(sampler.sample_stats_["acceptance_rate"].mean()),
            # Burn-in: the iteration at which the mean sum has come 95% of its way.
            "hit95": int(come.argmax()) + 1 if come.any() else None,
            "trace": trace[:: max(1, trace.size // 250)].round(2).tolist(),
        },
        sums,
    )


def columns(rows, key, **where):
    """Return the values of a key in the rows that fit, without those that are None."""
    fit = [row for row in rows if all(row[name] == value for name, value in where.items())]
    return np.array([row[key] for row in fit if row[key] is not None], dtype=float)


def mean_error(values):
    """Return the mean over seeds and its standard error."""
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return float(values.mean()), float(error)


def said(values, digits=2):
    """Return "mean ± standard error" over seeds; digits < 0: three leading digits of the mean."""
    if not values.size:
        return "never"
    mean, error = mean_error(values)
    if digits < 0:
        digits = max(0, 2 - int(np.floor(np.log10(max(abs(mean), 1e-6)))))
    return f"{mean:,.{digits}f}" + ("" if np.isnan(error) else f" ± {error:,.{digits}f}")


def beside(values, mean, sd, n):
    """Return cells: the published mean over n chains, ours, and how far apart in their errors."""
    own, error = mean_error(values)
    far = (own - mean) / np.hypot(error, sd / np.sqrt(n))
    return [f"{mean:.2f} ± {sd / np.sqrt(n):.2f}", said(values), f"{far:+.1f}"]


def table(heads, rows):
    """Return a table in reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [heads, *rows]:
        lines += [f"   {'*' if k == 0 else ' '} - {cell}" for k, cell in enumerate(row)]
    return "\n".join([*lines, ""])


def commit():
    """Return the commit of the working tree, with a + if the code differs from it."""
    root = Path(__file__).parents[2]

    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=root).stdout

    changed = git("status", "--porcelain", "--", "sklsb", "benchmarks")
    return (git("rev-parse", "--short", "HEAD").strip() or "unknown") + "+" * bool(changed)


def page(command, result, tables):
    """Return tables with how they were made, for the directive ``measured``."""
    numbers = {key: value for key, value in result["size"].items() if isinstance(value, int)}
    size = ", ".join(f"{key} {value:,}" for key, value in numbers.items())
    head = f".. measured:: {command}\n   :date: {result['date']}\n   :commit: {result['commit']}\n"
    if "processor" in result:
        head += f"   :processor: {result['processor']}\n"
    script = f"benchmarks/paper/{command.split()[3]}.py"
    head += f"   :sources: {script} sklsb/_kernels/rules sklsb/balancing\n"
    below = textwrap.indent(f"{tables}\nWith {size}.", "   ")
    return f"{head}\n{below}\n"
