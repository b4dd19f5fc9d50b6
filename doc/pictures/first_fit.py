"""The field of a first target, three of its draws and their mean."""

import matplotlib.pyplot as plt
import numpy as np

from sklsb import AutoSampler, Ising

field = np.linspace(-1.0, 1.0, 1600).reshape(40, 40)
target = Ising.lattice(field, coupling=0.3)
sampler = AutoSampler(random_state=0).fit(target)
x = sampler.sample(1000, thin="auto")["x"]

images = {"the field": field, "mean of the draws": x.mean(("chain", "draw"))}
images |= {f"draw {k} of chain {chain}": x[chain, k] for chain, k in ((0, 0), (0, 999), (1, 999))}
figure, axes = plt.subplots(1, 5, figsize=(10, 2.5), layout="constrained")
for axis, (title, image) in zip(axes, images.items(), strict=True):
    shown = axis.imshow(image, vmin=-1, vmax=1, cmap="cividis")
    axis.set_title(title, fontsize=10)
    axis.set(xticks=[], yticks=[])
figure.colorbar(shown, ax=axes, shrink=0.8)
