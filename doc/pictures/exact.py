"""The work of an elimination, by how the variables are connected."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, exact


def grid(rows, cols, periodic=False):
    return Ising.lattice(np.zeros((rows, cols)), 0.3, periodic=periodic)


kinds = {
    "a chain": [grid(1, n) for n in (20, 100, 400, 1000)],
    "a strip of 6 rows": [grid(6, n) for n in (4, 16, 64, 160)],
    "an open grid": [grid(n, n) for n in (3, 6, 12, 18, 24, 30)],
    "a grid with joined edges": [grid(n, n, True) for n in (3, 6, 9, 12, 15, 18)],
    "all pairs": [Ising(np.ones((n, n)) - np.eye(n)) for n in (4, 8, 16, 24, 32)],
}
figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
for name, targets in kinds.items():
    work = [2.0 ** exact.elimination_cost(target).log2_work for target in targets]
    axis.plot([target.n_sites for target in targets], work, "o-", label=name)
axis.axhspan(1e11, 1e14, color="0.93")
axis.text(3.2, 3e11, "minutes and more", color="0.4")
axis.set(xscale="log", yscale="log", ylim=(10, 1e14), xlabel="variables", ylabel="table entries")
figure.legend(frameon=False, loc="outside right center")
axis.spines[["top", "right"]].set_visible(False)
