"""
An energy-based model on torch
==============================

Any differentiable function of torch can be a log-density. Here it is a small convolutional network,
trained on handwritten digits with the sampler itself, and sampled by first-order proposals: one
gradient weighs all 64 pixels at once.
"""

# %%
# A log-density
# -------------
# One number per image: a bias for each pixel, and what a convolution and a layer of detectors add
# to it. The network gives log p up to a constant that nobody knows, nor needs to.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import softplus

from sklsb import LSBSampler, TorchTarget
from sklsb.datasets import load_digits

images = torch.as_tensor(load_digits().data, dtype=torch.float32)
torch.manual_seed(0)


class LogDensity(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.logit(images.mean(0), eps=0.01))
        self.parts = torch.nn.Conv2d(1, 24, 5)
        self.detectors = torch.nn.Linear(24 * 16, 128)

    def forward(self, x):
        parts = softplus(self.parts(2.0 * x.view(-1, 1, 8, 8) - 1.0)).flatten(1)
        return x @ self.bias + 0.5 * softplus(self.detectors(parts) - 1.0).sum(1)


log_prob = LogDensity()
target = TorchTarget(log_prob, n_sites=64)

# %%
# Training
# --------
# The gradient of the log-likelihood is that of the mean log p of data, less that of the mean log p
# of the model's own draws. Those come from persistent chains: with ``warm_start`` each ``fit`` goes
# on from the states where the last one stopped, for 10 more transitions. That is too few to forget
# where they were, so the training is approximate, as usual.

n_steps = 700
settings = {"fast": True, "n_flips": 4, "n_chains": 64, "random_state": 0}
chains = LSBSampler("barker", n_burn_in=10, warm_start=True, **settings)
optimizer = torch.optim.Adam(log_prob.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, n_steps)
for _ in range(n_steps):
    own = torch.as_tensor(chains.fit(target).state_, dtype=torch.float32)
    batch = images[torch.randint(len(images), (64,))]
    loss = log_prob(own).mean() - log_prob(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

# %%
# Sampling
# --------
# New chains start from noise. ``n_flips="auto"`` finds in the burn-in how many pixels are worth
# changing per gradient. The acceptance is exact, so these are draws of the network as it is.

sampler = LSBSampler("barker", fast=True, n_flips="auto", n_chains=40, random_state=0)
draws = sampler.fit(target).sample(10, thin=200)["x"].to_numpy()
stats = sampler.sample_stats_
with torch.no_grad():
    noise = log_prob(torch.randint(2, (1000, 64)).float()).mean()
    of_data = log_prob(images).mean()
print(f"flips per gradient {sampler.n_flips_}")
print(f"acceptance         {float(stats['acceptance_rate'].mean()):.2f}")
print(f"mean log p of data {of_data:.1f}, draws {float(stats['lp'].mean()):.1f}, noise {noise:.1f}")

# %%
# Many draws are digits and some are not: that is the network after some seconds of training, not
# the sampler.

rng = np.random.default_rng(0)
some = images[rng.choice(len(images), 20, replace=False)].reshape(-1, 8, 8)
rows = {"data": some, "draws": draws[:20, -1].reshape(-1, 8, 8)}
figure, axes = plt.subplots(4, 10, figsize=(10, 4.4), layout="constrained")
for (name, pictures), lines in zip(rows.items(), axes.reshape(2, 2, 10), strict=True):
    for axis, image in zip(lines.flat, pictures, strict=True):
        axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
    lines[0, 0].set_ylabel(name, rotation=0, ha="right", va="center")
