"""Two networks of the UAI competition of 2006: Table 3 and Figures 5, 7 and 10 of the paper.

MN 1 and MN 2 are BN_1 and BN_8, here without evidence. A seed is one run of all chains.
"""

import numpy as np

from sklsb import MarkovNetwork
from sklsb.diagnostics import autocorrelation

from .first_version import FirstVersion, MonotonicNetwork
from .report import FIXED, FUNCTIONS, beside, columns, find, paper_run, said, table

SIZES = {
    "full": {"seeds": 30, "chains": 5, "draws": 10_000, "burn_in": 500, "settle": 500},
    "quick": {"seeds": 8, "chains": 5, "draws": 10_000, "burn_in": 500, "settle": 500},
}
LAGS = 400
# All three versions print the same table, so the objective and the network of the first made it.
FIRST = {"class": FirstVersion, "objective": "kl", "pilot": False}
RUNS = {name: FUNCTIONS[name] for name in FIXED} | {
    "LSB 1": ("mixture", FIRST),
    "LSB 2": (MonotonicNetwork("min"), FIRST),
    "LSB 2, MLP": FUNCTIONS["LSB 2"],  # Figure 10
    "learned": FUNCTIONS["learned"],
}
# Mean and sd over 5 chains.
PUBLISHED = {
    "BN_1": [(2.90, 0.76), (3.41, 0.77), (2.54, 0.32), (2.70, 0.63), (3.19, 0.46), (3.22, 0.38)],
    "BN_8": [(3.43, 0.75), (3.92, 0.94), (3.78, 0.50), (3.63, 0.67), (3.52, 0.42), (3.44, 0.44)],
}
NAMES = (*FIXED, "LSB 1", "LSB 2")
WHERE = (
    "the UAI evaluations of 2006 (BN_*: http://sli.ics.uci.edu/~ihler/uai-data) and 2014 (the "
    "others, with their .evid files)"
)


def network(data, name):
    """Return a network, with the evidence of the competition if that is there."""
    path = find(data, f"{name}.uai", where=WHERE)
    evidence = path.with_name(f"{name}.uai.evid")
    return MarkovNetwork.from_uai(path, evidence if evidence.is_file() else None)


def run(data, seeds, names=("BN_1", "BN_8"), **size):
    targets = {name: network(data, name) for name in names}
    rows, decays = [], {}
    for name, target in targets.items():
        for seed in range(seeds):
            for function, setting in RUNS.items():
                _, row, sums = paper_run(target, setting, lags=LAGS, seed=seed, **size)
                rows.append({"network": name, "name": function} | row)
                if seed:
                    del rows[-1]["trace"]
                else:
                    decay = autocorrelation(sums, LAGS).mean(axis=0)
                    decays[f"{name}, {function}"] = decay[::5].round(4).tolist()
    return {"rows": rows, "decays": decays}


def tables(result):
    cells = []
    for name in dict.fromkeys(row["network"] for row in result["rows"]):
        for k, function in enumerate(RUNS):
            here = {"network": name, "name": function}
            sizes = columns(result["rows"], "ess", **here)
            own = ["", said(sizes), ""]
            if function in NAMES and name in PUBLISHED:
                own = beside(sizes, *PUBLISHED[name][k], 5)
            acceptance = said(columns(result["rows"], "acceptance", **here), 3)
            cells.append([f"{name}: {function}", *own, acceptance])
    return table(["network: function", "published", "ours", "apart", "accepted"], cells)


def draw(result):
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["network"] for row in result["rows"]))
    figure, axes = plt.subplots(2, len(names), figsize=(11, 6), layout="constrained", squeeze=False)
    n_transitions = result["size"]["burn_in"] + result["size"]["settle"]
    for (above, below), name in zip(axes.T, names, strict=True):
        for row in result["rows"]:
            if row["network"] == name and "trace" in row:
                at = np.linspace(0, n_transitions, len(row["trace"]))
                above.plot(at, row["trace"], label=row["name"], linewidth=1)
                decay = result["decays"][f"{name}, {row['name']}"]
                below.plot(5 * np.arange(len(decay)), decay, linewidth=1)
        above.set(title=f"{name}: Figures 5 and 10", xlabel="transitions", ylabel="mean sum")
        below.set(xlabel="lag", ylabel="autocorrelation of the sum")
    above.legend(fontsize="x-small", ncols=2)
    return figure
