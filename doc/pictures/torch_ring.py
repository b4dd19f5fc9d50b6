"""A density on torch with a ring of states, and the draws of sixty-four chains."""

import matplotlib.pyplot as plt
import torch

from sklsb import LSBSampler, TorchTarget

places = torch.linspace(-1.5, 1.5, 48)


def log_prob(one_hot):  # of shape (n, 2, 48)
    across, up = (one_hot * places).sum(2).unbind(1)
    return -((torch.hypot(across, up) - 1.0) ** 2) / 0.02 + across


target = TorchTarget(log_prob, 2, 48)
sampler = LSBSampler("barker", fast=True, n_chains=64, random_state=0).fit(target)
x = sampler.sample(400, thin="auto")["x"].values.reshape(-1, 2)
counts = torch.zeros(48, 48)
counts.index_put_(tuple(torch.as_tensor(x.T).long()), torch.ones(len(x)), accumulate=True)
states = torch.cartesian_prod(torch.arange(48), torch.arange(48))
exact = torch.softmax(log_prob(torch.nn.functional.one_hot(states, 48).float()), 0).view(48, 48)

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
images = {"p, up to a constant": exact, f"{len(x)} draws": counts / len(x)}
for axis, (title, image) in zip(axes, images.items(), strict=True):
    axis.imshow(image.T, origin="lower", vmin=0, vmax=exact.max(), cmap="magma")
    axis.set(title=title, xticks=[], yticks=[], xlabel="variable 0")
axes[0].set_ylabel("variable 1")
