"""Seconds and memory of every sampler by the number of variables, from the table of the page."""

import re
from pathlib import Path

import matplotlib.pyplot as plt

table = Path("../measured/scale.inc").read_text(encoding="utf-8")
rows = re.split(r"^ *\* - ", table, flags=re.MULTILINE)[2:]
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharex=True, layout="constrained")
found = {}
for row in rows:
    name, sites, *cells = (cell.strip() for cell in re.split(r"\n *- ?", row.strip()))
    if cells[1] != r"\-":
        target, fit, sweeps, memory = (float(cell.replace(",", "")) for cell in cells[:4])
        n = 10 ** int(re.search(r"`(\d)`", sites)[1])
        found.setdefault(name.strip("`"), []).append((n, target + fit + sweeps, memory))
for k, (name, points) in enumerate(found.items()):
    n, seconds, memory = zip(*points, strict=True)
    style = {"marker": "os^vDPX"[k % 7], "markersize": 4, "color": f"C{k % 10}"}
    axes[0].loglog(n, seconds, label=name, **style)
    axes[1].loglog(n, memory, **style)
axes[0].loglog([1e4, 1e6], [1e-2, 1.0], ":", color="0.5", label="in proportion")
axes[0].set(xlabel="variables", ylabel="CPU seconds")
axes[1].set(xlabel="variables", ylabel="MB")
axes[1].set_yticks([300, 400, 600, 800], [300, 400, 600, 800])
axes[1].minorticks_off()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right")
