"""The monotonic network fitted to max{1, t}: Figure 11 of the paper.

From a random start, by gradient steps on the squared difference of the even parts at the knots.
"""

import numpy as np

from .first_version import MonotonicNetwork
from .report import columns, said, table

SIZES = {"full": {"seeds": 30, "steps": 5000}, "quick": {"seeds": 10, "steps": 2000}}


def fitted(form, seed, steps):
    """Return the network and its largest error of log g before and after."""
    rng = np.random.default_rng(seed)
    network = MonotonicNetwork(form)
    network = network.with_theta(network.theta + rng.standard_normal(network.theta.size))
    mean, square, errors = 0.0, 0.0, []
    for step in range(1, steps + 1):
        u = network.knots
        gap = np.where(u <= 8, network.even_part(u) - 0.5 * u, 0.0)  # the even part of max is u/2
        errors.append(float(np.abs(gap).max()))
        gradient = network.vjp(gap)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        slope = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        network = network.with_theta(network.theta - 0.01 * slope)
    return network, errors


def run(data, seeds, steps):
    rows, u = [], np.linspace(-8, 8, 161)
    for form in ("sum", "min"):
        for seed in range(seeds):
            network, errors = fitted(form, seed, steps)
            curve = network.log_g(u)
            rows.append(
                {
                    "form": form,
                    "seed": seed,
                    "before": errors[0],
                    "after": errors[-1],
                    "at_0": float(np.exp(network.log_g(-30.0))),
                    "log_g": curve.tolist(),
                }
            )
    return {"rows": rows, "u": u.tolist()}


def tables(result):
    cells = [
        [f'``MonotonicNetwork("{form}")``']
        + [said(columns(result["rows"], key, form=form), 3) for key in ("before", "after", "at_0")]
        for form in ("sum", "min")
    ]
    heads = ["network", "largest error of log g, before", "after", "g(0)"]
    return table(heads, cells)


def draw(result):
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 4), layout="constrained")
    t = np.exp(result["u"])
    for row in result["rows"]:
        axis.loglog(
            t, np.exp(row["log_g"]), color="C0" if row["form"] == "sum" else "C1", alpha=0.5
        )
    axis.loglog(t, np.maximum(1, t), "k--", label="max(1, t)")
    axis.set(xlabel="t", ylabel="g(t)", title="Figure 11")
    axis.legend()
    return figure
